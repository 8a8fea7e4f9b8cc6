//! Hooks with which a server deviates from a well-behaved one.

use std::fmt::Debug;

use serde_json::Value;

use super::output;
use super::server::{Request, Server};

/// How a server deviates from a well-behaved one. Every default is well-behaved.
pub trait ServerHooks: Debug + Send + Sync + 'static {
    /// The server's name.
    fn name(&self) -> &'static str;

    /// Called before the server handles a request. Returns false if the request needs no further
    /// handling.
    fn serves(&self, server: &Server, request: &Request) -> bool {
        let _ = (server, request);
        true
    }

    /// Called before the server handles a notification.
    fn on_notification(&self, server: &Server, method: &str, params: &Value) {
        let _ = (server, method, params);
    }

    /// Additional tools. Calls of them go to [`ServerHooks::serves`].
    fn tools(&self) -> Vec<Value> {
        Vec::new()
    }

    /// Sends a reply.
    fn answer(&self, request: &Request, result: Value) {
        output::answer(&request.id, result);
    }
}

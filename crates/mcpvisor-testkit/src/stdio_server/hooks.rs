//! How a server differs from a good one.

use std::fmt::Debug;

use serde_json::Value;

use super::output;
use super::server::{Request, Server};

/// How a server differs from a well-behaved one. Every default is well-behaved.
pub trait ServerHooks: Debug + Send + Sync + 'static {
    /// Who the server says it is.
    fn name(&self) -> &'static str;

    /// Takes a request before the server does. False: it has been dealt with, or never will be.
    fn serves(&self, server: &Server, request: &Request) -> bool {
        let _ = (server, request);
        true
    }

    /// Hears a notification, before the server does.
    fn on_notification(&self, server: &Server, method: &str, params: &Value) {
        let _ = (server, method, params);
    }

    /// Tools in addition to the usual ones. PendingCalls of them come to [`ServerHooks::serves`].
    fn tools(&self) -> Vec<Value> {
        Vec::new()
    }

    /// Sends an answer.
    fn answer(&self, request: &Request, result: Value) {
        output::answer(&request.id, result);
    }
}

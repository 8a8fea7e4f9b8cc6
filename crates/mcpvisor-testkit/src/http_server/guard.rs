//! A check of each request before the server acts on it.

use std::fmt::Debug;

use serde_json::Value;

use super::record::Received;
use super::wire_reply::WireReply;

/// Decides about each request before anything runs: before sessions, faults and side effects.
pub(crate) trait RequestGuard: Debug + Send + Sync {
    /// The reply to a request that the server must not see; `None` lets it pass. `message` is the
    /// JSON-RPC message; null if there is none.
    fn intercept(&self, request: &Received, message: &Value) -> Option<WireReply>;

    /// Further headers of the next response, whatever it is.
    fn response_headers(&self) -> Vec<(&'static str, String)>;
}

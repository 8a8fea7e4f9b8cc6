//! What the server saw and did.

use std::collections::BTreeMap;

use serde_json::Value;

/// One HTTP request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// POST, GET or DELETE.
    pub http_method: String,
    /// The requested path.
    pub path: String,
    /// The method of the JSON-RPC message; empty if there is none.
    pub method: String,
    /// Its id; null if there is none.
    pub id: Value,
    /// All headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// When it came, in milliseconds since the server was made.
    pub at_ms: u64,
}

impl Received {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Everything since the server was made.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) connects: u64,
    /// Connections that are open now.
    pub(super) open: u64,
    pub(super) sessions_opened: u64,
    pub(super) sessions_deleted: u64,
    pub(super) received: Vec<Received>,
    /// Faults injected into requests of each method.
    pub(super) injected: BTreeMap<String, u64>,
    /// What was wrong with requests of 2026-07-28.
    pub(super) complaints: Vec<String>,
    /// Calls whose clients left before the answer.
    pub(super) abandoned_calls: u64,
    /// How often each side effect ran.
    pub(super) runs: BTreeMap<String, u64>,
    /// What was received at the other origin, as it came.
    pub(super) other_origin: Vec<String>,
}

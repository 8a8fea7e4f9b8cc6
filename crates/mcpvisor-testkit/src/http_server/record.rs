//! The server's record of requests and side effects.

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
    /// Arrival time, in milliseconds since the server was created.
    pub at_ms: u64,
}

impl Received {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Everything since the server was created.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) connects: u64,
    pub(super) open: u64,
    pub(super) sessions_opened: u64,
    pub(super) sessions_deleted: u64,
    pub(super) received: Vec<Received>,
    /// Faults injected into requests of each method.
    pub(super) injected: BTreeMap<String, u64>,
    /// Protocol errors in requests of 2026-07-28.
    pub(super) complaints: Vec<String>,
    /// Calls whose clients disconnected before the reply.
    pub(super) abandoned_calls: u64,
    /// How often each side effect ran.
    pub(super) runs: BTreeMap<String, u64>,
    /// What the other origin received, verbatim.
    pub(super) other_origin: Vec<String>,
}

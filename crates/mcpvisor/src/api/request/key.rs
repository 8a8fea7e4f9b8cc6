//! The id of a request within its runtime.

use std::fmt;

/// The id of a request, unique within its runtime. It ties what a server sends to the request that
/// caused it: [`Request::key`](crate::Request::key), [`Incoming::cause`](crate::Incoming).
///
/// It stays the same through retries, reconnects and input rounds, unlike the id on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestKey(u64);

impl RequestKey {
    pub(crate) fn new(number: u64) -> Self {
        Self(number)
    }
}

impl fmt::Display for RequestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

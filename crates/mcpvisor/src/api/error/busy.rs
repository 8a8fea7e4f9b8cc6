//! The limits that refuse a request before it is sent.

use std::fmt;
use std::time::Duration;

/// The limit that refuses a request as [busy](super::CallError::Busy).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BusyLimit {
    /// The server has this many calls in flight or queued.
    ServerQueue(usize),
    /// The client has this many requests waiting for its quota.
    ClientQueue(usize),
    /// The client made as many requests as its quota allows per time.
    ClientRate,
}

impl BusyLimit {
    pub(super) fn remedy(self) -> &'static str {
        match self {
            Self::ServerQueue(_) => ", or raise limits.waiting",
            Self::ClientQueue(_) | Self::ClientRate => "",
        }
    }
}

impl fmt::Display for BusyLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ServerQueue(limit) => write!(f, "{limit} calls are in flight or queued"),
            Self::ClientQueue(limit) => {
                write!(
                    f,
                    "{limit} requests of this client are waiting for its quota"
                )
            }
            Self::ClientRate => f.write_str("the client's rate limit is reached"),
        }
    }
}

/// When to try again.
pub(super) fn when(retry_in: Option<Duration>) -> String {
    match retry_in {
        Some(wait) => format!("in about {} s", wait.as_secs_f64().ceil().max(1.0)),
        None => "later".to_owned(),
    }
}

//! Servers that require authorization: tokens that expire, are refused or cannot be renewed, logins
//! of other processes, and hostile authorization servers. Sockets, state folder and runtime are real.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

#[path = "../fleet/mod.rs"]
mod fleet;

mod audience;
mod browser;
mod client_credentials;
mod dpop;
mod expiry;
mod folder;
mod headers_helper;
mod hostile;
mod http_sse;
mod lost_answer;
mod outage;
mod processes;
mod protected;
mod refusal;
mod rejection;
mod shutdown;
mod unsaved;

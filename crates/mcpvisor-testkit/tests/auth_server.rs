//! The authorization server of the test kit, with a plain HTTP client: every flow, the life of
//! tokens, and what each fault does.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed expectation of a test is a panic"
)]

#[path = "auth_server/dpop.rs"]
mod dpop;
#[path = "auth_server/faults.rs"]
mod faults;
#[path = "auth_server/flows.rs"]
mod flows;
#[path = "auth_server/plain_client.rs"]
mod plain_client;
#[path = "auth_server/program.rs"]
mod program;
#[path = "auth_server/protected.rs"]
mod protected;
#[path = "auth_server/tokens.rs"]
mod tokens;

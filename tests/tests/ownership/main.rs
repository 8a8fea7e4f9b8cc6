//! Which task opens and closes a connection, what waits for what, and the isolation of crashes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

#[path = "../fleet/mod.rs"]
mod fleet;

mod control_requests;
mod crashes;
mod events;
mod readiness;
mod stuck;
mod tasks;

//! Who opens and closes a connection, who waits for whom, and what a crash means to the others.

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

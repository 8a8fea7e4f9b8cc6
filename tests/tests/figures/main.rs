//! The figures of reliability that need the whole runtime: faults and loads, and what is promised
//! of them. `MCPVISOR_FULL=1` runs them at full size; the others are what every change has to pass.
//! A control runs the same check on something that is wrong, and must see it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

mod budget;
mod draining;
mod endurance;
#[path = "../fleet/mod.rs"]
mod fleet;
mod kills;
mod neighbours;
mod queue_limit;

use std::time::Duration;

use fleet::{secs, size};

const MIB: u64 = 1024 * 1024;

/// Deadline of one figure in its own process.
fn limit() -> Duration {
    secs(size(60, 1_800) as u64)
}

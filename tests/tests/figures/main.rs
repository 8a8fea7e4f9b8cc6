//! The reliability figures that need the whole runtime: faults, loads, and their guarantees.
//! `MCPVISOR_FULL=1` runs them at full size; the default size is for every change. A control runs
//! the same check on a defect, and must detect it.

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

//! Shared by the simulations: a model that checks a machine, and a simulation that drives one.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses its own part of this"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "helpers of tests may fail the test"
)]

pub mod authorization;
pub mod effects;
pub mod invariants;
pub mod model;
pub mod mutation;
pub mod replies;
pub mod rng;
pub mod simulation;
pub mod task;
pub mod trace;
pub mod users;

/// A number from the environment, such as `100_000`.
pub fn from_env(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.replace('_', "").parse();
    Some(number.unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

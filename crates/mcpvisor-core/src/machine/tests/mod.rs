//! The transition table and the specifications of the machine.
//!
//! Each file covers one area; `harness` drives a machine by hand. Random histories and bounded
//! exploration are in the crate's `tests/`.

mod authorization;
mod budget;
mod call_failures;
mod calls;
mod first_attempt;
mod generations;
mod harness;
mod health;
mod listing;
mod login;
mod queueing;
mod restart;
mod retries;
mod situations;
mod sleep;
mod table;
mod teardown;

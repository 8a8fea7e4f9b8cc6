//! The transition table and the specifications of the machine.
//!
//! Each file holds the promises of one area; `bench` drives a machine by hand. Random histories and
//! bounded exploration are in the crate's `tests/`.

mod bench;
mod budget;
mod calls;
mod catalog;
mod first_attempt;
mod generations;
mod health;
mod restart;
mod retries;
mod situations;
mod sleep;
mod table;
mod teardown;
mod troubles;
mod waiting;

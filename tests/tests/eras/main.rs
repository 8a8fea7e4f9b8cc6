//! The protocol's eras, and what servers may ask of us in each.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]
#![allow(
    deprecated,
    reason = "what servers of the older protocol versions still ask for"
)]

#[path = "../fleet/mod.rs"]
mod fleet;

mod callbacks;

//! Authorization with parts that others wrote: Chromium, npm's `oidc-provider` and PyPI's `fastmcp`.
//!
//! `just peers` installs them and sets `MCPVISOR_PEERS`, and `MCPVISOR_CHROMIUM` if there is a
//! browser. Without these variables, each test reports that it was skipped.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "the helpers of a test fail as the test does, and say what they saw"
)]

#[path = "../common/mod.rs"]
mod common;

mod chromium;
mod expiry;
mod fastmcp_issuer;
mod oidc_provider;
mod peers;
mod process;
mod shop;
mod visit;

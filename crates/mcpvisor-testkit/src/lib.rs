//! Tools for mcpvisor's tests: waiting with a deadline, leak checks, scripted servers.
//!
//! Each tool can be used alone:
//!
//! - [`mod@eventually`]: waits for an event or a condition, with a deadline and a useful panic,
//!   instead of a fixed sleep.
//! - [`event_chain`]: follows the events of a runtime and reports violations.
//! - [`delay`]: a TCP proxy that adds latency and counts connections.
//! - [`isolated`]: runs one test in its own process, so that it counts only its own resources.
//! - [`leaks`]: compares the resources of this process (descriptors, children, zombies, memory,
//!   tasks) before and after.
//! - [`processes`]: finds the processes that a test started, even after reparenting.
//! - [`raw_client`]: a client on plain pipes, to inspect the bytes of a server.
//! - [`scripted`]: an MCP server on typed messages that follows a script, can be controlled while
//!   it runs, and records everything it receives.
//! - [`http_server`]: an MCP server over Streamable HTTP in the test's own process, with faults
//!   that can be injected while it runs, and counters.
//! - [`auth_server`]: an OAuth authorization server with faults, and an MCP server behind its
//!   tokens.
//! - [`stub_server`]: an HTTP server whose replies are given by the test, byte for byte.
//! - [`badserver`]: the program `mcpvisor-badserver`; every fault is a named switch.
//! - [`task_book`], [`task_server`]: tasks of both protocol versions, and a server over stdio that
//!   has them.
//! - [`tasks`]: counts the tasks that exist while a future runs.
//! - [`stdio_server`]: an MCP server over stdio, to build binaries from.

// The callers are tests, so the test kit reports by panicking.
#![allow(clippy::panic, reason = "a failed expectation of a test is a panic")]

mod armed_faults;
pub mod auth_server;
pub mod badserver;
pub mod delay;
pub mod event_chain;
pub mod eventually;
pub mod http_server;
pub mod isolated;
pub mod leaks;
pub mod processes;
pub mod raw_client;
pub mod scripted;
pub mod stdio_server;
pub mod stub_server;
pub mod task_book;
pub mod task_server;
pub mod tasks;

pub use eventually::{eventually, eventually_async, eventually_in};
pub use isolated::in_own_process;

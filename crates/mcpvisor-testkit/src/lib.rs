//! What mcpvisor's tests are made of: waiting with a deadline, leak checks, scripted connections.
//!
//! Each tool is usable alone:
//!
//! - [`mod@eventually`]: wait for an event or a condition, with a deadline and a useful panic,
//!   instead of sleeping for luck.
//! - [`event_chain`]: follows the events of a runtime and reports what cannot be true.
//! - [`delay`]: a TCP proxy that adds latency and counts connections.
//! - [`isolated`]: runs one test in its own process, so that it counts only its own resources.
//! - [`leaks`]: what this process holds (descriptors, children, zombies, memory, tasks), before and
//!   after.
//! - [`processes`]: who is left of the processes that a test started, wherever they moved.
//! - [`raw_client`]: a client on plain pipes, to inspect the bytes of a server.
//! - [`scripted`]: an MCP server on typed messages that follows a script, does what it is told in
//!   mid-flight, and keeps a record of all it received.
//! - [`http_server`]: an MCP server over Streamable HTTP in the test's own process, which is told to
//!   misbehave while it runs, and counts.
//! - [`stub_server`]: an HTTP server whose replies are given by the test, byte for byte.
//! - [`badserver`]: the program `mcpvisor-badserver`, every fault a named switch.
//! - [`tasks`]: how many tasks there are while something happens.
//! - [`stdio_server`]: an MCP server over stdio, to build binaries from.

// A test kit reports by panicking: its callers are tests.
#![allow(clippy::panic, reason = "a failed expectation of a test is a panic")]

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
pub mod tasks;

pub use eventually::{eventually, eventually_async, eventually_in};
pub use isolated::in_own_process;

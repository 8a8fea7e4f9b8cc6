//! MCP servers in the binary: the demo supervises them, and tests call them.
//!
//! They are plain rmcp servers and do not depend on mcpvisor.

mod clock;
mod journal;
mod lab;
mod notes;
mod orders;
mod serve;
mod weather;

pub(crate) use clock::Clock;
pub(crate) use journal::{Entry, Journal};
pub(crate) use serve::{BuiltinServer, run};

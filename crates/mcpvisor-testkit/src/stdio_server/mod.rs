//! An MCP server process over stdio, for tests.
//!
//! Written by hand on blocking threads, because it must start within a few milliseconds and because
//! its faults must be exact: what is written, what is withheld, and when it dies. This module is
//! the well-behaved server ([`Server`]); a binary customizes it with [`ServerHooks`].

mod hooks;
mod journal;
pub mod output;
mod pending_calls;
mod process;
mod server;
pub mod tools;

pub use hooks::ServerHooks;
pub use journal::{JOURNAL, write_journal_if_requested};
pub use pending_calls::{Cancelled, PendingCalls};
pub use process::{LINGER, ignore_sigterm, linger_if_requested, spawn_lingering};
pub use server::{Request, Server};
pub(crate) use server::{contents, greeting, prompt, resource, template};

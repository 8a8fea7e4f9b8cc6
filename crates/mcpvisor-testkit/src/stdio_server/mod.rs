//! An MCP server that is a process and speaks over stdio, for specifications.
//!
//! Written by hand on blocking threads, because it has to start within a few milliseconds and
//! because its faults must be exact: what is written, what is withheld, and when it dies. Here is
//! the well-behaved server ([`Server`]); a binary differs from it by its [`ServerHooks`].

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

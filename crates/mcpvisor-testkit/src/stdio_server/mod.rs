//! An MCP server that is a process and speaks over stdio, for specifications.
//!
//! Written by hand on blocking threads, because it has to start within a few milliseconds and
//! because its faults must be exact: what is written, what is withheld, and when it dies. Here is
//! the well-behaved server ([`Server`]); how a binary differs from it is said by its [`Manners`].

mod calls;
mod journal;
mod manners;
pub mod output;
mod process;
mod server;
pub mod tools;

pub use calls::{Calls, Cancelled};
pub use journal::{JOURNAL, write_journal_if_asked};
pub use manners::Manners;
pub use process::{LINGER, ignore_sigterm, linger_if_asked, spawn_lingering};
pub use server::{Request, Server};
pub(crate) use server::{contents, greeting, prompt, resource, template};

//! Pinned tools: definitions that a person approved, and tools that are held back until one does
//! (I4).
//!
//! [`approval`] decides what is held back; it is pure. The approved definitions live in a lock file
//! that a person can read and that processes with the same state folder share. It is never read or
//! written on an async worker.

mod approval;
mod diff;
mod lock;
mod store;

pub(crate) use approval::{Approval, check_tool};
pub use approval::{HeldReason, HeldTool};
pub use diff::DefinitionChange;
pub(crate) use lock::LockFile;
pub(crate) use store::PinStore;

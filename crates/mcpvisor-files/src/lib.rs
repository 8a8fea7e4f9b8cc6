//! Small private files: replaced atomically, locked between processes, every operation with a
//! timeout.
//!
//! What the files contain is left to their owners.

pub mod file_mark;
pub mod file_ops;
pub mod fingerprint;
pub mod lock_file;
mod private_file;
pub mod state_dir;

//! The config of a command: where it comes from, which of its entries cannot be used, and where state
//! is stored.

pub(crate) mod source;
pub(crate) mod state_dir;

//! One server: its lasting slot, its actor, and what is said to it.

pub(crate) mod actor;
pub(crate) mod approve;
pub(crate) mod call;
pub(crate) mod configured;
pub(crate) mod message;
mod publish;
pub(crate) mod slot;

//! One server: its lasting slot, its actor, and what is said to it.

pub(crate) mod actor;
pub(crate) mod approve;
pub(crate) mod call;
pub(crate) mod configured;
mod effects;
pub(crate) mod entrance;
mod look;
pub(crate) mod message;
mod publish;
mod reports;
pub(crate) mod restoring;
pub(crate) mod slot;

//! One server: its lasting slot, its actor, and what is said to it.

pub(crate) mod active_config;
pub(crate) mod actor;
pub(crate) mod approve;
#[cfg(feature = "schema-check")]
pub(crate) mod argument_check;
pub(crate) mod call;
pub(crate) mod call_admission;
mod connection_events;
mod effects;
pub(crate) mod internal_requests;
mod list_processing;
pub(crate) mod message;
mod publish;
pub(crate) mod restore;
pub(crate) mod slot;

//! One server: its lasting slot, its actor, and the actor's messages.

pub(crate) mod active_config;
pub(crate) mod actor;
mod approvals;
pub(crate) mod call;
pub(crate) mod call_admission;
mod catalog_owner;
mod catalog_saving;
mod catalog_update;
pub(crate) mod client_slots;
mod connection_events;
pub(crate) mod connection_lock;
mod connection_place;
#[cfg(feature = "http")]
mod credential;
#[cfg(feature = "http")]
mod credential_secrets;
mod effects;
pub(crate) mod group;
pub(crate) mod held_tools;
pub(crate) mod internal_requests;
mod list_expiry;
mod list_processing;
pub(crate) mod message;
pub(crate) mod places;
mod public_catalog;
pub(crate) mod published;
pub(crate) mod restart_state;
mod restore;
#[cfg(feature = "schema-check")]
pub(crate) mod schema_check;
pub(crate) mod shared;
pub(crate) mod slot;
mod status;

//! State that survives a restart: the files in the state folder.

pub(crate) mod catalog_cache;
pub(crate) mod era_cache;
pub(crate) mod kept_tasks;
pub(crate) mod pins;
#[cfg(feature = "config-files")]
pub(crate) mod trust;

pub(crate) use mcpvisor_files::{file_ops, fingerprint, state_dir};

//! State that survives a restart: the state folder and its files.

pub(crate) mod catalog_cache;
pub(crate) mod era_cache;
pub(crate) mod file_ops;
pub(crate) mod fingerprint;
pub(crate) mod pins;
#[allow(
    dead_code,
    reason = "some features leave parts of the state folder unused"
)]
pub(crate) mod state_dir;
#[cfg(feature = "config-files")]
pub(crate) mod trust;

//! The folder in which things are kept from one run to the next.

use std::path::PathBuf;

use mcpvisor::Config;
use mcpvisor::config::{TrustStore, UserFolders};

/// The variable that names another one.
const VARIABLE: &str = "MCPVISOR_STATE_DIR";

/// The folder of this user: as the environment says, else after the XDG base directories.
pub(crate) fn default_dir() -> Option<PathBuf> {
    let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    named
        .map(PathBuf::from)
        .or_else(|| UserFolders::of_environment().state)
}

/// The folder of a fleet: the environment wins over the config, which wins over the default.
pub(crate) fn dir_for(config: &Config) -> Option<PathBuf> {
    match std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        Some(path) => Some(path.into()),
        None => config.state_dir.clone().or_else(default_dir),
    }
}

/// Which configs are trusted. A config has no say in where that is written down.
pub(crate) fn trust_store() -> Option<TrustStore> {
    default_dir().map(TrustStore::open)
}

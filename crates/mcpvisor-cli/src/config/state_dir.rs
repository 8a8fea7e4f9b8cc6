//! The folder for state that survives a run.

use std::path::PathBuf;

use mcpvisor::Config;
use mcpvisor::config::{TrustStore, UserFolders};

/// Overrides the default folder and the config's.
const VARIABLE: &str = "MCPVISOR_STATE_DIR";

/// The user's state folder: the variable, else the XDG base directory.
pub(crate) fn default_dir() -> Option<PathBuf> {
    named_dir().or_else(|| UserFolders::of_environment().state)
}

/// The state folder of a fleet: the variable, else the config, else the default.
pub(crate) fn dir_for(config: &Config) -> Option<PathBuf> {
    let configured = || config.state_dir.clone();
    named_dir().or_else(configured).or_else(default_dir)
}

fn named_dir() -> Option<PathBuf> {
    let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    named.map(PathBuf::from)
}

/// The store of trusted configs. A config cannot choose where it is.
pub(crate) fn trust_store() -> Option<TrustStore> {
    default_dir().map(TrustStore::open)
}

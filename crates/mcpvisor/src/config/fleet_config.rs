//! The config of a fleet.

use std::collections::BTreeMap;
use std::path::PathBuf;

use mcpvisor_core::{GovernorSettings, ServerName};

use super::{ConfigProblem, Location, ServerConfig};
use crate::api::status::ServerStatus;
#[cfg(feature = "auth")]
use crate::auth::StoreChoice;

/// The config of a fleet: its servers, and the problems of unusable entries.
///
/// ```
/// use mcpvisor::{Config, ServerConfig, Transport};
///
/// let files = ServerConfig::new("files", Transport::stdio("mcp-files").arg("."))?.required(true);
/// let config = Config::new().server(files);
/// assert_eq!(config.servers[0].name.as_str(), "files");
/// # Ok::<(), mcpvisor::InvalidServerName>(())
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Config {
    /// The servers, in the order of the config.
    pub servers: Vec<ServerConfig>,
    /// Errors of unusable entries, and warnings.
    pub problems: Vec<ConfigProblem>,
    /// Where the runtime saves protocol eras, catalogs and approved tools for the next run. Without
    /// it nothing is saved.
    pub state_dir: Option<PathBuf>,
    /// Limits of concurrent connects. The default depends on the machine.
    pub connects: Option<GovernorSettings>,
    /// Where tokens are stored.
    #[cfg(feature = "auth")]
    pub auth_store: Option<StoreChoice>,
    /// The positions of the servers that came from a file.
    pub origins: BTreeMap<ServerName, Location>,
}

impl Config {
    /// A fleet without servers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a server.
    #[must_use]
    pub fn server(mut self, server: ServerConfig) -> Self {
        self.servers.push(server);
        self
    }

    /// The entries that cannot be used, each once, as servers that need a person. An entry that a
    /// later one of the same name replaces is not among them.
    pub fn unusable_servers(&self) -> Vec<ServerStatus> {
        let mut found: Vec<ServerStatus> = Vec::new();
        for problem in &self.problems {
            let Some(name) = problem.excluded_server() else {
                continue;
            };
            let configured = self.servers.iter().any(|s| s.name.as_str() == name);
            if !configured && !found.iter().any(|s| s.name.as_str() == name) {
                found.push(ServerStatus::unusable(name, problem));
            }
        }
        found
    }

    /// Limits concurrent connects.
    #[must_use]
    pub fn connects(mut self, connects: GovernorSettings) -> Self {
        self.connects = Some(connects);
        self
    }

    /// Sets where tokens are stored.
    #[cfg(feature = "auth")]
    #[must_use]
    pub fn auth_store(mut self, store: StoreChoice) -> Self {
        self.auth_store = Some(store);
        self
    }

    /// Saves what the runtime learned in this folder, for the next run.
    #[must_use]
    pub fn state_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.state_dir = Some(folder.into());
        self
    }
}

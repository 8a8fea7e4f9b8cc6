//! Where a config comes from, and whether its commands may run.
//!
//! A config found in the working folder may come from a cloned repository: no server of it starts
//! before the user trusts it.

use std::path::{Path, PathBuf};

use mcpvisor::config::{ConfigProblem, ConfigSource, FoundConfig, Severity, Trust};
use mcpvisor::{Config, ServerConfig};

use crate::config::state_dir;
use crate::failure::Failure;

/// Where a config came from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Named(PathBuf),
    Found(FoundConfig),
}

impl Source {
    pub(crate) fn locate(named: Option<&Path>) -> Result<Self, Failure> {
        if let Some(path) = named {
            return Ok(Self::Named(path.to_owned()));
        }
        Config::find("").map(Self::Found).ok_or_else(|| {
            Failure::config(
                "no config found (mcpvisor.json, mcpvisor.toml or .mcp.json). Create one, or pass \
                 `--config FILE`.",
            )
        })
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Named(path) => path,
            Self::Found(found) => &found.path,
        }
    }

    pub(crate) fn is_named(&self) -> bool {
        matches!(self, Self::Named(_))
    }

    /// Reads the config without starting anything.
    pub(crate) fn read(&self) -> Result<Config, Failure> {
        parse(&self.text()?)
    }

    /// Reads the config and whether it is trusted. Both come from one read, because the file may
    /// change between two.
    pub(crate) fn read_with_trust(&self) -> Result<(Config, bool), Failure> {
        let text = self.text()?;
        let trusted = self.trust_of(&text) == Trust::Trusted;
        Ok((parse(&text)?, trusted))
    }

    /// Reads the config in order to start its servers. Fails unless the text that was read is trusted.
    pub(crate) fn read_to_start(&self) -> Result<Config, Failure> {
        let text = self.text()?;
        match self.trust_of(&text) {
            Trust::Trusted => parse(&text),
            trust => {
                let path = self.path().display();
                let why = match trust {
                    Trust::Changed => "changed since it was trusted",
                    _ => "is not trusted",
                };
                Err(Failure::untrusted(format!(
                    "{path} {why}. Review it, then run `mcpvisor trust`, or pass `--config {path}`."
                )))
            }
        }
    }

    /// The text of the config, secrets included.
    pub(crate) fn text(&self) -> Result<ConfigSource, Failure> {
        let read = match self {
            Self::Named(path) => ConfigSource::read(path),
            Self::Found(found) => found.read(),
        };
        read.map_err(Failure::unreadable)
    }

    /// Only a config found in the working folder needs trust.
    fn trust_of(&self, text: &ConfigSource) -> Trust {
        match self {
            Self::Found(found) if found.needs_trust() => {
                state_dir::trust_store().map_or(Trust::Unknown, |store| store.check(text))
            }
            Self::Named(_) | Self::Found(_) => Trust::Trusted,
        }
    }
}

/// Parses the text of a config.
pub(crate) fn parse(text: &ConfigSource) -> Result<Config, Failure> {
    let config = Config::from_source(text).map_err(Failure::unreadable)?;
    Ok(match state_dir::dir_for(&config) {
        Some(_) => config,
        None => without_pinned(config),
    })
}

/// Disables pinned servers if there is no state folder: without the approved definitions every tool
/// would be released.
fn without_pinned(mut config: Config) -> Config {
    let (pinned, servers) = config
        .servers
        .into_iter()
        .partition(|server| server.pin && server.enabled);
    config.servers = servers;
    let pinned: Vec<ServerConfig> = pinned;
    let message = "\"pin\" needs a state folder for approved tools. Set HOME, XDG_STATE_HOME or \
                   MCPVISOR_STATE_DIR, or \"stateDir\" in the config.";
    let problem =
        |server: ServerConfig| ConfigProblem::of(&server.name, Severity::Excluded, message);
    let problems = pinned.into_iter().map(problem);
    config.problems.extend(problems);
    config
}

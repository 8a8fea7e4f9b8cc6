//! Where a config comes from, and whether its commands may run.
//!
//! One that was only found in the working folder may have come with a cloned repository: nothing of
//! it is started before a person has trusted it.

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
                "there is no config here (mcpvisor.json, mcpvisor.toml or .mcp.json) nor in the \
                 user's config folder; name one with --config FILE",
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

    /// Reads it in order to show it.
    pub(crate) fn read(&self) -> Result<Config, Failure> {
        parse(&self.text()?)
    }

    /// Reads it in order to look at it, and says whether what was read may be started too: of a file
    /// that is read twice, the one text may be trusted and the other started.
    pub(crate) fn read_to_judge(&self) -> Result<(Config, bool), Failure> {
        let text = self.text()?;
        let trusted = self.standing(&text) == Trust::Trusted;
        Ok((parse(&text)?, trusted))
    }

    /// Reads it in order to start what it says: what was trusted is what is started, whatever
    /// happens to the file meanwhile.
    pub(crate) fn read_to_start(&self) -> Result<Config, Failure> {
        let text = self.text()?;
        match self.standing(&text) {
            Trust::Trusted => parse(&text),
            standing => {
                let path = self.path().display();
                let why = match standing {
                    Trust::Changed => "changed since it was trusted",
                    _ => "is not trusted",
                };
                Err(Failure::untrusted(format!(
                    "{path} {why}. Review it, then run `mcpvisor trust`, or pass `--config {path}`."
                )))
            }
        }
    }

    /// What it says, secrets included.
    pub(crate) fn text(&self) -> Result<ConfigSource, Failure> {
        let read = match self {
            Self::Named(path) => ConfigSource::read(path),
            Self::Found(found) => found.read(),
        };
        read.map_err(|error| Failure::unreadable(&error))
    }

    /// Whoever names a file, or wrote it into the own config folder, means it.
    fn standing(&self, text: &ConfigSource) -> Trust {
        match self {
            Self::Found(found) if found.needs_trust() => {
                state_dir::trust_store().map_or(Trust::Unknown, |store| store.check(text))
            }
            Self::Named(_) | Self::Found(_) => Trust::Trusted,
        }
    }
}

/// Reads the text of a config.
pub(crate) fn parse(text: &ConfigSource) -> Result<Config, Failure> {
    let config = Config::from_source(text).map_err(|error| Failure::unreadable(&error))?;
    Ok(match state_dir::dir_for(&config) {
        Some(_) => config,
        None => without_pinned(config),
    })
}

/// Without a folder nobody knows what was approved, and every tool of a pinned server would be
/// released: such a server cannot be used.
fn without_pinned(mut config: Config) -> Config {
    let (pinned, servers) = config
        .servers
        .into_iter()
        .partition(|server| server.pin && server.enabled);
    config.servers = servers;
    let pinned: Vec<ServerConfig> = pinned;
    let message = "is pinned, but there is no folder in which its approved tools are remembered; \
                   set HOME, XDG_STATE_HOME or MCPVISOR_STATE_DIR, or write \"stateDir\"";
    let problem =
        |server: ServerConfig| ConfigProblem::of(&server.name, Severity::LeftOut, message);
    let problems = pinned.into_iter().map(problem);
    config.problems.extend(problems);
    config
}

//! Loads a [`Config`] from a file or a text.

use std::path::Path;

use super::document::Document;
use super::redacted_excerpt::SourceText;
use super::variables::Variables;
use super::{ConfigError, json, toml};
use crate::config::{Config, ConfigSource};

/// Size limit of a config file, so that a wrong path (a device, a log) is an error.
pub const MAX_CONFIG_BYTES: u64 = 4 * 1024 * 1024;

impl Config {
    /// Reads a config file: TOML if it ends in `.toml`, JSON otherwise. `${VAR}` is taken from the
    /// environment of this process.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        Self::from_source(&ConfigSource::read(path.as_ref())?)
    }

    /// Like [`load`](Self::load), for a file that was already read.
    pub fn from_source(source: &ConfigSource) -> Result<Self, ConfigError> {
        Self::from_source_with(source, |name| std::env::var(name).ok())
    }

    /// Like [`from_source`](Self::from_source); `variable` looks up `${VAR}`.
    pub fn from_source_with(
        source: &ConfigSource,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        read(SourceText::of(source), Variables::new(&variable))
    }

    /// Reads a file without expanding `${VAR}`, for a person to review. It must not be started.
    pub(in crate::config) fn as_written(source: &ConfigSource) -> Result<Self, ConfigError> {
        read(SourceText::of(source), Variables::as_written())
    }

    /// Parses a config from JSON; `variable` looks up `${VAR}`.
    ///
    /// ```
    /// use mcpvisor::Config;
    ///
    /// let config = Config::from_json(
    ///     r#"{ "mcpServers": { "files": { "command": "mcp-files", "args": ["${ROOT}"] } } }"#,
    ///     |name| (name == "ROOT").then(|| "/srv".to_owned()),
    /// )?;
    /// assert!(config.problems.is_empty());
    /// # Ok::<(), mcpvisor::config::ConfigError>(())
    /// ```
    pub fn from_json(
        text: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        read(SourceText::new(None, text), Variables::new(&variable))
    }

    /// Parses a config from TOML; `variable` looks up `${VAR}`.
    ///
    /// ```
    /// use mcpvisor::Config;
    ///
    /// let text = r#"
    /// [mcp_servers.files]
    /// command = "mcp-files"
    /// reconnect = { attempts = 5, within = "2m" }
    /// "#;
    /// let config = Config::from_toml(text, |_| None)?;
    /// assert_eq!(config.servers[0].settings.budget.attempts, 5);
    /// # Ok::<(), mcpvisor::config::ConfigError>(())
    /// ```
    pub fn from_toml(
        text: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let mut text = SourceText::new(None, text);
        text.toml = true;
        read(text, Variables::new(&variable))
    }
}

fn read(mut text: SourceText<'_>, variables: Variables<'_>) -> Result<Config, ConfigError> {
    let (format, parsed) = match text.toml {
        true => ("TOML", toml::parse(text.text)),
        false => ("JSON", json::parse(text.text)),
    };
    let root = parsed.map_err(|error| ConfigError::Syntax {
        format,
        problem: error.problem,
        location: Box::new(text.locate(&error.span)),
    })?;
    text.set_tree(&root);
    Document::of(&root, &text)?.read(variables, &text)
}

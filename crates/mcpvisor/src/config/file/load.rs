//! Loads a [`Config`] from a file or a text.

use std::path::Path;

use super::document::Document;
use super::redacted_excerpt::SourceText;
use super::variables::Variables;
use super::{ConfigError, json, toml};
use crate::config::{Config, ConfigSource};

/// Size limit of a config file, so that a wrong path (a device, a log) is an error.
pub const MAX_CONFIG_BYTES: u64 = 4 * 1024 * 1024;

/// The format of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Toml,
}

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
        let format = match source.is_toml() {
            true => Format::Toml,
            false => Format::Json,
        };
        let variables = Variables::new(&variable);
        read(Some(source.path()), source.text(), format, variables)
    }

    /// Reads a file without expanding `${VAR}`, for a person to review. It must not be started.
    pub(in crate::config) fn as_written(source: &ConfigSource) -> Result<Self, ConfigError> {
        let format = match source.is_toml() {
            true => Format::Toml,
            false => Format::Json,
        };
        let variables = Variables::as_written();
        read(Some(source.path()), source.text(), format, variables)
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
        read(None, text, Format::Json, Variables::new(&variable))
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
        read(None, text, Format::Toml, Variables::new(&variable))
    }
}

fn read(
    file: Option<&Path>,
    source: &str,
    format: Format,
    variables: Variables<'_>,
) -> Result<Config, ConfigError> {
    let mut text = SourceText::new(file, source);
    text.toml = format == Format::Toml;
    let parsed = match format {
        Format::Json => json::parse(source),
        Format::Toml => toml::parse(source),
    };
    let root = parsed.map_err(|error| ConfigError::Syntax {
        format: match format {
            Format::Json => "JSON",
            Format::Toml => "TOML",
        },
        problem: error.problem,
        location: Box::new(text.locate(&error.span)),
    })?;
    text.set_tree(&root);
    Document::of(&root, &text)?.read(variables, &text)
}

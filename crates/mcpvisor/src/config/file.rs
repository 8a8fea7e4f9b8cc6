//! Reads the `mcpServers` object that many MCP clients share, from JSON with comments.
//!
//! One bad entry costs that server, not the fleet. What an entry may say is in [`entry`]; what is
//! done with it is the runtime's business.

mod duration;
mod entry;
mod fields;
mod jsonc;
mod variables;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Config, ConfigProblem, ConfigSource, ServerConfig, Severity};
use variables::Variables;

pub use duration::{InvalidDuration, MAX_DURATION, parse_duration};

/// No config file may be larger, so that a wrong path (a device, a log) ends in an error.
pub const MAX_CONFIG_BYTES: u64 = 4 * 1024 * 1024;

/// The key that holds the servers.
const SERVERS: &str = "mcpServers";

/// Why a config could not be read at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the config {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is larger than [`MAX_CONFIG_BYTES`].
    #[error("the config {} is larger than 4 MiB; is it the right file?", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The text is not JSON.
    #[error("the config is not valid JSON: {problem}")]
    Syntax {
        /// What was met, and where.
        problem: String,
        /// The line, from 1.
        line: usize,
        /// The column in bytes, from 1.
        column: usize,
    },
    /// The text is JSON, but not a config.
    #[error("the config {problem}")]
    Shape {
        /// What is missing or wrong.
        problem: String,
    },
    /// One of the errors above, in a file.
    #[error("{}: {source}", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        source: Box<ConfigError>,
    },
}

impl Config {
    /// Reads a config file; `${VAR}` is taken from the environment of this process.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        Self::from_source(&ConfigSource::read(path.as_ref())?)
    }

    /// Reads a config file that was read before; `${VAR}` is taken from the environment of this
    /// process.
    pub fn from_source(source: &ConfigSource) -> Result<Self, ConfigError> {
        Self::from_source_with(source, |name| std::env::var(name).ok())
    }

    /// Reads a config file that was read before; `variable` looks up `${VAR}`.
    pub fn from_source_with(
        source: &ConfigSource,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        Self::from_json(source.text(), variable).map_err(|error| ConfigError::InFile {
            path: source.path().to_owned(),
            source: Box::new(error),
        })
    }

    /// Reads the text of a config; `variable` looks up `${VAR}`.
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
        let variables = Variables::new(&variable);
        let mut config = Self::new();
        for (name, value) in entries(text)? {
            let (server, mut problems) = entry::read(&name, value, &variables);
            if let Some(server) = server {
                config.add_named(server, &mut problems);
            }
            config.problems.append(&mut problems);
        }
        Ok(config)
    }

    /// Adds a server; as in every other reader of JSON, the later of two entries counts.
    fn add_named(&mut self, server: ServerConfig, problems: &mut Vec<ConfigProblem>) {
        let earlier = self
            .servers
            .iter()
            .position(|known| known.name == server.name);
        if let Some(earlier) = earlier {
            self.servers.remove(earlier);
            problems.push(ConfigProblem {
                server: Some(server.name.to_string()),
                message: "is there twice; the later entry counts".to_owned(),
                severity: Severity::Warning,
            });
        }
        self.servers.push(server);
    }
}

/// The servers of the text, in its order, each as it was written.
fn entries(text: &str) -> Result<Vec<(String, Value)>, ConfigError> {
    let plain = jsonc::plain(text);
    let Ordered(top) = serde_json::from_str::<Ordered<&RawValue>>(&plain).map_err(unreadable)?;
    let Some((_, servers)) = top.iter().rev().find(|(key, _)| key == SERVERS) else {
        return Err(shape(missing_servers(&top)));
    };
    if !servers.get().starts_with('{') {
        return Err(shape(format!("must hold an object under {SERVERS:?}")));
    }
    let Ordered(servers) =
        serde_json::from_str::<Ordered<Value>>(servers.get()).map_err(unreadable)?;
    Ok(servers)
}

fn missing_servers(top: &[(String, &RawValue)]) -> String {
    let keys = top.iter().map(|(key, _)| key.as_str());
    match fields::nearest(SERVERS, keys) {
        Some(near) => format!("has no {SERVERS:?}; did you mean that by {near:?}?"),
        None => format!("has no {SERVERS:?} object"),
    }
}

fn shape(problem: String) -> ConfigError {
    ConfigError::Shape { problem }
}

/// Serde's words for a wrong shape quote the value, which may be a secret; those for wrong syntax
/// do not.
fn unreadable(error: serde_json::Error) -> ConfigError {
    if error.is_data() {
        return shape("must be one JSON object".to_owned());
    }
    ConfigError::Syntax {
        problem: error.to_string(),
        line: error.line(),
        column: error.column(),
    }
}

/// An object that keeps its order, and its keys when they are there twice.
struct Ordered<T>(Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Ordered<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = Ordered<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Ordered(entries))
            }
        }
        deserializer.deserialize_map(Entries(std::marker::PhantomData))
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;

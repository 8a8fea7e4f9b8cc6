//! Errors that keep a whole config from being read.

use std::io;
use std::path::{Path, PathBuf};

use crate::config::Location;

/// Why a config could not be read at all. It never holds a value of the config.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the config {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is larger than [`MAX_CONFIG_BYTES`](super::MAX_CONFIG_BYTES).
    #[error("the config {} is larger than 4 MiB; is it the right file?", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The text is not valid in its format.
    #[error("{location}: the config is not valid {format}: {problem}")]
    Syntax {
        /// The expected format: JSON, TOML or UTF-8.
        format: &'static str,
        /// What is wrong, and how to fix it.
        problem: String,
        /// Where.
        location: Box<Location>,
    },
    /// The text can be parsed, but is not a config.
    #[error("{location}: the config {problem}")]
    Shape {
        /// What is missing or wrong.
        problem: String,
        /// Where.
        location: Box<Location>,
    },
}

impl ConfigError {
    /// The error about a file that cannot be read.
    pub(crate) fn reading(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Read {
            path: path.to_owned(),
            source,
        }
    }

    /// The position of the error.
    pub fn location(&self) -> Option<&Location> {
        match self {
            Self::Read { .. } | Self::TooLarge { .. } => None,
            Self::Syntax { location, .. } | Self::Shape { location, .. } => Some(location),
        }
    }
}

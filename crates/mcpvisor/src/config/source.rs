//! The text of a config file, with where it came from.
//!
//! It is read once: what was looked at, hashed and trusted is what becomes a fleet, whatever
//! happens to the file meanwhile. What the text means is left to the reader.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use super::file::{ConfigError, MAX_CONFIG_BYTES, text_of};
use crate::state::file_ops::{FileOps, READ_TIMEOUT, open_regular};
use crate::state::fingerprint::sha256_hex;

/// Bounds the operations on files that are read before there is a runtime.
pub(super) static CONFIG_OPS: LazyLock<FileOps> = LazyLock::new(FileOps::default);

/// A config file as it was when it was read.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigSource {
    path: PathBuf,
    text: String,
}

impl ConfigSource {
    /// Reads a file, up to [`MAX_CONFIG_BYTES`]. A regular file that does not answer within 2 s is an
    /// error; the writer of a pipe is waited for.
    pub fn read(path: impl Into<PathBuf>) -> Result<Self, ConfigError> {
        let path = path.into();
        let failed = |source| ConfigError::Read {
            path: path.clone(),
            source,
        };
        let looked = path.clone();
        let look = move || std::fs::metadata(looked);
        let there = CONFIG_OPS.run_blocking(&path, READ_TIMEOUT, look);
        if there.map_err(failed)?.is_file() {
            let regular = path.clone();
            let read = move || Ok(Self::read_regular(regular));
            let read = CONFIG_OPS.run_blocking(&path, READ_TIMEOUT, read);
            return read.map_err(failed)?;
        }
        let text = text_in(&path, File::open(&path).map_err(failed)?)?;
        Ok(Self { path, text })
    }

    /// Reads a file; a pipe or a device is an error. Blocks, perhaps for ever: called within a file
    /// operation.
    pub(crate) fn read_regular(path: PathBuf) -> Result<Self, ConfigError> {
        let opened = open_regular(&path).map_err(|source| ConfigError::Read {
            path: path.clone(),
            source,
        });
        let text = text_in(&path, opened?)?;
        Ok(Self { path, text })
    }

    /// A text that was read elsewhere. The path says how it is written: TOML if it ends so, and
    /// JSON otherwise.
    pub fn new(path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            text: text.into(),
        }
    }

    /// Where it came from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The text, secrets included.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The SHA-256 of the text, in hexadecimal.
    pub fn fingerprint(&self) -> String {
        sha256_hex(self.text.as_bytes())
    }

    /// Whether it is TOML, by its name.
    pub(super) fn is_toml(&self) -> bool {
        let ending = self.path.extension();
        ending.is_some_and(|ending| ending.eq_ignore_ascii_case("toml"))
    }
}

/// The text may hold secrets, so it is not printed.
impl fmt::Debug for ConfigSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigSource")
            .field("path", &self.path)
            .field("bytes", &self.text.len())
            .finish()
    }
}

fn text_in(path: &Path, file: File) -> Result<String, ConfigError> {
    let failed = |source: io::Error| ConfigError::Read {
        path: path.to_owned(),
        source,
    };
    let mut bytes = Vec::new();
    let read = file
        .take(MAX_CONFIG_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if read as u64 > MAX_CONFIG_BYTES {
        return Err(ConfigError::TooLarge {
            path: path.to_owned(),
        });
    }
    text_of(path, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::test_folder::TestFolder;

    #[test]
    fn a_file_that_is_no_text_is_an_error_with_its_place() {
        let folder = TestFolder::new("encoding");
        let path = folder.path().join("mcp.json");
        std::fs::write(&path, b"{\n  // caf\xe9\n}").unwrap();
        let error = ConfigSource::read(&path).unwrap_err();
        let location = error.location().unwrap();
        assert_eq!((location.line, location.column), (2, 9));
        assert_eq!(location.file.as_deref(), Some(path.as_path()));
    }
}

//! The text of a config file and its path.
//!
//! The file is read once, so that the text that was reviewed and trusted is the text that is run,
//! even if the file changes meanwhile.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use super::file::{ConfigError, MAX_CONFIG_BYTES, text_of};
use crate::state::file_ops::{FileOps, READ_TIMEOUT, open_regular};
use crate::state::fingerprint::sha256_hex;

/// Runs an operation on a file that is read before there is a runtime, with a timeout.
pub(super) fn run_on<T: Send + 'static>(
    path: &Path,
    operation: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    static OPS: LazyLock<FileOps> = LazyLock::new(FileOps::default);
    let owned = path.to_owned();
    OPS.run_blocking(path, READ_TIMEOUT, move || operation(&owned))
}

/// The contents of a config file when it was read.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigSource {
    path: PathBuf,
    text: String,
}

impl ConfigSource {
    /// Reads a file of up to [`MAX_CONFIG_BYTES`]. A regular file that does not respond within 2 s
    /// is an error; for a pipe it waits for the writer.
    pub fn read(path: impl Into<PathBuf>) -> Result<Self, ConfigError> {
        let path = path.into();
        let metadata = run_on(&path, |path| path.metadata());
        if metadata.map_err(ConfigError::reading(&path))?.is_file() {
            let read = run_on(&path, |path| Ok(Self::read_regular(path.to_owned())));
            return read.map_err(ConfigError::reading(&path))?;
        }
        let file = File::open(&path).map_err(ConfigError::reading(&path))?;
        let text = text_in(&path, file)?;
        Ok(Self { path, text })
    }

    /// Reads a file; a pipe or a device is an error. May block forever: called within a file
    /// operation.
    pub(crate) fn read_regular(path: PathBuf) -> Result<Self, ConfigError> {
        let file = open_regular(&path).map_err(ConfigError::reading(&path))?;
        let text = text_in(&path, file)?;
        Ok(Self { path, text })
    }

    /// A text that the caller read. The extension of the path selects TOML or, otherwise, JSON.
    pub fn new(path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            text: text.into(),
        }
    }

    /// The path of the file.
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

    /// Whether it is TOML, by its extension.
    pub(super) fn is_toml(&self) -> bool {
        let ending = self.path.extension();
        ending.is_some_and(|ending| ending.eq_ignore_ascii_case("toml"))
    }
}

/// Omits the text, which may hold secrets.
impl fmt::Debug for ConfigSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigSource")
            .field("path", &self.path)
            .field("bytes", &self.text.len())
            .finish()
    }
}

fn text_in(path: &Path, file: File) -> Result<String, ConfigError> {
    let mut bytes = Vec::new();
    let read = file.take(MAX_CONFIG_BYTES + 1).read_to_end(&mut bytes);
    if read.map_err(ConfigError::reading(path))? as u64 > MAX_CONFIG_BYTES {
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
    fn a_file_that_is_not_utf_8_is_an_error_with_its_position() {
        let folder = TestFolder::new("encoding");
        let path = folder.path().join("mcp.json");
        std::fs::write(&path, b"{\n  // caf\xe9\n}").unwrap();
        let error = ConfigSource::read(&path).unwrap_err();
        let location = error.location().unwrap();
        assert_eq!((location.line, location.column), (2, 9));
        assert_eq!(location.file.as_deref(), Some(path.as_path()));
    }
}

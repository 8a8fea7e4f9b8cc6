//! How a record becomes the contents of a file.

use std::io;

use serde::Deserialize;

use crate::record::{CredentialRecord, RECORD_VERSION};

/// How a record becomes the contents of a file.
pub trait RecordEncoding: Send + Sync + 'static {
    /// The extension of the files, without a dot.
    const EXTENSION: &'static str;

    /// The name of the store, such as `file`.
    const STORE_NAME: &'static str;

    /// The contents of the file with this name.
    fn encode(&self, file_name: &str, record: &CredentialRecord) -> io::Result<Vec<u8>>;

    /// The record in a file.
    fn decode(&self, file_name: &str, contents: &[u8]) -> Result<CredentialRecord, RecordProblem>;
}

/// Why a file has no usable record. The text contains nothing of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordProblem {
    /// It was written by a newer version of this program.
    #[error("has version {version}, but this program reads only {RECORD_VERSION}")]
    NewerVersion {
        /// The version of the file.
        version: u32,
    },
    /// It cannot be parsed.
    #[error("is damaged at line {line}, column {column}")]
    Damaged {
        /// The line of the first error.
        line: usize,
        /// The column of the first error.
        column: usize,
    },
    /// Its record belongs to another credential than its name.
    #[error("contains another credential")]
    Misplaced,
    /// The key of the store does not decrypt it.
    #[error("is damaged or encrypted with another key than the keyring's")]
    Undecryptable,
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
}

impl RecordProblem {
    /// Keeps the position alone: the text of the error may quote a token.
    fn damaged(error: &serde_json::Error) -> Self {
        Self::Damaged {
            line: error.line(),
            column: error.column(),
        }
    }

    /// What makes the file readable again, if something may.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::NewerVersion { .. } => Some("update the program"),
            Self::Undecryptable => Some("restore the keyring"),
            Self::Io(_) => Some("correct the file"),
            Self::Damaged { .. } | Self::Misplaced => None,
        }
    }
}

/// Parses JSON and never quotes it in an error.
pub(super) fn parse<'c, T: Deserialize<'c>>(contents: &'c [u8]) -> Result<T, RecordProblem> {
    serde_json::from_slice(contents).map_err(|error| RecordProblem::damaged(&error))
}

/// Refuses a file of a newer version, whatever else it contains.
pub(super) fn check_version(contents: &[u8]) -> Result<u32, RecordProblem> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    match parse::<Versioned>(contents)?.version {
        version if version > RECORD_VERSION => Err(RecordProblem::NewerVersion { version }),
        version => Ok(version),
    }
}

/// JSON, readable by the owner of the file.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlainEncoding;

impl RecordEncoding for PlainEncoding {
    const EXTENSION: &'static str = "json";
    const STORE_NAME: &'static str = "file";

    fn encode(&self, _: &str, record: &CredentialRecord) -> io::Result<Vec<u8>> {
        Ok(serde_json::to_vec_pretty(record)?)
    }

    fn decode(&self, _: &str, contents: &[u8]) -> Result<CredentialRecord, RecordProblem> {
        check_version(contents)?;
        parse(contents)
    }
}

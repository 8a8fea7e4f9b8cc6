//! The files of a state folder that have records, and their names.
//!
//! The file of a credential is `<hash of server URL and account>-<hash of issuer and resource>`, its
//! lock file `<hash of server URL and account>.lock`.

use std::io;
use std::path::PathBuf;

use mcpvisor_files::fingerprint;
use mcpvisor_files::state_dir::StateDir;

use super::encoding::{RecordEncoding, RecordProblem};
use crate::record::CredentialKey;

/// The subfolder of the state folder.
pub(super) const FOLDER: &str = "credentials";

/// Hexadecimal digits of a hash in a file name: 128 bits.
const HASH_DIGITS: usize = 32;

/// A file that has no usable record. Only a logout removes it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the credential file {} {problem}; {}log out and log in again", .path.display(), or(.remedy))]
#[non_exhaustive]
pub struct UnreadableRecord {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub problem: String,
    /// What makes it readable again, if something may. Otherwise a new login is needed.
    pub remedy: Option<&'static str>,
}

fn or(remedy: &Option<&str>) -> String {
    remedy.map_or_else(String::new, |it| format!("{it}, or "))
}

impl UnreadableRecord {
    pub(super) fn new(path: PathBuf, problem: &RecordProblem) -> Self {
        Self {
            path,
            problem: problem.to_string(),
            remedy: problem.remedy(),
        }
    }

    /// Whether it is a file of this server and account.
    pub fn belongs_to(&self, server_url: &str, account: &str) -> bool {
        let name = self.path.file_name().and_then(|it| it.to_str());
        name.is_some_and(|it| it.starts_with(&account_hash(server_url, account)))
    }

    /// Whether it is the file of this credential.
    pub fn has_key(&self, key: &CredentialKey) -> bool {
        let stem = self.path.file_stem().and_then(|it| it.to_str());
        stem.is_some_and(|it| it == file_stem(key))
    }
}

#[cfg(test)]
impl UnreadableRecord {
    /// A file of this credential.
    pub(crate) fn of_key(key: &CredentialKey, problem: &str) -> Self {
        Self {
            path: file_stem(key).into(),
            problem: problem.to_owned(),
            remedy: None,
        }
    }
}

impl From<UnreadableRecord> for io::Error {
    fn from(problem: UnreadableRecord) -> Self {
        Self::new(io::ErrorKind::InvalidData, problem)
    }
}

/// The names of the record files that begin with a prefix. Other files are ignored.
pub(super) fn record_names<E: RecordEncoding>(
    state: &StateDir,
    prefix: &str,
) -> io::Result<Vec<String>> {
    let mut names = state.list(FOLDER, prefix)?;
    names.retain(|name| is_record_name(name, E::EXTENSION));
    Ok(names)
}

fn is_record_name(name: &str, extension: &str) -> bool {
    let is_hash = |text: &str| {
        text.len() == HASH_DIGITS
            && text
                .bytes()
                .all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'))
    };
    let stem = name
        .strip_suffix(extension)
        .and_then(|it| it.strip_suffix('.'));
    let hashes = stem.and_then(|it| it.split_once('-'));
    hashes.is_some_and(|(account, issuer)| is_hash(account) && is_hash(issuer))
}

pub(super) fn in_folder(name: &str) -> String {
    format!("{FOLDER}/{name}")
}

/// The name of the file of a credential.
pub(super) fn file_name<E: RecordEncoding>(key: &CredentialKey) -> String {
    format!("{}.{}", file_stem(key), E::EXTENSION)
}

fn file_stem(key: &CredentialKey) -> String {
    let account = account_hash(&key.server_url, &key.account);
    // An omitted resource differs from an empty one.
    let resource = key.resource.as_deref().map(str::as_bytes);
    let issuer = hash([key.issuer.as_bytes()].into_iter().chain(resource));
    format!("{account}-{issuer}")
}

/// What the names of all files of a server and account begin with.
pub(super) fn account_hash(server_url: &str, account: &str) -> String {
    hash([server_url.as_bytes(), account.as_bytes()])
}

fn hash<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> String {
    let fingerprint = fingerprint::of_parts(parts);
    let digits = fingerprint.trim_start_matches("sha256:").chars();
    digits.take(HASH_DIGITS).collect()
}

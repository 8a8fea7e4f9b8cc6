//! A store with one file per credential.
//!
//! The file of a credential is `<hash of server URL and account>-<hash of issuer and resource>`, its
//! lock file `<hash of server URL and account>.lock`. Every operation has a timeout, so a hung disk
//! blocks no caller. A file that cannot be read is neither deleted nor replaced.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use mcpvisor_files::file_ops::{READ_TIMEOUT, WRITE_TIMEOUT, read_regular};
use mcpvisor_files::fingerprint;
use mcpvisor_files::state_dir::StateDir;
use tracing::warn;

use super::encoding::{PlainEncoding, RecordEncoding, RecordProblem};
use super::{CredentialStore, LOCK_TIMEOUT, StoreLock, StoreMark};
use crate::record::{CredentialKey, CredentialRecord, RECORD_VERSION};

/// The subfolder of the state folder.
pub(super) const FOLDER: &str = "credentials";

/// Size limit of a file.
const MAX_RECORD_BYTES: u64 = 1024 * 1024;

/// Size of the file that shows whether the folder is writable: about that of a record.
const PROBE_BYTES: usize = 4 * 1024;

/// Hexadecimal digits of a hash in a file name: 128 bits.
const HASH_DIGITS: usize = 32;

/// One file per credential, mode 0600.
pub type FileStore = FolderStore<PlainEncoding>;

/// One file per credential in the subfolder `credentials` of a state folder. Clones share it.
pub struct FolderStore<E> {
    state: StateDir,
    encoding: Arc<E>,
    /// Files that others can read, each reported once.
    pub(super) exposed: Arc<Mutex<BTreeSet<String>>>,
}

/// A file that has no usable record.
#[derive(Debug, thiserror::Error)]
#[error("the credential file {} {problem}", .path.display())]
pub struct UnreadableRecord {
    /// The file.
    pub path: PathBuf,
    /// Why, and what to do.
    #[source]
    pub problem: RecordProblem,
}

impl From<UnreadableRecord> for io::Error {
    fn from(problem: UnreadableRecord) -> Self {
        Self::new(io::ErrorKind::InvalidData, problem)
    }
}

/// A record and when its file was written.
struct StoredRecord {
    record: CredentialRecord,
    written: SystemTime,
}

impl FileStore {
    /// The store of a state folder. Its folder is created by the first save.
    pub fn new(state: StateDir) -> Self {
        Self::with_encoding(state, PlainEncoding)
    }
}

impl<E> Clone for FolderStore<E> {
    fn clone(&self) -> Self {
        Self {
            state: self.state.clone(),
            encoding: Arc::clone(&self.encoding),
            exposed: Arc::clone(&self.exposed),
        }
    }
}

impl<E> fmt::Debug for FolderStore<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FolderStore")
            .field("folder", &self.state.path(FOLDER))
            .finish_non_exhaustive()
    }
}

impl<E: RecordEncoding> FolderStore<E> {
    pub(super) fn with_encoding(state: StateDir, encoding: E) -> Self {
        Self {
            state,
            encoding: Arc::new(encoding),
            exposed: Arc::default(),
        }
    }

    /// Runs an operation with a timeout. Operations with the same `path` are queued.
    fn run<T: Send + 'static>(
        &self,
        path: &str,
        within: Duration,
        operation: impl FnOnce(&Self) -> io::Result<T> + Send + 'static,
    ) -> BoxFuture<'static, io::Result<T>> {
        let (store, path) = (self.clone(), self.state.path(path));
        let ops = self.state.ops().clone();
        Box::pin(async move { ops.run(&path, within, move || operation(&store)).await })
    }

    /// The record in a file; `None` if the file does not exist.
    fn read(&self, name: &str) -> Result<Option<StoredRecord>, (SystemTime, UnreadableRecord)> {
        let file = in_folder(name);
        let path = self.state.path(&file);
        let mut written = SystemTime::UNIX_EPOCH;
        let mut read = || {
            let Some(mark) = self.state.mark(&file)? else {
                return Ok(None);
            };
            written = mark.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            if mark.is_exposed() {
                self.warn_exposed(name);
            }
            let contents = match read_regular(&path, MAX_RECORD_BYTES) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                contents => contents?,
            };
            let record = self.encoding.decode(name, &contents)?;
            match file_name::<E>(&record.key) == name {
                true => Ok(Some(record)),
                false => Err(RecordProblem::Misplaced),
            }
        };
        match read() {
            Ok(record) => Ok(record.map(|record| StoredRecord { record, written })),
            Err(problem) => Err((written, UnreadableRecord { path, problem })),
        }
    }

    fn warn_exposed(&self, name: &str) {
        let mut exposed = self.exposed.lock().unwrap_or_else(PoisonError::into_inner);
        if exposed.insert(name.to_owned()) {
            let file = self.state.path(&in_folder(name));
            warn!(file = %file.display(), "others can access this credential file; run chmod 600 on it and log in again if it may have been read");
        }
    }

    fn find_by_prefix(&self, prefix: &str) -> io::Result<Vec<CredentialRecord>> {
        let mut found = Vec::new();
        let mut unreadable = Vec::new();
        for name in record_names::<E>(&self.state, prefix)? {
            match self.read(&name) {
                Ok(record) => found.extend(record),
                Err(problem) => unreadable.push(problem),
            }
        }
        let newest = found.iter().map(|it| it.written).max();
        let newest_unreadable = unreadable.into_iter().max_by_key(|(written, _)| *written);
        if let Some((written, problem)) = newest_unreadable
            && newest.is_none_or(|newest| newest <= written)
        {
            return Err(problem.into());
        }
        found.sort_by_key(|it| std::cmp::Reverse((it.record.logged_in_at, it.written)));
        Ok(found.into_iter().map(|it| it.record).collect())
    }

    fn list_all(&self) -> io::Result<Vec<Result<CredentialRecord, String>>> {
        let names = record_names::<E>(&self.state, "")?;
        let all = names.iter().filter_map(|name| match self.read(name) {
            Ok(stored) => stored.map(|it| Ok(it.record)),
            Err((_, problem)) => Some(Err(problem.to_string())),
        });
        Ok(all.collect())
    }

    /// Replaces a file, unless it has a record that cannot be read.
    fn replace(&self, mut record: CredentialRecord) -> io::Result<()> {
        record.version = RECORD_VERSION;
        let name = file_name::<E>(&record.key);
        self.read(&name).map_err(|(_, problem)| problem)?;
        let contents = self.encoding.encode(&name, &record)?;
        if contents.len() as u64 > MAX_RECORD_BYTES {
            let problem = format!("a credential of more than {MAX_RECORD_BYTES} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        self.state.write(&in_folder(&name), &contents)
    }

    fn mark_of(&self, prefix: &str) -> io::Result<StoreMark> {
        let mut bytes = Vec::new();
        for name in record_names::<E>(&self.state, prefix)? {
            if let Some(mark) = self.state.mark(&in_folder(&name))? {
                bytes.extend_from_slice(name.as_bytes());
                bytes.extend_from_slice(&mark.to_bytes());
            }
        }
        Ok(StoreMark(bytes))
    }
}

impl<E: RecordEncoding> CredentialStore for FolderStore<E> {
    fn find(
        &self,
        server_url: &str,
        account: &str,
    ) -> BoxFuture<'static, io::Result<Vec<CredentialRecord>>> {
        let prefix = account_hash(server_url, account);
        self.run(&in_folder(&prefix.clone()), READ_TIMEOUT, move |store| {
            store.find_by_prefix(&prefix)
        })
    }

    fn list(&self) -> BoxFuture<'static, io::Result<Vec<Result<CredentialRecord, String>>>> {
        self.run(FOLDER, READ_TIMEOUT, Self::list_all)
    }

    fn save(&self, record: CredentialRecord) -> BoxFuture<'static, io::Result<()>> {
        let file = in_folder(&file_name::<E>(&record.key));
        self.run(&file, WRITE_TIMEOUT, move |store| store.replace(record))
    }

    fn remove(&self, key: &CredentialKey) -> BoxFuture<'static, io::Result<()>> {
        let name = file_name::<E>(key);
        self.run(&in_folder(&name.clone()), WRITE_TIMEOUT, move |store| {
            store.read(&name).map_err(|(_, problem)| problem)?;
            store.state.remove(&in_folder(&name)).map(drop)
        })
    }

    fn lock(&self, server_url: &str, account: &str) -> BoxFuture<'static, io::Result<StoreLock>> {
        let state = self.state.clone();
        let file = in_folder(&format!("{}.lock", account_hash(server_url, account)));
        Box::pin(async move {
            let lock = state.lock_file(&file, LOCK_TIMEOUT).await?;
            Ok(StoreLock::new(lock))
        })
    }

    fn mark(&self, server_url: &str, account: &str) -> BoxFuture<'static, io::Result<StoreMark>> {
        let prefix = account_hash(server_url, account);
        self.run(&in_folder(&prefix.clone()), READ_TIMEOUT, move |store| {
            store.mark_of(&prefix)
        })
    }

    fn check_writable(&self) -> BoxFuture<'static, io::Result<()>> {
        self.run(FOLDER, WRITE_TIMEOUT, |store| {
            store.state.check_writable(FOLDER, PROBE_BYTES)
        })
    }

    fn folder(&self) -> Option<PathBuf> {
        Some(self.state.path(FOLDER))
    }

    fn name(&self) -> &'static str {
        E::STORE_NAME
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
    let account = account_hash(&key.server_url, &key.account);
    // An omitted resource differs from an empty one.
    let resource = key.resource.as_deref().map(str::as_bytes);
    let issuer = hash([key.issuer.as_bytes()].into_iter().chain(resource));
    format!("{account}-{issuer}.{}", E::EXTENSION)
}

fn account_hash(server_url: &str, account: &str) -> String {
    hash([server_url.as_bytes(), account.as_bytes()])
}

fn hash<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> String {
    let fingerprint = fingerprint::of_parts(parts);
    let digits = fingerprint.trim_start_matches("sha256:").chars();
    digits.take(HASH_DIGITS).collect()
}

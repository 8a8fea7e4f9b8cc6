//! A store with one file per credential.
//!
//! Every operation has a timeout, so a hung disk blocks no caller. A file that cannot be read is
//! never replaced, and removed by a logout alone.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use mcpvisor_files::file_ops::{READ_TIMEOUT, WRITE_TIMEOUT, read_regular};
use mcpvisor_files::state_dir::StateDir;
use tracing::{info, warn};

use super::encoding::{PlainEncoding, RecordEncoding, RecordProblem};
use super::record_files::{
    FOLDER, UnreadableRecord, account_hash, file_name, in_folder, record_names,
};
use super::{CredentialStore, LOCK_TIMEOUT, StoreLock, StoreMark};
use crate::record::{CredentialKey, CredentialRecord, RECORD_VERSION};

/// Size limit of a file.
const MAX_RECORD_BYTES: u64 = 1024 * 1024;

/// Size of the file that shows whether the folder is writable: about that of a record.
const PROBE_BYTES: usize = 4 * 1024;

/// One file per credential, mode 0600.
pub type FileStore = FolderStore<PlainEncoding>;

/// One file per credential in the subfolder `credentials` of a state folder. Clones share it.
pub struct FolderStore<E> {
    state: StateDir,
    encoding: Arc<E>,
    /// Whether it was reported that others can access it.
    exposure_reported: Arc<AtomicBool>,
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
            exposure_reported: Arc::clone(&self.exposure_reported),
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
            exposure_reported: Arc::default(),
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
            if mark.is_exposed() && !self.exposure_reported.swap(true, Ordering::Relaxed) {
                warn!(file = %path.display(), "others can access this stored login; the next login or renewal repairs it; log in again if it may have been read");
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
            Err(problem) => Err((written, UnreadableRecord::new(path, &problem))),
        }
    }

    /// Restricts the folder and its files to their owner again, such as after a backup was restored.
    /// Reports it unless a read did.
    fn repair_modes(&self) {
        let folder = self.state.path(FOLDER);
        let reported = || self.exposure_reported.swap(true, Ordering::Relaxed);
        match self.state.restrict(FOLDER) {
            Ok(exposed) if exposed.is_empty() => {}
            Ok(_) if reported() => {
                info!(folder = %folder.display(), "the modes of the stored logins are repaired");
            }
            Ok(_) => {
                warn!(folder = %folder.display(), "others could access the stored logins, which is repaired; log in again if they may have been read");
            }
            Err(_) if reported() => {}
            Err(error) => {
                warn!(folder = %folder.display(), %error, "others can access the stored logins, which cannot be repaired; change the owner of the folder, and log in again if they may have been read");
            }
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

    fn list_all(&self) -> io::Result<Vec<Result<CredentialRecord, UnreadableRecord>>> {
        let names = record_names::<E>(&self.state, "")?;
        let all = names.iter().filter_map(|name| match self.read(name) {
            Ok(stored) => stored.map(|it| Ok(it.record)),
            Err((_, problem)) => Some(Err(problem)),
        });
        Ok(all.collect())
    }

    /// Replaces a file, unless it has a record that cannot be read.
    fn replace(&self, mut record: CredentialRecord) -> io::Result<()> {
        record.version = RECORD_VERSION;
        self.repair_modes();
        let name = file_name::<E>(&record.key);
        self.read(&name).map_err(|(_, problem)| problem)?;
        let contents = self.encoding.encode(&name, &record)?;
        if contents.len() as u64 > MAX_RECORD_BYTES {
            let problem = format!("a credential of more than {MAX_RECORD_BYTES} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        self.state.write(&in_folder(&name), &contents)
    }

    fn remove_unreadable_files(&self, prefix: &str) -> io::Result<Vec<UnreadableRecord>> {
        let mut removed = Vec::new();
        for name in record_names::<E>(&self.state, prefix)? {
            if let Err((_, unreadable)) = self.read(&name) {
                let file = self.state.remove(&in_folder(&name));
                file.map_err(|error| {
                    let path = unreadable.path.display();
                    io::Error::new(error.kind(), format!("cannot remove {path}: {error}"))
                })?;
                removed.push(unreadable);
            }
        }
        Ok(removed)
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

    fn list(
        &self,
    ) -> BoxFuture<'static, io::Result<Vec<Result<CredentialRecord, UnreadableRecord>>>> {
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

    fn remove_unreadable(
        &self,
        server_url: &str,
        account: &str,
    ) -> BoxFuture<'static, io::Result<Vec<UnreadableRecord>>> {
        let prefix = account_hash(server_url, account);
        self.run(&in_folder(&prefix.clone()), WRITE_TIMEOUT, move |store| {
            store.remove_unreadable_files(&prefix)
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

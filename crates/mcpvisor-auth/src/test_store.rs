//! A store in memory whose operations fail on demand, for tests.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::record::{CredentialKey, CredentialRecord};
use crate::store::{CredentialStore, MemoryStore, StoreLock, StoreMark, UnreadableRecord};

/// The folder that it names.
pub(crate) const FOLDER: &str = "/state/credentials";

/// A store in memory. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct FaultyStore {
    pub(crate) inner: MemoryStore,
    faults: Arc<Faults>,
}

#[derive(Default)]
struct Faults {
    full: AtomicBool,
    broken: AtomicBool,
    /// Attempts to save, of which at most one runs at a time.
    saves: AtomicUsize,
    saving: AtomicBool,
}

impl FaultyStore {
    /// Whether the disk is full: nothing can be saved.
    pub(crate) fn set_full(&self, full: bool) {
        self.faults.full.store(full, Ordering::Relaxed);
    }

    /// Whether the folder is gone: it can be neither read, written nor locked.
    pub(crate) fn set_broken(&self, broken: bool) {
        self.faults.broken.store(broken, Ordering::Relaxed);
    }

    /// Attempts to save so far.
    pub(crate) fn saves(&self) -> usize {
        self.faults.saves.load(Ordering::Relaxed)
    }

    fn check(&self) -> io::Result<()> {
        match self.faults.broken.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::NotADirectory.into()),
            false => Ok(()),
        }
    }

    /// Fails if it is broken, else runs.
    fn unless_broken<T: Send + 'static>(
        &self,
        operation: BoxFuture<'static, io::Result<T>>,
    ) -> BoxFuture<'static, io::Result<T>> {
        let checked = self.check();
        async move {
            checked?;
            operation.await
        }
        .boxed()
    }
}

impl CredentialStore for FaultyStore {
    fn find(
        &self,
        server_url: &str,
        account: &str,
    ) -> BoxFuture<'static, io::Result<Vec<CredentialRecord>>> {
        self.unless_broken(self.inner.find(server_url, account))
    }

    fn list(
        &self,
    ) -> BoxFuture<'static, io::Result<Vec<Result<CredentialRecord, UnreadableRecord>>>> {
        self.unless_broken(self.inner.list())
    }

    fn remove_unreadable(
        &self,
        server_url: &str,
        account: &str,
    ) -> BoxFuture<'static, io::Result<Vec<UnreadableRecord>>> {
        self.unless_broken(self.inner.remove_unreadable(server_url, account))
    }

    fn save(&self, record: CredentialRecord) -> BoxFuture<'static, io::Result<()>> {
        let this = self.clone();
        async move {
            let faults = &this.faults;
            faults.saves.fetch_add(1, Ordering::Relaxed);
            assert!(!faults.saving.swap(true, Ordering::Relaxed), "two savers");
            tokio::time::sleep(Duration::from_millis(1)).await;
            faults.saving.store(false, Ordering::Relaxed);
            this.check()?;
            match faults.full.load(Ordering::Relaxed) {
                true => Err(io::Error::from_raw_os_error(28)),
                false => this.inner.save(record).await,
            }
        }
        .boxed()
    }

    fn remove(&self, key: &CredentialKey) -> BoxFuture<'static, io::Result<()>> {
        self.unless_broken(self.inner.remove(key))
    }

    fn lock(&self, server_url: &str, account: &str) -> BoxFuture<'static, io::Result<StoreLock>> {
        self.unless_broken(self.inner.lock(server_url, account))
    }

    fn mark(&self, server_url: &str, account: &str) -> BoxFuture<'static, io::Result<StoreMark>> {
        self.unless_broken(self.inner.mark(server_url, account))
    }

    fn folder(&self) -> Option<PathBuf> {
        Some(PathBuf::from(FOLDER))
    }

    fn name(&self) -> &'static str {
        "faulty"
    }
}

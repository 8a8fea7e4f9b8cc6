//! A store in memory.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::{self, BoxFuture};

use super::{CredentialStore, LOCK_TIMEOUT, StoreLock, StoreMark, UnreadableRecord};
use crate::record::{CredentialKey, CredentialRecord};

/// Stores credentials until the process ends, for tests and embedding programs. Clones share it.
#[derive(Clone, Default)]
pub struct MemoryStore(Arc<Mutex<Contents>>);

#[derive(Default)]
struct Contents {
    /// Each record with the number of the save that wrote it.
    records: BTreeMap<CredentialKey, (u64, CredentialRecord)>,
    saves: u64,
    locks: BTreeMap<(String, String), Arc<tokio::sync::Mutex<()>>>,
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The records of a server and account, each with the number of its save.
    fn of_account(&self, server_url: &str, account: &str) -> Vec<(u64, CredentialRecord)> {
        let contents = self.contents();
        let all = contents.records.values();
        let of_account =
            |key: &CredentialKey| key.server_url == server_url && key.account == account;
        all.filter(|(_, it)| of_account(&it.key)).cloned().collect()
    }
}

fn ready<T: Send + 'static>(value: T) -> BoxFuture<'static, io::Result<T>> {
    Box::pin(future::ready(Ok(value)))
}

impl CredentialStore for MemoryStore {
    fn find(
        &self,
        server_url: &str,
        account: &str,
    ) -> BoxFuture<'static, io::Result<Vec<CredentialRecord>>> {
        let mut found = self.of_account(server_url, account);
        found.sort_by_key(|(save, it)| std::cmp::Reverse((it.logged_in_at, *save)));
        ready(found.into_iter().map(|(_, record)| record).collect())
    }

    fn list(
        &self,
    ) -> BoxFuture<'static, io::Result<Vec<Result<CredentialRecord, UnreadableRecord>>>> {
        let contents = self.contents();
        let records = contents.records.values();
        ready(records.map(|(_, record)| Ok(record.clone())).collect())
    }

    fn save(&self, record: CredentialRecord) -> BoxFuture<'static, io::Result<()>> {
        let mut contents = self.contents();
        contents.saves += 1;
        let save = contents.saves;
        contents.records.insert(record.key.clone(), (save, record));
        ready(())
    }

    fn remove(&self, key: &CredentialKey) -> BoxFuture<'static, io::Result<()>> {
        self.contents().records.remove(key);
        ready(())
    }

    fn remove_unreadable(
        &self,
        _: &str,
        _: &str,
    ) -> BoxFuture<'static, io::Result<Vec<UnreadableRecord>>> {
        ready(Vec::new())
    }

    fn lock(&self, server_url: &str, account: &str) -> BoxFuture<'static, io::Result<StoreLock>> {
        let of = (server_url.to_owned(), account.to_owned());
        let lock = Arc::clone(self.contents().locks.entry(of).or_default());
        Box::pin(async move {
            let guard = tokio::time::timeout(LOCK_TIMEOUT, lock.lock_owned()).await;
            let guard = guard.map_err(|_| {
                let problem = format!("the credential is locked for {} s", LOCK_TIMEOUT.as_secs());
                io::Error::new(io::ErrorKind::TimedOut, problem)
            })?;
            Ok(StoreLock::new(guard))
        })
    }

    fn mark(&self, server_url: &str, account: &str) -> BoxFuture<'static, io::Result<StoreMark>> {
        let records = self.of_account(server_url, account);
        let saves = records.iter().flat_map(|(save, _)| save.to_be_bytes());
        ready(StoreMark(saves.collect()))
    }

    fn name(&self) -> &'static str {
        "memory"
    }
}

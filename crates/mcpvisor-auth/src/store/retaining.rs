//! Renewed logins that could not be saved: used from memory, and saved later.
//!
//! The issuer may have replaced the refresh token that is stored, so the stored record must not be
//! used any more. A record that is retained here takes its place until it is saved, or until the
//! store has another login.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, watch};

use super::{SharedStore, StoreLock};
use crate::record::{CredentialKey, CredentialRecord, TokenSet};

/// Pause before the first further attempt to save a record. It doubles with each failure.
pub const FIRST_SAVE_RETRY: Duration = Duration::from_secs(1);

/// Longest pause between two attempts to save a record.
pub const MAX_SAVE_RETRY: Duration = Duration::from_secs(60);

/// A renewed login that is lost with the process, because it could not be saved.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnsavedLogin {
    /// Why it could not be saved.
    pub problem: String,
    /// The kind of the error.
    pub kind: io::ErrorKind,
    /// The folder of the store, if it has one.
    pub folder: Option<PathBuf>,
}

/// A store, and the records that it could not save. All credentials of a program should share one,
/// so that two of the same login use the same tokens. Clones share it.
#[derive(Clone)]
pub struct RetainingStore(Arc<Inner>);

struct Inner {
    store: SharedStore,
    unsaved: watch::Sender<BTreeMap<CredentialKey, Unsaved>>,
    /// Held while a record is written, so that an older one never overwrites a newer one.
    writing: Mutex<()>,
    savers: AtomicU64,
}

#[derive(Clone)]
struct Unsaved {
    record: CredentialRecord,
    /// The stored tokens that it replaces; `None` if there were none.
    replaces: Option<TokenSet>,
    login: UnsavedLogin,
    /// The number of the one task that saves it, if it has one.
    saver: Option<u64>,
}

impl Unsaved {
    /// Whether the store still has what it replaces. Otherwise a person logged in or out.
    fn still_replaces(&self, stored: Option<&CredentialRecord>) -> bool {
        stored.map(|record| &record.tokens) == self.replaces.as_ref()
    }
}

impl fmt::Debug for RetainingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetainingStore").finish_non_exhaustive()
    }
}

impl RetainingStore {
    /// Retains what this store cannot save.
    pub fn new(store: SharedStore) -> Self {
        Self(Arc::new(Inner {
            store,
            unsaved: watch::Sender::default(),
            writing: Mutex::default(),
            savers: AtomicU64::new(0),
        }))
    }

    /// The store itself.
    pub fn store(&self) -> &SharedStore {
        &self.0.store
    }

    /// The records of a server and account, latest login first; unsaved ones in place of those that
    /// they replace. If the store cannot be read, the unsaved ones alone.
    pub async fn find(&self, url: &str, account: &str) -> io::Result<Vec<CredentialRecord>> {
        let found = self.0.store.find(url, account).await;
        if !self.has_unsaved(url, account) {
            return found;
        }
        let stored = match found {
            Ok(stored) => stored,
            Err(_) => return Ok(self.unsaved_of(url, account).map(|it| it.record).collect()),
        };
        self.forget_outdated(url, account, &stored);
        let mut records = stored;
        for Unsaved { record, .. } in self.unsaved_of(url, account) {
            match records.iter_mut().find(|found| found.key == record.key) {
                Some(found) => *found = record,
                None => records.insert(0, record),
            }
        }
        Ok(records)
    }

    /// Waits for the lock of a server and account. If it cannot be taken, an unsaved login needs
    /// none: no other process knows its tokens.
    pub async fn lock(&self, url: &str, account: &str) -> io::Result<Option<StoreLock>> {
        match self.0.store.lock(url, account).await {
            Err(_) if self.has_unsaved(url, account) => Ok(None),
            locked => locked.map(Some),
        }
    }

    /// Saves a record in place of an unsaved one.
    pub async fn save(&self, record: CredentialRecord) -> io::Result<()> {
        let key = record.key.clone();
        let _writing = self.0.writing.lock().await;
        self.0.store.save(record).await?;
        self.forget(&key);
        Ok(())
    }

    /// Retains a record that could not be saved, and saves it as soon as that works. `replaces` is
    /// the record that it was derived from.
    pub fn retain(
        &self,
        record: CredentialRecord,
        replaces: Option<&CredentialRecord>,
        problem: &io::Error,
    ) {
        let key = record.key.clone();
        let replaces = replaces.filter(|it| it.key == key);
        let login = self.describe(problem);
        self.0.unsaved.send_modify(|all| {
            let unsaved = all.entry(key.clone()).or_insert_with(|| Unsaved {
                record: record.clone(),
                replaces: replaces.map(|it| it.tokens.clone()),
                login: login.clone(),
                saver: None,
            });
            // The store still has what an earlier unsaved record replaces.
            (unsaved.record, unsaved.login) = (record, login);
            if unsaved.saver.is_none() {
                let saver = self.0.savers.fetch_add(1, Ordering::Relaxed);
                unsaved.saver = Some(saver);
                tokio::spawn(self.clone().save_later(key, saver));
            }
        });
    }

    /// Why a login of a server and account is unsaved, if one of those that are `wanted` is. A
    /// rejected login is no loss.
    pub fn unsaved_login(
        &self,
        url: &str,
        account: &str,
        wanted: impl Fn(&CredentialRecord) -> bool,
    ) -> Option<UnsavedLogin> {
        let mut unsaved = self.unsaved_of(url, account);
        let is_valid = |record: &CredentialRecord| record.rejected.is_none();
        let found = unsaved.find(|it| is_valid(&it.record) && wanted(&it.record));
        found.map(|it| it.login)
    }

    /// Waits until a condition about the unsaved logins is satisfied.
    pub async fn changed(&self, is_satisfied: impl Fn() -> bool) {
        let mut changes = self.0.unsaved.subscribe();
        while !is_satisfied() {
            // The sender is in `self`, so this is always a change.
            let _ = changes.changed().await;
        }
    }

    /// Makes a last attempt to save the logins of a server and account, and ends their savers.
    pub async fn finish(&self, url: &str, account: &str) {
        let keys: Vec<_> = self
            .unsaved_of(url, account)
            .map(|it| it.record.key)
            .collect();
        for key in keys {
            self.0.unsaved.send_modify(|all| {
                if let Some(unsaved) = all.get_mut(&key) {
                    unsaved.saver = None;
                }
            });
            self.try_save(&key).await;
        }
    }

    /// Saves a record, with growing pauses. Ends when it is saved, forgotten or finished.
    async fn save_later(self, key: CredentialKey, saver: u64) {
        let mut unsaved = self.0.unsaved.subscribe();
        let mut pause = FIRST_SAVE_RETRY;
        loop {
            let over = unsaved.wait_for(|all| all.get(&key).and_then(|it| it.saver) != Some(saver));
            if tokio::time::timeout(pause, over).await.is_ok() {
                return;
            }
            self.try_save(&key).await;
            pause = (pause * 2).min(MAX_SAVE_RETRY);
        }
    }

    /// Saves an unsaved record, unless the store has another login by now.
    async fn try_save(&self, key: &CredentialKey) {
        if let Err(problem) = self.save_unsaved(key).await {
            self.note_problem(key, &problem);
        }
    }

    async fn save_unsaved(&self, key: &CredentialKey) -> io::Result<()> {
        let (store, url, account) = (&self.0.store, &key.server_url, &key.account);
        let _lock = store.lock(url, account).await?;
        let _writing = self.0.writing.lock().await;
        let stored = store.find(url, account).await?;
        self.forget_outdated(url, account, &stored);
        if let Some(Unsaved { record, .. }) = self.get(key) {
            store.save(record.clone()).await?;
            self.note_saved(&record);
            tracing::info!(issuer = key.issuer, "the renewed login was saved");
        }
        Ok(())
    }

    /// Forgets the unsaved logins of a server and account that the store does not need any more.
    fn forget_outdated(&self, url: &str, account: &str, stored: &[CredentialRecord]) {
        for unsaved in self.unsaved_of(url, account) {
            let key = &unsaved.record.key;
            let stored = stored.iter().find(|it| it.key == *key);
            if !unsaved.still_replaces(stored) {
                self.forget(key);
            }
        }
    }

    /// This record was saved. If it was renewed meanwhile, the next one replaces it.
    fn note_saved(&self, saved: &CredentialRecord) {
        self.0.unsaved.send_modify(|all| {
            if let Some(unsaved) = all.get_mut(&saved.key) {
                match unsaved.record == *saved {
                    true => drop(all.remove(&saved.key)),
                    false => unsaved.replaces = Some(saved.tokens.clone()),
                }
            }
        });
    }

    fn note_problem(&self, key: &CredentialKey, problem: &io::Error) {
        let login = self.describe(problem);
        self.0
            .unsaved
            .send_if_modified(|all| match all.get_mut(key) {
                Some(unsaved) if unsaved.login != login => {
                    unsaved.login = login;
                    true
                }
                Some(_) | None => false,
            });
    }

    fn forget(&self, key: &CredentialKey) {
        self.0
            .unsaved
            .send_if_modified(|all| all.remove(key).is_some());
    }

    fn describe(&self, problem: &io::Error) -> UnsavedLogin {
        UnsavedLogin {
            problem: without_number(problem),
            kind: problem.kind(),
            folder: self.0.store.folder(),
        }
    }

    fn get(&self, key: &CredentialKey) -> Option<Unsaved> {
        self.0.unsaved.borrow().get(key).cloned()
    }

    fn has_unsaved(&self, url: &str, account: &str) -> bool {
        self.unsaved_of(url, account).next().is_some()
    }

    fn unsaved_of(&self, url: &str, account: &str) -> impl Iterator<Item = Unsaved> + use<> {
        let all = self.0.unsaved.borrow();
        let unsaved = all.values();
        let unsaved: Vec<Unsaved> = unsaved
            .filter(|it| it.record.key.server_url == url && it.record.key.account == account)
            .cloned()
            .collect();
        unsaved.into_iter()
    }
}

/// The text of an error without the number that the system gives it, for people.
pub fn without_number(problem: &io::Error) -> String {
    let text = problem.to_string();
    match (problem.raw_os_error(), text.rfind(" (os error ")) {
        (Some(_), Some(end)) => text[..end].to_owned(),
        _ => text,
    }
}

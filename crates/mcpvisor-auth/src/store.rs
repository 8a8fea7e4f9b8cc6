//! Where credentials are stored.
//!
//! [`FileStore`] and [`KeyringStore`] store one file per credential and differ in the encoding alone.
//! [`StoreOpener`] decides between them, once per run. When a token is refreshed is left to the caller.

mod choice;
mod encoding;
mod folder;
mod keyring;
mod memory;
mod record_files;
mod retaining;
mod sealed;
#[cfg(feature = "keyring")]
mod system_keyring;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::record::{CredentialKey, CredentialRecord};

pub use choice::{StoreChoice, StoreError, StoreOpener, is_empty};
pub use encoding::{PlainEncoding, RecordEncoding, RecordProblem};
pub use folder::{FileStore, FolderStore};
pub use keyring::{KEYRING_LOGIN_TIMEOUT, KEYRING_TIMEOUT, Keyring, KeyringError, KeyringSession};
pub use memory::MemoryStore;
pub use record_files::UnreadableRecord;
pub use retaining::{
    FIRST_SAVE_RETRY, MAX_SAVE_RETRY, RetainingStore, UnsavedLogin, without_number,
};
pub use sealed::{KeyringStore, SealedEncoding, StoreKey};
#[cfg(feature = "keyring")]
pub use system_keyring::SystemKeyring;

/// How long to wait for the lock of a credential. A refresh takes 45 s at most.
pub const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// Stores credentials. All operations are bounded in time.
pub trait CredentialStore: Send + Sync + 'static {
    /// The readable records of a server and account, latest login first. An unreadable one is an
    /// error, unless a readable one is newer.
    fn find(
        &self,
        server_url: &str,
        account: &str,
    ) -> BoxFuture<'static, io::Result<Vec<CredentialRecord>>>;

    /// Every record, and the files that cannot be read.
    fn list(
        &self,
    ) -> BoxFuture<'static, io::Result<Vec<Result<CredentialRecord, UnreadableRecord>>>>;

    /// Checks that a login can be saved, before a person logs in. May wait for the person to unlock a
    /// keyring.
    fn prepare(&self) -> BoxFuture<'static, io::Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Replaces the record of its key durably: it is on disk when this returns.
    fn save(&self, record: CredentialRecord) -> BoxFuture<'static, io::Result<()>>;

    /// Removes a record. One that cannot be read is an error.
    fn remove(&self, key: &CredentialKey) -> BoxFuture<'static, io::Result<()>>;

    /// Removes the files of a server and account that cannot be read, and returns them.
    fn remove_unreadable(
        &self,
        server_url: &str,
        account: &str,
    ) -> BoxFuture<'static, io::Result<Vec<UnreadableRecord>>>;

    /// Waits for the lock of a server and account among all processes. Dropping the guard releases it.
    fn lock(&self, server_url: &str, account: &str) -> BoxFuture<'static, io::Result<StoreLock>>;

    /// A cheap mark of the records of a server and account: it differs after every save or removal,
    /// of any process.
    fn mark(&self, server_url: &str, account: &str) -> BoxFuture<'static, io::Result<StoreMark>>;

    /// Checks that records can be written, without changing any.
    fn check_writable(&self) -> BoxFuture<'static, io::Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// The folder of its files, for people.
    fn folder(&self) -> Option<PathBuf> {
        None
    }

    /// Which store it is, such as `file`, for people.
    fn name(&self) -> &'static str;
}

/// A shared store.
pub type SharedStore = Arc<dyn CredentialStore>;

/// Holds the lock of a credential until it is dropped.
pub struct StoreLock(
    #[expect(dead_code, reason = "dropping it releases the lock")] Box<dyn Send + Sync>,
);

impl StoreLock {
    /// Wraps the guard of a store.
    pub fn new(guard: impl Send + Sync + 'static) -> Self {
        Self(Box::new(guard))
    }
}

impl fmt::Debug for StoreLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreLock").finish_non_exhaustive()
    }
}

/// The state of some records, to compare.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct StoreMark(pub Vec<u8>);

#[cfg(test)]
mod tests;

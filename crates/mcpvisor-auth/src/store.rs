//! Where credentials are stored.

use std::io;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::record::{CredentialKey, CredentialRecord};

/// Stores credentials. All operations are bounded in time.
pub trait CredentialStore: Send + Sync + 'static {
    /// The readable records of a server and account, latest login first. An unreadable one is an
    /// error, unless a readable one is newer; it is never deleted.
    fn find(
        &self,
        server_url: &str,
        account: &str,
    ) -> BoxFuture<'static, io::Result<Vec<CredentialRecord>>>;

    /// Every record, and the problems of those that cannot be read.
    fn list(&self) -> BoxFuture<'static, io::Result<Vec<Result<CredentialRecord, String>>>>;

    /// Replaces the record of its key durably: it is on disk when this returns.
    fn save(&self, record: CredentialRecord) -> BoxFuture<'static, io::Result<()>>;

    /// Removes a record.
    fn remove(&self, key: &CredentialKey) -> BoxFuture<'static, io::Result<()>>;

    /// Waits for the lock of a server and account among all processes. Dropping the guard releases it.
    fn lock(&self, server_url: &str, account: &str) -> BoxFuture<'static, io::Result<StoreLock>>;

    /// A cheap mark of the records of a server and account: it differs after every save or removal,
    /// of any process.
    fn mark(&self, server_url: &str, account: &str) -> BoxFuture<'static, io::Result<StoreMark>>;

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

/// The state of some records, to compare.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct StoreMark(pub Vec<u8>);

//! The token store of a runtime, chosen once, when it is first used.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use mcpvisor_auth::record::{CredentialKey, CredentialRecord};
use mcpvisor_auth::store::{
    CredentialStore, MemoryStore, SharedStore, StoreChoice, StoreLock, StoreMark, choose,
};
use tokio::sync::OnceCell;

use crate::state::state_dir::StateDir;

/// Opens the store of the state folder when it is first used. Without a state folder, credentials
/// stay in memory.
#[derive(Clone)]
pub(crate) struct LazyStore(Arc<Inner>);

struct Inner {
    choice: StoreChoice,
    state: Option<StateDir>,
    opened: OnceCell<Result<SharedStore, String>>,
}

impl fmt::Debug for LazyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LazyStore").finish_non_exhaustive()
    }
}

impl LazyStore {
    pub(crate) fn new(choice: StoreChoice, state: Option<StateDir>) -> Self {
        Self(Arc::new(Inner {
            choice,
            state,
            opened: OnceCell::new(),
        }))
    }

    /// The store. A failure is final for this run: another store would hide the tokens of this one.
    pub(crate) async fn open(&self) -> io::Result<SharedStore> {
        let Inner { choice, state, .. } = &*self.0;
        let open = || async {
            match state {
                Some(state) => {
                    let chosen = choose(*choice, state).await;
                    chosen.map_err(|problem| problem.to_string())
                }
                None => Ok(Arc::new(MemoryStore::default()) as SharedStore),
            }
        };
        let opened = self.0.opened.get_or_init(open).await;
        opened.clone().map_err(io::Error::other)
    }
}

impl CredentialStore for LazyStore {
    fn find(
        &self,
        server_url: &str,
        account: &str,
    ) -> BoxFuture<'static, io::Result<Vec<CredentialRecord>>> {
        let (this, url, account) = (self.clone(), server_url.to_owned(), account.to_owned());
        async move { this.open().await?.find(&url, &account).await }.boxed()
    }

    fn list(&self) -> BoxFuture<'static, io::Result<Vec<Result<CredentialRecord, String>>>> {
        let this = self.clone();
        async move { this.open().await?.list().await }.boxed()
    }

    fn save(&self, record: CredentialRecord) -> BoxFuture<'static, io::Result<()>> {
        let this = self.clone();
        async move { this.open().await?.save(record).await }.boxed()
    }

    fn remove(&self, key: &CredentialKey) -> BoxFuture<'static, io::Result<()>> {
        let (this, key) = (self.clone(), key.clone());
        async move { this.open().await?.remove(&key).await }.boxed()
    }

    fn lock(&self, server_url: &str, account: &str) -> BoxFuture<'static, io::Result<StoreLock>> {
        let (this, url, account) = (self.clone(), server_url.to_owned(), account.to_owned());
        async move { this.open().await?.lock(&url, &account).await }.boxed()
    }

    fn mark(&self, server_url: &str, account: &str) -> BoxFuture<'static, io::Result<StoreMark>> {
        let (this, url, account) = (self.clone(), server_url.to_owned(), account.to_owned());
        async move { this.open().await?.mark(&url, &account).await }.boxed()
    }

    fn check_writable(&self) -> BoxFuture<'static, io::Result<()>> {
        let this = self.clone();
        async move { this.open().await?.check_writable().await }.boxed()
    }

    fn folder(&self) -> Option<PathBuf> {
        match self.0.opened.get() {
            Some(Ok(store)) => store.folder(),
            Some(Err(_)) | None => None,
        }
    }

    fn name(&self) -> &'static str {
        match self.0.opened.get() {
            Some(Ok(store)) => store.name(),
            Some(Err(_)) | None => "unopened",
        }
    }
}

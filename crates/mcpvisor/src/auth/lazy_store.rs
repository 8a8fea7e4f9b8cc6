//! The token store of a runtime, chosen once: when something is stored, or about to be.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use mcpvisor_auth::record::{CredentialKey, CredentialRecord};
use mcpvisor_auth::store::{
    CredentialStore, FileStore, KEYRING_LOGIN_TIMEOUT, KEYRING_TIMEOUT, MemoryStore, SharedStore,
    StoreChoice, StoreLock, StoreMark, StoreOpener, UnreadableRecord, is_empty,
};
use tokio::sync::OnceCell;

use crate::state::state_dir::StateDir;

/// Opens the store of the state folder when it is needed. Without a state folder, credentials stay in
/// memory.
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
    async fn open(&self, keyring_timeout: Duration) -> io::Result<SharedStore> {
        let Inner { choice, state, .. } = &*self.0;
        let open = || async {
            match state {
                Some(state) => {
                    let opener = StoreOpener::default().keyring_timeout(keyring_timeout);
                    let chosen = opener.open(*choice, state).await;
                    chosen.map_err(|problem| problem.to_string())
                }
                None => Ok(Arc::new(MemoryStore::default()) as SharedStore),
            }
        };
        let opened = self.0.opened.get_or_init(open).await;
        opened.clone().map_err(io::Error::other)
    }

    /// The store to save to.
    async fn to_save(&self) -> io::Result<SharedStore> {
        self.open(KEYRING_TIMEOUT).await
    }

    /// The store to read from. As long as nothing is stored no choice is made, so servers without a
    /// login never wait for a keyring. Both stores of a folder have the same locks.
    async fn to_read(&self) -> io::Result<SharedStore> {
        if let (Some(state), None) = (&self.0.state, self.0.opened.get())
            && is_empty(state).await.map_err(io::Error::other)?
        {
            return Ok(Arc::new(FileStore::new(state.clone())));
        }
        self.open(KEYRING_TIMEOUT).await
    }
}

impl CredentialStore for LazyStore {
    fn find(
        &self,
        server_url: &str,
        account: &str,
    ) -> BoxFuture<'static, io::Result<Vec<CredentialRecord>>> {
        let (this, url, account) = (self.clone(), server_url.to_owned(), account.to_owned());
        async move { this.to_read().await?.find(&url, &account).await }.boxed()
    }

    fn list(
        &self,
    ) -> BoxFuture<'static, io::Result<Vec<Result<CredentialRecord, UnreadableRecord>>>> {
        let this = self.clone();
        async move { this.to_read().await?.list().await }.boxed()
    }

    fn prepare(&self) -> BoxFuture<'static, io::Result<()>> {
        let this = self.clone();
        async move { this.open(KEYRING_LOGIN_TIMEOUT).await.map(drop) }.boxed()
    }

    fn save(&self, record: CredentialRecord) -> BoxFuture<'static, io::Result<()>> {
        let this = self.clone();
        async move { this.to_save().await?.save(record).await }.boxed()
    }

    fn remove(&self, key: &CredentialKey) -> BoxFuture<'static, io::Result<()>> {
        let (this, key) = (self.clone(), key.clone());
        async move { this.to_read().await?.remove(&key).await }.boxed()
    }

    fn remove_unreadable(
        &self,
        server_url: &str,
        account: &str,
    ) -> BoxFuture<'static, io::Result<Vec<UnreadableRecord>>> {
        let (this, url, account) = (self.clone(), server_url.to_owned(), account.to_owned());
        async move {
            this.to_read()
                .await?
                .remove_unreadable(&url, &account)
                .await
        }
        .boxed()
    }

    fn lock(&self, server_url: &str, account: &str) -> BoxFuture<'static, io::Result<StoreLock>> {
        let (this, url, account) = (self.clone(), server_url.to_owned(), account.to_owned());
        async move { this.to_read().await?.lock(&url, &account).await }.boxed()
    }

    fn mark(&self, server_url: &str, account: &str) -> BoxFuture<'static, io::Result<StoreMark>> {
        let (this, url, account) = (self.clone(), server_url.to_owned(), account.to_owned());
        async move { this.to_read().await?.mark(&url, &account).await }.boxed()
    }

    fn check_writable(&self) -> BoxFuture<'static, io::Result<()>> {
        let this = self.clone();
        async move { this.to_read().await?.check_writable().await }.boxed()
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

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "https://mcp.example.com/mcp";

    fn state(test: &str) -> StateDir {
        let name = format!("mcpvisor-lazy-store-{}-{test}", std::process::id());
        let root = std::env::temp_dir().join(name);
        // Left over from a killed process with the same pid.
        let _ = std::fs::remove_dir_all(&root);
        StateDir::new(root)
    }

    /// A server without a login must not wait for a keyring that hangs or asks for a password.
    #[tokio::test]
    async fn nothing_is_opened_to_read_a_store_without_logins() {
        let state = state("unopened");
        for choice in [StoreChoice::Keyring, StoreChoice::Auto, StoreChoice::File] {
            let store = LazyStore::new(choice, Some(state.clone()));
            assert_eq!(store.list().await.unwrap(), []);
            assert_eq!(store.find(URL, "").await.unwrap(), []);
            assert_eq!(store.mark(URL, "").await.unwrap(), StoreMark::default());
            drop(store.lock(URL, "").await.unwrap());
            assert_eq!(store.remove_unreadable(URL, "").await.unwrap(), []);
            assert_eq!(store.name(), "unopened");
            let key = state.path("credentials/keyring.json");
            assert!(!key.exists(), "{choice:?}: a key was created");
        }
        std::fs::remove_dir_all(state.path("")).unwrap();
    }

    /// With a keyring, this test would use the user's own.
    #[cfg(not(feature = "keyring"))]
    #[tokio::test]
    async fn a_login_that_cannot_be_saved_fails_before_and_stays_failed() {
        let state = state("refused");
        let store = LazyStore::new(StoreChoice::Keyring, Some(state));
        for _ in 0..2 {
            let refused = store.prepare().await.unwrap_err().to_string();
            assert!(refused.contains("without support"), "{refused}");
        }
        store.list().await.unwrap_err();
    }
}

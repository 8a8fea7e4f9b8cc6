//! Which store is used.
//!
//! The choice is made once per run. It never falls back silently: credentials that were encrypted
//! with a key in the keyring are not replaced by older plain ones when the keyring fails.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mcpvisor_files::file_ops::READ_TIMEOUT;
use mcpvisor_files::state_dir::StateDir;
use serde::{Deserialize, Serialize};
use tracing::debug;

use super::SharedStore;
use super::encoding::PlainEncoding;
use super::folder::FileStore;
use super::keyring::{KEYRING_TIMEOUT, KeyringError, KeyringSession, has_sealed_records};
use super::record_files::{FOLDER, record_names};
use super::sealed::{KeyringStore, StoreKey};

/// Which store to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreChoice {
    /// Where logins are stored already; for the first one the keyring if it works, else files.
    #[default]
    Auto,
    /// Encrypted files whose key is in the keyring.
    Keyring,
    /// Plain files that only their owner can read.
    File,
}

/// Why no store could be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The keyring was chosen, or holds the key of existing credentials, and cannot be used.
    #[error("{reason}; start or unlock the keyring, or set authStore to \"file\" and log in again")]
    KeyringFailed {
        /// Why not.
        #[source]
        reason: KeyringError,
    },
    /// Encrypted credentials exist, but their key is lost.
    #[error(
        "the keyring has no key for the encrypted credentials in {}; unlock or restore the keyring, or remove the .enc files there and log in again", .folder.display()
    )]
    KeyMissing {
        /// The folder of the credentials.
        folder: PathBuf,
    },
    /// The folder of the credentials cannot be read.
    #[error("the credentials in {} cannot be read: {source}", .folder.display())]
    Folder {
        /// The folder of the credentials.
        folder: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl From<KeyringError> for StoreError {
    fn from(reason: KeyringError) -> Self {
        match reason {
            KeyringError::KeyMissing { folder } => Self::KeyMissing { folder },
            reason => Self::KeyringFailed { reason },
        }
    }
}

/// Whether nothing is stored in a state folder, encrypted or not.
pub async fn is_empty(state: &StateDir) -> Result<bool, StoreError> {
    let found = FoundRecords::of(state).await?;
    Ok(!found.plain && !found.sealed)
}

/// Opens the store of a state folder, by default with the system's keyring if this build supports it.
#[derive(Debug, Clone)]
pub struct StoreOpener {
    keyring: Option<KeyringSession>,
    keyring_timeout: Duration,
}

impl Default for StoreOpener {
    fn default() -> Self {
        #[cfg(feature = "keyring")]
        let keyring = Some(super::SystemKeyring::session());
        #[cfg(not(feature = "keyring"))]
        let keyring = None;
        Self {
            keyring,
            keyring_timeout: KEYRING_TIMEOUT,
        }
    }
}

impl StoreOpener {
    /// Uses this keyring.
    #[must_use]
    pub fn keyring(mut self, keyring: KeyringSession) -> Self {
        self.keyring = Some(keyring);
        self
    }

    /// How long to wait for the keyring, such as [`KEYRING_LOGIN_TIMEOUT`](super::KEYRING_LOGIN_TIMEOUT).
    #[must_use]
    pub fn keyring_timeout(mut self, within: Duration) -> Self {
        self.keyring_timeout = within;
        self
    }

    /// Opens the store of a state folder.
    pub async fn open(
        &self,
        choice: StoreChoice,
        state: &StateDir,
    ) -> Result<SharedStore, StoreError> {
        let file_store = || Arc::new(FileStore::new(state.clone()));
        match choice {
            StoreChoice::File => Ok(file_store()),
            StoreChoice::Keyring => Ok(sealed_store(state, self.key(state).await?)),
            StoreChoice::Auto => {
                let found = FoundRecords::of(state).await?;
                // Logins that exist stay in use: a keyring that appears later does not hide them.
                if found.plain && !found.sealed {
                    return Ok(file_store());
                }
                match self.key(state).await {
                    Ok(key) => Ok(sealed_store(state, key)),
                    Err(reason) if found.sealed => Err(reason.into()),
                    Err(reason) => {
                        debug!(%reason, "storing credentials in files");
                        Ok(file_store())
                    }
                }
            }
        }
    }

    async fn key(&self, state: &StateDir) -> Result<StoreKey, KeyringError> {
        let keyring = self.keyring.as_ref().ok_or(KeyringError::NotSupported)?;
        keyring.key(state, self.keyring_timeout).await
    }
}

fn sealed_store(state: &StateDir, key: StoreKey) -> SharedStore {
    Arc::new(KeyringStore::new(state.clone(), key))
}

/// The kinds of records that exist before a store is chosen.
struct FoundRecords {
    plain: bool,
    sealed: bool,
}

impl FoundRecords {
    async fn of(state: &StateDir) -> Result<Self, StoreError> {
        let folder = state.path(FOLDER);
        let owned = state.clone();
        let look = move || {
            Ok(Self {
                plain: !record_names::<PlainEncoding>(&owned, "")?.is_empty(),
                sealed: has_sealed_records(&owned)?,
            })
        };
        let found = state.ops().run(&folder, READ_TIMEOUT, look).await;
        found.map_err(|source| StoreError::Folder { folder, source })
    }
}

//! What the tests of the stores share.

mod files;
mod key;
mod processes;
mod stores;

use std::fs;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mcpvisor_files::state_dir::StateDir;

use super::*;
use crate::record::{ClientAuthMethod, ClientRecord, ClientSource, Endpoints, TokenSet};
use crate::secret::Secret;

const DEADLINE: Duration = Duration::from_secs(30);
const URL: &str = "https://mcp.example.com/mcp";

/// Contained in every secret of a record.
const CANARY: &str = "canary";

/// A state folder that is removed in the end.
struct TestDir(StateDir);

impl TestDir {
    fn new(test: &str) -> Self {
        let name = format!("mcpvisor-store-{}-{test}", std::process::id());
        let root = std::env::temp_dir().join(name);
        // Left over from a killed process with the same pid.
        let _ = fs::remove_dir_all(&root);
        Self(StateDir::new(root))
    }

    fn files(&self) -> FileStore {
        FileStore::new(self.0.clone())
    }

    fn sealed(&self) -> KeyringStore {
        KeyringStore::new(self.0.clone(), test_key(7))
    }

    /// The record files with an extension.
    fn records(&self, extension: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path("credentials")).into_iter().flatten();
        let paths = entries.flatten().map(|entry| entry.path());
        let has_extension = |path: &PathBuf| path.extension().is_some_and(|it| it == extension);
        let is_store_id = |path: &PathBuf| path.ends_with("keyring.json");
        paths
            .filter(|path| has_extension(path) && !is_store_id(path))
            .collect()
    }
}

impl Deref for TestDir {
    type Target = StateDir;

    fn deref(&self) -> &StateDir {
        &self.0
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.path(""));
    }
}

fn test_key(byte: u8) -> StoreKey {
    StoreKey::new(&[byte; 32]).unwrap()
}

fn key(server_url: &str, issuer: &str, account: &str) -> CredentialKey {
    CredentialKey {
        server_url: server_url.to_owned(),
        issuer: issuer.to_owned(),
        resource: Some(server_url.to_owned()),
        account: account.to_owned(),
    }
}

fn record_of(key: CredentialKey) -> CredentialRecord {
    let secret = |name| Some(Secret::new(format!("{CANARY}-{name}")));
    CredentialRecord {
        version: crate::record::RECORD_VERSION,
        revision: 1,
        key,
        client: ClientRecord {
            id: "client".to_owned(),
            secret: secret("client-secret"),
            secret_expires_at: Some(4_000_000_000),
            auth_method: ClientAuthMethod::ClientSecretBasic,
            source: ClientSource::Registered,
            redirect_uri: Some("http://127.0.0.1:8123/callback".to_owned()),
        },
        endpoints: Endpoints {
            token: "https://as.example.com/token".to_owned(),
            revocation: None,
        },
        tokens: TokenSet {
            access: Secret::new(format!("{CANARY}-access")),
            refresh: secret("refresh"),
            obtained_at: 1_800_000_000,
            expires_at: Some(1_800_003_600),
        },
        scopes: vec!["read".to_owned()],
        dpop: None,
        logged_in_at: 1_800_000_000,
        rejected: None,
    }
}

fn record() -> CredentialRecord {
    record_of(key(URL, "https://as.example.com", ""))
}

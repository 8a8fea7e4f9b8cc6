//! A state folder, and the logins in it.

#![allow(dead_code, reason = "each suite uses some of it")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use mcpvisor::auth::mcpvisor_auth::Secret;
use mcpvisor::auth::mcpvisor_auth::record::{
    ClientAuthMethod, ClientRecord, ClientSource, CredentialKey, CredentialRecord, Endpoints,
    RECORD_VERSION, TokenSet, unix_seconds,
};
use mcpvisor::auth::mcpvisor_auth::store::{CredentialStore as _, FileStore};
use mcpvisor_files::state_dir::StateDir;
use mcpvisor_testkit::auth_server::{AuthServer, Endpoint, ProtectedServer};

/// The client that logged in.
pub(crate) const CLIENT: &str = "test-client";

/// The announced lifetime of seeded access tokens: longer than any test.
const LIFETIME: u64 = 3_600;

/// A state folder; removed on drop.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("mcpvisor-auth-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        // Left over from a killed process with the same pid.
        let _ = std::fs::remove_dir_all(&folder);
        Self(folder)
    }

    pub(crate) fn store(&self) -> FileStore {
        store_at(&self.0)
    }

    pub(crate) async fn save(&self, record: &CredentialRecord) {
        self.store().save(record.clone()).await.unwrap();
    }

    /// Makes the store unusable: a file is where its folder was. Mode bits would not stop root.
    pub(crate) fn break_store(&self) {
        let folder = self.0.join("credentials");
        std::fs::rename(&folder, self.0.join("away")).unwrap();
        std::fs::write(folder, "not a folder").unwrap();
    }

    pub(crate) fn repair_store(&self) {
        let folder = self.0.join("credentials");
        std::fs::remove_file(&folder).unwrap();
        std::fs::rename(self.0.join("away"), folder).unwrap();
    }

    /// The only record of a server.
    pub(crate) async fn record_of(&self, url: &str) -> CredentialRecord {
        let mut found = self.store().find(url, "").await.unwrap();
        assert_eq!(found.len(), 1, "{url}");
        found.remove(0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn store_at(folder: &Path) -> FileStore {
    FileStore::new(StateDir::new(folder))
}

/// The record of a login that just happened.
pub(crate) fn new_login(
    auth: &AuthServer,
    server: &ProtectedServer,
    scopes: &[&str],
) -> CredentialRecord {
    let resource = server.resource();
    let (access, refresh) = auth.issue_tokens(CLIENT, scopes, Some(&resource));
    let now = unix_seconds(SystemTime::now());
    CredentialRecord {
        version: RECORD_VERSION,
        revision: 1,
        key: CredentialKey {
            server_url: server.url(),
            issuer: auth.issuer(),
            resource: Some(resource),
            account: String::new(),
        },
        client: ClientRecord {
            id: CLIENT.to_owned(),
            secret: None,
            secret_expires_at: None,
            auth_method: ClientAuthMethod::None,
            source: ClientSource::Registered,
            redirect_uri: Some("http://127.0.0.1/callback".to_owned()),
        },
        endpoints: Endpoints {
            token: auth.url(Endpoint::Token),
            revocation: Some(auth.url(Endpoint::Revoke)),
        },
        tokens: TokenSet {
            access: Secret::new(access),
            refresh: Some(Secret::new(refresh)),
            obtained_at: now,
            expires_at: Some(now + LIFETIME),
        },
        scopes: scopes.iter().map(|&scope| scope.to_owned()).collect(),
        dpop: None,
        logged_in_at: now,
        rejected: None,
    }
}

/// The refresh token of a record.
pub(crate) fn refresh_token(record: &CredentialRecord) -> String {
    record.tokens.refresh.as_ref().unwrap().expose().to_owned()
}

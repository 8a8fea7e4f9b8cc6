//! What a login works with after discovery, and how it saves its record.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use crate::config::CredentialConfig;
use crate::discovery::Discovered;
use crate::dpop::binding::Binding;
use crate::error::AuthError;
use crate::grants::GrantTarget;
use crate::http_client::HttpClient;
use crate::record::{ClientRecord, CredentialRecord, unix_seconds};
use crate::registration::client_for;
use crate::store::SharedStore;
use crate::token_endpoint::TokenResponse;

/// What a login works with after discovery.
pub(super) struct Session {
    pub(super) http: Arc<dyn HttpClient>,
    pub(super) store: SharedStore,
    pub(super) config: CredentialConfig,
    pub(super) discovered: Discovered,
    pub(super) client: ClientRecord,
    pub(super) scopes: Vec<String>,
    pub(super) resource: Option<String>,
    pub(super) binding: Option<Binding>,
}

impl Session {
    pub(super) fn target(&self) -> GrantTarget<'_> {
        GrantTarget {
            http: &*self.http,
            config: &self.config,
            discovered: &self.discovered,
            client: &self.client,
            scopes: &self.scopes,
            resource: self.resource.as_deref(),
            binding: self.binding.as_ref(),
        }
    }

    /// Replaces a registration that the issuer does not know any more.
    pub(super) async fn register_again(
        &mut self,
        redirect_uri: Option<&str>,
    ) -> Result<(), AuthError> {
        tracing::info!(
            issuer = self.discovered.server.issuer,
            "the issuer does not know the earlier registration; registering again"
        );
        self.client = client_for(
            &*self.http,
            &self.config,
            &self.discovered,
            redirect_uri,
            None,
        )
        .await?;
        Ok(())
    }

    /// Saves the new tokens. This is the last step of a login: until here the old token stays.
    pub(super) async fn save(
        &self,
        response: TokenResponse,
    ) -> Result<CredentialRecord, AuthError> {
        let now = SystemTime::now();
        let mut record = self.target().record(response, now)?;
        let lock = self.store.lock(&record.key.server_url, &record.key.account);
        let _lock = lock.await.map_err(store_error)?;
        record.revision = self.next_revision(&record, now).await?;
        let saved = self.store.save(record.clone()).await;
        saved.map_err(store_error)?;
        Ok(record)
    }

    async fn next_revision(
        &self,
        record: &CredentialRecord,
        now: SystemTime,
    ) -> Result<u64, AuthError> {
        let key = &record.key;
        match self.store.find(&key.server_url, &key.account).await {
            Ok(records) => {
                let same = records.iter().filter(|found| found.key == *key);
                Ok(same
                    .map(|found| found.revision)
                    .max()
                    .unwrap_or(0)
                    .saturating_add(1))
            }
            // The revision of a damaged record is unknown; seconds exceed every counted one.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(unix_seconds(now)),
            Err(error) => Err(store_error(error)),
        }
    }
}

pub(super) fn store_error(error: io::Error) -> AuthError {
    AuthError::Store(error.to_string())
}

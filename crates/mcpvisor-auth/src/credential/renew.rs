//! One renewal: under the lock of the store, saved before it is used.

use std::io;
use std::time::Duration;

use super::tracked_client::TrackedClient;
use super::{Credential, Inner, login_needed, now};
use crate::access_token::AccessToken;
use crate::address::AddressPolicy;
use crate::discovery::addresses_of_url;
use crate::error::AuthError;
use crate::grants;
use crate::http_client::SendProgress;
use crate::record::{ClientSource, CredentialRecord, Rejection};
use crate::renewal::{Lifetime, RefreshFailure, classify_refresh};
use crate::secret::Secret;
use crate::token_endpoint::{TokenEndpoint, TokenResponse, TokenType};

/// Attempts to save a new token before it is served from memory alone.
const SAVE_ATTEMPTS: u32 = 3;

/// Pause between two attempts to save a new token.
const SAVE_PAUSE: Duration = Duration::from_millis(200);

impl Credential {
    /// Renews the token under the lock of the store.
    pub(super) async fn run_renewal(
        &self,
        refused: Option<AccessToken>,
        progress: &SendProgress,
    ) -> Result<AccessToken, AuthError> {
        let Inner { config, store, .. } = &*self.0;
        let lock = store.lock(&config.server_url, &config.account).await;
        let _lock = lock.map_err(|problem| AuthError::Store(problem.to_string()))?;
        let record = self.read_store().await?;
        if let Some(record) = &record
            && refused
                .as_ref()
                .is_none_or(|it| *it.text() != record.tokens.access)
            && record.rejected.is_none()
            && !Lifetime::of(&record.tokens, now()).is_due()
        {
            return Ok(self.publish(record, false));
        }
        if self.renews_alone() {
            let challenge = self.challenge();
            let previous = record.as_ref();
            let obtained = grants::obtain(&*self.0.http, config, &challenge, previous).await?;
            let revision = record.as_ref().map_or(0, |record| record.revision) + 1;
            let obtained = CredentialRecord {
                revision,
                ..obtained
            };
            return Ok(self.keep(obtained, record.as_ref()).await);
        }
        let record =
            record.ok_or_else(|| login_needed("401 Unauthorized: the server requires a login"))?;
        if let Some(rejection) = &record.rejected {
            return Err(rejected_login(&record.key.issuer, rejection));
        }
        let Some(refresh) = record.tokens.refresh.clone() else {
            return Err(login_needed(
                "the login has expired, and the issuer gave no token to renew it",
            ));
        };
        self.refresh(record, &refresh, progress).await
    }

    /// Refreshes a record. If the answer was lost, the request is repeated once.
    async fn refresh(
        &self,
        record: CredentialRecord,
        refresh: &Secret,
        progress: &SendProgress,
    ) -> Result<AccessToken, AuthError> {
        let addresses = self.addresses().await?;
        let http = TrackedClient::new(self.http(), progress.clone());
        let request = || self.request_refresh(&http, &record, refresh, addresses);
        let mut outcome = request().await;
        if let Err(error) = &outcome
            && classify_refresh(error) == RefreshFailure::OutcomeUnknown
        {
            tracing::debug!(
                issuer = record.key.issuer,
                "repeating a refresh whose answer was lost"
            );
            outcome = request().await;
        }
        match outcome {
            Ok(response) => {
                let renewed = renewed(record.clone(), response);
                Ok(self.keep(renewed, Some(&record)).await)
            }
            Err(error) => self.refresh_failed(record, error).await,
        }
    }

    async fn request_refresh(
        &self,
        http: &TrackedClient,
        record: &CredentialRecord,
        refresh: &Secret,
        addresses: AddressPolicy,
    ) -> Result<TokenResponse, AuthError> {
        let endpoint = TokenEndpoint {
            http,
            url: &record.endpoints.token,
            issuer: &record.key.issuer,
            addresses,
            client: &record.client,
            configured: self.0.config.client.as_ref(),
            proof_key: record.dpop.as_ref().map(|bound| &bound.key),
        };
        endpoint
            .refresh(refresh, record.key.resource.as_deref())
            .await
    }

    /// Marks a rejected grant, unless the store has another one by now.
    async fn refresh_failed(
        &self,
        record: CredentialRecord,
        error: AuthError,
    ) -> Result<AccessToken, AuthError> {
        let not_renewed = |cause| {
            let issuer = record.key.issuer.clone();
            Err(AuthError::RenewalFailed { issuer, cause })
        };
        let client_unknown = match classify_refresh(&error) {
            RefreshFailure::GrantRejected => false,
            RefreshFailure::ClientRejected if record.client.source == ClientSource::Registered => {
                true
            }
            // The config can be corrected, and the login stays valid.
            RefreshFailure::ClientRejected => {
                let cause = error.cause();
                return not_renewed(format!("the configured client is not accepted: {cause}"));
            }
            RefreshFailure::OutcomeUnknown | RefreshFailure::Transient => {
                return not_renewed(error.cause());
            }
        };
        // A writer that ignores the lock, such as a restored backup, may have replaced it.
        if let Some(stored) = self.read_store().await?
            && stored.tokens != record.tokens
            && stored.rejected.is_none()
        {
            return Ok(self.publish(&stored, false));
        }
        let rejection = Rejection {
            at: now(),
            reason: error.cause(),
            client_unknown,
        };
        let login_needed = rejected_login(&record.key.issuer, &rejection);
        let rejected = CredentialRecord {
            revision: record.revision + 1,
            rejected: Some(rejection),
            ..record.clone()
        };
        if let Err(problem) = self.save(&rejected, Some(&record)).await {
            tracing::warn!(%problem, "a rejected login could not be marked");
        }
        Err(login_needed)
    }

    /// Saves a new token, then publishes it. If it cannot be saved, it is used from memory.
    async fn keep(
        &self,
        record: CredentialRecord,
        replaces: Option<&CredentialRecord>,
    ) -> AccessToken {
        if let Err(problem) = self.save(&record, replaces).await {
            tracing::warn!(%problem, "a renewed login could not be saved; it is used from memory");
        }
        self.publish(&record, true)
    }

    /// Saves a record. If that fails, the record is retained, so that the one that it replaces is
    /// not used again.
    async fn save(
        &self,
        record: &CredentialRecord,
        replaces: Option<&CredentialRecord>,
    ) -> io::Result<()> {
        let Inner { config, store, .. } = &*self.0;
        let mut attempt = 1;
        loop {
            match store.save(record.clone()).await {
                Ok(()) => {
                    let store = store.store();
                    let mark = store.mark(&config.server_url, &config.account).await;
                    self.state().mark = mark.ok();
                    return Ok(());
                }
                Err(_) if attempt < SAVE_ATTEMPTS => {
                    attempt += 1;
                    tokio::time::sleep(SAVE_PAUSE).await;
                }
                Err(problem) => {
                    store.retain(record.clone(), replaces, &problem);
                    return Err(problem);
                }
            }
        }
    }

    /// Where requests for this server may go.
    async fn addresses(&self) -> Result<AddressPolicy, AuthError> {
        addresses_of_url(&*self.0.http, &self.0.config.server_url).await
    }
}

fn rejected_login(issuer: &str, rejection: &Rejection) -> AuthError {
    let reason = &rejection.reason;
    login_needed(match rejection.client_unknown {
        true => format!("{issuer} does not know the client of the login any more ({reason})"),
        false => format!("the login was rejected by {issuer} ({reason})"),
    })
}

/// The record after a refresh. Without a new refresh token the old one stays valid.
fn renewed(mut record: CredentialRecord, response: TokenResponse) -> CredentialRecord {
    record.revision += 1;
    record.tokens.access = response.access;
    record.tokens.refresh = response.refresh.or(record.tokens.refresh);
    record.tokens.obtained_at = response.obtained_at;
    record.tokens.expires_at = response.expires_at;
    record.scopes = response.scopes.unwrap_or(record.scopes);
    if let (Some(bound), Some(token_type)) = (&mut record.dpop, response.token_type) {
        bound.access_is_bearer = token_type == TokenType::Bearer;
    }
    record
}

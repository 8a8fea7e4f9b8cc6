//! Logout: revokes the tokens where the issuer can, then removes the record.

use super::session::store_error;
use crate::address::AddressPolicy;
use crate::config::ConfiguredClient;
use crate::discovery::addresses_of_url;
use crate::error::AuthError;
use crate::grants::revocation;
use crate::http_client::HttpClient;
use crate::record::CredentialRecord;
use crate::store::CredentialStore;
use crate::token_endpoint::TokenEndpoint;

/// What became of the tokens at the issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Revocation {
    /// They are revoked.
    Revoked,
    /// The issuer has no revocation endpoint; they stay valid until they expire.
    NotSupported,
    /// The issuer could not revoke them; they may stay valid until they expire.
    Failed(AuthError),
}

/// Revokes the tokens of a record and removes it. The record is removed even if they cannot be
/// revoked. `configured` has the key of a client that authenticates with one.
pub async fn logout(
    http: &dyn HttpClient,
    store: &dyn CredentialStore,
    record: &CredentialRecord,
    configured: Option<&ConfiguredClient>,
) -> Result<Revocation, AuthError> {
    let key = &record.key;
    // Under the lock no other process can rotate the token that is revoked here.
    let lock = store.lock(&key.server_url, &key.account).await;
    let _lock = lock.map_err(store_error)?;
    let found = store.find(&key.server_url, &key.account).await;
    let current = found
        .ok()
        .and_then(|records| records.into_iter().find(|found| found.key == *key));
    let record = current.as_ref().unwrap_or(record);
    let revocation = match &record.endpoints.revocation {
        None => Revocation::NotSupported,
        Some(url) => match addresses_of_url(http, &key.server_url).await {
            Ok(addresses) => revoke(http, record, url, configured, addresses).await,
            Err(error) => Revocation::Failed(error),
        },
    };
    store.remove(key).await.map_err(store_error)?;
    Ok(revocation)
}

pub(super) async fn revoke(
    http: &dyn HttpClient,
    record: &CredentialRecord,
    url: &str,
    configured: Option<&ConfiguredClient>,
    addresses: AddressPolicy,
) -> Revocation {
    let endpoint = TokenEndpoint {
        http,
        url: &record.endpoints.token,
        issuer: &record.key.issuer,
        addresses,
        client: &record.client,
        configured,
        proof_key: None,
    };
    match revocation::revoke(&endpoint, url, &record.tokens).await {
        Ok(()) => Revocation::Revoked,
        Err(error) => Revocation::Failed(error),
    }
}

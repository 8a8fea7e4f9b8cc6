//! Logout: revokes the tokens where the issuer can, then removes the records.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout};

use super::session::store_error;
use crate::address::AddressPolicy;
use crate::config::{ConfiguredClient, CredentialConfig};
use crate::discovery::addresses_of_url;
use crate::error::AuthError;
use crate::grants::revocation;
use crate::http_client::HttpClient;
use crate::record::CredentialRecord;
use crate::renewal::serves;
use crate::store::{CredentialStore, UnreadableRecord};
use crate::token_endpoint::TokenEndpoint;

/// How long a logout waits for another process that uses the login, such as to renew it.
pub const LOGOUT_LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a logout waits for issuers to revoke the tokens. They are removed in any case.
pub const REVOCATION_TIMEOUT: Duration = Duration::from_secs(10);

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

/// What a logout removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoggedOut {
    /// What became of the tokens of each login.
    pub revocations: Vec<Revocation>,
    /// Files that could not be read. Their tokens, if any, are not revoked.
    pub unreadable: Vec<UnreadableRecord>,
}

/// Removes the logins of an account that serve this config, and the account's files that cannot be
/// read. Their tokens are revoked first where the issuer can. `within` limits the waits for other
/// processes and for issuers further than [`LOGOUT_LOCK_TIMEOUT`] and [`REVOCATION_TIMEOUT`] do.
pub async fn logout(
    http: &dyn HttpClient,
    store: &dyn CredentialStore,
    config: &CredentialConfig,
    account: &str,
    within: Duration,
) -> Result<LoggedOut, AuthError> {
    let started = Instant::now();
    let limit = |most: Duration| most.min(within.saturating_sub(started.elapsed()));
    let found = timeout(within, find(store, config, account)).await;
    let found = found.map_err(|_| {
        let problem = format!("no answer within {} s", within.as_secs_f32());
        AuthError::Store(problem)
    })?;
    if found?.is_empty() {
        return Ok(LoggedOut::default());
    }
    // Under the lock no other process can rotate the tokens that are revoked here.
    let wait = limit(LOGOUT_LOCK_TIMEOUT);
    let lock = timeout(wait, store.lock(&config.server_url, account)).await;
    let _lock = lock.map_err(|_| locked(wait))?.map_err(store_error)?;
    let records = find(store, config, account).await?.records;
    let wait = limit(REVOCATION_TIMEOUT);
    let revocations = records.iter().map(|record| async {
        let revoked = timeout(wait, revoke_record(http, record, config)).await;
        revoked.unwrap_or_else(|_| Revocation::Failed(silent_issuer(wait)))
    });
    let revocations = join_all(revocations).await;
    for record in &records {
        store.remove(&record.key).await.map_err(store_error)?;
    }
    let unreadable = store.remove_unreadable(&config.server_url, account).await;
    Ok(LoggedOut {
        revocations,
        unreadable: unreadable.map_err(store_error)?,
    })
}

fn locked(within: Duration) -> AuthError {
    AuthError::Store(format!(
        "another process has used this login for {} s, perhaps to renew it; try again, or end that \
         process",
        within.as_secs_f32()
    ))
}

fn silent_issuer(within: Duration) -> AuthError {
    let seconds = within.as_secs_f32();
    AuthError::Cancelled(format!("no answer of the issuer within {seconds} s"))
}

/// What is stored of an account.
struct Found {
    records: Vec<CredentialRecord>,
    unreadable: bool,
}

impl Found {
    fn is_empty(&self) -> bool {
        self.records.is_empty() && !self.unreadable
    }
}

async fn find(
    store: &dyn CredentialStore,
    config: &CredentialConfig,
    account: &str,
) -> Result<Found, AuthError> {
    let url = &config.server_url;
    let mut found = Found {
        records: Vec::new(),
        unreadable: false,
    };
    for listed in store.list().await.map_err(store_error)? {
        match listed {
            Ok(record)
                if record.key.server_url == *url
                    && record.key.account == account
                    && serves(config, &record) =>
            {
                found.records.push(record);
            }
            Err(unreadable) if unreadable.belongs_to(url, account) => found.unreadable = true,
            Ok(_) | Err(_) => {}
        }
    }
    Ok(found)
}

async fn revoke_record(
    http: &dyn HttpClient,
    record: &CredentialRecord,
    config: &CredentialConfig,
) -> Revocation {
    let Some(url) = &record.endpoints.revocation else {
        return Revocation::NotSupported;
    };
    match addresses_of_url(http, &config.server_url).await {
        Ok(addresses) => revoke(http, record, url, config.client.as_ref(), addresses).await,
        Err(error) => Revocation::Failed(error),
    }
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

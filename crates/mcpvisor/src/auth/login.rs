//! Logins and accounts of a server.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mcpvisor_auth::AuthError;
use mcpvisor_auth::credential::Credential;
use mcpvisor_auth::login::{self, Login, Revocation};
use mcpvisor_auth::record::CredentialRecord;
use mcpvisor_auth::renewal::serves;
use mcpvisor_auth::store::without_number;
use mcpvisor_core::ServerName;
use mcpvisor_core::machine::Action;
use serde::{Serialize, Serializer};

use super::oauth_credential::{OAuthCredential, make_writable};
use super::server_auth::ServerAuth;
use crate::api::handle::ServerHandle;
use crate::api::status::rfc3339;

/// Why there is nothing to log in to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoginError {
    /// The server is not reached over HTTP, or its config provides the credential.
    #[error(
        "{server}: its config provides the credential; remove \"headers\", \"bearerTokenEnvVar\" or \"headersHelper\" to log in"
    )]
    NotUsed {
        /// Which server.
        server: ServerName,
    },
    /// The keys under `auth` cannot be used.
    #[error("{server}: {problem}")]
    InvalidConfig {
        /// Which server.
        server: ServerName,
        /// What is wrong.
        problem: String,
    },
    /// Logins cannot be saved.
    #[error("{server}: logins cannot be saved ({problem}); {action}")]
    NotWritable {
        /// Which server.
        server: ServerName,
        /// Why not.
        problem: String,
        /// What to do about it.
        action: Action,
    },
    /// The login, the logout or the store failed.
    #[error("{server}: {error}")]
    Failed {
        /// Which server.
        server: ServerName,
        /// What happened.
        #[source]
        error: AuthError,
    },
}

/// One stored login.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Account {
    /// The account; empty for the only one.
    pub account: String,
    /// The authorization server.
    pub issuer: String,
    /// The granted scopes.
    pub scopes: Vec<String>,
    /// When the access token expires, if the issuer said so.
    #[serde(serialize_with = "serialize_time")]
    pub expires_at: Option<SystemTime>,
    /// Whether it is refreshed by itself.
    pub refreshable: bool,
    /// Why a new login is needed, if one is.
    pub rejected: Option<String>,
    /// Which store it is in, such as `file`.
    pub store: &'static str,
}

impl Account {
    fn new(record: &CredentialRecord, store: &'static str) -> Self {
        let expires_at = record.tokens.expires_at;
        let expires_at = expires_at.and_then(|at| UNIX_EPOCH.checked_add(Duration::from_secs(at)));
        Self {
            account: record.key.account.clone(),
            issuer: record.key.issuer.clone(),
            scopes: record.scopes.clone(),
            expires_at,
            refreshable: record.tokens.refresh.is_some(),
            rejected: record.rejected.as_ref().map(|it| it.reason.clone()),
            store,
        }
    }
}

fn serialize_time<S: Serializer>(at: &Option<SystemTime>, to: S) -> Result<S::Ok, S::Error> {
    at.map(rfc3339).serialize(to)
}

impl ServerHandle {
    /// Prepares a login. The program shows its prompt to a person; a server that waits for the login
    /// connects when it is saved.
    ///
    /// ```no_run
    /// # async fn example(runtime: mcpvisor::Runtime) -> Result<(), Box<dyn std::error::Error>> {
    /// use mcpvisor::auth::mcpvisor_auth::login::LOGIN_TIMEOUT;
    ///
    /// let login = runtime.server("github")?.login()?.begin().await?;
    /// println!("open {}", login.authorization_url());
    /// login.finish(LOGIN_TIMEOUT).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn login(&self) -> Result<Login, LoginError> {
        let credential = self.credential()?;
        let (http, store) = (credential.http(), credential.store());
        let login = Login::new(http, store, credential.config().clone());
        Ok(login.challenge(credential.challenge()))
    }

    /// The account that its config names; empty for the only one.
    pub fn configured_account(&self) -> Result<String, LoginError> {
        Ok(self.credential()?.config().account.clone())
    }

    /// What a person has to do if the server demands another credential, with the scopes that it
    /// demanded last.
    pub fn authorization_action(&self) -> Action {
        let needed = self.slot.auth().authorization_needed(String::new());
        needed.action
    }

    /// Adopts what the store contains now, for example after a login. A server that waits for a
    /// login looks by itself.
    pub async fn reload_credential(&self) -> Result<(), LoginError> {
        let loaded = self.credential()?.load().await;
        loaded.map_err(|error| self.login_failed(error))
    }

    /// The stored logins of this server, without tokens.
    pub async fn accounts(&self) -> Result<Vec<Account>, LoginError> {
        let store = self.credential()?.store();
        let records = self.records().await?;
        let account = |record: &CredentialRecord| Account::new(record, store.name());
        Ok(records.iter().map(account).collect())
    }

    /// Checks that logins can be saved.
    pub async fn check_token_store(&self) -> Result<(), LoginError> {
        let store = self.credential()?.store();
        let Err(error) = store.check_writable().await else {
            return Ok(());
        };
        let action = make_writable(error.kind(), store.folder().as_deref());
        Err(LoginError::NotWritable {
            server: self.slot.name().clone(),
            problem: without_number(&error),
            action: Action::Custom(action),
        })
    }

    /// Removes the logins of an account, and revokes their tokens where the issuer can. Returns how
    /// each revocation went.
    pub async fn logout(&self, account: &str) -> Result<Vec<Revocation>, LoginError> {
        let credential = self.credential()?;
        let (http, store) = (credential.http(), credential.store());
        let configured = credential.config().client.as_ref();
        let mut revocations = Vec::new();
        for record in self.records().await? {
            if record.key.account == account {
                let revoked = login::logout(&*http, &*store, &record, configured).await;
                revocations.push(revoked.map_err(|error| self.login_failed(error))?);
            }
        }
        self.reload_credential().await?;
        Ok(revocations)
    }

    /// The records of all accounts of this server.
    async fn records(&self) -> Result<Vec<CredentialRecord>, LoginError> {
        let credential = self.credential()?;
        let listed = credential.store().list().await;
        let listed = listed.map_err(|problem| {
            let error = AuthError::Store(problem.to_string());
            self.login_failed(error)
        })?;
        let url = &credential.config().server_url;
        let records = listed.into_iter().filter_map(Result::ok);
        let config = credential.config();
        let serves = |it: &CredentialRecord| it.key.server_url == *url && serves(config, it);
        Ok(records.filter(serves).collect())
    }

    fn credential(&self) -> Result<Credential, LoginError> {
        let server = self.slot.name().clone();
        match &*self.slot.auth() {
            ServerAuth::OAuth(OAuthCredential(credential)) => Ok(credential.clone()),
            ServerAuth::Invalid(problem) => Err(LoginError::InvalidConfig {
                server,
                problem: problem.to_string(),
            }),
            ServerAuth::Static(_) | ServerAuth::Helper(_) => Err(LoginError::NotUsed { server }),
        }
    }

    fn login_failed(&self, error: AuthError) -> LoginError {
        LoginError::Failed {
            server: self.slot.name().clone(),
            error,
        }
    }
}

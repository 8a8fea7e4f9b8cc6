//! Logins and accounts of a server.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mcpvisor_auth::AuthError;
use mcpvisor_auth::credential::Credential;
use mcpvisor_auth::login::{self, LoggedOut, Login};
use mcpvisor_auth::record::CredentialRecord;
use mcpvisor_auth::renewal::{matching_record, serves};
use mcpvisor_auth::store::{UnreadableRecord, without_number};
use mcpvisor_core::ServerName;
use mcpvisor_core::machine::Action;
use serde::{Serialize, Serializer};

use super::oauth_credential::{OAuthCredential, make_writable};
use super::server_auth::ServerAuth;
use crate::api::handle::ServerHandle;
use crate::api::runtime::Runtime;
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
    /// Whether the server uses it: it is the latest login of the account that its config names.
    pub in_use: bool,
}

/// A stored login that cannot be read. [`ServerHandle::logout`] removes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UnreadableLogin {
    /// The account; empty for the only one.
    pub account: String,
    /// Its file.
    pub file: PathBuf,
    /// Why it cannot be read.
    pub problem: String,
    /// What makes it readable again, if something may. Otherwise a new login is needed.
    #[serde(skip)]
    pub remedy: Option<&'static str>,
}

/// The stored logins of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Accounts {
    /// Those that its config can use, without tokens.
    pub logins: Vec<Account>,
    /// Those that cannot be read. One of an account that neither the config nor a readable login
    /// names is missing: see [`Runtime::unreadable_logins`].
    pub unreadable: Vec<UnreadableLogin>,
}

impl Account {
    fn new(record: &CredentialRecord, store: &'static str, in_use: bool) -> Self {
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
            in_use,
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

    /// The stored logins of this server, of all accounts. Those of another issuer, client or
    /// resource than its config fixes are not its own.
    pub async fn accounts(&self) -> Result<Accounts, LoginError> {
        let credential = self.credential()?;
        let (config, store) = (credential.config(), credential.store());
        let url = &config.server_url;
        let listed = store.list().await.map_err(|it| self.store_failed(&it))?;
        let in_use = match store.find(url, &config.account).await {
            Ok(records) => matching_record(config, records),
            // Its newest file cannot be read, so the server uses none.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => None,
            Err(error) => return Err(self.store_failed(&error)),
        };
        let in_use = in_use.map(|record| record.key);
        let mut accounts = Accounts::default();
        let mut names = BTreeSet::from([config.account.clone()]);
        let mut unreadable = Vec::new();
        for listed in listed {
            match listed {
                Ok(record) if record.key.server_url == *url => {
                    names.insert(record.key.account.clone());
                    if serves(config, &record) {
                        let in_use = in_use.as_ref() == Some(&record.key);
                        let account = Account::new(&record, store.name(), in_use);
                        accounts.logins.push(account);
                    }
                }
                Ok(_) => {}
                Err(file) => unreadable.push(file),
            }
        }
        accounts.unreadable = unreadable
            .into_iter()
            .filter_map(|file| {
                let account = names.iter().find(|name| file.belongs_to(url, name))?;
                Some(UnreadableLogin {
                    account: account.clone(),
                    file: file.path,
                    problem: file.problem,
                    remedy: file.remedy,
                })
            })
            .collect();
        Ok(accounts)
    }

    /// Removes the logins of an account that the config can use, and revokes their tokens where the
    /// issuer can. Also removes the account's files that cannot be read. Waits for another process
    /// that uses the login, and for the issuers, for 10 s each, and no longer than `within`.
    pub async fn logout(&self, account: &str, within: Duration) -> Result<LoggedOut, LoginError> {
        let credential = self.credential()?;
        let (http, store) = (credential.http(), credential.store());
        let logged_out = login::logout(&*http, &*store, credential.config(), account, within);
        let logged_out = logged_out.await;
        let logged_out = logged_out.map_err(|error| self.login_failed(error))?;
        self.reload_credential().await?;
        Ok(logged_out)
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

    fn store_failed(&self, error: &io::Error) -> LoginError {
        self.login_failed(AuthError::Store(error.to_string()))
    }

    fn login_failed(&self, error: AuthError) -> LoginError {
        LoginError::Failed {
            server: self.slot.name().clone(),
            error,
        }
    }
}

impl Runtime {
    /// The files of all stored logins that cannot be read, also of servers that are not configured.
    pub async fn unreadable_logins(&self) -> io::Result<Vec<UnreadableRecord>> {
        let listed = self.lifeline.host.credentials.store().list().await?;
        Ok(listed.into_iter().filter_map(Result::err).collect())
    }
}

//! How one server is authorized, and how its credential is renewed.

#[cfg(feature = "auth")]
use std::path::Path;
#[cfg(feature = "auth")]
use std::sync::Arc;
#[cfg(feature = "auth")]
use std::time::Duration;

#[cfg(feature = "auth")]
use mcpvisor_auth::credential::{Credential, STORE_POLL, TokenRevision};
#[cfg(feature = "auth")]
use mcpvisor_auth::discovery::discover;
#[cfg(feature = "auth")]
use mcpvisor_auth::renewal::MIN_RENEWAL_INTERVAL;
#[cfg(feature = "auth")]
use mcpvisor_auth::scopes;
#[cfg(feature = "auth")]
use mcpvisor_auth::{AuthError, Secret};
use mcpvisor_core::CredentialRevision;
use mcpvisor_core::machine::{Action, Fault, FaultClass, PermanentFailure, RenewalFailure};
#[cfg(feature = "auth")]
use tokio::time::Instant;

use super::authorization::{Authorization, Challenge};
#[cfg(feature = "auth")]
use super::helper_credential::HelperCredential;
#[cfg(feature = "auth")]
use super::http_client::AuthHttpClient;
use crate::api::transport::Transport;
#[cfg(feature = "auth")]
use crate::api::transport::TransportKind;
use crate::fleet::host::Host;
#[cfg(feature = "auth")]
use crate::state::file_ops::{READ_TIMEOUT, read_regular};

/// Bytes of a file with a private key.
#[cfg(feature = "auth")]
const MAX_KEY_BYTES: u64 = 64 * 1024;

/// Time to find out where a person has to log in.
#[cfg(feature = "auth")]
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// The number of the credential that a server of the config starts with.
const FIRST_STATIC: CredentialRevision = CredentialRevision(1);

/// How one server is authorized. Clones share it.
#[derive(Debug, Clone)]
pub(crate) enum ServerAuth {
    /// By its config alone, which cannot be renewed. A reload gives it another number.
    Static(CredentialRevision),
    /// By a token of the store.
    #[cfg(feature = "auth")]
    OAuth(Credential),
    /// By a program that prints headers.
    #[cfg(feature = "auth")]
    Helper(Arc<HelperCredential>),
    /// Its config cannot be used, for this reason.
    #[cfg(feature = "auth")]
    Invalid(Arc<str>),
}

/// What happened to the credential in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CredentialChange {
    /// Another one is in use.
    #[cfg_attr(not(feature = "auth"), allow(dead_code))]
    Replaced,
    /// It has expired, and nothing renews it.
    #[cfg_attr(not(feature = "auth"), allow(dead_code))]
    Expired,
}

impl ServerAuth {
    /// How the server of this transport is authorized.
    #[cfg(feature = "auth")]
    pub(crate) fn new(transport: &Transport, host: &Host) -> Self {
        let TransportKind::Http(endpoint) = &transport.0 else {
            return Self::Static(FIRST_STATIC);
        };
        let auth = &endpoint.auth;
        if let Some(command) = &auth.headers_helper {
            let helper = HelperCredential::new(command.clone(), auth.headers_helper_ttl);
            return Self::Helper(Arc::new(helper));
        }
        // Tokens are bound to a URL, and a socket may serve any.
        if endpoint.has_static_credential() || endpoint.socket_path().is_some() {
            return Self::Static(FIRST_STATIC);
        }
        let read_key = |path: &Path| {
            let owned = path.to_owned();
            let read = move || read_regular(&owned, MAX_KEY_BYTES);
            let read = host.ops.run_blocking(path, READ_TIMEOUT, read);
            let text = read.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
            Ok(Secret::new(text))
        };
        match auth.resolve(endpoint.identity(), |name| std::env::var_os(name), read_key) {
            Ok(config) => {
                let http = AuthHttpClient::new(Arc::clone(&host.http), endpoint);
                let store = Arc::new(host.credentials.clone());
                Self::OAuth(Credential::new(config, Arc::new(http), store))
            }
            Err(problem) => Self::Invalid(problem.into()),
        }
    }

    /// How the server of this transport is authorized.
    #[cfg(not(feature = "auth"))]
    pub(crate) fn new(_: &Transport, _: &Host) -> Self {
        Self::Static(FIRST_STATIC)
    }

    /// The successor of another authorization of the same server. Its credential has a larger
    /// number, so that a refusal of the former one says nothing about it.
    pub(crate) fn replacing(self, former: &Self) -> Self {
        match self {
            Self::Static(_) => Self::Static(CredentialRevision(former.current().revision.0 + 1)),
            #[cfg(feature = "auth")]
            other => other,
        }
    }

    /// What a new connection carries. Nothing, if a person has to log in first: the server says
    /// what it needs.
    pub(crate) async fn for_connect(&self) -> Result<Authorization, RenewalFailure> {
        match self {
            Self::Static(_) => Ok(self.current()),
            #[cfg(feature = "auth")]
            Self::OAuth(credential) => match credential.fresh().await {
                Ok(token) => Ok(token.map(Authorization::from).unwrap_or_default()),
                Err(error) => Err(self.failure(error)),
            },
            #[cfg(feature = "auth")]
            Self::Helper(helper) => helper.fresh().await,
            #[cfg(feature = "auth")]
            Self::Invalid(problem) => Err(fix_config(problem)),
        }
    }

    /// Another credential than the refused one.
    #[cfg_attr(not(feature = "auth"), allow(unused_variables))]
    pub(crate) async fn renew(
        &self,
        refused: CredentialRevision,
    ) -> Result<Authorization, RenewalFailure> {
        match self {
            Self::Static(_) => Err(RenewalFailure::Permanent(
                self.authorization_needed("401 Unauthorized".to_owned()),
            )),
            #[cfg(feature = "auth")]
            Self::OAuth(credential) => {
                let known = refused != CredentialRevision::NONE;
                let renewed = credential.renew(known.then_some(TokenRevision(refused.0)));
                let renewed = renewed.await.map(Authorization::from);
                renewed.map_err(|error| self.failure(error))
            }
            #[cfg(feature = "auth")]
            Self::Helper(helper) => helper.renew(refused).await,
            #[cfg(feature = "auth")]
            Self::Invalid(problem) => Err(fix_config(problem)),
        }
    }

    /// What requests carry now.
    pub(crate) fn current(&self) -> Authorization {
        match self {
            Self::Static(revision) => Authorization {
                revision: *revision,
                ..Authorization::default()
            },
            #[cfg(feature = "auth")]
            Self::OAuth(credential) => {
                let none = || Authorization {
                    revision: CredentialRevision(credential.revision().0),
                    ..Authorization::default()
                };
                credential.current().map_or_else(none, Authorization::from)
            }
            #[cfg(feature = "auth")]
            Self::Helper(helper) => helper.current(),
            #[cfg(feature = "auth")]
            Self::Invalid(_) => Authorization::default(),
        }
    }

    /// Remembers what the server demands.
    #[cfg_attr(not(feature = "auth"), allow(unused_variables))]
    pub(crate) fn note_challenge(&self, challenge: Challenge) {
        #[cfg(feature = "auth")]
        if let Self::OAuth(credential) = self {
            credential.note_challenge(challenge);
        }
    }

    /// Waits until another credential than this one is in use, or this one has expired and cannot
    /// be renewed. Renews it when it is due.
    #[cfg_attr(not(feature = "auth"), allow(unused_variables))]
    pub(crate) async fn next_change(&self, from: CredentialRevision) -> CredentialChange {
        match self {
            Self::Static(_) => std::future::pending().await,
            #[cfg(feature = "auth")]
            Self::Invalid(_) => std::future::pending().await,
            #[cfg(feature = "auth")]
            Self::OAuth(credential) => {
                let mut tokens = credential.subscribe();
                let (mut expects_login, mut rejected) = (false, false);
                while self.current().revision == from {
                    let token = tokens.borrow_and_update().clone();
                    let due = match rejected {
                        true => token.and_then(|token| token.expires_at()),
                        false => token.and_then(|token| token.refresh_at()),
                    };
                    tokio::select! {
                        _ = tokens.changed() => rejected = false,
                        () = credential.step_up_needed(), if !expects_login => expects_login = true,
                        // A login with more scopes may come from any process.
                        () = tokio::time::sleep(STORE_POLL), if expects_login => {
                            drop(credential.load().await);
                        }
                        () = sleep_until(due), if rejected => return CredentialChange::Expired,
                        () = sleep_until(due), if !rejected => match self.renew(from).await {
                            // A new token is reported at once, while the old one is still valid.
                            Ok(_) => {}
                            Err(RenewalFailure::Permanent(_)) => rejected = true,
                            Err(RenewalFailure::Transient(_)) => {
                                tokio::time::sleep(MIN_RENEWAL_INTERVAL).await;
                            }
                        }
                    }
                }
                CredentialChange::Replaced
            }
            #[cfg(feature = "auth")]
            Self::Helper(helper) => {
                while self.current().revision == from {
                    sleep_until(helper.due()).await;
                    if helper.fresh().await.is_err() {
                        tokio::time::sleep(MIN_RENEWAL_INTERVAL).await;
                    }
                }
                CredentialChange::Replaced
            }
        }
    }

    /// Waits for a login, of this process or another.
    pub(crate) async fn wait_for_login(&self) {
        match self {
            #[cfg(feature = "auth")]
            Self::OAuth(credential) => drop(credential.wait_for_login().await),
            _ => std::future::pending().await,
        }
    }

    /// Where a person logs in, and with which scopes; `None` if no login can help.
    pub(crate) async fn login_details(&self) -> Option<(Option<String>, Vec<String>)> {
        match self {
            #[cfg(feature = "auth")]
            Self::OAuth(credential) if !credential.renews_alone() => {
                let (http, challenge) = (credential.http(), credential.challenge());
                let found = discover(&*http, credential.config(), &challenge);
                let found = tokio::time::timeout(DISCOVERY_TIMEOUT, found).await;
                Some(match found {
                    Ok(Ok(found)) => {
                        let config = credential.config();
                        let scopes = scopes::select(config, &challenge, &found, &[], &[]);
                        (Some(found.server.issuer), scopes)
                    }
                    Ok(Err(_)) | Err(_) => (None, challenge.scopes.unwrap_or_default()),
                })
            }
            _ => None,
        }
    }

    /// Reads the stored token, to know whose lists may be shown.
    pub(crate) async fn load(&self) {
        #[cfg(feature = "auth")]
        if let Self::OAuth(credential) = self
            && let Err(problem) = credential.load().await
        {
            tracing::debug!(%problem, "cannot read the stored token");
        }
    }

    /// What distinguishes the present credential from others of the same account, as far as the
    /// server may list something else for it. Empty without one.
    pub(crate) fn identity(&self) -> Vec<String> {
        match self {
            Self::Static(_) => Vec::new(),
            #[cfg(feature = "auth")]
            Self::OAuth(credential) => credential.current().map_or_else(Vec::new, |token| {
                let mut scopes = token.scopes().to_vec();
                scopes.sort_unstable();
                scopes.dedup();
                let issuer = ["oauth".to_owned(), token.issuer().to_owned()];
                issuer.into_iter().chain(scopes).collect()
            }),
            // Its headers may differ at every run.
            #[cfg(feature = "auth")]
            Self::Helper(helper) => {
                let words = helper.command().iter().cloned();
                std::iter::once("helper".to_owned()).chain(words).collect()
            }
            #[cfg(feature = "auth")]
            Self::Invalid(_) => Vec::new(),
        }
    }

    /// Waits for a renewal in progress, so that its token is saved.
    pub(crate) async fn finish(&self) {
        #[cfg(feature = "auth")]
        if let Self::OAuth(credential) = self {
            credential.finish().await;
        }
    }

    /// The failure of a server that requires another credential.
    pub(crate) fn authorization_needed(&self, message: String) -> PermanentFailure {
        let action = match self {
            Self::Static(_) => Action::Authorize,
            #[cfg(feature = "auth")]
            Self::OAuth(credential) if !credential.renews_alone() => Action::Login {
                scopes: credential.challenge().scopes.unwrap_or_default(),
            },
            #[cfg(feature = "auth")]
            Self::OAuth(_) | Self::Helper(_) | Self::Invalid(_) => {
                Action::FixKeys("\"auth\"".to_owned())
            }
        };
        PermanentFailure {
            fault: Fault::new(FaultClass::Authorization, message),
            action,
        }
    }

    #[cfg(feature = "auth")]
    fn failure(&self, error: AuthError) -> RenewalFailure {
        let alone = matches!(self, Self::OAuth(credential) if credential.renews_alone());
        match error {
            AuthError::LoginNeeded { reason } => RenewalFailure::Permanent(
                self.authorization_needed(format!("401 Unauthorized ({reason})")),
            ),
            AuthError::Invalid(problem) => fix_config(&problem),
            AuthError::Refused { status, .. } if alone && (400..500).contains(&status) => {
                fix_config(&error.to_string())
            }
            error => transient(error.to_string()),
        }
    }
}

#[cfg(feature = "auth")]
pub(super) fn transient(problem: String) -> RenewalFailure {
    RenewalFailure::Transient(Fault::new(FaultClass::Authorization, problem))
}

#[cfg(feature = "auth")]
pub(super) fn fix_config(problem: &str) -> RenewalFailure {
    RenewalFailure::Permanent(PermanentFailure {
        fault: Fault::new(FaultClass::Authorization, problem),
        action: Action::FixKeys("\"auth\"".to_owned()),
    })
}

#[cfg(feature = "auth")]
async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

//! The stored login or the grant of a server, in terms of the machine.

use std::io;
use std::path::Path;
use std::time::Duration;

use mcpvisor_auth::AuthError;
use mcpvisor_auth::credential::{Credential, STORE_POLL, TokenRevision};
use mcpvisor_auth::discovery::discover;
use mcpvisor_auth::renewal::MIN_RENEWAL_INTERVAL;
use mcpvisor_auth::scopes;
use mcpvisor_core::CredentialRevision;
use mcpvisor_core::machine::{Action, Fault, FaultClass, RenewalFailure};
use tokio::time::Instant;

use super::authorization::{Authorization, CredentialChange, authorization_failure};
use crate::api::status::UnsavedLogin;

/// Time to find out where a person has to log in.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// The token of a server.
#[derive(Debug, Clone)]
pub(crate) struct OAuthCredential(pub(super) Credential);

impl OAuthCredential {
    /// What a new connection carries: nothing, if a person has to log in first.
    pub(super) async fn for_connect(&self) -> Result<Authorization, RenewalFailure> {
        match self.0.fresh().await {
            Ok(token) => Ok(token.map(Authorization::from).unwrap_or_default()),
            Err(error) => Err(self.failure(error)),
        }
    }

    pub(super) async fn renew(
        &self,
        refused: CredentialRevision,
    ) -> Result<Authorization, RenewalFailure> {
        let known = refused != CredentialRevision::NONE;
        let renewed = self.0.renew(known.then_some(TokenRevision(refused.0)));
        let renewed = renewed.await.map(Authorization::from);
        renewed.map_err(|error| self.failure(error))
    }

    pub(super) fn current(&self) -> Authorization {
        let revision = || CredentialRevision(self.0.revision().0);
        let none = || Authorization::without_headers(revision());
        self.0.current().map_or_else(none, Authorization::from)
    }

    /// Waits until another token is in use, or this one has expired and cannot be renewed. Renews
    /// it when it is due.
    pub(super) async fn next_change(&self, from: CredentialRevision) -> CredentialChange {
        let mut tokens = self.0.subscribe();
        let (mut expects_login, mut rejected) = (false, false);
        while self.current().revision == from {
            let token = tokens.borrow_and_update().clone();
            let due = match rejected {
                true => token.and_then(|token| token.expires_at()),
                false => token.and_then(|token| token.refresh_at()),
            };
            tokio::select! {
                _ = tokens.changed() => rejected = false,
                () = self.0.step_up_needed(), if !expects_login => expects_login = true,
                // A login with more scopes may come from any process.
                () = tokio::time::sleep(STORE_POLL), if expects_login => {
                    drop(self.0.load().await);
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

    /// Where a person logs in, and with which scopes; `None` if no login can help.
    pub(super) async fn login_details(&self) -> Option<(Option<String>, Vec<String>)> {
        let credential = &self.0;
        if credential.renews_alone() {
            return None;
        }
        let (http, challenge) = (credential.http(), credential.challenge());
        let found = discover(&*http, credential.config(), &challenge);
        let found = tokio::time::timeout(DISCOVERY_TIMEOUT, found).await;
        Some(match found {
            Ok(Ok(found)) => {
                let scopes = scopes::select(credential.config(), &challenge, &found, &[], &[]);
                (Some(found.server.issuer), scopes)
            }
            Ok(Err(_)) | Err(_) => (None, challenge.scopes.unwrap_or_default()),
        })
    }

    /// Reads the stored token.
    pub(super) async fn load(&self) {
        if let Err(problem) = self.0.load().await {
            tracing::debug!(%problem, "cannot read the stored token");
        }
    }

    /// The issuer and the granted scopes; empty without a token.
    pub(super) fn identity(&self) -> Vec<String> {
        let Some(token) = self.0.current() else {
            return Vec::new();
        };
        let mut scopes = token.scopes().to_vec();
        scopes.sort_unstable();
        scopes.dedup();
        let issuer = ["oauth".to_owned(), token.issuer().to_owned()];
        issuer.into_iter().chain(scopes).collect()
    }

    pub(super) fn unsaved_login(&self) -> Option<UnsavedLogin> {
        self.0.unsaved().map(describe_unsaved)
    }

    pub(super) async fn unsaved_login_changed(&self, from: &UnsavedLogin) {
        let differs = |it| describe_unsaved(it) != *from;
        self.0.unsaved_changed(|now| now.is_none_or(differs)).await;
    }

    /// What a person has to do if the server demands another credential.
    pub(super) fn action(&self) -> Action {
        match self.0.renews_alone() {
            true => fix_auth(),
            false => Action::Login {
                scopes: self.0.challenge().scopes.unwrap_or_default(),
            },
        }
    }

    fn failure(&self, error: AuthError) -> RenewalFailure {
        match error {
            AuthError::LoginNeeded { reason } => {
                RenewalFailure::Permanent(authorization_failure(reason, self.action()))
            }
            AuthError::Unavailable { reason, retry_in } => {
                let fault = Fault::new(FaultClass::Authorization, reason);
                RenewalFailure::Transient(fault.with_retry_in(retry_in))
            }
            AuthError::Invalid(problem) => fix_config(&problem),
            AuthError::Refused { status, .. }
                if self.0.renews_alone() && (400..500).contains(&status) =>
            {
                fix_config(&error.to_string())
            }
            error => transient(error.to_string()),
        }
    }
}

fn describe_unsaved(unsaved: mcpvisor_auth::store::UnsavedLogin) -> UnsavedLogin {
    let action = make_writable(unsaved.kind, unsaved.folder.as_deref());
    let action = Action::Custom(format!("{action}; otherwise log in again"));
    UnsavedLogin::new(unsaved.problem, action)
}

/// What to do about a store that cannot be written.
pub(super) fn make_writable(kind: io::ErrorKind, folder: Option<&Path>) -> String {
    let folder = match folder {
        Some(folder) => folder.display().to_string(),
        None => "the token store".to_owned(),
    };
    match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("free space in {folder}")
        }
        io::ErrorKind::TimedOut => format!("check the disk or network mount of {folder}"),
        _ => format!("make {folder} writable"),
    }
}

/// The keys under `auth` have to be corrected.
pub(super) fn fix_auth() -> Action {
    Action::FixKeys("\"auth\"".to_owned())
}

pub(super) fn transient(problem: String) -> RenewalFailure {
    RenewalFailure::Transient(Fault::new(FaultClass::Authorization, problem))
}

pub(super) fn fix_config(problem: &str) -> RenewalFailure {
    RenewalFailure::Permanent(authorization_failure(problem, fix_auth()))
}

pub(super) async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

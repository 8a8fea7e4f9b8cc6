//! How one server is authorized, and how its credential is renewed.
//!
//! Without the feature `auth`, [`super::static_auth`] takes its place.

use std::path::Path;
use std::sync::Arc;

use mcpvisor_auth::Secret;
use mcpvisor_auth::challenge::Challenge;
use mcpvisor_auth::credential::Credential;
use mcpvisor_core::CredentialRevision;
use mcpvisor_core::machine::{Action, PermanentFailure, RenewalFailure};

use super::authorization::{Authorization, CredentialChange, FIRST_STATIC, authorization_failure};
use super::helper_credential::HelperCredential;
use super::http_client::AuthHttpClient;
use super::oauth_credential::{OAuthCredential, fix_auth, fix_config};
use crate::api::status::UnsavedLogin;
use crate::api::transport::{Transport, TransportKind};
use crate::fleet::host::Host;
use crate::state::file_ops::{READ_TIMEOUT, read_regular};

/// Bytes of a file with a private key.
const MAX_KEY_BYTES: u64 = 64 * 1024;

/// How one server is authorized. Clones share it.
#[derive(Debug, Clone)]
pub(crate) enum ServerAuth {
    /// By its config alone, which cannot be renewed. A reload gives it another number.
    Static(CredentialRevision),
    /// By a token of the store.
    OAuth(OAuthCredential),
    /// By a program that prints headers.
    Helper(Arc<HelperCredential>),
    /// Its config cannot be used, for this reason.
    Invalid(Arc<str>),
}

impl ServerAuth {
    /// How the server of this transport is authorized.
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
                let store = host.credentials.clone();
                let credential = Credential::sharing(config, Arc::new(http), store);
                Self::OAuth(OAuthCredential(credential))
            }
            Err(problem) => Self::Invalid(problem.into()),
        }
    }

    /// The successor of another authorization of the same server. Its credential has a larger
    /// number, so that a refusal of the former one says nothing about it.
    pub(crate) fn replacing(self, former: &Self) -> Self {
        match self {
            Self::Static(_) => Self::Static(CredentialRevision(former.current().revision.0 + 1)),
            other => other,
        }
    }

    /// What a new connection carries. Nothing, if a person has to log in first: the server says
    /// what it needs.
    pub(crate) async fn for_connect(&self) -> Result<Authorization, RenewalFailure> {
        match self {
            Self::Static(_) => Ok(self.current()),
            Self::OAuth(credential) => credential.for_connect().await,
            Self::Helper(helper) => helper.fresh().await,
            Self::Invalid(problem) => Err(fix_config(problem)),
        }
    }

    /// Another credential than the refused one.
    pub(crate) async fn renew(
        &self,
        refused: CredentialRevision,
    ) -> Result<Authorization, RenewalFailure> {
        match self {
            Self::Static(_) => Err(RenewalFailure::Permanent(
                self.authorization_needed("401 Unauthorized".to_owned()),
            )),
            Self::OAuth(credential) => credential.renew(refused).await,
            Self::Helper(helper) => helper.renew(refused).await,
            Self::Invalid(problem) => Err(fix_config(problem)),
        }
    }

    /// What requests carry now.
    pub(crate) fn current(&self) -> Authorization {
        match self {
            Self::Static(revision) => Authorization::without_headers(*revision),
            Self::OAuth(credential) => credential.current(),
            Self::Helper(helper) => helper.current(),
            Self::Invalid(_) => Authorization::default(),
        }
    }

    /// Remembers what the server demands.
    pub(crate) fn note_challenge(&self, challenge: Challenge) {
        if let Self::OAuth(OAuthCredential(credential)) = self {
            credential.note_challenge(challenge);
        }
    }

    /// Waits until another credential than this one is in use, or this one has expired and cannot
    /// be renewed. Renews it when it is due.
    pub(crate) async fn next_change(&self, from: CredentialRevision) -> CredentialChange {
        match self {
            Self::OAuth(credential) => credential.next_change(from).await,
            Self::Helper(helper) => helper.next_change(from).await,
            Self::Static(_) | Self::Invalid(_) => std::future::pending().await,
        }
    }

    /// Waits for a login, of this process or another.
    pub(crate) async fn wait_for_login(&self) {
        match self {
            Self::OAuth(OAuthCredential(credential)) => drop(credential.wait_for_login().await),
            Self::Static(_) | Self::Helper(_) | Self::Invalid(_) => std::future::pending().await,
        }
    }

    /// Where a person logs in, and with which scopes; `None` if no login can help.
    pub(crate) async fn login_details(&self) -> Option<(Option<String>, Vec<String>)> {
        match self {
            Self::OAuth(credential) => credential.login_details().await,
            Self::Static(_) | Self::Helper(_) | Self::Invalid(_) => None,
        }
    }

    /// Reads the stored token, to know whose lists may be shown.
    pub(crate) async fn load(&self) {
        if let Self::OAuth(credential) = self {
            credential.load().await;
        }
    }

    /// What distinguishes the present credential from others of the same account, as far as the
    /// server may list something else for it. Empty without one.
    pub(crate) fn identity(&self) -> Vec<String> {
        match self {
            Self::OAuth(credential) => credential.identity(),
            Self::Helper(helper) => helper.identity(),
            Self::Static(_) | Self::Invalid(_) => Vec::new(),
        }
    }

    /// Whether a renewal must not be interrupted: its token may be lost.
    pub(crate) fn is_renewing(&self) -> bool {
        matches!(self, Self::OAuth(OAuthCredential(credential)) if credential.is_renewing())
    }

    /// Ends renewals for good. One that must not be interrupted is waited for, so that its token is
    /// saved.
    pub(crate) async fn finish(&self) {
        if let Self::OAuth(OAuthCredential(credential)) = self {
            credential.finish().await;
        }
    }

    /// The login that exists only in memory, if saving it failed.
    pub(crate) fn unsaved_login(&self) -> Option<UnsavedLogin> {
        match self {
            Self::OAuth(credential) => credential.unsaved_login(),
            Self::Static(_) | Self::Helper(_) | Self::Invalid(_) => None,
        }
    }

    /// Waits until it is saved or replaced, or fails for another reason.
    pub(crate) async fn unsaved_login_changed(&self, from: &UnsavedLogin) {
        match self {
            Self::OAuth(credential) => credential.unsaved_login_changed(from).await,
            Self::Static(_) | Self::Helper(_) | Self::Invalid(_) => std::future::pending().await,
        }
    }

    /// The failure of a server that requires another credential.
    pub(crate) fn authorization_needed(&self, message: String) -> PermanentFailure {
        let action = match self {
            Self::Static(_) => Action::Authorize,
            Self::OAuth(credential) => credential.action(),
            Self::Helper(_) | Self::Invalid(_) => fix_auth(),
        };
        authorization_failure(message, action)
    }
}

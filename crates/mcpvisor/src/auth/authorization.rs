//! What the requests of a link carry.

use std::fmt;

use http::header::{HeaderName, HeaderValue};
#[cfg(feature = "auth")]
use mcpvisor_auth::dpop::SCHEME;
use mcpvisor_core::CredentialRevision;
use mcpvisor_core::machine::{Action, Fault, FaultClass, PermanentFailure};

use super::RequestSigner;

/// What requests carry.
#[derive(Clone, Default)]
pub(crate) struct Authorization {
    /// Its number; [`CredentialRevision::NONE`] without a credential.
    pub(crate) revision: CredentialRevision,
    /// Its headers.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// Signs each request, if the credential is bound to a key.
    pub(crate) signer: Option<RequestSigner>,
    /// The token, to note that the server accepted it.
    #[cfg(feature = "auth")]
    pub(super) token: Option<mcpvisor_auth::credential::AccessToken>,
}

/// What happened to the credential in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "auth"),
    expect(dead_code, reason = "the credential of a config is never renewed")
)]
pub(crate) enum CredentialChange {
    /// Another one is in use.
    Replaced,
    /// It has expired, and nothing renews it.
    Expired,
}

impl Authorization {
    /// No headers beside those of the config, or no credential at all.
    pub(super) fn without_headers(revision: CredentialRevision) -> Self {
        Self {
            revision,
            ..Self::default()
        }
    }

    /// Notes that the server accepted it.
    pub(crate) fn mark_accepted(&self) {
        #[cfg(feature = "auth")]
        if let Some(token) = &self.token {
            token.mark_accepted();
        }
    }
}

impl fmt::Debug for Authorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Authorization")
            .field(&self.revision)
            .finish()
    }
}

#[cfg(feature = "auth")]
impl From<mcpvisor_auth::credential::AccessToken> for Authorization {
    fn from(token: mcpvisor_auth::credential::AccessToken) -> Self {
        let scheme = token.signer().map_or("Bearer", |_| SCHEME);
        let value = HeaderValue::try_from(format!("{scheme} {}", token.text().expose()));
        let headers = value.ok().map(|mut value| {
            value.set_sensitive(true);
            (http::header::AUTHORIZATION, value)
        });
        Self {
            revision: CredentialRevision(token.revision().0),
            headers: headers.into_iter().collect(),
            signer: token.signer().cloned(),
            token: Some(token),
        }
    }
}

/// The number of the credential that a server of the config starts with.
pub(super) const FIRST_STATIC: CredentialRevision = CredentialRevision(1);

/// The failure of a server that requires another credential.
pub(super) fn authorization_failure(
    message: impl Into<String>,
    action: Action,
) -> PermanentFailure {
    PermanentFailure {
        fault: Fault::new(FaultClass::Authorization, message.into()),
        action,
    }
}

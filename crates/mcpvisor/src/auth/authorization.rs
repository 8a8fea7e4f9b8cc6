//! What the requests of a link carry, and what a server demands of them.

use std::fmt;

use http::header::{HeaderName, HeaderValue};
#[cfg(feature = "auth")]
pub(crate) use mcpvisor_auth::challenge::Challenge;
use mcpvisor_core::CredentialRevision;

/// What requests carry.
#[derive(Clone, Default)]
pub(crate) struct Authorization {
    /// Its number; [`CredentialRevision::NONE`] without a credential.
    pub(crate) revision: CredentialRevision,
    /// Its headers.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// The token, to note that the server accepted it.
    #[cfg(feature = "auth")]
    pub(super) token: Option<mcpvisor_auth::credential::AccessToken>,
}

impl Authorization {
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
        let bearer = HeaderValue::try_from(format!("Bearer {}", token.text().expose()));
        let headers = bearer.ok().map(|mut value| {
            value.set_sensitive(true);
            (http::header::AUTHORIZATION, value)
        });
        Self {
            revision: CredentialRevision(token.revision().0),
            headers: headers.into_iter().collect(),
            token: Some(token),
        }
    }
}

/// Without the feature `auth`, nothing is learned from a challenge.
#[cfg(not(feature = "auth"))]
#[derive(Debug, Clone, Default)]
pub(crate) struct Challenge {
    pub(crate) scopes: Option<Vec<String>>,
}

#[cfg(not(feature = "auth"))]
impl Challenge {
    pub(crate) fn parse<'v>(_values: impl IntoIterator<Item = &'v str>) -> Self {
        Self::default()
    }

    pub(crate) fn needs_step_up(&self) -> bool {
        false
    }
}

//! Why a credential could not be obtained.

use std::time::Duration;

use crate::http_client::HttpError;
use crate::token_endpoint::response::INVALID_RESPONSE;

/// Why a credential could not be obtained.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    /// A person has to log in.
    #[error("login needed: {reason}")]
    LoginNeeded {
        /// Why.
        reason: String,
    },
    /// A renewal failed, and the next one is not due yet.
    #[error("{reason}; retrying in {} s", .retry_in.as_secs().max(1))]
    Unavailable {
        /// Who cannot renew it, and why.
        reason: String,
        /// When the next attempt is allowed.
        retry_in: Duration,
    },
    /// The issuer did not renew a login; a retry may help.
    #[error("{issuer} cannot renew the login right now ({cause})")]
    RenewalFailed {
        /// The issuer.
        issuer: String,
        /// What happened.
        cause: String,
    },
    /// The config or the server's metadata cannot be used; retrying does not help.
    #[error("{0}")]
    Invalid(String),
    /// A request failed; a retry may help.
    #[error("{request}: {error}")]
    Http {
        /// Which request, such as `token request to https://as.example.com`.
        request: String,
        /// What happened.
        error: HttpError,
    },
    /// The issuer answered with an error (RFC 6749, 5.2).
    #[error("{request}: {}", self.cause())]
    Refused {
        /// Which request.
        request: String,
        /// The status of the response.
        status: u16,
        /// The error code, such as `invalid_grant`; without one `http_` and the status, or
        /// `invalid_response` for a success that cannot be read.
        error: String,
        /// The description, without control characters, truncated.
        description: Option<String>,
    },
    /// The token store failed.
    #[error("token store: {0}")]
    Store(String),
    /// It took too long, or was cancelled.
    #[error("{0}")]
    Cancelled(String),
}

impl AuthError {
    /// What happened, without the request, for people: `invalid_grant: expired`, `HTTP 500`.
    pub fn cause(&self) -> String {
        match self {
            Self::Refused {
                status,
                error,
                description,
                ..
            } => {
                let code = match error.as_str() {
                    code if *code == http_code(*status) => Some(format!("HTTP {status}")),
                    INVALID_RESPONSE => None,
                    code => Some(code.to_owned()),
                };
                let parts = code.into_iter().chain(description.clone());
                parts.collect::<Vec<_>>().join(": ")
            }
            Self::Http { error, .. } => error.to_string(),
            other => other.to_string(),
        }
    }
}

/// The code of a refusal that has none of its own.
pub(crate) fn http_code(status: u16) -> String {
    format!("http_{status}")
}

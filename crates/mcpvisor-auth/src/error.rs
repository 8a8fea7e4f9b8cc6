//! Why a credential could not be obtained.

use std::time::Duration;

use crate::http_client::HttpError;

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
    /// A renewal failed a moment ago, and the next one is not due yet.
    #[error("{reason}; next attempt in {} s", .retry_in.as_secs().max(1))]
    Unavailable {
        /// Why it failed.
        reason: String,
        /// When the next attempt is allowed.
        retry_in: Duration,
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
    #[error("{request}: {error}{}", description.as_deref().map(|text| format!(": {text}")).unwrap_or_default())]
    Refused {
        /// Which request.
        request: String,
        /// The status of the response.
        status: u16,
        /// The error code, such as `invalid_grant`.
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

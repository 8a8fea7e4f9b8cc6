//! Exchanges a signed assertion for a token (RFC 7523).

use super::GrantTarget;
use crate::error::AuthError;
use crate::secret::Secret;
use crate::token_endpoint::TokenResponse;

const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

/// Requests a token for this assertion. It is never repeated: an assertion may be valid only once.
pub async fn request(
    target: &GrantTarget<'_>,
    assertion: &Secret,
) -> Result<TokenResponse, AuthError> {
    let scope = target.scopes.join(" ");
    let parameters = target.parameters(
        &[
            ("grant_type", GRANT_TYPE),
            ("assertion", assertion.expose()),
        ],
        &scope,
    );
    target.endpoint().request(&parameters).await
}

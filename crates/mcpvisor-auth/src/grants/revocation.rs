//! Revokes tokens (RFC 7009).

use crate::error::AuthError;
use crate::http_client::METADATA_TIMEOUT;
use crate::record::TokenSet;
use crate::secret::Secret;
use crate::token_endpoint::TokenEndpoint;

/// Revokes the refresh token, then the access token, at the revocation endpoint `url`. Both are
/// tried; the first error is returned.
pub async fn revoke(
    endpoint: &TokenEndpoint<'_>,
    url: &str,
    tokens: &TokenSet,
) -> Result<(), AuthError> {
    let refresh = match &tokens.refresh {
        Some(refresh) => revoke_token(endpoint, url, refresh, "refresh_token").await,
        None => Ok(()),
    };
    let access = revoke_token(endpoint, url, &tokens.access, "access_token").await;
    match (&tokens.refresh, access) {
        // RFC 7009, 2.2.1: the issuer revokes access tokens only with their refresh token.
        (Some(_), Err(AuthError::Refused { error, .. })) if error == "unsupported_token_type" => {
            refresh
        }
        (_, access) => refresh.and(access),
    }
}

async fn revoke_token(
    endpoint: &TokenEndpoint<'_>,
    url: &str,
    token: &Secret,
    hint: &str,
) -> Result<(), AuthError> {
    let parameters = [("token", token.expose()), ("token_type_hint", hint)];
    let (exchange, response) = endpoint
        .post("revocation request", url, &parameters, METADATA_TIMEOUT)
        .await?;
    if response.status().is_success() {
        return Ok(());
    }
    let status = response.status();
    Err(match exchange.fields(&response) {
        Ok(fields) => exchange.refusal(status, &fields, ""),
        Err(error) => error,
    })
}

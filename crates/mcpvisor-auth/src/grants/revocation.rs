//! Revokes tokens (RFC 7009).

use crate::error::AuthError;
use crate::http_client::METADATA_TIMEOUT;
use crate::record::{ClientAuthMethod, TokenSet};
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
    let parameters = [
        ("token", token.expose()),
        ("token_type_hint", hint),
        ("client_secret", ""),
    ];
    let sends_none = endpoint.client.auth_method != ClientAuthMethod::ClientSecretPost;
    match post(endpoint, url, &parameters[..2]).await {
        // Servers on the MCP SDK for Python demand the parameter of every client. An empty secret is
        // the same as none (RFC 6749, 2.3.1).
        Err(AuthError::Refused { error, .. }) if sends_none && error == "invalid_request" => {
            post(endpoint, url, &parameters).await
        }
        outcome => outcome,
    }
}

async fn post(
    endpoint: &TokenEndpoint<'_>,
    url: &str,
    parameters: &[(&str, &str)],
) -> Result<(), AuthError> {
    let (exchange, response) = endpoint
        .post("revocation request", url, parameters, METADATA_TIMEOUT)
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

//! Client credentials: the client itself is authorized.

use super::GrantTarget;
use crate::error::AuthError;
use crate::token_endpoint::TokenResponse;

/// Requests a token for the client.
pub async fn request(target: &GrantTarget<'_>) -> Result<TokenResponse, AuthError> {
    let scope = target.scopes.join(" ");
    let parameters = target.parameters(&[("grant_type", "client_credentials")], &scope);
    target.endpoint().request(&parameters).await
}

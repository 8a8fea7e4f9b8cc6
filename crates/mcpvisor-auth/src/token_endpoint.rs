//! Requests to a token endpoint.

use crate::address::AddressPolicy;
use crate::config::ConfiguredClient;
use crate::error::AuthError;
use crate::http_client::HttpClient;
use crate::record::ClientRecord;
use crate::secret::Secret;

/// What a token endpoint returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenResponse {
    /// The access token.
    pub access: Secret,
    /// A new refresh token; the old one stays valid if there is none.
    pub refresh: Option<Secret>,
    /// When it expires, in seconds since 1970, by the time before the request.
    pub expires_at: Option<u64>,
    /// The time before the request, in seconds since 1970.
    pub obtained_at: u64,
    /// The granted scopes, if the issuer named them.
    pub scopes: Option<Vec<String>>,
    /// The `issued_token_type` of a token exchange.
    pub issued_token_type: Option<String>,
}

/// Where a token request goes, and who makes it.
#[derive(Clone, Copy)]
pub struct TokenEndpoint<'a> {
    /// The HTTP client.
    pub http: &'a dyn HttpClient,
    /// The URL.
    pub url: &'a str,
    /// The issuer, the audience of client assertions.
    pub issuer: &'a str,
    /// Where requests may go.
    pub addresses: AddressPolicy,
    /// The client.
    pub client: &'a ClientRecord,
    /// Its key for `private_key_jwt`.
    pub configured: Option<&'a ConfiguredClient>,
}

impl TokenEndpoint<'_> {
    /// Sends one token request with these parameters and the client's authentication. Accepts any 2xx
    /// with an access token leniently.
    pub async fn request(&self, _parameters: &[(&str, &str)]) -> Result<TokenResponse, AuthError> {
        todo!()
    }

    /// Refreshes a token: same resource, no scope.
    pub async fn refresh(
        &self,
        _refresh: &Secret,
        _resource: Option<&str>,
    ) -> Result<TokenResponse, AuthError> {
        todo!()
    }
}

//! The enterprise's identity provider issues an assertion for an MCP server: token exchange
//! (RFC 8693) of the user's ID token for an identity assertion authorization grant (ID-JAG).

use super::GrantTarget;
use crate::address::AddressPolicy;
use crate::config::IdentityProvider;
use crate::discovery::{addresses_of_url, authorization_server};
use crate::error::AuthError;
use crate::record::{ClientAuthMethod, ClientRecord, ClientSource};
use crate::secret::Secret;
use crate::token_endpoint::response::TokenUse;
use crate::token_endpoint::{TokenEndpoint, request_name};

const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ID_TOKEN: &str = "urn:ietf:params:oauth:token-type:id_token";
const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";

/// Exchanges the user's ID token for an assertion that the authorization server accepts.
pub async fn exchange(
    target: &GrantTarget<'_>,
    provider: &IdentityProvider,
) -> Result<Secret, AuthError> {
    // The config names the provider, so it may be in the private network even if the server is not.
    let address = provider.token_endpoint.as_ref().unwrap_or(&provider.issuer);
    let addresses = addresses_of_url(target.http, address).await?;
    exchange_at(target, provider, addresses).await
}

/// As [`exchange`], with the addresses that requests to the provider may go to.
pub async fn exchange_at(
    target: &GrantTarget<'_>,
    provider: &IdentityProvider,
    addresses: AddressPolicy,
) -> Result<Secret, AuthError> {
    let url = match &provider.token_endpoint {
        Some(url) => url.clone(),
        None => {
            let found = authorization_server(target.http, &provider.issuer, None, addresses);
            found.await?.token_endpoint
        }
    };
    let secure = crate::url::parse_secure(&url);
    secure.map_err(|error| AuthError::Invalid(format!("the identity provider: {error}")))?;
    let client = ClientRecord {
        id: provider.client_id.clone(),
        secret: None,
        secret_expires_at: None,
        auth_method: ClientAuthMethod::None,
        source: ClientSource::Configured,
        redirect_uri: None,
    };
    let endpoint = TokenEndpoint {
        http: target.http,
        url: &url,
        issuer: &provider.issuer,
        addresses,
        client: &client,
        configured: None,
        proof_key: None,
    };
    let scope = target.scopes.join(" ");
    let parameters = target.parameters(
        &[
            ("grant_type", GRANT_TYPE),
            ("requested_token_type", ID_JAG),
            ("audience", &target.discovered.server.issuer),
            ("subject_token", provider.id_token.expose()),
            ("subject_token_type", ID_TOKEN),
        ],
        &scope,
    );
    let response = endpoint
        .request_token(TokenUse::Assertion, &parameters)
        .await?;
    match response.issued_token_type.as_deref() {
        None | Some(ID_JAG) => Ok(response.access),
        Some(_) => Err(AuthError::Invalid(format!(
            "{}: the identity provider issued another token than an ID-JAG",
            request_name("token exchange", &url)
        ))),
    }
}

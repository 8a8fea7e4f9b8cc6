//! The enterprise's identity provider issues an assertion for an MCP server: token exchange
//! (RFC 8693) of the user's ID token for an identity assertion authorization grant (ID-JAG).

use bytes::Bytes;
use http::Request;
use http::header::ACCEPT;

use super::{GrantTarget, address_policy};
use crate::address::AddressPolicy;
use crate::config::IdentityProvider;
use crate::error::AuthError;
use crate::http_client::{MAX_RESPONSE_BYTES, METADATA_TIMEOUT, RequestLimits};
use crate::record::{ClientAuthMethod, ClientRecord, ClientSource};
use crate::secret::Secret;
use crate::token_endpoint::response::{Exchange, TokenUse, text};
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
    let addresses = address_policy(target.http, address).await?;
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
        None => find_token_endpoint(target, provider, addresses).await?,
    };
    require_secure(&url)?;
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

/// Reads the token endpoint from the provider's OpenID Connect metadata.
async fn find_token_endpoint(
    target: &GrantTarget<'_>,
    provider: &IdentityProvider,
    addresses: AddressPolicy,
) -> Result<String, AuthError> {
    require_secure(&provider.issuer)?;
    let issuer = provider.issuer.trim_end_matches('/');
    let url = format!("{issuer}/.well-known/openid-configuration");
    let exchange = Exchange {
        request: request_name("metadata request", &url),
        secrets: Vec::new(),
    };
    let request = Request::get(&url)
        .header(ACCEPT, "application/json")
        .body(Bytes::new())
        .map_err(|_| AuthError::Invalid("the URL of the identity provider is not valid".into()))?;
    let limits = RequestLimits {
        addresses,
        max_bytes: MAX_RESPONSE_BYTES,
        timeout: METADATA_TIMEOUT,
    };
    let sent = target.http.send(request, limits).await;
    let response = sent.map_err(|error| AuthError::Http {
        request: exchange.request.clone(),
        error,
    })?;
    let fields = exchange.fields(&response)?;
    if text(&fields, "issuer") != Some(provider.issuer.as_str()) {
        return Err(AuthError::Invalid(format!(
            "{}: the metadata names another issuer than {}",
            exchange.request, provider.issuer
        )));
    }
    let endpoint = text(&fields, "token_endpoint").map(str::to_owned);
    endpoint.ok_or_else(|| {
        AuthError::Invalid(format!(
            "{}: the metadata has no token endpoint",
            exchange.request
        ))
    })
}

/// The ID token must not cross a network in the clear.
fn require_secure(url: &str) -> Result<(), AuthError> {
    let parsed = url.parse::<http::Uri>().ok();
    let secure = parsed.is_some_and(|url| match (url.scheme_str(), url.host()) {
        (Some("https"), Some(_)) => true,
        (Some("http"), Some(host)) => matches!(host, "localhost" | "127.0.0.1" | "[::1]"),
        _ => false,
    });
    match secure {
        true => Ok(()),
        false => Err(AuthError::Invalid(
            "the identity provider must be reached by https, or on this machine".into(),
        )),
    }
}

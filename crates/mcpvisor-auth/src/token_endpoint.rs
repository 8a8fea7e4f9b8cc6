//! Requests to a token endpoint. How its responses are read is in [`response`].

pub mod response;

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use form_urlencoded::{Serializer, byte_serialize};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, Uri};

use crate::address::AddressPolicy;
use crate::client::ClientAuthentication;
use crate::config::ConfiguredClient;
use crate::dpop::{PROOF_HEADER, ProofKey};
use crate::error::AuthError;
use crate::http_client::{HttpClient, HttpError, MAX_RESPONSE_BYTES, RequestLimits, TOKEN_TIMEOUT};
use crate::record::{ClientRecord, unix_seconds};
use crate::secret::Secret;

use response::{Exchange, TokenUse};

/// Parameters whose values are no secrets, so that error messages may repeat them.
const PUBLIC_PARAMETERS: [&str; 9] = [
    "grant_type",
    "client_id",
    "client_assertion_type",
    "redirect_uri",
    "resource",
    "audience",
    "scope",
    "subject_token_type",
    "requested_token_type",
];

/// The name of a token request in error messages.
const TOKEN_REQUEST: &str = "token request";

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
    /// Its type, if the issuer named it.
    pub token_type: Option<TokenType>,
}

/// How an access token is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenType {
    /// Alone.
    Bearer,
    /// With a proof of the key that it is bound to.
    Dpop,
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
    /// The key that tokens are to be bound to.
    pub proof_key: Option<&'a ProofKey>,
}

impl TokenEndpoint<'_> {
    /// Sends one token request with these parameters and the client's authentication. Accepts any 2xx
    /// with an access token leniently.
    pub async fn request(&self, parameters: &[(&str, &str)]) -> Result<TokenResponse, AuthError> {
        self.request_token(TokenUse::Access, parameters).await
    }

    /// Refreshes a token: same resource, no scope.
    pub async fn refresh(
        &self,
        refresh: &Secret,
        resource: Option<&str>,
    ) -> Result<TokenResponse, AuthError> {
        let mut parameters = vec![
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh.expose()),
        ];
        parameters.extend(resource.map(|resource| ("resource", resource)));
        self.request(&parameters).await
    }

    /// As [`Self::request`], for a token of another use than as an access token.
    pub(crate) async fn request_token(
        &self,
        token_use: TokenUse,
        parameters: &[(&str, &str)],
    ) -> Result<TokenResponse, AuthError> {
        let obtained_at = unix_seconds(SystemTime::now());
        let (exchange, response) = match self.proof_key {
            Some(key) => self.post_with_proof(key, parameters).await?,
            None => {
                let posted = self.post(TOKEN_REQUEST, self.url, parameters, TOKEN_TIMEOUT);
                posted.await?
            }
        };
        exchange.token(&response, token_use, obtained_at)
    }

    /// Posts a token request with a proof of the key. An issuer that demands a nonce has not
    /// processed the request; it is repeated once with the nonce.
    async fn post_with_proof(
        &self,
        key: &ProofKey,
        parameters: &[(&str, &str)],
    ) -> Result<(Exchange, Response<Bytes>), AuthError> {
        let url: Uri = self.url.parse().map_err(|_| invalid_url())?;
        let mut may_repeat = true;
        loop {
            let proof = Some(key.token_proof(&url)?);
            let sent = self.send(TOKEN_REQUEST, self.url, parameters, TOKEN_TIMEOUT, proof);
            let (exchange, response) = sent.await?;
            let has_nonce = key.note_issuer_nonce(response.headers());
            let repeats = has_nonce && exchange.demands_nonce(&response);
            if !repeats || !std::mem::take(&mut may_repeat) {
                return Ok((exchange, response));
            }
        }
    }

    /// Posts a form with the client's authentication to an endpoint of the issuer.
    pub(crate) async fn post(
        &self,
        name: &str,
        url: &str,
        parameters: &[(&str, &str)],
        timeout: Duration,
    ) -> Result<(Exchange, Response<Bytes>), AuthError> {
        self.send(name, url, parameters, timeout, None).await
    }

    async fn send(
        &self,
        name: &str,
        url: &str,
        parameters: &[(&str, &str)],
        timeout: Duration,
        proof: Option<HeaderValue>,
    ) -> Result<(Exchange, Response<Bytes>), AuthError> {
        let now = unix_seconds(SystemTime::now());
        let client = ClientAuthentication::new(self.client, self.configured, self.issuer, now)?;
        let mut secrets = self.secrets(parameters, &client);
        secrets.extend(
            proof
                .iter()
                .filter_map(|proof| proof.to_str().ok())
                .map(Secret::new),
        );
        let exchange = Exchange {
            request: request_name(name, url),
            secrets,
            has_proof: proof.is_some(),
        };
        let limits = RequestLimits {
            addresses: self.addresses,
            max_bytes: MAX_RESPONSE_BYTES,
            timeout,
        };
        let mut request = form_request(url, parameters, &client)?;
        if let Some(proof) = proof {
            request.headers_mut().insert(PROOF_HEADER, proof);
        }
        match self.http.send(request, limits).await {
            Ok(response) => Ok((exchange, response)),
            Err(error) => Err(AuthError::Http {
                request: exchange.request,
                error,
            }),
        }
    }

    /// The secrets of a request, to redact them from error messages of the issuer.
    fn secrets(&self, parameters: &[(&str, &str)], client: &ClientAuthentication) -> Vec<Secret> {
        let given = parameters
            .iter()
            .map(|(name, value)| (*name, Secret::new(*value)));
        let authentication = client.parameters.iter().cloned();
        let configured = self.configured.and_then(|client| client.secret.clone());
        let plain = given
            .chain(authentication)
            .filter(|(name, _)| !PUBLIC_PARAMETERS.contains(name))
            .map(|(_, value)| value)
            .chain(self.client.secret.clone())
            .chain(configured);
        let header = client.authorization.iter().filter_map(basic_credentials);
        plain.flat_map(with_encoded).chain(header).collect()
    }
}

/// A secret as it is, and as a form contains it.
fn with_encoded(secret: Secret) -> [Secret; 2] {
    let encoded = byte_serialize(secret.expose().as_bytes()).collect::<String>();
    [secret, Secret::new(encoded)]
}

fn basic_credentials(header: &HeaderValue) -> Option<Secret> {
    let credentials = header.to_str().ok()?.strip_prefix("Basic ")?;
    Some(Secret::new(credentials))
}

/// Whether the issuer rejected the refresh token, code or assertion itself, with any status. Only
/// this ends a grant.
pub fn is_invalid_grant(error: &AuthError) -> bool {
    matches!(error, AuthError::Refused { error, .. } if error == "invalid_grant")
}

/// Whether the issuer does not know the client, or not with this secret.
pub fn is_invalid_client(error: &AuthError) -> bool {
    matches!(error, AuthError::Refused { error, .. } if error == "invalid_client")
}

/// Whether the same request may succeed later.
pub fn is_transient(error: &AuthError) -> bool {
    let AuthError::Refused { status, error, .. } = error else {
        return !is_final(error);
    };
    let code = error.as_str();
    let unavailable = matches!(
        code,
        "temporarily_unavailable" | "server_error" | "slow_down"
    );
    unavailable || matches!(status, 408 | 425 | 429 | 500..=599) && !is_final_code(code)
}

/// Whether a retry changes nothing about an error that is not of the issuer.
fn is_final(error: &AuthError) -> bool {
    matches!(
        error,
        AuthError::LoginNeeded { .. }
            | AuthError::Invalid(_)
            | AuthError::Cancelled(_)
            | AuthError::Http {
                error: HttpError::AddressRefused { .. },
                ..
            }
    )
}

/// Codes that a retry does not change, even with a 5xx status.
fn is_final_code(code: &str) -> bool {
    matches!(
        code,
        "invalid_grant"
            | "invalid_client"
            | "invalid_request"
            | "invalid_scope"
            | "invalid_target"
            | "unauthorized_client"
            | "unsupported_grant_type"
            | "access_denied"
    )
}

/// The name of a request in error messages: what it is and the origin, never the query.
pub(crate) fn request_name(name: &str, url: &str) -> String {
    let origin = url.parse::<http::Uri>().ok().and_then(|url| {
        let host = url.host()?;
        let port = url.port_u16().map(|port| format!(":{port}"));
        Some(format!(
            "{}://{host}{}",
            url.scheme_str()?,
            port.unwrap_or_default()
        ))
    });
    match origin {
        Some(origin) => format!("{name} to {origin}"),
        None => name.to_owned(),
    }
}

fn form_request(
    url: &str,
    parameters: &[(&str, &str)],
    client: &ClientAuthentication,
) -> Result<Request<Bytes>, AuthError> {
    let mut form = Serializer::new(String::new());
    form.extend_pairs(parameters);
    for (name, value) in &client.parameters {
        form.append_pair(name, value.expose());
    }
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(url)
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
    if let Some(authorization) = &client.authorization {
        request = request.header(AUTHORIZATION, authorization.clone());
    }
    request
        .body(Bytes::from(form.finish()))
        .map_err(|_| invalid_url())
}

fn invalid_url() -> AuthError {
    AuthError::Invalid("the URL of an endpoint of the issuer is not valid".into())
}

#[cfg(test)]
mod tests;

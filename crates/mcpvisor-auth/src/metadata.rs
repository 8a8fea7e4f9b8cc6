//! The metadata documents of protected resources and authorization servers.
//!
//! Documents are untrusted: lists are bounded, and a URL is https or on loopback. Whether the
//! documents belong to the MCP server is for [`crate::discovery`] to check.

use http::Uri;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::AuthError;
use crate::text::{scope_tokens, shown_url};
use crate::url;

pub(crate) mod fetch;

/// Entries of a list in metadata.
const MAX_LIST_ENTRIES: usize = 1000;

/// Bytes of an entry of such a list.
const MAX_ENTRY_BYTES: usize = 2048;

/// Authorization servers of a resource.
const MAX_AUTHORIZATION_SERVERS: usize = 32;

/// The metadata of an authorization server (RFC 8414, OpenID Connect Discovery), validated.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuthorizationServer {
    /// Its issuer, byte for byte.
    pub issuer: String,
    /// The endpoints, each https or on loopback.
    pub authorization_endpoint: Option<String>,
    /// The token endpoint.
    pub token_endpoint: String,
    /// For dynamic registration.
    pub registration_endpoint: Option<String>,
    /// For logout.
    pub revocation_endpoint: Option<String>,
    /// For the device grant.
    pub device_authorization_endpoint: Option<String>,
    /// The scopes that it lists.
    pub scopes_supported: Option<Vec<String>>,
    /// `code_challenge_methods_supported`.
    pub code_challenge_methods: Vec<String>,
    /// `token_endpoint_auth_methods_supported`.
    pub token_auth_methods: Vec<String>,
    /// `authorization_response_iss_parameter_supported`.
    pub iss_in_response: bool,
    /// `client_id_metadata_document_supported`.
    pub supports_metadata_document: bool,
    /// `dpop_signing_alg_values_supported`.
    pub dpop_algorithms: Vec<String>,
}

/// The metadata of a protected resource (RFC 9728), validated.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProtectedResource {
    /// The resource identifier, byte for byte.
    pub resource: String,
    /// The issuers of its authorization servers; the first one is used.
    pub authorization_servers: Vec<String>,
    /// The scopes that it lists.
    pub scopes_supported: Option<Vec<String>>,
    /// `dpop_bound_access_tokens_required`.
    pub requires_dpop: bool,
}

impl AuthorizationServer {
    /// Reads a document. `source` is its URL for errors.
    pub fn from_json(document: Map<String, Value>, source: &str) -> Result<Self, AuthError> {
        let raw: RawAuthorizationServer = read(document, source)?;
        let endpoint = |name, url| endpoint(name, url, source);
        let token_endpoint = endpoint("token_endpoint", raw.token_endpoint)?
            .ok_or_else(|| invalid(source, "there is no token_endpoint"))?;
        Ok(Self {
            issuer: raw.issuer,
            authorization_endpoint: endpoint("authorization_endpoint", raw.authorization_endpoint)?,
            token_endpoint,
            registration_endpoint: endpoint("registration_endpoint", raw.registration_endpoint)?,
            revocation_endpoint: endpoint("revocation_endpoint", raw.revocation_endpoint)?,
            device_authorization_endpoint: endpoint(
                "device_authorization_endpoint",
                raw.device_authorization_endpoint,
            )?,
            scopes_supported: scopes(raw.scopes_supported, source)?,
            code_challenge_methods: list(
                "code_challenge_methods_supported",
                raw.code_challenge_methods_supported,
                source,
            )?,
            token_auth_methods: list(
                "token_endpoint_auth_methods_supported",
                raw.token_endpoint_auth_methods_supported,
                source,
            )?,
            iss_in_response: raw
                .authorization_response_iss_parameter_supported
                .unwrap_or_default(),
            supports_metadata_document: raw
                .client_id_metadata_document_supported
                .unwrap_or_default(),
            dpop_algorithms: list(
                "dpop_signing_alg_values_supported",
                raw.dpop_signing_alg_values_supported,
                source,
            )?,
        })
    }

    /// The default endpoints of an MCP server of 2025-03-26 that has no metadata. Such a server
    /// must support PKCE.
    pub(crate) fn with_default_endpoints(origin: &str) -> Self {
        Self {
            issuer: origin.to_owned(),
            authorization_endpoint: Some(format!("{origin}/authorize")),
            token_endpoint: format!("{origin}/token"),
            registration_endpoint: Some(format!("{origin}/register")),
            revocation_endpoint: None,
            device_authorization_endpoint: None,
            scopes_supported: None,
            code_challenge_methods: vec!["S256".to_owned()],
            token_auth_methods: Vec::new(),
            iss_in_response: false,
            supports_metadata_document: false,
            dpop_algorithms: Vec::new(),
        }
    }

    /// Checks that the document belongs to this issuer, byte for byte (RFC 8414, 3.3). `exception`
    /// is the one other name that the config accepts.
    pub fn check_issuer(&self, expected: &str, exception: Option<&str>) -> Result<(), AuthError> {
        if self.issuer == expected || exception == Some(self.issuer.as_str()) {
            return Ok(());
        }
        Err(AuthError::Invalid(format!(
            "the metadata of {} names another issuer, {}; if that is right, set \
             auth.issuerException to it",
            shown_url(expected),
            shown_url(&self.issuer),
        )))
    }

    /// Checks that the authorization code grant is possible: an authorization endpoint, and PKCE
    /// with S256. MCP requires that the metadata lists it.
    pub fn check_authorization_code(&self) -> Result<(), AuthError> {
        if self.authorization_endpoint.is_none() {
            return Err(self.unsupported("it has no authorization endpoint"));
        }
        let methods = &self.code_challenge_methods;
        if !methods.iter().any(|method| method == "S256") {
            return Err(self.unsupported(
                "its metadata does not list PKCE with S256 in code_challenge_methods_supported",
            ));
        }
        Ok(())
    }

    /// Checks that the device grant is possible.
    pub fn check_device_code(&self) -> Result<(), AuthError> {
        match self.device_authorization_endpoint {
            Some(_) => Ok(()),
            None => Err(self.unsupported("it has no device authorization endpoint")),
        }
    }

    fn unsupported(&self, problem: &str) -> AuthError {
        AuthError::Invalid(format!(
            "cannot log in at {}: {problem}; ask its operator",
            shown_url(&self.issuer)
        ))
    }
}

impl ProtectedResource {
    /// Reads a document and checks that it is about the server: its `resource` is the URL of the
    /// server or a parent of it. `source` is the URL of the document for errors.
    pub fn from_json(
        document: Map<String, Value>,
        server: &Uri,
        source: &str,
    ) -> Result<Self, AuthError> {
        let raw: RawProtectedResource = read(document, source)?;
        let covers = url::parse_secure(&raw.resource)
            .is_ok_and(|resource| url::resource_covers(&resource, server));
        if !covers {
            return Err(AuthError::Invalid(format!(
                "{source} is about another resource, {}, not {}; check the URL of the server",
                shown_url(&raw.resource),
                url::without_query(server),
            )));
        }
        let servers = list("authorization_servers", raw.authorization_servers, source)?;
        if servers.len() > MAX_AUTHORIZATION_SERVERS {
            return Err(invalid(source, "authorization_servers is too long"));
        }
        Ok(Self {
            resource: raw.resource,
            authorization_servers: servers,
            scopes_supported: scopes(raw.scopes_supported, source)?,
            requires_dpop: raw.dpop_bound_access_tokens_required.unwrap_or_default(),
        })
    }
}

/// RFC 8414 and OpenID Connect Discovery, as sent.
#[derive(Deserialize)]
struct RawAuthorizationServer {
    issuer: String,
    authorization_endpoint: Option<String>,
    token_endpoint: Option<String>,
    registration_endpoint: Option<String>,
    revocation_endpoint: Option<String>,
    device_authorization_endpoint: Option<String>,
    scopes_supported: Option<Vec<String>>,
    code_challenge_methods_supported: Option<Vec<String>>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    authorization_response_iss_parameter_supported: Option<bool>,
    client_id_metadata_document_supported: Option<bool>,
    dpop_signing_alg_values_supported: Option<Vec<String>>,
}

/// RFC 9728, as sent.
#[derive(Deserialize)]
struct RawProtectedResource {
    resource: String,
    authorization_servers: Option<Vec<String>>,
    scopes_supported: Option<Vec<String>>,
    dpop_bound_access_tokens_required: Option<bool>,
}

fn read<T: for<'de> Deserialize<'de>>(
    document: Map<String, Value>,
    source: &str,
) -> Result<T, AuthError> {
    // The error of serde may quote the document.
    serde_json::from_value(Value::Object(document))
        .map_err(|_| invalid(source, "a required field is missing or of another type"))
}

/// An endpoint that may be requested or opened. An empty text counts as none.
fn endpoint(name: &str, url: Option<String>, source: &str) -> Result<Option<String>, AuthError> {
    match url.filter(|url| !url.is_empty()) {
        None => Ok(None),
        Some(text) => match url::parse_secure(&text) {
            Ok(_) => Ok(Some(text)),
            Err(error) => Err(invalid(source, &format!("{name}: {error}"))),
        },
    }
}

fn list(name: &str, list: Option<Vec<String>>, source: &str) -> Result<Vec<String>, AuthError> {
    let list = list.unwrap_or_default();
    let bounded =
        list.len() <= MAX_LIST_ENTRIES && list.iter().all(|entry| entry.len() <= MAX_ENTRY_BYTES);
    if bounded {
        Ok(list)
    } else {
        Err(invalid(source, &format!("{name} is too long")))
    }
}

fn scopes(scopes: Option<Vec<String>>, source: &str) -> Result<Option<Vec<String>>, AuthError> {
    let Some(scopes) = scopes else {
        return Ok(None);
    };
    let scopes = list("scopes_supported", Some(scopes), source)?;
    Ok(Some(scope_tokens(scopes.iter().map(String::as_str))))
}

fn invalid(source: &str, problem: &str) -> AuthError {
    AuthError::Invalid(format!("the metadata at {source} is invalid: {problem}"))
}

#[cfg(test)]
mod tests;

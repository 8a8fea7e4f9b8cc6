//! Finds the authorization server of an MCP server.
//!
//! Nothing that discovery reads is trusted: the metadata of the resource must be about the server,
//! the metadata of the issuer must name that issuer, and requests go only where the server itself
//! could be. Registration and grants are for other modules.

use http::Uri;

use crate::address::AddressPolicy;
use crate::challenge::Challenge;
use crate::config::{CredentialConfig, Grant, ResourceChoice};
use crate::error::AuthError;
use crate::http_client::HttpClient;
use crate::metadata::fetch::get_first;
use crate::metadata::{AuthorizationServer, ProtectedResource};
use crate::text::shown_url;
use crate::url;

/// What discovery found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discovered {
    /// The metadata of the MCP server, if it has any.
    pub resource: Option<ProtectedResource>,
    /// The authorization server.
    pub server: AuthorizationServer,
    /// Where requests to it may go.
    pub addresses: AddressPolicy,
}

impl Discovered {
    /// The `resource` parameter of this server: the configured one, else that of its metadata, else
    /// the URL of the server; `None` if it is omitted.
    pub fn resource_parameter(&self, config: &CredentialConfig) -> Option<String> {
        match (&config.resource, &self.resource) {
            (ResourceChoice::Omitted, _) => None,
            (ResourceChoice::Fixed(resource), _) => Some(resource.clone()),
            (ResourceChoice::Discovered, Some(metadata)) => Some(metadata.resource.clone()),
            (ResourceChoice::Discovered, None) => Some(config.server_url.clone()),
        }
    }
}

/// Finds the protected-resource metadata (by the challenge, then at the well-known locations) and
/// the metadata of its authorization server, and checks both.
pub async fn discover(
    http: &dyn HttpClient,
    config: &CredentialConfig,
    challenge: &Challenge,
) -> Result<Discovered, AuthError> {
    let server_url = url::parse_secure(&config.server_url).map_err(|error| {
        AuthError::Invalid(format!("cannot log in at this server URL: {error}"))
    })?;
    let addresses = server_addresses(http, &server_url).await?;
    let resource = find_resource(http, challenge, &server_url, addresses).await?;
    let exception = config.issuer_exception.as_deref();
    let server = match issuer(config, resource.as_ref())? {
        Some(issuer) => authorization_server(http, &issuer, exception, addresses).await?,
        None => origin_as_issuer(http, &server_url, exception, addresses).await?,
    };
    check_grant(&server, &config.grant)?;
    check_browser_target(&server, addresses)?;
    Ok(Discovered {
        resource,
        server,
        addresses,
    })
}

/// Gets the metadata of an issuer and checks that it is of this issuer. `exception` is the one
/// other name that its metadata may state.
pub async fn authorization_server(
    http: &dyn HttpClient,
    issuer: &str,
    exception: Option<&str>,
    addresses: AddressPolicy,
) -> Result<AuthorizationServer, AuthError> {
    let server = find_authorization_server(http, issuer, addresses).await?;
    let server = server.ok_or_else(|| {
        AuthError::Invalid(format!(
            "{} has no metadata at its well-known locations; check auth.issuer",
            shown_url(issuer)
        ))
    })?;
    server.check_issuer(issuer, exception)?;
    Ok(server)
}

/// Where requests may go on behalf of the server at this URL.
pub(crate) async fn addresses_of_url(
    http: &dyn HttpClient,
    server_url: &str,
) -> Result<AddressPolicy, AuthError> {
    let url = url::parse(server_url);
    let url = url.map_err(|error| AuthError::Invalid(format!("the URL of the server: {error}")))?;
    server_addresses(http, &url).await
}

/// Where requests may go on behalf of a server: where it is itself.
pub(crate) async fn server_addresses(
    http: &dyn HttpClient,
    server_url: &Uri,
) -> Result<AddressPolicy, AuthError> {
    if let Some(address) = url::ip_literal(server_url) {
        return Ok(AddressPolicy::for_server(&[address]));
    }
    let host = server_url.host().unwrap_or_default();
    let addresses = http.resolve(host).await;
    let addresses = addresses.map_err(|error| AuthError::Http {
        request: format!("look-up of {host}"),
        error,
    })?;
    Ok(AddressPolicy::for_server(&addresses))
}

async fn find_resource(
    http: &dyn HttpClient,
    challenge: &Challenge,
    server_url: &Uri,
    addresses: AddressPolicy,
) -> Result<Option<ProtectedResource>, AuthError> {
    let mut urls = url::resource_metadata_urls(server_url);
    if let Some(named) = &challenge.resource_metadata {
        urls.retain(|url| url != named);
        urls.insert(0, named.clone());
    }
    match get_first(http, &urls, addresses).await? {
        Some(document) => {
            ProtectedResource::from_json(document.object, server_url, &document.source).map(Some)
        }
        None => Ok(None),
    }
}

/// The issuer to use: the configured one, if the metadata of the resource lists it, else the first
/// of the list. `None` if there is neither a configured one nor metadata.
fn issuer(
    config: &CredentialConfig,
    resource: Option<&ProtectedResource>,
) -> Result<Option<String>, AuthError> {
    let Some(resource) = resource else {
        return Ok(config.issuer.clone());
    };
    let listed = &resource.authorization_servers;
    match &config.issuer {
        Some(issuer) if listed.is_empty() || listed.contains(issuer) => Ok(Some(issuer.clone())),
        Some(_) => Err(AuthError::Invalid(format!(
            "the server does not name the configured issuer but {}; correct auth.issuer",
            shown_list(listed)
        ))),
        None => match listed.first() {
            Some(first) => Ok(Some(first.clone())),
            None => Err(AuthError::Invalid(
                "the metadata of the server names no authorization server; set auth.issuer"
                    .to_owned(),
            )),
        },
    }
}

async fn find_authorization_server(
    http: &dyn HttpClient,
    issuer: &str,
    addresses: AddressPolicy,
) -> Result<Option<AuthorizationServer>, AuthError> {
    let issuer_url = url::parse_secure(issuer).map_err(|error| {
        AuthError::Invalid(format!(
            "cannot use the named issuer: {error}; ask the operator of the server"
        ))
    })?;
    let urls = url::issuer_metadata_urls(&issuer_url);
    match get_first(http, &urls, addresses).await? {
        Some(document) => {
            AuthorizationServer::from_json(document.object, &document.source).map(Some)
        }
        None => Ok(None),
    }
}

/// Servers of 2025-03-26 have no metadata of their own: they are their issuer, and without metadata
/// of the issuer their endpoints have default paths.
async fn origin_as_issuer(
    http: &dyn HttpClient,
    server_url: &Uri,
    exception: Option<&str>,
    addresses: AddressPolicy,
) -> Result<AuthorizationServer, AuthError> {
    let origin = url::origin(server_url);
    match find_authorization_server(http, &origin, addresses).await? {
        Some(server) => {
            // The issuer is derived here, so both spellings of an origin are the expected one.
            if server.issuer != format!("{origin}/") {
                server.check_issuer(&origin, exception)?;
            }
            Ok(server)
        }
        None => Ok(AuthorizationServer::with_default_endpoints(&origin)),
    }
}

fn check_grant(server: &AuthorizationServer, grant: &Grant) -> Result<(), AuthError> {
    match grant {
        Grant::AuthorizationCode => server.check_authorization_code(),
        Grant::DeviceCode => server.check_device_code(),
        Grant::ClientCredentials | Grant::JwtBearer { .. } | Grant::Enterprise(_) => Ok(()),
    }
}

/// A browser opens the authorization endpoint, so no dialer checks its address. An address in the
/// URL itself is checked here: metadata must not send a person into the private network either.
fn check_browser_target(
    server: &AuthorizationServer,
    addresses: AddressPolicy,
) -> Result<(), AuthError> {
    let endpoint = server.authorization_endpoint.as_deref();
    let parsed = endpoint.and_then(|endpoint| url::parse_secure(endpoint).ok());
    match parsed.as_ref().and_then(url::literal_address) {
        Some(address) if !addresses.permits(address) => Err(AuthError::Invalid(format!(
            "the authorization endpoint of {} is at {address}, which is not allowed for this \
             server",
            shown_url(&server.issuer)
        ))),
        _ => Ok(()),
    }
}

/// The first issuers of a list, for messages.
fn shown_list(issuers: &[String]) -> String {
    let shown: Vec<_> = issuers.iter().take(3).map(|text| shown_url(text)).collect();
    shown.join(", ")
}

#[cfg(test)]
mod tests;

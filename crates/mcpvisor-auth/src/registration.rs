//! The client of a login: configured, a metadata document, or dynamic registration (RFC 7591).
//!
//! Whether the issuer still knows an earlier registration is for the login to find out.

use std::time::SystemTime;

use crate::config::{ConfiguredClient, CredentialConfig, Grant};
use crate::discovery::Discovered;
use crate::error::AuthError;
use crate::http_client::HttpClient;
use crate::metadata::AuthorizationServer;
use crate::record::{ClientAuthMethod, ClientRecord, ClientSource, unix_seconds};
use crate::url;

mod dynamic;

/// Chooses the client of a login, in this order: configured, metadata document where the issuer
/// supports it, `previous` if it is a registration at the same issuer with this redirect URI, a new
/// registration. `previous` is never shown to another issuer: the caller passes it only for the
/// issuer that it belongs to.
pub async fn client_for(
    http: &dyn HttpClient,
    config: &CredentialConfig,
    discovered: &Discovered,
    redirect_uri: Option<&str>,
    previous: Option<&ClientRecord>,
) -> Result<ClientRecord, AuthError> {
    let server = &discovered.server;
    if let Some(client) = &config.client {
        return Ok(configured_client(client, server, redirect_uri));
    }
    require_interactive(&config.grant)?;
    if let Some(document) = &config.client_metadata_url {
        check_metadata_document_url(document)?;
        if server.supports_metadata_document {
            return Ok(metadata_document_client(document, redirect_uri));
        }
    }
    let now = unix_seconds(SystemTime::now());
    match previous {
        Some(client) if is_reusable(client, server, redirect_uri, now) => Ok(client.clone()),
        _ => dynamic::register(http, config, discovered, redirect_uri).await,
    }
}

fn configured_client(
    client: &ConfiguredClient,
    server: &AuthorizationServer,
    redirect_uri: Option<&str>,
) -> ClientRecord {
    let auth_method = if client.private_key.is_some() {
        ClientAuthMethod::PrivateKeyJwt
    } else if client.secret.is_none() {
        ClientAuthMethod::None
    } else if lists(server, ClientAuthMethod::ClientSecretPost)
        && !lists(server, ClientAuthMethod::ClientSecretBasic)
    {
        ClientAuthMethod::ClientSecretPost
    } else {
        ClientAuthMethod::ClientSecretBasic
    };
    ClientRecord {
        id: client.id.clone(),
        secret: client.secret.clone(),
        secret_expires_at: None,
        auth_method,
        source: ClientSource::Configured,
        redirect_uri: redirect_uri.map(str::to_owned),
    }
}

/// Grants without a person need a client that the issuer trusts already.
fn require_interactive(grant: &Grant) -> Result<(), AuthError> {
    match grant {
        Grant::AuthorizationCode | Grant::DeviceCode => Ok(()),
        Grant::ClientCredentials | Grant::JwtBearer { .. } | Grant::Enterprise(_) => {
            Err(AuthError::Invalid(
                "this grant needs a registered client; set auth.clientId".to_owned(),
            ))
        }
    }
}

/// The URL is the client id, so the issuer fetches it: https, with a path.
fn check_metadata_document_url(document: &str) -> Result<(), AuthError> {
    let usable = url::parse_secure(document)
        .is_ok_and(|url| url.scheme_str() == Some("https") && url.path() != "/");
    if usable {
        Ok(())
    } else {
        Err(AuthError::Invalid(
            "auth.clientMetadataUrl must be an https URL with a path".to_owned(),
        ))
    }
}

fn metadata_document_client(document: &str, redirect_uri: Option<&str>) -> ClientRecord {
    ClientRecord {
        id: document.to_owned(),
        secret: None,
        secret_expires_at: None,
        auth_method: ClientAuthMethod::None,
        source: ClientSource::MetadataDocument,
        redirect_uri: redirect_uri.map(str::to_owned),
    }
}

fn is_reusable(
    client: &ClientRecord,
    server: &AuthorizationServer,
    redirect_uri: Option<&str>,
    now: u64,
) -> bool {
    let method_known = server.token_auth_methods.is_empty() || lists(server, client.auth_method);
    let secret_valid = client.secret_expires_at.is_none_or(|at| at > now);
    client.source == ClientSource::Registered
        && client.redirect_uri.as_deref() == redirect_uri
        && method_known
        && secret_valid
}

fn lists(server: &AuthorizationServer, method: ClientAuthMethod) -> bool {
    let name = method_name(method);
    server
        .token_auth_methods
        .iter()
        .any(|listed| listed == name)
}

/// The name of a method in metadata.
fn method_name(method: ClientAuthMethod) -> &'static str {
    match method {
        ClientAuthMethod::None => "none",
        ClientAuthMethod::ClientSecretBasic => "client_secret_basic",
        ClientAuthMethod::ClientSecretPost => "client_secret_post",
        ClientAuthMethod::PrivateKeyJwt => "private_key_jwt",
    }
}

#[cfg(test)]
mod tests;

//! Registered clients, and dynamic registration.

use serde_json::{Value, json};

use super::jwt;
use super::ledger::fresh;
use super::service::{Reply, Shared, error};
use crate::http_server::WireReply;

/// How a client authenticates at the token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthMethod {
    /// A public client.
    None,
    /// HTTP Basic.
    Basic,
    /// A secret in the body.
    Post,
    /// A signed assertion.
    PrivateKeyJwt,
}

impl AuthMethod {
    /// The name in metadata.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Basic => "client_secret_basic",
            Self::Post => "client_secret_post",
            Self::PrivateKeyJwt => "private_key_jwt",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        let all = [Self::None, Self::Basic, Self::Post, Self::PrivateKeyJwt];
        all.into_iter().find(|method| method.name() == name)
    }
}

/// A client that the server knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// `client_id`
    pub id: String,
    /// `client_secret`
    pub secret: Option<String>,
    /// When the secret expires, in seconds since 1970; 0 is never.
    pub secret_expires_at: u64,
    /// How it must authenticate.
    pub method: AuthMethod,
    /// Its redirect URIs.
    pub redirect_uris: Vec<String>,
    /// Its registration request; null if it was registered by the test.
    pub registration: Value,
}

impl Client {
    /// A public client.
    pub fn public(id: &str, redirect_uri: &str) -> Self {
        Self {
            id: id.to_owned(),
            secret: None,
            secret_expires_at: 0,
            method: AuthMethod::None,
            redirect_uris: vec![redirect_uri.to_owned()],
            registration: Value::Null,
        }
    }

    /// A client with a secret. The redirect URI may be empty.
    pub fn confidential(id: &str, secret: &str, method: AuthMethod, redirect_uri: &str) -> Self {
        Self {
            secret: Some(secret.to_owned()),
            method,
            ..Self::public(id, redirect_uri)
        }
    }

    /// Whether a redirect URI is registered.
    pub(super) fn may_redirect_to(&self, uri: &str, any_loopback_port: bool) -> bool {
        self.redirect_uris.iter().any(|known| {
            known == uri
                || (any_loopback_port
                    && without_loopback_port(known).is_some()
                    && without_loopback_port(known) == without_loopback_port(uri))
        })
    }
}

/// Whether a redirect URI leads to this machine.
pub(super) fn is_loopback(uri: &str) -> bool {
    without_loopback_port(uri).is_some()
}

/// Host and path of a loopback URI.
fn without_loopback_port(uri: &str) -> Option<(&str, &str)> {
    let rest = uri.strip_prefix("http://")?;
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority
        .rsplit_once(':')
        .map_or(authority, |(host, _)| host);
    let loopback = ["127.0.0.1", "localhost", "[::1]"].contains(&host);
    loopback.then_some((host, path))
}

/// Answers a registration request.
pub(super) fn register(shared: &Shared, body: &[u8]) -> Reply {
    let request: Value = serde_json::from_slice(body).unwrap_or_default();
    let uris = request["redirect_uris"].as_array();
    let uris = uris.into_iter().flatten().filter_map(Value::as_str);
    let redirect_uris: Vec<String> = uris.map(str::to_owned).collect();
    let grants = request["grant_types"].as_array();
    let needs_redirect = grants.is_none_or(|grants| grants.contains(&json!("authorization_code")));
    if needs_redirect && redirect_uris.is_empty() {
        return Err(error(400, "invalid_redirect_uri", "no redirect_uris"));
    }
    let method = request["token_endpoint_auth_method"].as_str();
    let Some(method) = AuthMethod::named(method.unwrap_or("client_secret_basic")) else {
        return Err(error(400, "invalid_client_metadata", "unknown method"));
    };
    let lifetime = shared.options().client_secret_lifetime;
    let client = Client {
        id: fresh("client"),
        secret_expires_at: lifetime.map_or(0, |lifetime| jwt::now() + lifetime.as_secs()),
        secret: matches!(method, AuthMethod::Basic | AuthMethod::Post).then(|| fresh("secret")),
        method,
        redirect_uris,
        registration: request.clone(),
    };
    let mut reply = request;
    if !reply.is_object() {
        reply = json!({});
    }
    reply["client_id"] = json!(client.id);
    reply["token_endpoint_auth_method"] = json!(method.name());
    if let Some(secret) = &client.secret {
        reply["client_secret"] = json!(secret);
        reply["client_secret_expires_at"] = json!(client.secret_expires_at);
    }
    shared.ledger().add_client(client);
    Ok(WireReply::json(201, &reply))
}

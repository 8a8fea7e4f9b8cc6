//! Dynamic registration (RFC 7591).

use bytes::Bytes;
use http::{Method, Request, Response, header};
use serde_json::{Map, Value, json};

use super::{lists, method_name};
use crate::config::{CredentialConfig, Grant};
use crate::discovery::Discovered;
use crate::error::AuthError;
use crate::http_client::HttpClient;
use crate::metadata::AuthorizationServer;
use crate::metadata::fetch::{metadata_limits, unexpected_status};
use crate::record::{ClientAuthMethod, ClientRecord, ClientSource};
use crate::secret::Secret;
use crate::text::{MAX_DESCRIPTION_CHARS, printable};
use crate::url;

/// The grant of RFC 8628.
const DEVICE_CODE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// Bytes of a client id or secret.
const MAX_CREDENTIAL_BYTES: usize = 4096;

/// The methods of a registered secret, the preferred one first.
const SECRET_METHODS: [ClientAuthMethod; 2] = [
    ClientAuthMethod::ClientSecretBasic,
    ClientAuthMethod::ClientSecretPost,
];

/// Characters of an error code.
const MAX_ERROR_CHARS: usize = 64;

/// Registers a client.
pub(super) async fn register(
    http: &dyn HttpClient,
    config: &CredentialConfig,
    discovered: &Discovered,
    redirect_uri: Option<&str>,
) -> Result<ClientRecord, AuthError> {
    let endpoint = discovered.server.registration_endpoint.as_deref();
    let endpoint = endpoint.ok_or_else(|| {
        AuthError::Invalid(
            "the authorization server registers no clients; register one there and set \
             auth.clientId"
                .to_owned(),
        )
    })?;
    let method = requested_method(&discovered.server)?;
    let body = registration_request(&config.grant, redirect_uri, method);
    let url = url::parse_secure(endpoint)
        .map_err(|error| AuthError::Invalid(format!("registration_endpoint: {error}")))?;
    let source = url::without_query(&url);

    let mut request = Request::new(Bytes::from(body.to_string()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = url;
    let json = header::HeaderValue::from_static("application/json");
    request
        .headers_mut()
        .insert(header::CONTENT_TYPE, json.clone());
    request.headers_mut().insert(header::ACCEPT, json);
    let limits = metadata_limits(discovered.addresses);
    let response = http.send(request, limits).await;
    let response = response.map_err(|error| AuthError::Http {
        request: format!("registration at {source}"),
        error,
    })?;
    read_reply(&response, &discovered.server, method, redirect_uri, &source)
}

/// The first method that the server lists, beginning with that of public clients. A server that
/// lists none supports HTTP Basic (RFC 8414, 2).
fn requested_method(server: &AuthorizationServer) -> Result<ClientAuthMethod, AuthError> {
    if server.token_auth_methods.is_empty() {
        return Ok(ClientAuthMethod::ClientSecretBasic);
    }
    let mut methods = [ClientAuthMethod::None].into_iter().chain(SECRET_METHODS);
    let listed = methods.find(|method| lists(server, *method));
    listed.ok_or_else(|| {
        AuthError::Invalid(
            "the authorization server supports no client authentication that can be registered; \
             register a client there and set auth.clientId"
                .to_owned(),
        )
    })
}

/// The body of a registration. It names no scopes: a later login may request more, and servers
/// refuse what was not registered.
fn registration_request(
    grant: &Grant,
    redirect_uri: Option<&str>,
    method: ClientAuthMethod,
) -> Value {
    let mut grant_types = Vec::new();
    let mut body = json!({
        "client_name": "mcpvisor",
        "application_type": "native",
        "token_endpoint_auth_method": method_name(method),
        // The default would demand redirect URIs, which a device login has none of.
        "response_types": [],
    });
    if let Some(redirect_uri) = redirect_uri {
        grant_types.push("authorization_code");
        body["redirect_uris"] = json!([redirect_uri]);
        body["response_types"] = json!(["code"]);
    }
    grant_types.push("refresh_token");
    if *grant == Grant::DeviceCode {
        grant_types.push(DEVICE_CODE_GRANT);
    }
    body["grant_types"] = json!(grant_types);
    body
}

fn read_reply(
    response: &Response<Bytes>,
    server: &AuthorizationServer,
    requested: ClientAuthMethod,
    redirect_uri: Option<&str>,
    source: &str,
) -> Result<ClientRecord, AuthError> {
    let status = response.status();
    if status.is_server_error() {
        return Err(unexpected_status("registration request", source, status));
    }
    let reply: Option<Map<String, Value>> = serde_json::from_slice(response.body()).ok();
    if !status.is_success() {
        return Err(refusal(status.as_u16(), reply.unwrap_or_default(), source));
    }
    let bad_reply = |problem| AuthError::Invalid(format!("registration at {source}: {problem}"));
    let reply = reply.ok_or_else(|| bad_reply("the reply is no JSON object"))?;
    let id =
        credential(&reply, "client_id").ok_or_else(|| bad_reply("the reply has no client_id"))?;
    let secret = credential(&reply, "client_secret");
    let auth_method = effective_method(&reply, server, requested, secret.is_some())
        .ok_or_else(|| bad_reply("the client got an unsupported authentication method"))?;
    Ok(ClientRecord {
        id: id.to_owned(),
        secret_expires_at: secret.and_then(|_| secret_expiry(&reply)),
        secret: secret.map(Secret::new),
        auth_method,
        source: ClientSource::Registered,
        redirect_uri: redirect_uri.map(str::to_owned),
    })
}

fn refusal(status: u16, reply: Map<String, Value>, source: &str) -> AuthError {
    let text = |name: &str, max| {
        let text = reply.get(name).and_then(Value::as_str);
        text.map(|text| printable(text, max))
            .filter(|text| !text.is_empty())
    };
    AuthError::Refused {
        request: format!("registration at {source}"),
        status,
        error: text("error", MAX_ERROR_CHARS).unwrap_or_else(|| {
            format!("status {status}; if it registers no clients, set auth.clientId")
        }),
        description: text("error_description", MAX_DESCRIPTION_CHARS),
    }
}

/// A client id or secret: visible, bounded, not empty.
fn credential<'r>(reply: &'r Map<String, Value>, name: &str) -> Option<&'r str> {
    let text = reply.get(name)?.as_str()?;
    let valid = !text.is_empty()
        && text.len() <= MAX_CREDENTIAL_BYTES
        && !text.chars().any(char::is_control);
    valid.then_some(text)
}

/// The method that the reply states, else the requested one. Without a secret a client is public.
/// `None` if the method is not supported.
fn effective_method(
    reply: &Map<String, Value>,
    server: &AuthorizationServer,
    requested: ClientAuthMethod,
    has_secret: bool,
) -> Option<ClientAuthMethod> {
    let stated = reply.get("token_endpoint_auth_method");
    let method = match stated.and_then(Value::as_str) {
        Some("none") => ClientAuthMethod::None,
        Some("client_secret_basic") => ClientAuthMethod::ClientSecretBasic,
        Some("client_secret_post") => ClientAuthMethod::ClientSecretPost,
        Some(_) => return None,
        // A secret that was not requested is meant to be used.
        None if requested == ClientAuthMethod::None => SECRET_METHODS
            .into_iter()
            .find(|method| lists(server, *method))
            .unwrap_or(ClientAuthMethod::None),
        None => requested,
    };
    if has_secret {
        Some(method)
    } else {
        Some(ClientAuthMethod::None)
    }
}

/// When the secret expires; 0 stands for never. Some servers send a string.
fn secret_expiry(reply: &Map<String, Value>) -> Option<u64> {
    let value = reply.get("client_secret_expires_at")?;
    let seconds = match value {
        Value::String(text) => text.trim().parse().ok(),
        number => number
            .as_u64()
            .or_else(|| number.as_f64().map(|at| at as u64)),
    };
    seconds.filter(|at| *at > 0)
}

#[cfg(test)]
mod tests;

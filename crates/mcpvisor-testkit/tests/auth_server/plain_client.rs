//! A plain HTTP client: one connection per request, no redirects.

use std::io;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mcpvisor_testkit::auth_server::{AuthServer, Client, Endpoint, Form};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The redirect URI of all clients.
pub(crate) const CALLBACK: &str = "http://127.0.0.1:7777/callback";
/// The PKCE verifier of all logins.
pub(crate) const VERIFIER: &str = "a-verifier-of-at-least-forty-three-characters-in-length";
/// The public client of most tests.
pub(crate) const CLIENT: &str = "the-client";

/// Most bytes that are read of a reply.
const MAX_REPLY: usize = 256 * 1024;

/// A whole reply, or as much of it as was read.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut found = lines.filter(|(known, _)| *known == name);
        found.next().map(|(_, value)| value)
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let parsed = serde_json::from_str(&self.body);
        parsed.unwrap_or_else(|problem| panic!("{problem}: {self:?}"))
    }

    /// The parameters of the callback that it redirects to.
    #[track_caller]
    pub(crate) fn callback(&self) -> Form {
        assert!(matches!(self.status, 302 | 303), "{self:?}");
        let (uri, query) = self.header("location").unwrap().split_once('?').unwrap();
        assert_eq!(uri, CALLBACK);
        Form::parse(query.as_bytes())
    }
}

/// Sends a request. An error means that the connection was closed without a reply.
pub(crate) async fn try_send(
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> io::Result<Reply> {
    let rest = url.strip_prefix("http://").unwrap();
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let mut stream = TcpStream::connect(authority).await?;
    let mut request = format!("{method} {path} HTTP/1.1\r\nhost: {authority}\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
    stream.write_all(request.as_bytes()).await?;
    stream.shutdown().await?;
    let mut bytes = Vec::new();
    let mut piece = vec![0; 16 * 1024];
    while bytes.len() < MAX_REPLY {
        match tokio::time::timeout(Duration::from_secs(2), stream.read(&mut piece)).await {
            Ok(Ok(length @ 1..)) => bytes.extend_from_slice(&piece[..length]),
            Ok(Ok(_)) | Err(_) => break,
            Ok(Err(problem)) => return Err(problem),
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text
        .split_once("\r\n\r\n")
        .ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(Reply {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        head: head.to_owned(),
        body: body.to_owned(),
    })
}

pub(crate) async fn get(url: &str) -> Reply {
    try_send("GET", url, &[], "").await.unwrap()
}

/// Sends a form, with an `Authorization` header if it is not empty.
pub(crate) async fn try_post(
    url: &str,
    authorization: &str,
    form: &[(&str, &str)],
) -> io::Result<Reply> {
    let kind = ("content-type", "application/x-www-form-urlencoded");
    let with = [kind, ("authorization", authorization)];
    let headers = if authorization.is_empty() {
        &with[..1]
    } else {
        &with
    };
    try_send("POST", url, headers, &encoded(form)).await
}

pub(crate) async fn post(url: &str, form: &[(&str, &str)]) -> Reply {
    try_post(url, "", form).await.unwrap()
}

pub(crate) async fn post_json(url: &str, body: &Value) -> Reply {
    let kind = ("content-type", "application/json");
    try_send("POST", url, &[kind], &body.to_string())
        .await
        .unwrap()
}

pub(crate) fn encoded(form: &[(&str, &str)]) -> String {
    let mut encoded = form_urlencoded::Serializer::new(String::new());
    encoded.extend_pairs(form);
    encoded.finish()
}

pub(crate) fn challenge() -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(VERIFIER))
}

/// The parameters of a valid authorization request, with these instead.
pub(crate) fn authorization(changes: &[(&str, &str)]) -> String {
    let challenge = challenge();
    let mut form = vec![
        ("response_type", "code"),
        ("client_id", CLIENT),
        ("redirect_uri", CALLBACK),
        ("state", "a state"),
        ("code_challenge", &challenge),
        ("code_challenge_method", "S256"),
    ];
    form.retain(|(name, _)| !changes.iter().any(|(changed, _)| changed == name));
    form.extend(changes);
    encoded(&form)
}

/// A server that knows the public client.
pub(crate) async fn server() -> AuthServer {
    let auth = AuthServer::start().await;
    auth.add_client(Client::public(CLIENT, CALLBACK));
    auth
}

/// The reply to an authorization request with these parameters changed.
pub(crate) async fn authorize(auth: &AuthServer, changes: &[(&str, &str)]) -> Reply {
    let url = auth.url(Endpoint::Authorize);
    get(&format!("{url}?{}", authorization(changes))).await
}

/// Logs in and returns the code.
pub(crate) async fn code(auth: &AuthServer, changes: &[(&str, &str)]) -> String {
    let callback = authorize(auth, changes).await.callback();
    callback
        .get("code")
        .unwrap_or_else(|| panic!("{callback:?}"))
        .to_owned()
}

/// Redeems a code.
pub(crate) async fn redeem(auth: &AuthServer, code: &str) -> Reply {
    let form = [
        ("grant_type", "authorization_code"),
        ("client_id", CLIENT),
        ("code", code),
        ("redirect_uri", CALLBACK),
        ("code_verifier", VERIFIER),
    ];
    post(&auth.url(Endpoint::Token), &form).await
}

/// Logs in and returns the reply of the token endpoint.
pub(crate) async fn login(auth: &AuthServer) -> Value {
    let code = code(auth, &[]).await;
    let reply = redeem(auth, &code).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

/// The reply to a refresh.
pub(crate) async fn try_refresh(auth: &AuthServer, token: &str) -> io::Result<Reply> {
    let form = [
        ("grant_type", "refresh_token"),
        ("client_id", CLIENT),
        ("refresh_token", token),
    ];
    try_post(&auth.url(Endpoint::Token), "", &form).await
}

pub(crate) async fn refresh(auth: &AuthServer, token: &str) -> Reply {
    try_refresh(auth, token).await.unwrap()
}

/// Calls a tool of a protected server that has no sessions.
pub(crate) async fn call(url: &str, token: &str, tool: &str, arguments: Value) -> Reply {
    let params = json!({ "name": tool, "arguments": arguments });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let bearer = format!("Bearer {token}");
    let headers = [
        ("content-type", "application/json"),
        ("authorization", &bearer),
    ];
    let headers = if token.is_empty() {
        &headers[..1]
    } else {
        &headers
    };
    try_send("POST", url, headers, &body.to_string())
        .await
        .unwrap()
}

/// A text field of a JSON object.
#[track_caller]
pub(crate) fn text(value: &Value, name: &str) -> String {
    let text = value[name].as_str();
    text.unwrap_or_else(|| panic!("no {name} in {value}"))
        .to_owned()
}

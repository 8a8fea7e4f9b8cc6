//! Authorization of the conformance client: logs in as a person would, without a browser.
//!
//! The suite's authorization server answers the authorization URL with a redirect to the callback,
//! which is pasted into the login.

use mcpvisor::auth::mcpvisor_auth::login::PendingLogin;
use mcpvisor::auth::mcpvisor_auth::{AuthError, Secret};
use mcpvisor::auth::{AuthConfig, AuthGrant, IdentityProviderConfig};
use mcpvisor::{Action, FaultClass, ListKind, ListState, Runtime, StateName};
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{SCENARIO, SERVER, TIMEOUT};
use crate::exit::Exit;
use crate::failure::Failure;

/// The client's metadata document, as the suite knows it. It is never fetched.
const CLIENT_METADATA: &str = "https://conformance-test.local/client-metadata.json";

/// Logins before the client gives up.
const MAX_LOGINS: usize = 3;

/// Bytes of the answer of the authorization endpoint.
const MAX_ANSWER: u64 = 64 * 1024;

/// Scenarios in which the login must be refused.
const REFUSED: [&str; 6] = [
    "auth/resource-mismatch",
    "auth/metadata-issuer-mismatch",
    "auth/iss-supported-missing",
    "auth/iss-wrong-issuer",
    "auth/iss-unexpected",
    "auth/iss-normalized",
];

/// The scenario whose server demands more scopes after every login.
const ENDLESS_STEP_UP: &str = "auth/scope-retry-limit";

/// The credentials that the suite provides.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Credentials {
    client_id: Option<String>,
    client_secret: Option<String>,
    private_key_pem: Option<String>,
    valid_jwt: Option<String>,
    idp_issuer: Option<String>,
    idp_token_endpoint: Option<String>,
    idp_client_id: Option<String>,
    idp_id_token: Option<String>,
}

/// How the suite's server is authorized.
pub(super) fn config(credentials: Credentials) -> AuthConfig {
    let scenario = scenario();
    let mut auth = AuthConfig::default();
    auth.client_metadata_url = Some(CLIENT_METADATA.to_owned());
    auth.client_id = credentials.client_id;
    auth.client_secret = credentials.client_secret.map(Secret::new);
    auth.private_key = credentials.private_key_pem.map(Secret::new);
    if scenario.starts_with("auth/client-credentials") {
        auth.grant = AuthGrant::ClientCredentials;
    }
    if let Some(assertion) = credentials.valid_jwt {
        auth.grant = AuthGrant::JwtBearer;
        auth.client_secret = Some(Secret::new(assertion));
    }
    if let Some(issuer) = credentials.idp_issuer {
        let mut idp = IdentityProviderConfig::default();
        idp.issuer = issuer;
        idp.token_endpoint = credentials.idp_token_endpoint;
        idp.client_id = credentials.idp_client_id.unwrap_or_default();
        idp.id_token = credentials.idp_id_token.map(Secret::new);
        auth.grant = AuthGrant::Enterprise;
        auth.idp = Some(idp);
    }
    auth
}

/// Runs what needs authorization, and logs in as often as the server requires it. A scenario whose
/// server must not get a token passes if the client refuses it.
pub(super) async fn retried<F: Future<Output = Result<(), Failure>>>(
    runtime: &Runtime,
    run: impl Fn() -> F,
) -> Result<(), Failure> {
    let scenario = scenario();
    let must_refuse = REFUSED.contains(&scenario.as_str());
    for _ in 0..MAX_LOGINS {
        match run().await {
            Err(failure) if needs_login(runtime, &failure) => {}
            Ok(()) if must_refuse => return Err(Failure::unexpected("the server was accepted")),
            done => return done,
        }
        match login(runtime).await {
            Err(failure) if must_refuse && failure.exit == Exit::Authorization => return Ok(()),
            done => done?,
        }
    }
    match run().await {
        Err(failure) if scenario == ENDLESS_STEP_UP && needs_login(runtime, &failure) => Ok(()),
        done => done,
    }
}

fn scenario() -> String {
    std::env::var(SCENARIO).unwrap_or_default()
}

/// Waits until the server can be used. Missing authorization has its exit code.
pub(super) async fn ready(runtime: &Runtime) -> Result<(), Failure> {
    runtime.settled(TIMEOUT).await;
    let server = runtime.server(SERVER).map_err(Failure::unexpected)?;
    match server.status().list(ListKind::Tools) {
        ListState::Failed(fault) if fault.class == FaultClass::Authorization => {
            Err(Failure::login_refused(fault))
        }
        _ => runtime.ready(TIMEOUT).await.map_err(Failure::unexpected),
    }
}

/// Whether a login helps: a request was refused, or the server waits for one.
fn needs_login(runtime: &Runtime, failure: &Failure) -> bool {
    let status = runtime.server(SERVER).map(|server| server.status());
    let waits = status.is_ok_and(|it| matches!(it.action, Some(Action::Login { .. })));
    waits || failure.exit == Exit::Authorization
}

/// Logs in, and waits for the next connect. A refusal by the client has the exit code of
/// missing authorization.
async fn login(runtime: &Runtime) -> Result<(), Failure> {
    let server = runtime.server(SERVER).map_err(Failure::unexpected)?;
    let generation = server.status().generation;
    let login = server.login().map_err(Failure::unexpected)?;
    let pending = login.without_listener().begin().await;
    let pending = pending.map_err(refusal)?;
    let callback = callback(&pending).await?;
    let pasted = pending.paste(&callback);
    pasted.map_err(Failure::login_refused)?;
    let finished = pending.finish(TIMEOUT).await;
    finished.map_err(refusal)?;
    let reloaded = server.reload_credential().await;
    reloaded.map_err(Failure::unexpected)?;
    if server.status().state == StateName::Connected {
        // A list that was refused is fetched again at once.
        let reconnected = runtime.reconnect(SERVER).await;
        reconnected.map_err(Failure::unexpected)?;
    }
    let mut status = server.watch();
    let settled = status.wait_for(|status| match status.state {
        StateName::Connected | StateName::PermanentlyFailed => status.generation != generation,
        _ => false,
    });
    match timeout(TIMEOUT, settled).await {
        Ok(Ok(_)) => Ok(()),
        _ => Err(Failure::unexpected("no connection after the login")),
    }
}

/// Metadata or a callback that must not be used is a refusal; all else is a failure of the client.
fn refusal(error: AuthError) -> Failure {
    match error {
        AuthError::Invalid(_) => Failure::login_refused(error),
        error => Failure::unexpected(error),
    }
}

/// Opens the authorization URL, and returns the callback that it redirects to.
async fn callback(pending: &PendingLogin) -> Result<String, Failure> {
    let opened = timeout(TIMEOUT, redirect_of(pending.authorization_url())).await;
    let location = opened.map_err(Failure::unexpected)?;
    let location = location.map_err(Failure::unexpected)?;
    location.ok_or_else(|| Failure::unexpected("the authorization server does not redirect"))
}

/// The `Location` of the answer to a GET of a plain URL.
async fn redirect_of(url: &str) -> std::io::Result<Option<String>> {
    let rest = url.strip_prefix("http://").unwrap_or(url);
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut stream = TcpStream::connect(authority).await?;
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let headers = answer.lines().take_while(|line| !line.is_empty());
    let mut headers = headers.filter_map(|line| line.split_once(':'));
    let location = headers.find(|(name, _)| name.eq_ignore_ascii_case("location"));
    Ok(location.map(|(_, value)| value.trim().to_owned()))
}

//! Tokens, codes, verifiers, client secrets, assertions and ID tokens of servers that require
//! authorization, in success and in every failure.

use std::time::Duration;

use mcpvisor::auth::mcpvisor_auth::Secret;
use mcpvisor::auth::{AuthConfig, AuthGrant, IdentityProviderConfig};
use mcpvisor::{
    CallError, HttpEndpoint, Runtime, ServerHandle, ServerStatus, StateName, Transport,
};
use mcpvisor_testkit::auth_server::{
    AuthFault, AuthMethod, AuthOptions, AuthServer, Client, DpopRule, Endpoint, NonceRule,
    ProtectedOptions,
};
use serde_json::json;

use crate::browser::open_in_browser;
use crate::canary;
use crate::evidence::Evidence;
use crate::fleet::reaches;
use crate::folder::CLIENT;
use crate::protected::{LONG, Protected, run, web};
use crate::traced_run::run_traced;

/// The variable that holds the ID token.
const ID_TOKEN: &str = "MCPVISOR_TEST_ID_TOKEN";

/// Parameters of token requests that are secret.
const SECRET_PARAMETERS: [&str; 7] = [
    "code",
    "code_verifier",
    "refresh_token",
    "client_secret",
    "client_assertion",
    "assertion",
    "subject_token",
];

#[test]
fn no_token_code_or_client_secret_is_shown_anywhere() {
    let name = "auth::no_token_code_or_client_secret_is_shown_anywhere";
    run_traced(name, (ID_TOKEN, canary("id-token")), 50, run_all);
}

async fn run_all(evidence: &mut Evidence) {
    log_in_and_refresh(evidence).await;
    fail_to_refresh(evidence).await;
    fail_to_log_in(evidence).await;
    bind_to_a_key(evidence).await;
    work_without_a_person(evidence).await;
    use_helpers(evidence).await;
    assert!(evidence.secrets() > 30, "{} secrets", evidence.secrets());
}

#[test]
#[should_panic(expected = "1 secrets are shown")]
fn control_a_secret_in_a_log_line_is_found() {
    let mut evidence = Evidence::default();
    evidence.note_secret("access-1");
    (0..60).for_each(|_| evidence.add("log", "nothing".to_owned()));
    evidence.add("log", "refreshed access-1".to_owned());
    evidence.assert_shows_nothing();
}

/// Adds what is visible of a server.
async fn look_at(handle: &ServerHandle, evidence: &mut Evidence) {
    evidence.debug("handle", handle);
    let status = handle.status();
    evidence.debug("status", &status);
    evidence.add("status as JSON", serde_json::to_string(&status).unwrap());
    if let Some(action) = status.action {
        evidence.add("action", action.to_string());
    }
    match handle.accounts().await {
        Ok(accounts) => evidence.debug("accounts", &accounts),
        Err(error) => evidence.error("accounts", &error),
    }
}

/// Every secret that the servers issued or received.
fn note_secrets(protected: &Protected, evidence: &mut Evidence) {
    note_secrets_of(&protected.auth, evidence);
    for request in protected.server.received() {
        if let Some(token) = request.header("authorization") {
            evidence.note_secret(token.split(' ').next_back().unwrap());
        }
        note_proof(request.header("dpop"), evidence);
    }
}

fn note_secrets_of(auth: &AuthServer, evidence: &mut Evidence) {
    let tokens = auth.current_tokens();
    for (token, _) in tokens.access.iter().chain(&tokens.refresh) {
        evidence.note_secret(token);
    }
    for client in auth.clients() {
        evidence.note_secret(client.secret.as_deref().unwrap_or_default());
    }
    for request in auth.requests() {
        for name in SECRET_PARAMETERS {
            evidence.note_secret(request.form.get(name).unwrap_or_default());
        }
        let proof = request.headers.iter().find(|(name, _)| name == "dpop");
        note_proof(proof.map(|(_, value)| value.as_str()), evidence);
    }
}

/// A proof, and the part without which it is useless.
fn note_proof(proof: Option<&str>, evidence: &mut Evidence) {
    let proof = proof.unwrap_or_default();
    evidence.note_secret(proof);
    evidence.note_secret(proof.split('.').next().unwrap_or_default());
}

/// Ends a runtime and adds what is left of it.
async fn end(runtime: Runtime, protected: &Protected, evidence: &mut Evidence) {
    let mut events = runtime.events();
    evidence.debug("runtime", &runtime);
    evidence.debug("report", &runtime.shutdown(LONG).await);
    while let Ok(Some(event)) = events.try_recv() {
        evidence.debug("event", &event);
    }
    note_secrets(protected, evidence);
}

async fn log_in_and_refresh(evidence: &mut Evidence) {
    let protected = Protected::new().await;
    let (runtime, handle) = protected.started().await;
    let mut events = runtime.events();
    reaches(&handle, StateName::PermanentlyFailed).await;
    look_at(&handle, evidence).await;
    let login = handle.login().unwrap().begin().await.unwrap();
    let browser = tokio::spawn(open_in_browser(login.authorization_url().to_owned()));
    let record = login.finish(LONG).await.unwrap();
    evidence.debug("record", &record);
    assert_eq!(browser.await.unwrap(), 200);
    reaches(&handle, StateName::Connected).await;
    run(&handle, "first").await.unwrap();
    note_secrets(&protected, evidence);
    protected.auth.expire_access_tokens();
    run(&handle, "refreshed").await.unwrap();
    look_at(&handle, evidence).await;
    // The server repeats its requests in refusals and errors.
    for fault in [
        "http-repeat-answer",
        "http-repeat-session-error",
        "http-repeat=500",
        "http-repeat=400",
        "http-repeat=403",
        "http-repeat-error=404",
        "http-repeat-error=503",
    ] {
        protected.server.fault(fault).times(2);
        let error = run(&handle, fault).await.unwrap_err();
        evidence.error("repeated", &error);
        if fault.starts_with("http-repeat-answer") || fault.contains("session") {
            let CallError::Answered { error, .. } = &error else {
                panic!("{fault}: {error:?}");
            };
            assert!(error.message.contains("***"), "{fault}: {error:?}");
            let data = error.data.as_ref().map(|data| &data["sent"]["head"]);
            let repeated = data.and_then(|head| head.as_str()).unwrap();
            assert!(repeated.contains("***"), "{fault}: {error:?}");
            evidence.add("data", repeated.to_owned());
        }
        protected.server.disarm();
        look_at(&handle, evidence).await;
    }
    // Errors in answer to the handshake and to a listing are part of the status.
    for method in ["initialize", "tools/list"] {
        let fault = protected.server.fault("http-repeat-answer");
        fault.on(method).for_ever();
        runtime.reconnect("web").await.unwrap();
        let repeated = |status: &ServerStatus| {
            let fault = status.last_error.as_ref();
            fault.is_some_and(|fault| fault.message.contains("what is this"))
        };
        let mut status = handle.watch();
        let failed = tokio::time::timeout(LONG, status.wait_for(repeated));
        drop(failed.await.unwrap().unwrap());
        look_at(&handle, evidence).await;
        protected.server.disarm();
        runtime.reconnect("web").await.unwrap();
        runtime.ready(LONG).await.unwrap();
        run(&handle, method).await.unwrap();
    }
    protected.server.require_for_tool("run", &["mcp:write"]);
    evidence.error("step-up", &run(&handle, "more").await.unwrap_err());
    note_secrets(&protected, evidence);
    let logged_out = handle.logout("", LONG).await.unwrap();
    assert_eq!(logged_out.revocations.len(), 1);
    evidence.debug("logout", &logged_out);
    look_at(&handle, evidence).await;
    end(runtime, &protected, evidence).await;
    while let Ok(Some(event)) = events.try_recv() {
        evidence.debug("event", &event);
    }
}

/// Keys and proofs: a login, refusals that repeat the proof, and nonces that are refused.
async fn bind_to_a_key(evidence: &mut Evidence) {
    let auth = AuthOptions {
        dpop: true,
        nonces: NonceRule::OneTime,
        ..AuthOptions::default()
    };
    let options = ProtectedOptions {
        dpop: DpopRule::Required,
        nonces: NonceRule::OneTime,
        ..ProtectedOptions::default()
    };
    let protected = Protected::with(auth, options).await;
    let (runtime, handle) = protected.started().await;
    reaches(&handle, StateName::PermanentlyFailed).await;
    let login = handle.login().unwrap().begin().await.unwrap();
    let browser = tokio::spawn(open_in_browser(login.authorization_url().to_owned()));
    let record = login.finish(LONG).await.unwrap();
    assert_eq!(browser.await.unwrap(), 200);
    let stored = serde_json::to_value(&record).unwrap();
    let key = stored["dpop"]["key"].as_str().unwrap();
    evidence.note_secret(key.lines().nth(1).unwrap());
    evidence.debug("record", &record);
    reaches(&handle, StateName::Connected).await;
    run(&handle, "first").await.unwrap();
    for fault in [
        "http-repeat=500",
        "http-repeat=403",
        "http-repeat-error=503",
    ] {
        protected.server.fault(fault).times(2);
        evidence.error("repeated", &run(&handle, fault).await.unwrap_err());
        protected.server.disarm();
    }
    protected.auth.fault(AuthFault::RefuseNonces).for_ever();
    evidence.error("nonce", &run(&handle, "refused").await.unwrap_err());
    protected.auth.expire_access_tokens();
    evidence.error("issuer", &run(&handle, "expired").await.unwrap_err());
    look_at(&handle, evidence).await;
    evidence.debug("stored record", &protected.record().await);
    end(runtime, &protected, evidence).await;
}

async fn fail_to_refresh(evidence: &mut Evidence) {
    for fault in [
        AuthFault::Status(500),
        AuthFault::InvalidGrant(400),
        AuthFault::InvalidClient,
        AuthFault::DropBefore,
        AuthFault::DropAfter,
        AuthFault::Garbage,
        AuthFault::MacToken,
        AuthFault::Endless,
        AuthFault::Redirect("https://169.254.169.254/".to_owned()),
    ] {
        let protected = Protected::new().await;
        let record = protected.log_in().await;
        evidence.debug("record", &record);
        let (runtime, handle) = protected.connected().await;
        note_secrets(&protected, evidence);
        protected.auth.fault(fault).on(Endpoint::Token).for_ever();
        protected.auth.expire_access_tokens();
        evidence.error("call", &run(&handle, "refused").await.unwrap_err());
        look_at(&handle, evidence).await;
        evidence.debug("stored record", &protected.record().await);
        end(runtime, &protected, evidence).await;
    }
}

async fn fail_to_log_in(evidence: &mut Evidence) {
    for fault in [
        AuthFault::WrongIssuer,
        AuthFault::NoS256,
        AuthFault::ScriptEndpoints,
        AuthFault::WrongIss,
        AuthFault::NoIss,
        AuthFault::WrongState,
        AuthFault::AccessDenied,
        AuthFault::MixUp {
            issuer: "http://127.0.0.1:1".to_owned(),
            code: canary("mixed-up-code"),
        },
        AuthFault::InvalidGrant(400),
        AuthFault::MacToken,
        AuthFault::Garbage,
        AuthFault::InvalidClient,
    ] {
        let protected = Protected::new().await;
        let (runtime, handle) = protected.started().await;
        reaches(&handle, StateName::PermanentlyFailed).await;
        protected.auth.fault(fault.clone()).for_ever();
        let failed = async {
            let login = handle.login().unwrap().begin().await?;
            let browser = tokio::spawn(open_in_browser(login.authorization_url().to_owned()));
            let finished = login.finish(Duration::from_secs(1)).await;
            browser.abort();
            finished
        };
        match failed.await {
            Ok(_) => panic!("{fault:?}"),
            Err(error) => evidence.error("login", &error),
        }
        look_at(&handle, evidence).await;
        end(runtime, &protected, evidence).await;
    }
}

/// A runtime with one endpoint, which connects or fails.
async fn settle(protected: &Protected, endpoint: HttpEndpoint, evidence: &mut Evidence) {
    let mut config = web("web", endpoint);
    config.settings.backoff.initial = Duration::from_millis(10);
    config.settings.budget.attempts = 2;
    let builder = protected.builder().server(config);
    evidence.debug("builder", &builder);
    let runtime = builder.start().await.unwrap();
    let handle = runtime.server("web").unwrap();
    runtime.settled(LONG).await;
    match run(&handle, "settled").await {
        Ok(result) => evidence.debug("result", &result),
        Err(error) => evidence.error("call", &error),
    }
    look_at(&handle, evidence).await;
    end(runtime, protected, evidence).await;
}

async fn work_without_a_person(evidence: &mut Evidence) {
    for method in [AuthMethod::Basic, AuthMethod::Post] {
        for secret in [canary("client-secret"), canary("wrong-secret")] {
            let protected = Protected::new().await;
            let (id, right) = (method.name(), canary("client-secret"));
            let client = Client::confidential(id, &right, method, "");
            protected.auth.add_client(client);
            let mut auth = AuthConfig::default();
            auth.grant = AuthGrant::ClientCredentials;
            auth.client_id = Some(id.to_owned());
            auth.client_secret = Some(Secret::new(secret));
            evidence.debug("config", &auth);
            let endpoint = Transport::http(protected.server.url()).auth(auth);
            settle(&protected, endpoint, evidence).await;
        }
    }
    for grant in [AuthGrant::Enterprise, AuthGrant::JwtBearer] {
        let protected = Protected::new().await;
        let idp = AuthServer::start().await;
        idp.add_client(Client::public("mcpvisor", ""));
        let mut provider = IdentityProviderConfig::default();
        provider.issuer = idp.issuer();
        provider.client_id = "mcpvisor".to_owned();
        provider.id_token_env = ID_TOKEN.to_owned();
        let mut auth = AuthConfig::default();
        auth.grant = grant;
        auth.client_id = Some(CLIENT.to_owned());
        auth.client_secret_env = (grant == AuthGrant::JwtBearer).then(|| ID_TOKEN.to_owned());
        auth.idp = Some(provider);
        let endpoint = Transport::http(protected.server.url()).auth(auth);
        settle(&protected, endpoint, evidence).await;
        let sent = protected.auth.requests().into_iter().chain(idp.requests());
        let sent: Vec<String> = sent.map(|request| format!("{:?}", request.form)).collect();
        assert!(
            sent.iter().any(|form| form.contains(&canary("id-token"))),
            "{grant:?}: the ID token was sent"
        );
        note_secrets_of(&idp, evidence);
    }
}

async fn use_helpers(evidence: &mut Evidence) {
    let protected = Protected::new().await;
    let token = canary("helper");
    let headers = json!({ "Authorization": format!("Bearer {token}"), "X-Key": token });
    for script in [
        format!("echo {token}"),
        format!("echo '{headers}'"),
        format!("echo {token}; exit 3"),
        format!("echo {token} {token}"),
        format!("echo {token} >&2; exit 1"),
    ] {
        let mut auth = AuthConfig::default();
        // The script itself is no secret, so it reads the token from a file.
        let file = protected.folder.0.with_extension("sh");
        std::fs::write(&file, script).unwrap();
        let path = file.to_str().unwrap().to_owned();
        auth.headers_helper = Some(vec!["sh".to_owned(), path]);
        evidence.debug("config", &auth);
        let endpoint = Transport::http(protected.server.url()).auth(auth);
        settle(&protected, endpoint, evidence).await;
        std::fs::remove_file(&file).unwrap();
    }
    // A `${VAR}` in the command of a helper: its value is secret wherever it occurs.
    let value = canary("variable");
    evidence.note_secret(&value);
    let echo = ["sh", "-c", &format!("echo {value} {value}")].map(str::to_owned);
    for command in [vec![format!("/no/such/{value}")], echo.to_vec()] {
        let mut auth = AuthConfig::default();
        auth.headers_helper = Some(command);
        evidence.debug("config", &auth);
        let endpoint = Transport::http(protected.server.url()).secret(&value);
        settle(&protected, endpoint.auth(auth), evidence).await;
    }
    // A server that repeats what the helper printed.
    let resource = protected.server.resource();
    let issued = protected
        .auth
        .issue_tokens(CLIENT, &["mcp"], Some(&resource));
    let bearer = format!("Bearer {}", issued.0);
    let headers = json!({ "Authorization": bearer, "X-Key": canary("key") });
    let file = protected.folder.0.with_extension("json");
    std::fs::write(&file, headers.to_string()).unwrap();
    let command = ["cat", file.to_str().unwrap()].map(str::to_owned);
    let mut auth = AuthConfig::default();
    auth.headers_helper = Some(command.to_vec());
    protected.server.fault("http-repeat=403").for_ever();
    let endpoint = Transport::http(protected.server.url()).auth(auth);
    settle(&protected, endpoint, evidence).await;
    assert!(protected.server.injected("tools/call") > 0);
    std::fs::remove_file(&file).unwrap();
}

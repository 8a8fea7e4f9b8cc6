//! Tokens that are bound to a key: every request proves it, and nonces cost neither refreshes nor
//! logins.

use std::collections::BTreeSet;
use std::time::Duration;

use mcpvisor::auth::mcpvisor_auth::Secret;
use mcpvisor::auth::mcpvisor_auth::login::LoginPrompt;
use mcpvisor::auth::{AuthConfig, AuthGrant, DpopMode};
use mcpvisor::{
    CallError, HttpEndpoint, Known, Runtime, ServerConfig, ServerHandle, StateName, Transport,
};
use mcpvisor_testkit::auth_server::{
    AuthFault, AuthMethod, AuthOptions, Client, DpopRule, Endpoint, NonceRule, ProtectedOptions,
};
use mcpvisor_testkit::eventually::eventually;
use mcpvisor_testkit::http_server::HttpOptions;
use rmcp::model::ProtocolVersion;

use crate::browser::open_in_browser;
use crate::fleet::reaches;
use crate::protected::{LONG, Protected, run, run_many, web};

/// Callers at once.
const CALLERS: usize = 64;

/// Both servers, with this rule for tokens and nonces.
async fn protected(dpop: DpopRule, nonces: NonceRule, http: HttpOptions) -> Protected {
    let auth = AuthOptions {
        dpop: true,
        nonces,
        ..AuthOptions::default()
    };
    let options = ProtectedOptions {
        http,
        dpop,
        nonces,
        ..ProtectedOptions::default()
    };
    Protected::with(auth, options).await
}

async fn demanding(nonces: NonceRule) -> Protected {
    protected(DpopRule::Required, nonces, HttpOptions::default()).await
}

/// Logs in with a browser.
async fn log_in(handle: &ServerHandle) {
    let login = handle.login().unwrap().begin().await.unwrap();
    let browser = tokio::spawn(open_in_browser(login.authorization_url().to_owned()));
    login.finish(LONG).await.unwrap();
    assert_eq!(browser.await.unwrap(), 200);
}

/// A runtime whose server waits for a login, gets it, and connects.
async fn logged_in(protected: &Protected) -> (Runtime, ServerHandle) {
    let (runtime, handle) = protected.started().await;
    reaches(&handle, StateName::PermanentlyFailed).await;
    log_in(&handle).await;
    reaches(&handle, StateName::Connected).await;
    runtime.ready(LONG).await.unwrap();
    (runtime, handle)
}

/// No proof was invalid or used twice, and nothing ran twice.
#[track_caller]
fn assert_proven(protected: &Protected) {
    let none = Vec::<String>::new();
    assert_eq!(protected.server.invalid_proofs(), none);
    assert_eq!(protected.auth.invalid_proofs(), none);
    assert_eq!(protected.server.ran_twice(), none);
}

/// What a nonce must not change.
#[derive(Debug, PartialEq, Eq)]
struct Untouched {
    generation: u64,
    sessions: u64,
    token_requests: usize,
    state: StateName,
}

impl Untouched {
    fn of(protected: &Protected, handle: &ServerHandle) -> Self {
        let status = handle.status();
        Self {
            generation: status.generation.get(),
            sessions: protected.server.sessions_opened(),
            token_requests: protected.auth.count(Endpoint::Token),
            state: status.state,
        }
    }
}

#[tokio::test]
async fn every_request_of_a_bound_token_proves_its_key() {
    let protected = demanding(NonceRule::None).await;
    let (runtime, handle) = logged_in(&protected).await;
    for outcome in run_many(&handle, "bound", CALLERS).await {
        outcome.unwrap();
    }
    eventually(LONG, "the stream is open", || {
        protected.server.open_streams() == 1
    })
    .await;
    runtime.shutdown(LONG).await;
    let received = protected.server.received();
    let signed = received.iter().filter(|it| it.header("dpop").is_some());
    let methods: BTreeSet<&str> = signed.map(|it| it.http_method.as_str()).collect();
    assert_eq!(methods, BTreeSet::from(["DELETE", "GET", "POST"]));
    for request in &received {
        let token = request.header("authorization").unwrap_or_default();
        assert_eq!(token.starts_with("DPoP "), request.header("dpop").is_some());
        assert!(!token.starts_with("Bearer "), "{request:?}");
    }
    let authorize = protected.auth.requests_to(Endpoint::Authorize).remove(0);
    let key = authorize.form.get("dpop_jkt").unwrap();
    assert_eq!(protected.record().await.dpop.unwrap().key.thumbprint(), key);
    assert_proven(&protected);
}

#[tokio::test]
async fn a_stored_key_serves_the_next_run_and_its_refreshes() {
    let protected = demanding(NonceRule::OneTime).await;
    let (runtime, _) = logged_in(&protected).await;
    runtime.shutdown(LONG).await;
    let login = protected.record().await.dpop.unwrap();
    let (runtime, handle) = protected.connected().await;
    run(&handle, "next run").await.unwrap();
    let before = Untouched::of(&protected, &handle);
    protected.auth.expire_access_tokens();
    for outcome in run_many(&handle, "refreshed", CALLERS).await {
        outcome.unwrap();
    }
    let after = Untouched::of(&protected, &handle);
    // The first of the two was refused for its nonce.
    assert_eq!(after.token_requests, before.token_requests + 2);
    assert_eq!(after.generation, before.generation);
    assert_eq!(after.sessions, before.sessions);
    assert_eq!(
        protected.record().await.dpop.unwrap(),
        login,
        "the same key"
    );
    assert_eq!(protected.server.all_runs(), 1 + CALLERS as u64);
    assert_proven(&protected);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn nonces_that_change_with_every_answer_cost_sixty_four_callers_nothing() {
    for (http, version) in [
        (HttpOptions::default(), ProtocolVersion::V_2025_06_18),
        (HttpOptions::modern(), ProtocolVersion::V_2026_07_28),
    ] {
        let protected = protected(DpopRule::Required, NonceRule::OneTime, http).await;
        let mut config: ServerConfig = web("web", Transport::http(protected.server.url()));
        config.protocol = Some(version);
        let runtime = protected.builder().server(config).start().await.unwrap();
        let handle = runtime.server("web").unwrap();
        reaches(&handle, StateName::PermanentlyFailed).await;
        log_in(&handle).await;
        reaches(&handle, StateName::Connected).await;
        runtime.ready(LONG).await.unwrap();
        let before = Untouched::of(&protected, &handle);
        for round in ["first", "second", "third"] {
            for outcome in run_many(&handle, round, CALLERS).await {
                outcome.unwrap();
            }
        }
        assert_eq!(Untouched::of(&protected, &handle), before);
        assert_eq!(handle.status().last_error, None);
        assert_eq!(protected.server.all_runs(), 3 * CALLERS as u64);
        let refused = protected.server.refused_nonces();
        assert!(refused > 0, "no nonce was refused");
        assert_proven(&protected);
        runtime.shutdown(LONG).await;
    }
}

#[tokio::test]
async fn a_nonce_that_expires_is_replaced_without_a_refresh() {
    let protected = demanding(NonceRule::Shared).await;
    let (runtime, handle) = logged_in(&protected).await;
    let before = Untouched::of(&protected, &handle);
    let refused = protected.server.refused_nonces();
    for number in 0..5 {
        run(&handle, &format!("known {number}")).await.unwrap();
    }
    assert_eq!(protected.server.refused_nonces(), refused, "it is kept");
    protected.server.expire_nonces();
    run(&handle, "expired").await.unwrap();
    assert_eq!(protected.server.refused_nonces(), refused + 1);
    run(&handle, "replaced").await.unwrap();
    assert_eq!(protected.server.refused_nonces(), refused + 1);
    assert_eq!(Untouched::of(&protected, &handle), before);
    assert_proven(&protected);
    runtime.shutdown(LONG).await;
}

/// A call that the server refused for its nonce, twice.
#[track_caller]
fn assert_nonce_error(error: &CallError) {
    assert_eq!(error.known(), Known::Refused, "{error}");
    let text = error.to_string();
    assert!(text.contains("refuses the DPoP nonce"), "{text}");
}

#[tokio::test]
async fn a_server_that_refuses_every_nonce_gets_each_request_twice_and_no_login_is_asked_for() {
    let protected = demanding(NonceRule::OneTime).await;
    let (runtime, handle) = logged_in(&protected).await;
    let fault = AuthFault::RefuseNonces;
    protected.auth.fault(fault).on(Endpoint::Mcp).for_ever();
    let before = Untouched::of(&protected, &handle);
    let calls = protected.server.requests("tools/call");
    for outcome in run_many(&handle, "refused", 16).await {
        assert_nonce_error(&outcome.unwrap_err());
    }
    assert_eq!(protected.server.requests("tools/call"), calls + 2 * 16);
    assert_eq!(Untouched::of(&protected, &handle), before);
    assert_eq!(handle.status().action, None);
    protected.auth.disarm();
    run(&handle, "accepted").await.unwrap();
    assert_eq!(protected.server.all_runs(), 1);
    assert_proven(&protected);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_connect_that_is_refused_for_its_nonce_is_tried_again_and_needs_no_login() {
    let protected = demanding(NonceRule::OneTime).await;
    let (runtime, _) = logged_in(&protected).await;
    runtime.shutdown(LONG).await;
    let tokens = protected.auth.count(Endpoint::Token);
    let fault = AuthFault::RefuseNonces;
    protected.auth.fault(fault).on(Endpoint::Mcp).times(4);
    let mut config = web("web", Transport::http(protected.server.url()));
    config.settings.backoff.initial = Duration::from_millis(20);
    let runtime = protected.builder().server(config).start().await.unwrap();
    let handle = runtime.server("web").unwrap();
    runtime.ready(LONG).await.unwrap();
    assert_eq!(handle.status().generation.get(), 3, "two attempts failed");
    assert_eq!(protected.auth.count(Endpoint::Token), tokens);
    assert_proven(&protected);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn an_issuer_that_refuses_every_nonce_is_asked_twice_and_later_again() {
    let protected = demanding(NonceRule::OneTime).await;
    let (runtime, handle) = logged_in(&protected).await;
    let fault = AuthFault::RefuseNonces;
    protected.auth.fault(fault).on(Endpoint::Token).for_ever();
    protected.auth.expire_access_tokens();
    let before = protected.auth.count(Endpoint::Token);
    let error = run(&handle, "refused").await.unwrap_err();
    assert_eq!(error.known(), Known::Refused, "{error}");
    assert!(error.to_string().contains("use_dpop_nonce"), "{error}");
    assert_eq!(protected.auth.count(Endpoint::Token), before + 2);
    assert_ne!(handle.status().state, StateName::PermanentlyFailed);
    protected.auth.disarm();
    let answered = async {
        while run(&handle, "accepted").await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(LONG, answered).await.unwrap();
    assert_proven(&protected);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_redirected_request_proves_the_address_that_it_is_sent_to() {
    let protected = demanding(NonceRule::OneTime).await;
    let (runtime, handle) = logged_in(&protected).await;
    protected.server.fault("http-redirect-here").once();
    run(&handle, "moved").await.unwrap();
    let received = protected.server.received();
    assert!(received.iter().any(|request| request.path == "/moved"));
    assert_proven(&protected);
    // Neither the token nor a proof leaves the origin.
    protected.server.fault("http-redirect").once();
    run(&handle, "elsewhere").await.unwrap_err();
    assert_eq!(
        protected.server.other_origin_received(),
        Vec::<String>::new()
    );
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_server_that_accepts_both_gets_bound_tokens_unless_the_config_forbids_it() {
    for (mode, scheme) in [(DpopMode::Auto, "DPoP "), (DpopMode::Never, "Bearer ")] {
        let http = HttpOptions::default();
        let protected = protected(DpopRule::Accepted, NonceRule::None, http).await;
        let mut auth = AuthConfig::default();
        auth.dpop = mode;
        let endpoint = Transport::http(protected.server.url()).auth(auth);
        let config = web("web", endpoint);
        let runtime = protected.builder().server(config).start().await.unwrap();
        let handle = runtime.server("web").unwrap();
        reaches(&handle, StateName::PermanentlyFailed).await;
        log_in(&handle).await;
        reaches(&handle, StateName::Connected).await;
        run(&handle, "call").await.unwrap();
        let last = protected.server.received().pop().unwrap();
        assert!(last.header("authorization").unwrap().starts_with(scheme));
        assert_proven(&protected);
        runtime.shutdown(LONG).await;
    }
}

#[tokio::test]
async fn a_bearer_token_for_a_server_that_requires_a_key_fails_the_login_and_stores_nothing() {
    let protected = demanding(NonceRule::None).await;
    protected.auth.fault(AuthFault::BearerToken).for_ever();
    let (runtime, handle) = protected.started().await;
    reaches(&handle, StateName::PermanentlyFailed).await;
    let login = handle.login().unwrap().begin().await.unwrap();
    let browser = tokio::spawn(open_in_browser(login.authorization_url().to_owned()));
    let error = login.finish(LONG).await.unwrap_err();
    assert!(error.to_string().contains("bearer token"), "{error}");
    drop(browser);
    assert_eq!(handle.accounts().await.unwrap().logins, []);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_login_on_another_device_is_bound_as_its_metadata_requires() {
    let protected = demanding(NonceRule::OneTime).await;
    protected
        .server
        .configure(|options| options.announce_dpop = true);
    let mut auth = AuthConfig::default();
    auth.grant = AuthGrant::DeviceCode;
    let endpoint = Transport::http(protected.server.url()).auth(auth);
    // It is not started, so the server has demanded nothing yet.
    let mut config = web("web", endpoint);
    config.enabled = false;
    let runtime = protected.builder().server(config).start().await.unwrap();
    let handle = runtime.server("web").unwrap();
    let auth = protected.auth.clone();
    let login = handle.login().unwrap().run(LONG, |prompt| {
        let LoginPrompt::Device { user_code, .. } = prompt else {
            panic!("not a device login");
        };
        assert!(auth.approve_device(user_code));
    });
    assert!(login.await.unwrap().dpop.is_some());
    runtime.enable("web").await.unwrap();
    reaches(&handle, StateName::Connected).await;
    run(&handle, "bound").await.unwrap();
    assert_proven(&protected);
    runtime.shutdown(LONG).await;
}

/// A server whose client has a secret.
async fn with_robot(protected: &Protected) -> (Runtime, ServerHandle) {
    let robot = Client::confidential("robot", "s3cret-of-robot", AuthMethod::Basic, "");
    protected.auth.add_client(robot);
    let mut auth = AuthConfig::default();
    auth.grant = AuthGrant::ClientCredentials;
    auth.client_id = Some("robot".to_owned());
    auth.client_secret = Some(Secret::new("s3cret-of-robot"));
    let endpoint: HttpEndpoint = Transport::http(protected.server.url()).auth(auth);
    let config = web("web", endpoint);
    let runtime = protected.builder().server(config).start().await.unwrap();
    let handle = runtime.server("web").unwrap();
    (runtime, handle)
}

#[tokio::test]
async fn a_client_learns_from_the_first_refusal_that_its_token_needs_a_key() {
    let protected = demanding(NonceRule::OneTime).await;
    let (runtime, handle) = with_robot(&protected).await;
    runtime.ready(LONG).await.unwrap();
    assert_eq!(handle.status().generation.get(), 1, "within one attempt");
    let requests = protected.auth.requests_to(Endpoint::Token);
    let statuses: Vec<_> = requests.iter().map(|it| it.status).collect();
    let has_proof = |name: &(String, String)| name.0 == "dpop";
    let proofs: Vec<bool> = requests
        .iter()
        .map(|it| it.headers.iter().any(has_proof))
        .collect();
    assert_eq!(statuses, [Some(200), Some(400), Some(200)]);
    assert_eq!(proofs, [false, true, true]);
    protected.auth.expire_access_tokens();
    for outcome in run_many(&handle, "renewed", CALLERS).await {
        outcome.unwrap();
    }
    assert_proven(&protected);
    runtime.shutdown(LONG).await;
    // The next run knows it.
    let known = protected.auth.count(Endpoint::Token);
    protected.auth.expire_access_tokens();
    let (runtime, handle) = with_robot(&protected).await;
    runtime.ready(LONG).await.unwrap();
    run(&handle, "next run").await.unwrap();
    let renewed = protected.auth.requests_to(Endpoint::Token).split_off(known);
    assert!(!renewed.is_empty());
    assert!(renewed.iter().all(|it| it.headers.iter().any(has_proof)));
    assert_proven(&protected);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn an_issuer_without_bound_tokens_fails_a_client_with_what_to_do() {
    let protected = demanding(NonceRule::None).await;
    protected.auth.configure(|options| options.dpop = false);
    let (runtime, handle) = with_robot(&protected).await;
    reaches(&handle, StateName::PermanentlyFailed).await;
    let fault = handle.status().last_error.unwrap();
    assert!(fault.to_string().contains("auth.dpop"), "{fault}");
    assert_eq!(protected.auth.count(Endpoint::Token), 1);
    runtime.shutdown(LONG).await;
}

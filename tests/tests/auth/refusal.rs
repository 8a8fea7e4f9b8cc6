//! Requests of every kind that are refused with 401 or 403.

use std::time::Duration;

use mcpvisor::{Action, CallError, FaultClass, ServerHandle, ServerStatus, StateName, Transport};
use mcpvisor_testkit::auth_server::{AuthFault, AuthOptions, Endpoint, ProtectedOptions};
use mcpvisor_testkit::eventually::{eventually, eventually_in};
use mcpvisor_testkit::http_server::HttpOptions;
use rmcp::model::{ArgumentInfo, CompleteRequestParams, PromptReference, Reference};
use serde_json::json;

use crate::fleet::{reaches, server};
use crate::protected::{LONG, Protected, run, run_many, web};

/// Sends a request of this kind.
async fn ask(handle: &ServerHandle, kind: &str) -> Result<(), CallError> {
    match kind {
        "tools/call" => run(handle, "asked").await.map(drop),
        "tools/list" => handle.list_tools(None).await.map(drop),
        "resources/list" => handle.list_resources(None).await.map(drop),
        "resources/read" => handle.read_resource("fixture://one").await.map(drop),
        "resources/templates/list" => handle.list_resource_templates(None).await.map(drop),
        "prompts/list" => handle.list_prompts(None).await.map(drop),
        "prompts/get" => {
            let arguments = json!({ "name": "Ada" }).as_object().cloned();
            let get = handle.get_prompt("greet", arguments.unwrap());
            get.await.map(drop)
        }
        "completion/complete" => {
            let prompt = Reference::Prompt(PromptReference::new("greet"));
            let params = CompleteRequestParams::new(prompt, ArgumentInfo::new("name", "A"));
            handle.complete(params).await.map(drop)
        }
        "ping" => handle.ping().await,
        other => panic!("no kind {other}"),
    }
}

#[tokio::test]
async fn every_kind_of_request_is_repeated_with_a_new_token_in_its_session() {
    let protected = Protected::new().await;
    protected.log_in().await;
    let (runtime, web) = protected.connected().await;
    let kinds = [
        "tools/call",
        "tools/list",
        "resources/list",
        "resources/read",
        "resources/templates/list",
        "prompts/list",
        "prompts/get",
        "completion/complete",
        "ping",
    ];
    for (number, kind) in kinds.into_iter().enumerate() {
        protected.auth.expire_access_tokens();
        let asked = tokio::time::timeout(LONG, ask(&web, kind)).await;
        asked
            .unwrap()
            .unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(protected.refreshes(), number + 1, "{kind}");
    }
    assert_eq!(protected.server.runs("asked"), 1);
    protected.assert_untouched(&web);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_token_that_expired_before_the_start_is_refreshed_by_the_first_connect() {
    // One that is known to have expired, and one that the server alone knows of.
    for known in [true, false] {
        let protected = Protected::new().await;
        let mut login = protected.log_in().await;
        protected.auth.expire_access_tokens();
        if known {
            login.tokens.obtained_at -= 7_200;
            login.tokens.expires_at = Some(login.tokens.obtained_at + 3_600);
            protected.folder.save(&login).await;
        }
        let (runtime, web) = protected.connected().await;
        run(&web, "connected").await.unwrap();
        assert_eq!(protected.refreshes(), 1);
        assert_eq!(protected.server.unauthorized(), u64::from(!known));
        assert_eq!(web.status().generation.get(), 1);
        runtime.shutdown(LONG).await;
    }
}

#[tokio::test]
async fn a_refused_listing_or_notification_of_a_new_connection_is_renewed_without_a_reconnect() {
    for method in ["tools/list", "resources/list", "notifications/initialized"] {
        let protected = Protected::new().await;
        protected.log_in().await;
        protected.server.fault("http-401").on(method).once();
        let (runtime, web) = protected.connected().await;
        run(&web, "listed").await.unwrap();
        assert!(web.status().tools > 0, "{method}");
        let what = format!("a refresh for {method}");
        eventually(LONG, what, || protected.refreshes() == 1).await;
        protected.assert_untouched(&web);
        runtime.shutdown(LONG).await;
    }
}

#[tokio::test]
async fn a_changed_list_is_fetched_with_a_new_token_though_no_call_is_made() {
    // One with a listening stream that must stay open, and one of the protocol without sessions.
    for modern in [false, true] {
        let mut options = ProtectedOptions::default();
        if modern {
            options.http = HttpOptions::modern();
        }
        let protected = Protected::with(AuthOptions::default(), options).await;
        protected.log_in().await;
        let endpoint = Transport::http(protected.server.url());
        let builder = protected.builder().server(server("web", endpoint));
        let runtime = builder.start().await.unwrap();
        runtime.ready(LONG).await.unwrap();
        let opened = || protected.server.open_streams() == 1;
        eventually(LONG, "the stream is open", opened).await;
        let listed = protected.server.requests("tools/list");
        protected.auth.expire_access_tokens();
        let sent = protected
            .server
            .notify("notifications/tools/list_changed", json!({}));
        assert_eq!(sent, 1);
        eventually(LONG, "a refresh", || protected.refreshes() == 1).await;
        eventually(LONG, "the list is fetched again", || {
            protected.server.requests("tools/list") >= listed + 2
        })
        .await;
        let handle = runtime.server("web").unwrap();
        let mut status = handle.watch();
        let fresh = |status: &ServerStatus| status.is_ready();
        eventually_in(LONG, "the list is fresh", &mut status, fresh).await;
        assert_eq!(handle.status().generation.get(), 1);
        runtime.shutdown(LONG).await;
    }
}

#[tokio::test]
async fn a_refused_listening_stream_is_renewed_and_opened_again() {
    let protected = Protected::new().await;
    protected.log_in().await;
    let (runtime, web) = protected.connected().await;
    let opened = || protected.server.open_streams() == 1;
    eventually(LONG, "the stream is open", opened).await;
    protected.auth.expire_access_tokens();
    protected.server.end_streams();
    // No call is made.
    eventually(LONG, "a refresh", || protected.refreshes() == 1).await;
    eventually(LONG, "the stream is open again", opened).await;
    let unauthorized = protected.server.unauthorized();
    assert!(unauthorized < 10, "{unauthorized} requests were refused");
    run(&web, "after").await.unwrap();
    protected.assert_untouched(&web);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_server_that_refuses_new_tokens_too_needs_a_login_and_is_not_asked_in_a_loop() {
    let protected = Protected::new().await;
    protected.log_in().await;
    let (runtime, web) = protected.connected().await;
    let auth = &protected.auth;
    auth.fault(AuthFault::RefuseTokens).for_ever();
    for outcome in run_many(&web, "refused", 16).await {
        outcome.unwrap_err();
    }
    reaches(&web, StateName::PermanentlyFailed).await;
    let action = web.status().action;
    assert!(matches!(action, Some(Action::Login { .. })), "{action:?}");
    assert_eq!(protected.refreshes(), 1);
    // Each call at most twice, and the stream.
    let refused = protected.server.unauthorized();
    assert!(refused <= 2 * 16 + 4, "{refused}");
    // Longer than several looks at the store.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(protected.refreshes(), 1);
    assert!(protected.server.unauthorized() <= refused + 1);
    assert_eq!(protected.server.all_runs(), 0);
    auth.disarm();
    protected.log_in().await;
    reaches(&web, StateName::Connected).await;
    run(&web, "after").await.unwrap();
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_server_that_refuses_every_token_at_the_start_needs_a_login_after_one_refresh() {
    let protected = Protected::new().await;
    protected.log_in().await;
    protected.auth.fault(AuthFault::RefuseTokens).for_ever();
    let (runtime, web) = protected.started().await;
    reaches(&web, StateName::PermanentlyFailed).await;
    let status = web.status();
    assert!(matches!(status.action, Some(Action::Login { .. })));
    assert_eq!(status.last_error.unwrap().class, FaultClass::Authorization);
    assert_eq!(protected.refreshes(), 1);
    assert!(protected.server.unauthorized() <= 3);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_refused_static_header_fails_the_server_with_what_to_do() {
    let protected = Protected::new().await;
    protected.log_in().await;
    let endpoint = Transport::http(protected.server.url());
    let endpoint = endpoint.header("Authorization", "Bearer wrong");
    let builder = protected.builder().server(web("web", endpoint));
    let runtime = builder.start().await.unwrap();
    let handle = runtime.server("web").unwrap();
    reaches(&handle, StateName::PermanentlyFailed).await;
    let status = handle.status();
    assert_eq!(status.action, Some(Action::Authorize));
    assert_eq!(status.last_error.unwrap().class, FaultClass::Authorization);
    assert_eq!(protected.auth.requests(), [], "no discovery, no refresh");
    handle.login().map(drop).unwrap_err();
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_call_that_needs_more_scopes_says_which_and_works_after_a_login_elsewhere() {
    let protected = Protected::new().await;
    protected.log_in().await;
    protected.server.require_for_tool("run", &["mcp:write"]);
    let (runtime, web) = protected.connected().await;
    for outcome in run_many(&web, "refused", 8).await {
        let error = outcome.unwrap_err();
        let CallError::Refused { class, scopes, .. } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(*class, FaultClass::Authorization);
        assert!(scopes.iter().any(|scope| scope == "mcp:write"), "{error}");
    }
    assert_eq!(web.status().state, StateName::Connected);
    web.call_tool("echo", json!({})).await.unwrap();
    assert_eq!(protected.refreshes(), 0, "a refresh adds no scope");
    let login = web.login().unwrap().begin().await.unwrap();
    assert_eq!(login.scopes(), ["mcp", "mcp:write"]);
    drop(login);

    protected.log_in_with(&["mcp", "mcp:write"]).await;
    let mut error = None;
    for number in 0..1_000 {
        match run(&web, &format!("allowed {number}")).await {
            Ok(_) => {
                error = None;
                break;
            }
            Err(refused) => error = Some(refused),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(error.is_none(), "{error:?}");
    assert_eq!(protected.server.all_runs(), 1);
    protected.assert_untouched(&web);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_token_without_a_refresh_token_that_expires_needs_a_login() {
    let protected = Protected::new().await;
    let mut login = protected.log_in().await;
    login.tokens.refresh = None;
    protected.folder.save(&login).await;
    let (runtime, web) = protected.connected().await;
    protected.auth.expire_access_tokens();
    run(&web, "refused").await.unwrap_err();
    reaches(&web, StateName::PermanentlyFailed).await;
    assert_eq!(protected.auth.count(Endpoint::Token), 0);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_lost_session_costs_no_refresh_and_an_expired_token_no_session() {
    let protected = Protected::with(AuthOptions::default(), ProtectedOptions::default()).await;
    protected.log_in().await;
    let (runtime, web) = protected.connected().await;
    assert_eq!(protected.server.forget_sessions(), 1);
    for outcome in run_many(&web, "session", 16).await {
        outcome.unwrap();
    }
    assert_eq!(protected.refreshes(), 0);
    assert_eq!(protected.server.sessions_opened(), 2);
    // Both at once: each recovery is used once.
    protected.server.forget_sessions();
    protected.auth.expire_access_tokens();
    for outcome in run_many(&web, "both", 16).await {
        if let Err(error) = outcome {
            // A call is repeated once in all.
            assert_eq!(error.known(), mcpvisor::Known::Refused, "{error}");
        }
    }
    run(&web, "after").await.unwrap();
    assert_eq!(protected.refreshes(), 1);
    assert_eq!(protected.server.sessions_opened(), 3);
    assert_eq!(protected.server.ran_twice(), Vec::<String>::new());
    runtime.shutdown(LONG).await;
}

//! Lost sessions, and errors that only resemble them. (S1, S2, S4, S5; figures 9, 10, 24.)

use std::sync::Arc;

use mcpvisor::{CallError, Known, RetryPolicy, StateName, Transport};
use mcpvisor_testkit::eventually;
use mcpvisor_testkit::http_server::{HttpOptions, HttpServer, LostSession};
use mcpvisor_testkit::processes::Marker;
use rmcp::model::{ClientConfig, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, ServiceError};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::arena::*;
use crate::bare::{self, Bare};
use crate::fleet::*;

/// Concurrent callers.
const CALLERS: usize = 64;

/// Every kind of request survives the loss of its session, however the server reports it.
async fn every_kind_survives(options: HttpOptions) {
    let arena = Arena::new(options).await;
    for (number, kind) in (1..).zip(KINDS) {
        ready_after(&arena.handle, number - 1).await;
        let before = arena.server.requests(kind);
        assert_eq!(arena.server.forget_sessions(), 1, "{kind}");
        let asked = arena.ask(kind).await;
        asked.unwrap_or_else(|error| panic!("{kind}, {options:?}: {error:?}"));
        assert_eq!(arena.generation(), number + 1, "{kind}: one reconnect");
        assert_eq!(arena.server.sessions_opened(), number + 1, "{kind}");
        let asked = arena.server.requests(kind) - before;
        assert!(asked >= 2, "{kind}: refused, then sent again: {asked}");
    }
    assert_eq!(arena.server.runs("asked"), 1, "refused before it ran");
    assert_eq!(arena.server.requests("completion/complete"), 2);
    arena.end().await;
}

#[tokio::test]
async fn every_request_whose_session_is_gone_by_404_is_sent_again_once() {
    every_kind_survives(HttpOptions::default()).await;
    every_kind_survives(HttpOptions::sse()).await;
    every_kind_survives(HttpOptions::http_sse()).await;
}

#[tokio::test]
async fn every_request_whose_session_is_gone_by_the_text_of_a_400_is_sent_again_once() {
    every_kind_survives(HttpOptions::default().lost(LostSession::BadRequest)).await;
    every_kind_survives(HttpOptions::http_sse().lost(LostSession::BadRequest)).await;
}

#[tokio::test]
async fn every_request_whose_session_is_gone_by_the_text_of_a_410_is_sent_again_once() {
    every_kind_survives(HttpOptions::default().lost(LostSession::Gone)).await;
    every_kind_survives(HttpOptions::http_sse().lost(LostSession::Gone)).await;
}

#[tokio::test]
async fn every_request_whose_session_is_gone_by_the_text_of_an_error_is_sent_again_once() {
    every_kind_survives(HttpOptions::default().lost(LostSession::Answer)).await;
    every_kind_survives(HttpOptions::sse().lost(LostSession::Answer)).await;
}

/// A fault that does not mean a lost session if there is none: one request, one outcome.
async fn is_nothing_without_a_session(fault: &str) -> CallError {
    let arena = Arena::new(HttpOptions::without_sessions()).await;
    arena.server.fault(fault).for_ever();
    let error = arena.run("once").await.unwrap_err();
    assert_eq!(arena.server.requests("tools/call"), 1, "{fault}: {error:?}");
    arena.server.disarm();
    arena.recovers(1).await;
    arena.end().await;
    error
}

#[tokio::test]
async fn without_a_session_neither_a_text_nor_a_404_is_a_lost_one() {
    let error = is_nothing_without_a_session("http-session-error").await;
    assert!(matches!(error, CallError::Answered { .. }), "{error:?}");
    for fault in ["http-session-400", "http-session-410", "http-404"] {
        let error = is_nothing_without_a_session(fault).await;
        assert!(
            matches!(
                error.known(),
                Known::Refused | Known::Answered | Known::Unknown
            ),
            "{fault}: {error:?}"
        );
    }
}

#[tokio::test]
async fn over_stdio_a_text_is_no_lost_session() {
    let marker = Marker::new("no-session");
    let (runtime, handle) = ready(server("child", fixture(&marker, &[])).settings(quick())).await;
    // The tools do not exist, and the server's error repeats their names.
    for text in ["session expired", "Session not found", "invalid session"] {
        let error = handle.call_tool(text, NOTHING).await.unwrap_err();
        assert!(matches!(error, CallError::Answered { .. }), "{error:?}");
        says(&error, &[text]);
    }
    let count = structured(handle.call_tool("count", NOTHING).await);
    assert_eq!(count["count"], 4, "each was asked once");
    assert_eq!(handle.status().generation.get(), 1);
    runtime.shutdown(DEADLINE).await;
}

#[tokio::test]
async fn unrelated_errors_do_not_replace_the_session() {
    let arena = Arena::new(HttpOptions::default()).await;
    let texts = [
        "the sessions table is locked",
        "no such session type",
        "expired",
    ];
    for (number, text) in (1..).zip(texts) {
        let call = arena.handle.call_tool("error", json!({ "text": text }));
        let error = call.deadline(DEADLINE).await.unwrap_err();
        assert!(matches!(error, CallError::Answered { .. }), "{error:?}");
        assert_eq!(arena.server.requests("tools/call"), number, "{text}");
    }
    let failed = arena
        .handle
        .call_tool("fail", json!({ "text": "session expired" }));
    assert_eq!(
        failed.await.unwrap().is_error,
        Some(true),
        "a result is none"
    );
    arena.recovers(1).await;
    assert_eq!(arena.server.sessions_opened(), 1);
    arena.end().await;
}

#[tokio::test]
async fn a_caller_that_leaves_does_not_replace_the_session() {
    let arena = Arena::new(HttpOptions::default()).await;
    for number in 1..=5 {
        let call = arena.handle.call_tool("sleep", json!({ "ms": 60_000 }));
        let call = tokio::spawn(call.into_future());
        eventually(DEADLINE, "the call at the server", || {
            arena.server.requests("tools/call") == number
        })
        .await;
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
    }
    arena.recovers(1).await;
    assert_eq!(arena.server.sessions_opened(), 1);
    assert_eq!(arena.server.requests("tools/call"), 6);
    arena.end().await;
}

#[tokio::test]
async fn figure_10_a_session_that_is_gone_for_ever_costs_one_retry_and_its_error_is_told() {
    let faults = [
        "http-404",
        "http-session-400",
        "http-session-410",
        "http-session-error",
    ];
    let rounds = size(1, 20);
    for (number, fault) in faults.repeat(2 * rounds).into_iter().enumerate() {
        let options = match number % 8 {
            0..4 => HttpOptions::default(),
            // A text in a successful reply is never about the session there.
            7 => continue,
            _ => HttpOptions::http_sse(),
        };
        let arena = Arena::new(options).await;
        arena.server.fault(fault).for_ever();
        // Without this, the text of a successful reply is the tool's own.
        arena.server.fault(fault).on("ping").for_ever();
        let error = arena.run("never").await.unwrap_err();
        match &error {
            // There is only a status.
            CallError::Refused { cause, .. } => {
                assert_eq!(fault, "http-404");
                assert!(cause.contains("404"), "{error}");
            }
            CallError::Answered { error, .. } => assert_eq!(error.code.0, -32000, "{fault}"),
            other => panic!("{fault}: {other:?}"),
        }
        assert_eq!(arena.server.requests("tools/call"), 2, "{fault}: one retry");
        // Nothing continues by itself: a loop would be visible by now.
        tokio::time::sleep(millis(500)).await;
        assert_eq!(arena.server.requests("tools/call"), 2, "{fault}");
        let opened = arena.server.sessions_opened();
        assert_eq!(opened, 2, "{fault}: the fresh session is not replaced");
        arena.server.disarm();
        arena.run("later").await.unwrap();
        assert_eq!(
            (arena.server.runs("never"), arena.server.runs("later")),
            (0, 1)
        );
        arena.end().await;
    }
    let sessions = (2 * faults.len() - 1) * rounds;
    println!("figure 10: {sessions} sessions gone for ever: 1 retry each, then the error");
}

/// Servers whose tools have their own sessions.
const TOOLS_WITH_SESSIONS: usize = 100;

/// What is wrong with the outcome of a call that ran and returned the tool's own error.
fn faults_of(
    server: &HttpServer,
    outcome: Result<(), (i32, String, Option<Value>)>,
) -> Vec<&'static str> {
    let own = (
        -32001,
        "Session not found: browser-7".to_owned(),
        Some(json!({ "browser": 7 })),
    );
    let checks = [
        (outcome == Err(own), "not the original error"),
        (server.runs("once") == 1, "did not run once"),
        (server.requests("tools/call") == 1, "was sent again"),
        (server.sessions_opened() == 1, "reconnected"),
    ];
    let failed = checks.into_iter().filter(|(held, _)| !held);
    failed.map(|(_, fault)| fault).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn figure_24_a_tools_own_error_about_a_session_is_the_answer_and_the_tool_ran_once() {
    let mut servers = Vec::new();
    for number in 0..TOOLS_WITH_SESSIONS {
        let options = match number % 2 {
            0 => HttpOptions::default(),
            _ => HttpOptions::sse(),
        };
        let server = HttpServer::start(options).await;
        server.fault("http-run-then-session-error").for_ever();
        servers.push(server);
    }
    let entries = servers.iter().enumerate().map(|(number, it)| {
        let name = format!("web{number}");
        server(&name, Transport::http(it.url())).settings(quick())
    });
    let runtime = fleet(entries).await;
    runtime.ready(DEADLINE).await.unwrap();
    let mut calls = JoinSet::new();
    for (number, server) in servers.into_iter().enumerate() {
        let handle = runtime.server(format!("web{number}")).unwrap();
        calls.spawn(async move {
            let call = handle.call_tool("run", json!({ "key": "once" }));
            let outcome = match call.deadline(DEADLINE).await {
                Ok(_) => Ok(()),
                Err(CallError::Answered { error, .. }) => {
                    Err((error.code.0, error.message.into_owned(), error.data))
                }
                Err(other) => Err((0, format!("{other:?}"), None)),
            };
            let pings = server.requests("ping");
            let reconnects = handle.status().generation.get() - 1;
            (faults_of(&server, outcome), pings, reconnects)
        });
    }
    let outcomes = calls.join_all().await;
    let wrong: Vec<_> = outcomes.iter().filter(|it| !it.0.is_empty()).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    let pings: usize = outcomes.iter().map(|it| it.1).sum();
    let reconnects: u64 = outcomes.iter().map(|it| it.2).sum();
    assert_eq!((pings, reconnects), (TOOLS_WITH_SESSIONS, 0));
    println!(
        "figure 24: {TOOLS_WITH_SESSIONS} servers: ran once, the original error, {reconnects} reconnects, {pings} pings"
    );
    runtime.shutdown(DEADLINE).await;
}

/// The stream is the session, so an error on it cannot mean that the session is lost: nothing is
/// checked.
#[tokio::test]
async fn a_tools_own_error_about_a_session_is_the_answer_over_http_sse_without_a_check() {
    let arena = Arena::new(HttpOptions::http_sse()).await;
    arena.server.fault("http-run-then-session-error").for_ever();
    let outcome = match arena.run("once").await {
        Err(CallError::Answered { error, .. }) => {
            Err((error.code.0, error.message.into_owned(), error.data))
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(faults_of(&arena.server, outcome), Vec::<&str>::new());
    assert_eq!(arena.server.requests("ping"), 0);
    arena.end().await;
}

#[tokio::test]
async fn control_figure_24_a_client_that_matches_the_text_runs_the_tool_twice() {
    let server = HttpServer::start(HttpOptions::default()).await;
    server.fault("http-run-then-session-error").for_ever();
    let call = async |client: &Bare| client.call("run", json!({ "key": "once" })).await;
    let mut outcome = call(&Bare::connect(&server).await).await;
    if let Err(ServiceError::McpError(error)) = &outcome
        && error.message.to_lowercase().contains("session not found")
    {
        outcome = call(&Bare::connect(&server).await).await;
    }
    let outcome = match outcome {
        Err(ServiceError::McpError(_)) => Err((0, "refused".to_owned(), None)),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        faults_of(&server, outcome),
        [
            "not the original error",
            "did not run once",
            "was sent again",
            "reconnected"
        ],
        "the check sees all of it"
    );
}

#[tokio::test]
async fn control_figure_10_a_call_of_bare_rmcp_has_no_outcome() {
    let server = HttpServer::start(HttpOptions::default()).await;
    let bare = Bare::connect(&server).await;
    server.fault("http-session-400").for_ever();
    assert!(bare::hangs(bare.call("run", json!({ "key": "never" }))).await);
}

#[tokio::test]
async fn a_success_after_the_recovery_clears_the_failures() {
    let mut settings = quick();
    settings.budget.attempts = 3;
    let arena = Arena::with(HttpOptions::default(), settings).await;
    for round in 1..=8 {
        arena.server.forget_sessions();
        arena.run(&format!("round {round}")).await.unwrap();
        ready_after(&arena.handle, round).await;
        let status = arena.handle.status();
        assert_eq!(status.state, StateName::Connected);
        assert_eq!(
            (status.attempt, status.last_error),
            (0, None),
            "round {round}"
        );
    }
    assert_eq!(arena.server.ran_twice(), Vec::<String>::new());
    arena.end().await;
}

#[tokio::test]
async fn the_switch_keeps_a_server_that_runs_before_it_refuses_from_running_twice() {
    let mut settings = quick();
    settings.retry.retry_expired_calls = false;
    let arena = Arena::with(HttpOptions::default(), settings).await;
    arena.server.fault("http-run-then-404").once();
    let error = arena.run("once").await.unwrap_err();
    assert_eq!(error.known(), Known::Refused, "{error:?}");
    assert_eq!(arena.server.runs("once"), 1);
    // Read-only requests are still resent, and the next call works.
    ready_after(&arena.handle, 1).await;
    arena.server.forget_sessions();
    arena.ask("resources/read").await.unwrap();
    arena.run("later").await.unwrap();
    assert_eq!(arena.server.ran_twice(), Vec::<String>::new());
    arena.end().await;
}

#[tokio::test]
async fn a_caller_that_disables_retries_gets_none() {
    let arena = Arena::new(HttpOptions::default()).await;
    arena.server.forget_sessions();
    let call = arena.handle.call_tool("run", json!({ "key": "never" }));
    let error = call.retry(RetryPolicy::Never).await.unwrap_err();
    assert_eq!(error.known(), Known::Refused, "{error:?}");
    assert_eq!(arena.server.runs("never"), 0);
    arena.run("later").await.unwrap();
    arena.end().await;
}

#[tokio::test]
async fn control_with_the_switch_on_and_with_bare_rmcp_such_a_server_runs_twice() {
    let arena = Arena::new(HttpOptions::default()).await;
    arena.server.fault("http-run-then-404").once();
    arena.run("twice").await.unwrap();
    assert_eq!(arena.server.ran_twice(), ["twice"]);
    arena.end().await;

    let server = HttpServer::start(HttpOptions::default()).await;
    let bare = Bare::connect(&server).await;
    server.fault("http-run-then-404").once();
    bare.call("run", json!({ "key": "twice" })).await.unwrap();
    assert_eq!(server.ran_twice(), ["twice"]);
}

/// Concurrent callers up to the in-flight limit, each with its own side effect.
async fn crowd(arena: &Arc<Arena>, round: usize, ms: u64) -> JoinSet<()> {
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let arena = Arc::clone(arena);
        callers.spawn(async move {
            let key = format!("{round}-{caller}");
            let answer = structured(arena.run_for(&key, ms).await);
            assert_eq!(answer["key"], key, "its own answer");
        });
    }
    callers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn figure_9_sixty_four_callers_lose_their_session_and_one_reconnect_serves_them_all() {
    let sse = HttpOptions::http_sse();
    for options in [HttpOptions::default(), HttpOptions::sse(), sse] {
        // A busy machine takes a while to refuse all of them.
        let mut settings = quick();
        settings.close.drain = secs(10);
        let arena = Arc::new(Arena::with(options, settings).await);
        for round in 1..=size(3, 20) {
            ready_after(&arena.handle, round as u64 - 1).await;
            arena.server.forget_sessions();
            let before = arena.server.requests("tools/call");
            crowd(&arena, round, 0).await.join_all().await;
            let opened = arena.server.sessions_opened();
            assert_eq!(opened, round as u64 + 1, "one reconnect in round {round}");
            let sent = arena.server.requests("tools/call") - before;
            assert!(sent <= 2 * CALLERS, "{sent} requests for {CALLERS} calls");
            let reply = options.reply;
            println!("figure 9: {reply:?}, round {round}: 1 reconnect, {sent} requests");
        }
        assert_eq!(arena.server.ran_twice(), Vec::<String>::new());
        assert_eq!(arena.server.all_runs(), (size(3, 20) * CALLERS) as u64);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_in_flight_are_answered_though_their_session_is_forgotten_meanwhile() {
    let sse = HttpOptions::http_sse();
    for options in [HttpOptions::default(), HttpOptions::sse(), sse] {
        let mut settings = quick();
        settings.close.drain = secs(10);
        let arena = Arc::new(Arena::with(options, settings).await);
        // Half of the callers are running when the session is lost; the others start afterwards.
        let mut early = JoinSet::new();
        for caller in 0..CALLERS / 2 {
            let arena = Arc::clone(&arena);
            let key = format!("early {caller}");
            early.spawn(async move { structured(arena.run_for(&key, 700).await) });
        }
        let runs = || arena.server.all_runs() == CALLERS as u64 / 2;
        eventually(DEADLINE, "the calls at work", runs).await;
        arena.server.forget_sessions();
        let mut late = JoinSet::new();
        for caller in 0..CALLERS / 2 {
            let arena = Arc::clone(&arena);
            let key = format!("late {caller}");
            late.spawn(async move { structured(arena.run(&key).await) });
        }
        late.join_all().await;
        early.join_all().await;
        assert_eq!(arena.server.sessions_opened(), 2, "{options:?}");
        assert_eq!(arena.server.ran_twice(), Vec::<String>::new());
        assert_eq!(arena.server.all_runs(), CALLERS as u64);
    }
}

#[tokio::test]
async fn control_figure_9_a_client_that_does_not_recover_loses_every_call() {
    let server = HttpServer::start(HttpOptions::default()).await;
    let mut config = StreamableHttpClientTransportConfig::with_uri(server.url());
    config.reinit_on_expired_session = false;
    let transport = StreamableHttpClientTransport::with_client(bare::client(), config);
    let legacy = ProtocolVersion::LATEST_WITH_INITIALIZE;
    let client = ClientConfig::default().with_protocol_version(legacy);
    let client = client.serve_with_lifecycle(transport, ClientLifecycleMode::Initialize);
    let bare = Arc::new(Bare(client.await.unwrap()));
    server.forget_sessions();
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let bare = Arc::clone(&bare);
        callers.spawn(async move { bare.call("echo", json!({})).await });
    }
    for outcome in callers.join_all().await {
        assert!(
            matches!(outcome, Err(ServiceError::TransportSend(_))),
            "{outcome:?}"
        );
    }
    assert_eq!(server.sessions_opened(), 1, "nobody opened another");
}

#[tokio::test]
async fn a_session_id_in_an_error_is_ignored() {
    let arena = Arena::new(HttpOptions::default()).await;
    let own = |arena: &Arena| {
        let received = arena.server.received();
        let last = received.iter().rev().find(|it| it.method == "tools/call");
        last.unwrap().header("mcp-session-id").unwrap().to_owned()
    };
    arena.run("first").await.unwrap();
    let session = own(&arena);
    arena.server.fault("http-400-new-session").once();
    arena.run("refused").await.unwrap_err();
    arena.run("next").await.unwrap();
    assert_eq!(
        own(&arena),
        session,
        "the header of the error was not taken over"
    );
    assert_eq!((arena.generation(), arena.server.runs("refused")), (1, 0));
    arena.end().await;
}

//! Errors about sessions in successful replies: the tool's own error, or a lost session. One ping
//! on the session decides. (S1, S2, S4, C2, C3, H3.)

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use mcpvisor::rmcp::ErrorData;
use mcpvisor::{CallError, Known, Runtime, ServerHandle, StateName, Transport};
use serde_json::json;
use tokio::sync::watch;

use crate::era_change::{error, modern};
use crate::harness::{LONG, call, connected, reaches, started_with, until};
use mcpvisor_testkit::stub_server::{
    StubReply, StubRequest, StubServer, chunk, default_reply, event, initialize_reply, sse_head,
    text_result,
};

/// The error of a tool that has its own sessions.
fn own_error(request: &StubRequest) -> StubReply {
    let own =
        json!({"code": -32001, "message": "Session not found: browser-7", "data": {"browser": 7}});
    error(request, "200 OK", &own)
}

/// The same, as an event of a stream.
fn own_error_as_event(request: &StubRequest) -> StubReply {
    let own =
        json!({"code": -32001, "message": "Session not found: browser-7", "data": {"browser": 7}});
    let message = json!({"jsonrpc": "2.0", "id": request.id(), "error": own});
    StubReply::events(&[event(&message)])
}

fn no_such_method(request: &StubRequest) -> StubReply {
    let error = json!({"code": -32601, "message": "Method not found"});
    crate::era_change::error(request, "200 OK", &error)
}

/// Checks for the complete original error.
fn is_own_error(outcome: Result<String, CallError>) {
    match outcome.unwrap_err() {
        CallError::Answered { error, .. } => is_whole(&error),
        other => panic!("{other:?}"),
    }
}

fn is_whole(error: &ErrorData) {
    assert_eq!(error.code.0, -32001);
    assert_eq!(error.message, "Session not found: browser-7");
    assert_eq!(error.data, Some(json!({"browser": 7})));
}

/// Starts a server whose tool returns its own error, and which answers pings in this way.
async fn with_pings(
    ping: impl Fn(&StubRequest) -> StubReply + Send + Sync + 'static,
) -> StubServer {
    StubServer::start(move |request| match request.operation() {
        "tools/call" => own_error(request),
        "ping" => ping(request),
        _ => default_reply(request),
    })
    .await
}

/// Connects, with this ping timeout, and waits for the tool list.
async fn patient(server: &StubServer, answer: Duration) -> (Runtime, ServerHandle) {
    let (runtime, web) = started_with(Transport::http(server.url()), |config| {
        config.settings.health.keepalive_timeout = answer;
    })
    .await;
    runtime.ready(LONG).await.unwrap();
    until("the tools are known", || web.status().tools == 1).await;
    (runtime, web)
}

/// Checks that nothing was repeated or replaced.
fn undisturbed(server: &StubServer, web: &ServerHandle, calls: usize) {
    assert_eq!(server.count("tools/call"), calls, "ran once each");
    assert_eq!(server.count("initialize"), 1, "no reconnect");
    let status = web.status();
    assert_eq!(
        (status.state, status.generation.get()),
        (StateName::Connected, 1)
    );
    assert_eq!(status.last_error, None);
}

#[tokio::test]
async fn a_tools_own_error_about_a_session_is_the_callers_answer() {
    let alive: [fn(&StubRequest) -> StubReply; 2] = [default_reply, no_such_method];
    for own in [own_error, own_error_as_event] {
        for ping in alive {
            let server = StubServer::start(move |request| match request.operation() {
                "tools/call" => own(request),
                "ping" => ping(request),
                _ => default_reply(request),
            })
            .await;
            let (runtime, web) = patient(&server, LONG).await;
            for number in 1..=3 {
                is_own_error(call(&web).await);
                assert_eq!(server.count("ping"), number, "one ping decides");
            }
            undisturbed(&server, &web, 3);
            runtime.shutdown(LONG).await;
            assert_eq!(server.count("DELETE"), 1);
        }
    }
}

#[tokio::test]
async fn a_ping_that_fails_otherwise_leaves_the_error_as_the_answer() {
    let failures: [fn(&StubRequest) -> StubReply; 5] = [
        |_| StubReply::status("500 Internal StubServer Error", "", ""),
        |_| StubReply::status("401 Unauthorized", "", ""),
        |_| StubReply::status("429 Too Many Requests", "retry-after: 1\r\n", ""),
        |_| StubReply::Close(String::new()),
        |_| StubReply::status("200 OK", "content-type: application/json\r\n", "nonsense"),
    ];
    for ping in failures {
        let server = with_pings(ping).await;
        let (runtime, web) = patient(&server, LONG).await;
        is_own_error(call(&web).await);
        undisturbed(&server, &web, 1);
        runtime.shutdown(LONG).await;
    }
}

#[tokio::test]
async fn a_ping_that_is_not_answered_in_time_leaves_the_error_as_the_answer() {
    let server = with_pings(|_| StubReply::Hang).await;
    let (runtime, web) = patient(&server, Duration::from_millis(300)).await;
    is_own_error(call(&web).await);
    assert_eq!(server.count("ping"), 1);
    undisturbed(&server, &web, 1);
    // The next suspicion is resolved by its own ping.
    is_own_error(call(&web).await);
    assert_eq!(server.count("ping"), 2);
    undisturbed(&server, &web, 2);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_ping_that_is_refused_for_its_session_makes_the_loss_certain() {
    let lost = json!({"code": -32000, "message": "Session expired"});
    for (status, deleted) in [
        ("404 Not Found", 0),
        ("400 Bad Request", 0),
        ("410 Gone", 0),
        // It still answers, so it may still know the session.
        ("200 OK", 1),
    ] {
        let sessions = Arc::new(AtomicUsize::new(0));
        let (count, lost) = (Arc::clone(&sessions), lost.clone());
        let server = StubServer::start(move |request| {
            let first = request.header("mcp-session-id") == Some("session-1");
            match request.operation() {
                "initialize" => {
                    let number = count.fetch_add(1, Ordering::SeqCst) + 1;
                    initialize_reply(request, Some(&format!("session-{number}")))
                }
                "tools/call" if first => own_error(request),
                "ping" if first => error(request, status, &lost),
                _ => default_reply(request),
            }
        })
        .await;
        let (runtime, web) = patient(&server, LONG).await;
        assert_eq!(call(&web).await.unwrap(), "hello", "{status}");
        assert_eq!(server.count("tools/call"), 2, "{status}: one retry");
        assert_eq!(server.count("ping"), 1, "{status}");
        assert_eq!(server.count("initialize"), 2, "{status}: one reconnect");
        assert_eq!(server.count("DELETE"), deleted, "{status}");
        assert_eq!(web.status().last_error, None, "{status}");
        runtime.shutdown(LONG).await;
    }
}

#[tokio::test]
async fn one_ping_serves_all_errors_that_are_doubtful_while_it_is_under_way() {
    let (release, released) = watch::channel(false);
    let server = StubServer::start(move |request| match request.operation() {
        "tools/call" => own_error(request),
        "ping" => default_reply(request).held(&released),
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = patient(&server, LONG).await;
    let calls = join_all((0..64).map(|_| call(&web)));
    let all_there = async {
        until("all calls at the server", || {
            server.count("tools/call") == 64
        })
        .await;
        // Their errors are in flight. This is deterministic, because the ping is held.
        tokio::time::sleep(Duration::from_millis(300)).await;
        release.send_replace(true);
    };
    let (outcomes, ()) = tokio::join!(calls, all_there);
    outcomes.into_iter().for_each(is_own_error);
    let pings = server.count("ping");
    assert!(pings < 8, "{pings} pings for 64 calls");
    undisturbed(&server, &web, 64);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn sixty_four_callers_of_a_session_that_is_lost_in_words_cause_one_reconnect() {
    let sessions = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sessions);
    let server = StubServer::start(move |request| match request.operation() {
        "initialize" => {
            let number = count.fetch_add(1, Ordering::SeqCst) + 1;
            initialize_reply(request, Some(&format!("session-{number}")))
        }
        "tools/call" | "ping" if request.header("mcp-session-id") == Some("session-1") => {
            own_error(request)
        }
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = patient(&server, LONG).await;
    for outcome in join_all((0..64).map(|_| call(&web))).await {
        assert_eq!(outcome.unwrap(), "hello");
    }
    assert_eq!(server.count("initialize"), 2, "one reconnect");
    assert!(server.count("tools/call") <= 128, "one retry each");
    assert_eq!(server.count("DELETE"), 1, "the first session is ended");
    runtime.shutdown(LONG).await;
}

/// A server that forgets its first session and reports that by status. Its tool `run` returns its
/// own error once released.
async fn forgetful(released: watch::Receiver<bool>, during_ping: bool) -> StubServer {
    let sessions = Arc::new(AtomicUsize::new(0));
    let forgotten = Arc::new(AtomicBool::new(false));
    StubServer::start(move |request| {
        let first = request.header("mcp-session-id") == Some("session-1");
        match request.operation() {
            "initialize" => {
                let number = sessions.fetch_add(1, Ordering::SeqCst) + 1;
                initialize_reply(request, Some(&format!("session-{number}")))
            }
            "tools/call" if during_ping => own_error(request),
            "tools/call" => own_error(request).held(&released),
            "ping" if first && during_ping => default_reply(request).held(&released),
            "resources/read" => {
                forgotten.store(true, Ordering::SeqCst);
                match first {
                    true => StubReply::status("404 Not Found", "", ""),
                    false => default_reply(request),
                }
            }
            _ if first && forgotten.load(Ordering::SeqCst) => {
                StubReply::status("404 Not Found", "", "")
            }
            _ => default_reply(request),
        }
    })
    .await
}

#[tokio::test]
async fn a_loss_that_another_request_finds_repeats_no_tool_that_answered() {
    for during_ping in [true, false] {
        let (release, released) = watch::channel(false);
        let server = forgetful(released, during_ping).await;
        let (runtime, web) = patient(&server, LONG).await;
        let running = tokio::spawn({
            let web = web.clone();
            async move { call(&web).await }
        });
        let awaited = if during_ping { "ping" } else { "tools/call" };
        until("the tool has run", || server.count(awaited) == 1).await;
        let read = tokio::spawn({
            let web = web.clone();
            async move { web.read_resource("note://a").deadline(LONG).await }
        });
        until("the loss is found", || {
            web.status().generation.get() > 1 || web.status().state == StateName::Reconnecting
        })
        .await;
        release.send_replace(true);
        is_own_error(running.await.unwrap());
        // The fixture has no resources; any reply on the new session is enough.
        let _ = read.await.unwrap();
        assert_eq!(server.count("tools/call"), 1, "{during_ping}: it ran once");
        assert_eq!(
            server.count("initialize"),
            2,
            "{during_ping}: one reconnect"
        );
        runtime.shutdown(LONG).await;
    }
}

#[tokio::test]
async fn a_deadline_that_passes_during_the_ping_still_gives_the_servers_answer() {
    let server = with_pings(|_| StubReply::Hang).await;
    let (runtime, web) = patient(&server, LONG).await;
    let request = web.call_tool("echo", json!({}));
    let outcome = request.deadline(Duration::from_secs(1)).await;
    is_own_error(outcome.map(|_| String::new()));
    let request = web.call_tool("echo", json!({}));
    let outcome = request.idle_timeout(Duration::from_secs(1)).await;
    is_own_error(outcome.map(|_| String::new()));
    assert_eq!(server.count("ping"), 1, "the first one is still under way");
    undisturbed(&server, &web, 2);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_caller_that_leaves_during_the_ping_changes_nothing() {
    let (release, released) = watch::channel(false);
    let server = StubServer::start(move |request| match request.operation() {
        "tools/call" => own_error(request),
        "ping" => default_reply(request).held(&released),
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = patient(&server, LONG).await;
    let request = tokio::spawn(web.call_tool("echo", json!({})).into_future());
    until("the ping is under way", || server.count("ping") == 1).await;
    request.abort();
    assert!(request.await.unwrap_err().is_cancelled());
    release.send_replace(true);
    is_own_error(call(&web).await);
    undisturbed(&server, &web, 2);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_close_during_the_ping_still_gives_the_servers_answer() {
    for shutdown in [false, true] {
        let server = with_pings(|_| StubReply::Hang).await;
        let (runtime, web) = patient(&server, LONG).await;
        let caller = web.clone();
        let request = tokio::spawn(async move { call(&caller).await });
        until("the ping is under way", || server.count("ping") == 1).await;
        if shutdown {
            runtime.shutdown(LONG).await;
        } else {
            runtime.disable("web").await.unwrap();
        }
        is_own_error(request.await.unwrap());
        assert_eq!(server.count("tools/call"), 1);
        assert_eq!(server.count("initialize"), 1);
        assert_eq!(server.count("DELETE"), 1, "the session is ended");
        runtime.shutdown(LONG).await;
    }
}

#[tokio::test]
async fn a_connection_that_dies_during_the_ping_still_gives_the_servers_answer() {
    let server = with_pings(|_| StubReply::Hang).await;
    let (runtime, web) = patient(&server, LONG).await;
    let caller = web.clone();
    let request = tokio::spawn(async move { call(&caller).await });
    until("the ping is under way", || server.count("ping") == 1).await;
    server.stop().await;
    is_own_error(request.await.unwrap());
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_fresh_session_that_is_lost_too_is_the_callers_answer_and_not_replaced() {
    for status in ["404 Not Found", "400 Bad Request", "410 Gone", "200 OK"] {
        let server = StubServer::start(move |request| match request.operation() {
            "tools/call" | "ping" => {
                let lost = json!({"code": -32001, "message": "Session not found: browser-7", "data": {"browser": 7}});
                error(request, status, &lost)
            }
            _ => default_reply(request),
        })
        .await;
        let (runtime, web) = patient(&server, LONG).await;
        is_own_error(call(&web).await);
        assert_eq!(server.count("tools/call"), 2, "{status}: one retry");
        assert_eq!(server.count("initialize"), 2, "{status}: one reconnect");
        assert_eq!(web.status().state, StateName::Connected, "{status}");
        // Each further call may replace the session once.
        is_own_error(call(&web).await);
        assert_eq!(server.count("tools/call"), 4, "{status}");
        assert_eq!(server.count("initialize"), 3, "{status}");
        runtime.shutdown(LONG).await;
    }
}

#[tokio::test]
async fn a_listing_of_our_own_with_such_an_error_replaces_the_session_only_if_it_is_lost() {
    for lost in [false, true] {
        let sessions = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&sessions);
        let server = StubServer::start(move |request| {
            let first = request.header("mcp-session-id") == Some("session-1");
            match request.operation() {
                "initialize" => {
                    let number = count.fetch_add(1, Ordering::SeqCst) + 1;
                    initialize_reply(request, Some(&format!("session-{number}")))
                }
                "tools/list" if first => own_error(request),
                "ping" if first && lost => StubReply::status("404 Not Found", "", ""),
                _ => default_reply(request),
            }
        })
        .await;
        let (runtime, web) = connected_without_tools(&server).await;
        if lost {
            until("the tools are known", || web.status().tools == 1).await;
            assert_eq!(server.count("initialize"), 2);
        } else {
            // Retried after a while, with a new decision.
            until("it was settled twice", || server.count("ping") >= 2).await;
            assert_eq!(server.count("initialize"), 1);
            assert_eq!(call(&web).await.unwrap(), "hello");
        }
        runtime.shutdown(LONG).await;
    }
}

/// Connects, without waiting for the tool list.
async fn connected_without_tools(server: &StubServer) -> (Runtime, ServerHandle) {
    let (runtime, web) = started_with(Transport::http(server.url()), |config| {
        config.settings.listing.refresh_retry = Duration::from_millis(50);
    })
    .await;
    reaches(&web, StateName::Connected).await;
    (runtime, web)
}

#[tokio::test]
async fn without_a_session_no_error_is_suspected() {
    // A server of the older eras without sessions, and one of 2026-07-28.
    let stateless = StubServer::start(|request| match request.operation() {
        "initialize" => initialize_reply(request, None),
        "tools/call" => own_error(request),
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = connected(&stateless).await;
    is_own_error(call(&web).await);
    assert_eq!(stateless.count("ping"), 0);
    runtime.shutdown(LONG).await;

    let server = StubServer::start(|request| match request.operation() {
        "tools/call" => own_error(request),
        _ => modern(request),
    })
    .await;
    let (runtime, web) = started_with(Transport::http(server.url()), |config| {
        config.protocol = None;
    })
    .await;
    runtime.ready(LONG).await.unwrap();
    let asked = server.count("server/discover");
    is_own_error(call(&web).await);
    assert_eq!(server.count("server/discover"), asked);
    assert_eq!(server.count("tools/call"), 1);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_session_that_is_given_up_for_another_era_is_ended() {
    // It opens a session for `initialize`, answers it with an error, and speaks 2026-07-28.
    let server = StubServer::start(|request| match request.operation() {
        "initialize" => {
            let refused = json!({"jsonrpc": "2.0", "id": request.id(), "error": {
                "code": -32022, "message": "Unsupported protocol version",
                "data": {"supported": ["2026-07-28"], "requested": "2025-06-18"},
            }});
            let headers = "content-type: application/json\r\nmcp-session-id: early\r\n";
            StubReply::status("200 OK", headers, &refused.to_string())
        }
        // The first `server/discover` fails, so the other era is tried.
        "server/discover" if request.header("mcp-session-id").is_none() => late_discovery(request),
        "DELETE" => StubReply::status("200 OK", "", ""),
        _ => modern(request),
    })
    .await;
    let (runtime, web) = started_with(Transport::http(server.url()), |config| {
        config.protocol = None;
    })
    .await;
    runtime.ready(LONG).await.unwrap();
    assert_eq!(web.status().protocol.as_deref(), Some("2026-07-28"));
    until("the session is ended", || server.count("DELETE") == 1).await;
    let deleted = server
        .requests()
        .into_iter()
        .find(|it| it.operation() == "DELETE");
    assert_eq!(deleted.unwrap().header("mcp-session-id"), Some("early"));
    runtime.shutdown(LONG).await;
    assert_eq!(server.count("DELETE"), 1);
}

/// Answers `server/discover` only after `initialize` was tried.
fn late_discovery(request: &StubRequest) -> StubReply {
    match modern(request) {
        StubReply::Parts(parts) => StubReply::Parts(
            parts
                .into_iter()
                .map(|(_, text)| (Duration::from_millis(2_500), text))
                .collect(),
        ),
        other => other,
    }
}

#[tokio::test]
async fn a_session_is_ended_when_its_connection_fails_a_check_or_the_handshake() {
    // An unanswered check: the connection is replaced, and its session is ended.
    let server = StubServer::start(|request| match request.operation() {
        "ping" => StubReply::Hang,
        _ => default_reply(request),
    })
    .await;
    let (runtime, _web) = started_with(Transport::http(server.url()), |config| {
        config.settings.health.keepalive = Duration::from_millis(100);
        config.settings.health.keepalive_timeout = Duration::from_millis(200);
    })
    .await;
    until("the session is ended", || server.count("DELETE") >= 1).await;
    runtime.shutdown(LONG).await;

    // A handshake that opens a session but cannot be used.
    let server = StubServer::start(|request| match request.operation() {
        "initialize" => {
            let odd = json!({"jsonrpc": "2.0", "id": request.id(), "result": {
                "protocolVersion": "1999-01-01", "capabilities": {},
                "serverInfo": {"name": "odd", "version": "1"},
            }});
            let headers = "content-type: application/json\r\nmcp-session-id: odd\r\n";
            StubReply::status("200 OK", headers, &odd.to_string())
        }
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = started_with(Transport::http(server.url()), |_| {}).await;
    reaches(&web, StateName::PermanentlyFailed).await;
    assert_eq!(server.count("DELETE"), 1);
    runtime.shutdown(LONG).await;

    // A handshake whose reply breaks off after its head.
    let server = StubServer::start(|request| match request.operation() {
        "initialize" => StubReply::Close(
            sse_head().replace("\r\n\r\n", "\r\nmcp-session-id: broken\r\n\r\n")
                + &chunk(": one\n"),
        ),
        _ => default_reply(request),
    })
    .await;
    let (runtime, _web) = started_with(Transport::http(server.url()), |_| {}).await;
    until("the session is ended", || server.count("DELETE") >= 1).await;
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_plain_text_that_names_the_session_is_evidence_too() {
    for status in ["400 Bad Request", "410 Gone"] {
        let sessions = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&sessions);
        let server = StubServer::start(move |request| match request.operation() {
            "initialize" => {
                let number = count.fetch_add(1, Ordering::SeqCst) + 1;
                initialize_reply(request, Some(&format!("session-{number}")))
            }
            "tools/call" if request.header("mcp-session-id") == Some("session-1") => {
                StubReply::status(status, "", "Bad Request: No valid session ID provided")
            }
            "tools/call" => StubReply::result(request, &text_result("hello")),
            _ => default_reply(request),
        })
        .await;
        let (runtime, web) = patient(&server, LONG).await;
        assert_eq!(call(&web).await.unwrap(), "hello", "{status}");
        assert_eq!(server.count("initialize"), 2, "{status}");
        runtime.shutdown(LONG).await;
    }
}

#[tokio::test]
async fn the_loss_is_not_hidden_from_a_caller_who_wants_no_retry() {
    let lost = json!({"code": -32000, "message": "Session expired"});
    let server = StubServer::start(move |request| match request.operation() {
        "tools/call" | "ping" => error(request, "200 OK", &lost),
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = patient(&server, LONG).await;
    let request = web.call_tool("echo", json!({}));
    let refused = request
        .retry(mcpvisor::RetryPolicy::Never)
        .await
        .unwrap_err();
    assert_eq!(refused.known(), Known::Refused, "{refused:?}");
    assert_eq!(server.count("tools/call"), 1);
    runtime.shutdown(LONG).await;
}

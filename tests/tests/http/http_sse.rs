//! What only HTTP+SSE has: the endpoint, and the stream that is the session.

use std::sync::Arc;
use std::time::Duration;

use mcpvisor::{Config, FaultClass, Known, StateName, Transport};
use mcpvisor_testkit::http_server::{HttpOptions, HttpServer, Received};
use mcpvisor_testkit::{eventually, eventually_in};
use rmcp::model::ProtocolVersion;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::arena::*;
use crate::fleet::*;

const SSE: fn() -> HttpOptions = HttpOptions::http_sse;

/// A fleet of one whose stream begins with this fault.
async fn with_stream_fault(fault: &str, connect: Duration) -> Arena {
    let server = HttpServer::start(SSE()).await;
    server.fault(fault).on("GET").for_ever();
    let mut settings = quick();
    settings.timeouts.connect = connect;
    Arena::start(server, settings).await
}

/// The POSTs that the server received.
fn posts(server: &HttpServer) -> Vec<Received> {
    let received = server.received().into_iter();
    received.filter(|it| it.http_method == "POST").collect()
}

#[tokio::test]
async fn an_endpoint_that_is_no_address_is_refused_for_good() {
    for (fault, said) in [
        ("sse-endpoint-javascript", "is not a valid address"),
        ("sse-endpoint-huge", "is longer than 8 KiB"),
    ] {
        let arena = with_stream_fault(fault, DEADLINE).await;
        reaches(&arena.handle, StateName::PermanentlyFailed).await;
        let status = arena.handle.status();
        let error = status.last_error.unwrap();
        assert_eq!(error.class, FaultClass::InvalidAddress, "{error:?}");
        says(&error, &["the endpoint of the server", said]);
        assert!(!error.to_string().contains("javascript"), "{error}");
        assert!(status.action.is_some());
        assert_eq!(posts(&arena.server), [], "{fault}");
        arena.end().await;
    }
}

#[tokio::test]
async fn a_server_that_never_sends_its_endpoint_meets_the_connect_timeout() {
    for fault in ["sse-no-endpoint", "sse-comments"] {
        let arena = with_stream_fault(fault, millis(500)).await;
        let mut status = arena.handle.watch();
        let error = eventually_in(DEADLINE, "a failed attempt", &mut status, |status| {
            status.last_error.clone()
        })
        .await;
        assert_eq!(error.class, FaultClass::Timeout, "{fault}: {error:?}");
        assert_eq!(posts(&arena.server), [], "{fault}");
        // The budget is counted, and the server works once it behaves.
        arena.server.disarm();
        let call = arena.handle.call_tool("echo", json!({}));
        call.deadline(DEADLINE).await.unwrap();
        arena.end().await;
    }
}

#[tokio::test]
async fn a_second_endpoint_is_ignored() {
    let arena = with_stream_fault("sse-two-endpoints", DEADLINE).await;
    arena.recovers(1).await;
    let paths: Vec<String> = posts(&arena.server).into_iter().map(|it| it.path).collect();
    assert!(paths.len() > 2, "{paths:?}");
    assert!(
        paths.iter().all(|path| !path.ends_with("another")),
        "{paths:?}"
    );
    arena.end().await;
}

#[tokio::test]
async fn a_response_to_a_post_that_never_ends_delays_no_answer_and_its_connection_is_given_up() {
    let arena = Arena::new(SSE()).await;
    for number in 0..100 {
        let (outcome, took) = arena.inject("sse-endless-202", DEADLINE).await;
        outcome.unwrap();
        assert!(took < tolerance(), "call {number}: {took:?}");
    }
    let few = || arena.server.open_connections() <= 2;
    eventually(DEADLINE, "the connections are given up", few).await;
    arena.recovers(1).await;
    arena.end().await;
}

#[tokio::test]
async fn a_stream_that_ends_is_a_lost_connection_with_exact_outcomes() {
    for cut in [true, false] {
        let arena = Arena::new(SSE()).await;
        let running = arena
            .handle
            .call_tool("run", json!({ "key": "k", "ms": 60_000 }));
        let running = tokio::spawn(running.deadline(2 * DEADLINE).into_future());
        eventually(DEADLINE, "the call at work", || arena.server.runs("k") == 1).await;
        match cut {
            true => assert_eq!(arena.server.cut_streams(), 1),
            false => assert_eq!(arena.server.end_streams(), 1),
        }
        let error = running.await.unwrap().unwrap_err();
        assert_eq!(error.known(), Known::Unknown, "{error:?}");
        says(&error, &["web", "event stream"]);
        arena.recovers(2).await;
        assert_eq!(arena.server.runs("k"), 1);
        assert_eq!(arena.server.sessions_opened(), 2);
        arena.end().await;
    }
}

#[tokio::test]
async fn the_handshake_is_that_of_the_older_era_and_headers_are_sent_with_every_request() {
    let server = HttpServer::start(SSE()).await;
    let endpoint = Transport::sse(server.url()).header("X-Key", "secret");
    let (runtime, handle) = ready(crate::fleet::server("web", endpoint).settings(quick())).await;
    handle.call_tool("echo", json!({})).await.unwrap();
    let status = handle.status();
    assert_eq!(
        (status.transport, status.protocol.as_deref()),
        ("sse", Some("2025-11-25"))
    );
    assert_eq!(server.requests("server/discover"), 0, "there is no probe");
    let received = server.received();
    assert_eq!(
        (&*received[0].http_method, &*received[0].path),
        ("GET", "/sse")
    );
    assert_eq!(received[0].header("accept"), Some("text/event-stream"));
    assert!(
        received
            .iter()
            .all(|it| it.header("x-key") == Some("secret"))
    );
    let last = received
        .iter()
        .rfind(|it| it.method == "tools/call")
        .unwrap();
    assert_eq!(last.header("mcp-protocol-version"), Some("2025-11-25"));
    assert_eq!(last.header("content-type"), Some("application/json"));
    let report = runtime.shutdown(DEADLINE).await;
    assert!(report.is_clean(), "{report:?}");
    let closed = || server.open_connections() == 0 && server.open_sessions() == 0;
    eventually(DEADLINE, "every socket closed", closed).await;
}

#[tokio::test]
async fn a_version_that_http_sse_does_not_have_is_refused_for_good() {
    let server = HttpServer::start(SSE()).await;
    let mut web = crate::fleet::server("web", Transport::sse(server.url()));
    web.protocol = Some(ProtocolVersion::V_2026_07_28);
    let runtime = fleet([web]).await;
    let handle = runtime.server("web").unwrap();
    reaches(&handle, StateName::PermanentlyFailed).await;
    let fault = handle.status().last_error.unwrap();
    assert_eq!(fault.class, FaultClass::IncompatibleVersion);
    says(&fault, &["HTTP+SSE has 2025-11-25", "requires 2026-07-28"]);
    assert_eq!(server.received(), []);
    runtime.shutdown(DEADLINE).await;
}

#[tokio::test]
async fn requests_of_the_server_are_answered_at_the_endpoint_and_changed_lists_are_fetched() {
    let arena = Arena::new(SSE()).await;
    let listed = arena.server.requests("tools/list");
    let ping = json!({ "jsonrpc": "2.0", "id": "from the server", "method": "ping" });
    assert_eq!(arena.server.send_message(&ping), 1);
    let answered = || {
        let posts = posts(&arena.server);
        posts
            .iter()
            .any(|it| it.id == "from the server" && it.method.is_empty())
    };
    eventually(DEADLINE, "the answer", answered).await;
    arena
        .server
        .notify("notifications/tools/list_changed", json!({}));
    let again = || arena.server.requests("tools/list") > listed;
    eventually(DEADLINE, "the new list", again).await;
    arena.recovers(1).await;
    arena.end().await;
}

#[tokio::test]
async fn a_caller_that_leaves_cancels_its_call_and_keeps_the_session() {
    let arena = Arena::new(SSE()).await;
    for number in 1..=5 {
        let call = arena.handle.call_tool("sleep", json!({ "ms": 60_000 }));
        let call = tokio::spawn(call.into_future());
        let at_server = || arena.server.requests("tools/call") == number;
        eventually(DEADLINE, "the call at the server", at_server).await;
        call.abort();
        let cancelled = || arena.server.requests("notifications/cancelled") == number;
        eventually(DEADLINE, "the cancellation", cancelled).await;
    }
    arena.recovers(1).await;
    assert_eq!(arena.server.sessions_opened(), 1);
    arena.end().await;
}

#[tokio::test]
async fn a_server_that_accepts_no_new_connections_finishes_the_calls_in_flight() {
    let arena = Arena::new(SSE()).await;
    let running = arena
        .handle
        .call_tool("run", json!({ "key": "k", "ms": 2_000 }));
    let running = tokio::spawn(running.deadline(DEADLINE).into_future());
    eventually(DEADLINE, "the call at work", || arena.server.runs("k") == 1).await;
    arena.server.stop_listening().await;
    // Further calls find no connection, or use one that is idle.
    let mut others = tokio::task::JoinSet::new();
    for number in 0..8 {
        let call = arena
            .handle
            .call_tool("run", json!({ "key": format!("{number}"), "ms": 500 }));
        others.spawn(call.deadline(DEADLINE).into_future());
    }
    running.await.unwrap().unwrap();
    assert_eq!(arena.server.sessions_opened(), 1, "the session goes on");
    for outcome in others.join_all().await {
        if let Err(error) = outcome {
            assert_eq!(error.known(), Known::NotSent, "{error:?}");
        }
    }
    assert_eq!(arena.server.ran_twice(), Vec::<String>::new());
    arena.end().await;
}

#[tokio::test]
async fn a_reload_changes_headers_and_limits_on_the_open_stream() {
    const MIB: usize = 1024 * 1024;
    let server = HttpServer::start(SSE()).await;
    let config = |key: &str, limit: usize| {
        let endpoint = Transport::sse(server.url()).header("X-Key", key);
        let mut settings = quick();
        settings.messages.max_bytes = limit;
        Config::new().server(crate::fleet::server("web", endpoint).settings(settings))
    };
    let runtime = mcpvisor::Runtime::builder().config(config("old", 2 * MIB));
    let runtime = runtime.start().await.unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    let handle = runtime.server("web").unwrap();
    let large = || {
        let arguments = json!({ "fault": format!("http-body={}", 3 * MIB) });
        handle.call_tool("misbehave", arguments).deadline(DEADLINE)
    };
    let error = large().await.unwrap_err();
    says(&error, &["larger than 2 MiB"]);
    assert_eq!(error.known(), Known::Answered);
    runtime.reload(config("new", 4 * MIB)).await.unwrap();
    large().await.unwrap();
    assert_eq!(handle.status().generation.get(), 1);
    let received = server.received();
    let calls = received.iter().filter(|it| it.method == "tools/call");
    let keys: Vec<_> = calls.map(|it| it.header("x-key").unwrap()).collect();
    assert_eq!(keys, ["old", "new"]);
    runtime.shutdown(DEADLINE).await;
}

#[tokio::test]
async fn a_refused_credential_needs_authorization_on_the_stream_and_at_the_endpoint() {
    let arena = with_stream_fault("http-401", DEADLINE).await;
    reaches(&arena.handle, StateName::PermanentlyFailed).await;
    let fault = arena.handle.status().last_error.unwrap();
    assert_eq!(fault.class, FaultClass::Authorization, "{fault:?}");
    arena.end().await;

    let arena = Arena::new(SSE()).await;
    arena.server.fault("http-401").for_ever();
    let error = arena.run("never").await.unwrap_err();
    assert_eq!(error.known(), Known::Refused, "{error:?}");
    assert_eq!(
        (arena.server.runs("never"), arena.server.sessions_opened()),
        (0, 1)
    );
    arena.end().await;
}

/// What a client does that takes any endpoint.
#[tokio::test]
async fn control_figure_23_a_client_that_follows_any_endpoint_gives_its_headers_away() {
    let server = HttpServer::start(SSE()).await;
    server.fault("sse-endpoint-elsewhere").on("GET").once();
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let mut stream = BufReader::new(stream);
    let get = "GET /sse HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\n\r\n";
    stream.write_all(get.as_bytes()).await.unwrap();
    let endpoint = loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        if let Some(endpoint) = line.trim().strip_prefix("data: ") {
            break endpoint.to_owned();
        }
    };
    let address = endpoint
        .strip_prefix("http://")
        .unwrap()
        .split('/')
        .next()
        .unwrap();
    let mut elsewhere = TcpStream::connect(address).await.unwrap();
    let post = "POST /messages HTTP/1.1\r\nx-api-key: canary\r\ncontent-length: 0\r\n\r\n";
    elsewhere.write_all(post.as_bytes()).await.unwrap();
    let arrived = || server.other_origin_received().concat().contains("canary");
    eventually(DEADLINE, "the canary, elsewhere", arrived).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_share_one_stream_and_each_gets_its_own_answer() {
    let arena = Arc::new(Arena::new(SSE()).await);
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..64 {
        let arena = Arc::clone(&arena);
        callers.spawn(async move {
            for number in 0..20 {
                let key = format!("{caller}-{number}");
                let answer = structured(arena.run_for(&key, number % 3).await);
                assert_eq!(answer["key"], key, "its own answer");
            }
        });
    }
    callers.join_all().await;
    assert_eq!(arena.server.all_runs(), 64 * 20);
    assert_eq!(arena.server.ran_twice(), Vec::<String>::new());
    assert_eq!((arena.generation(), arena.server.open_streams()), (1, 1));
    // One for the stream, and at most as many as there were callers.
    let connects = arena.server.connects();
    assert!(connects <= 2 * 64 + 1, "{connects} connections");
}

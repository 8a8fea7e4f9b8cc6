//! Era detection with servers that are slow, fail on `server/discover`, or speak both eras.

use std::time::{Duration, Instant};

use mcpvisor::{Runtime, ServerHandle, StateName, Transport};
use serde_json::json;

use crate::era_change::{Handler, error, legacy, modern};
use crate::harness::{LONG, call, connected, started_with, until};
use crate::reply_streams::sockets;
use mcpvisor_testkit::stub_server::{
    StubReply, StubRequest, StubServer, chunk, default_reply, event, initialize_reply, sse_head,
    text_result,
};

/// Starts with a server whose era is unknown.
async fn unknown(server: &StubServer) -> (Runtime, ServerHandle) {
    started_with(Transport::http(server.url()), |config| {
        config.protocol = None;
        config.settings.backoff.initial = Duration::from_millis(10);
    })
    .await
}

/// The same reply, delayed.
fn later(after: Duration, reply: StubReply) -> StubReply {
    let StubReply::Parts(mut parts) = reply else {
        unreachable!()
    };
    parts[0].0 = after;
    StubReply::Parts(parts)
}

/// The same reply, after which the connection is closed.
fn last(reply: StubReply) -> StubReply {
    let StubReply::Parts(parts) = reply else {
        unreachable!()
    };
    let text = parts[0].1.replacen("\r\n", "\r\nconnection: close\r\n", 1);
    StubReply::Close(text)
}

/// Longer than the timeout after which the other era is tried.
const SLOW: Duration = Duration::from_millis(1_500);

#[tokio::test]
async fn a_modern_server_that_takes_its_time_is_waited_for_though_it_refuses_the_other_era() {
    // With an error of its era, with one of any era, with an invalid reply, and by failing.
    let refusals: [Handler; 4] = [
        modern,
        |request| {
            let unknown = json!({"code": -32601, "message": "no such protocol version"});
            error(request, "404 Not Found", &unknown)
        },
        |_| StubReply::status("200 OK", "content-type: text/html\r\n", "<html>"),
        |_| StubReply::status("500 Internal StubServer Error", "", ""),
    ];
    for refusal in refusals {
        let server = StubServer::start(move |request| match request.operation() {
            "server/discover" => later(SLOW, modern(request)),
            "initialize" => refusal(request),
            _ => modern(request),
        })
        .await;
        let (runtime, web) = unknown(&server).await;
        until("it is there", || {
            let state = web.status().state;
            assert_ne!(state, StateName::PermanentlyFailed, "{:?}", web.status());
            state == StateName::Connected
        })
        .await;
        assert_eq!(web.status().generation.get(), 1, "the first time");
        assert_eq!(web.status().protocol.as_deref(), Some("2026-07-28"));
        assert_eq!(call(&web).await.unwrap(), "hello from the new one");
        runtime.shutdown(LONG).await;
    }
}

#[tokio::test]
async fn a_server_that_never_says_what_it_speaks_is_asked_again() {
    let server = StubServer::start(move |request| match request.operation() {
        "server/discover" => StubReply::Hang,
        _ => modern(request),
    })
    .await;
    let (runtime, web) = unknown(&server).await;
    until("another try", || web.status().generation.get() >= 2).await;
    let fault = web.status().last_error.unwrap();
    assert!(fault.message.contains("server/discover"), "{fault}");
    runtime.shutdown(LONG).await;
}

/// A server that speaks both eras slowly, and opens a session in the older one.
fn both(request: &StubRequest) -> StubReply {
    match request.operation() {
        "server/discover" => later(SLOW, modern(request)),
        "initialize" => later(2 * SLOW, initialize_reply(request, Some("session-1"))),
        "tools/call" => {
            let unknown = json!({"code": -32601, "message": "Unknown tool"});
            error(request, "404 Not Found", &unknown)
        }
        _ => modern(request),
    }
}

#[tokio::test]
async fn the_late_answer_to_the_other_question_gives_a_modern_connection_no_session() {
    let server = StubServer::start(both).await;
    let (runtime, web) = unknown(&server).await;
    runtime.ready(LONG).await.unwrap();
    assert_eq!(web.status().protocol.as_deref(), Some("2026-07-28"));
    let begun = Instant::now();
    let mut calls = 0;
    while begun.elapsed() < 3 * SLOW {
        assert!(call(&web).await.is_err());
        calls += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(server.count("tools/call"), calls, "none was sent again");
    let requests = server.requests();
    let with_session = requests
        .iter()
        .filter(|it| it.header("mcp-session-id").is_some());
    assert_eq!(with_session.count(), 0);
    assert_eq!(web.status().generation.get(), 1);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_server_that_fails_on_the_question_in_any_way_is_asked_for_the_other_era() {
    let failures: [Handler; 5] = [
        |_| StubReply::Close(String::new()),
        |_| StubReply::status("502 Bad Gateway", "content-type: text/html\r\n", "<html>"),
        |_| StubReply::status("409 Conflict", "", ""),
        |_| StubReply::status("403 Forbidden", "content-type: text/html\r\n", "<html>"),
        |_| StubReply::status("408 Request Timeout", "", ""),
    ];
    for failure in failures {
        let server = StubServer::start(move |request| match request.operation() {
            "server/discover" => failure(request),
            _ => legacy(request),
        })
        .await;
        let (runtime, web) = unknown(&server).await;
        assert_eq!(call(&web).await.unwrap(), "hello");
        assert_eq!(web.status().generation.get(), 1, "on the same connection");
        assert_eq!(server.count("server/discover"), 1);
        runtime.shutdown(LONG).await;
    }
}

#[tokio::test]
async fn a_server_that_is_busy_or_wants_somebody_else_is_not_asked_for_another_era() {
    for status in ["401 Unauthorized", "429 Too Many", "503 Unavailable"] {
        let server = StubServer::start(move |request| match request.operation() {
            "server/discover" => StubReply::status(status, "", ""),
            _ => legacy(request),
        })
        .await;
        let (runtime, web) = unknown(&server).await;
        until("it is refused", || web.status().last_error.is_some()).await;
        assert_eq!(server.count("initialize"), 0, "{status}");
        runtime.shutdown(LONG).await;
    }
}

#[tokio::test]
async fn a_question_that_was_never_answered_keeps_no_socket() {
    let server = StubServer::start(|request| match request.operation() {
        "server/discover" => StubReply::Hang,
        _ => last(legacy(request)),
    })
    .await;
    let (runtime, web) = unknown(&server).await;
    assert_eq!(call(&web).await.unwrap(), "hello");
    until("every socket is closed", || sockets(server.port) == 0).await;
    assert_eq!(web.status().state, StateName::Connected);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn streams_that_were_answered_hold_up_no_reconnect() {
    let server = StubServer::start(|request| match request.operation() {
        "tools/call" => {
            let answer =
                json!({"jsonrpc": "2.0", "id": request.id(), "result": text_result("open")});
            let text = sse_head() + &chunk(&event(&answer));
            StubReply::Parts(vec![(Duration::ZERO, text), (LONG, String::new())])
        }
        _ => last(default_reply(request)),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    assert_eq!(call(&web).await.unwrap(), "open");
    server.stop_listening();
    let begun = Instant::now();
    let request = web.call_tool("echo", json!({}));
    let caller = tokio::spawn(async move { request.deadline(LONG).await });
    until("the loss is noticed", || {
        web.status().state != StateName::Connected
    })
    .await;
    // Outstanding replies are awaited for 5 s.
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(4), "{took:?}");
    caller.abort();
    runtime.shutdown(LONG).await;
}

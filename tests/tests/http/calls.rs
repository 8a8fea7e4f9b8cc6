//! Successful calls, and the headers and parameters sent with them.

use std::time::{Duration, Instant};

use mcpvisor::Transport;
use serde_json::json;

use crate::harness::{LONG, call, connected, started, started_with, until};
use mcpvisor_testkit::stub_server::{
    StubReply, StubServer, VERSION, chunk, default_reply, event, sse_head, text_result,
};

#[tokio::test]
async fn a_call_is_answered_by_a_body_of_json() {
    let server = StubServer::start(default_reply).await;
    let (runtime, web) = connected(&server).await;
    assert_eq!(call(&web).await.unwrap(), "hello");
    let status = web.status();
    assert_eq!((status.transport, status.tools), ("http", 1));
    assert_eq!(status.protocol.as_deref(), Some(VERSION));
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_call_is_answered_by_a_stream_of_events() {
    let server = StubServer::start(|request| match request.operation() {
        "tools/call" => {
            let progress = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}});
            let answer = json!({"jsonrpc": "2.0", "id": request.id(), "result": text_result("streamed")});
            StubReply::events(&[event(&progress), ": still there\n\n".to_owned(), event(&answer)])
        }
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    for _ in 0..5 {
        assert_eq!(call(&web).await.unwrap(), "streamed");
    }
    assert!(
        server.accepted() <= 4,
        "connections are used again: {}",
        server.accepted()
    );
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn every_request_carries_the_session_the_version_and_the_headers_of_the_config() {
    let server = StubServer::start(default_reply).await;
    let endpoint = Transport::http(format!(
        "http://me:pass@127.0.0.1:{}/mcp?key=1",
        server.port
    ))
    .header("X-Team", "blue");
    let (runtime, web) = started(endpoint).await;
    assert_eq!(call(&web).await.unwrap(), "hello");
    runtime.shutdown(LONG).await;
    let requests = server.requests();
    assert_eq!(requests[0].operation(), "initialize");
    assert_eq!(
        requests[1].operation(),
        "notifications/initialized",
        "before anything else"
    );
    for (index, one) in requests.iter().enumerate() {
        assert_eq!(one.path, "/mcp?key=1");
        assert_eq!(one.header("x-team"), Some("blue"));
        assert_eq!(one.header("authorization"), Some("Basic bWU6cGFzcw=="));
        assert_eq!(
            one.header("accept"),
            Some("application/json, text/event-stream")
        );
        assert_eq!(
            one.header("accept-encoding"),
            Some("identity"),
            "nothing is decompressed"
        );
        let (session, version) = (
            one.header("mcp-session-id"),
            one.header("mcp-protocol-version"),
        );
        if index == 0 {
            assert_eq!((session, version), (None, None));
        } else {
            assert_eq!(
                (session, version),
                (Some("session-1"), Some(VERSION)),
                "{one:?}"
            );
        }
    }
    assert_eq!(server.count("DELETE"), 1, "the session is ended");
}

#[tokio::test]
async fn calls_run_side_by_side_and_connections_are_kept() {
    let server = StubServer::start(|request| match request.operation() {
        "tools/call" => {
            let body = json!({"jsonrpc": "2.0", "id": request.id(), "result": text_result("slow")})
                .to_string();
            let StubReply::Parts(parts) =
                StubReply::status("200 OK", "content-type: application/json\r\n", &body)
            else {
                unreachable!()
            };
            StubReply::Parts(vec![(Duration::from_millis(300), parts[0].1.clone())])
        }
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    let begun = Instant::now();
    for _ in 0..2 {
        let calls = (0..16).map(|_| call(&web));
        for answer in futures_util::future::join_all(calls).await {
            assert_eq!(answer.unwrap(), "slow");
        }
    }
    assert!(
        begun.elapsed() < Duration::from_secs(4),
        "one after the other would take 9.6 s"
    );
    assert!(server.accepted() <= 20, "{}", server.accepted());
    runtime.shutdown(LONG).await;
}

/// A server that leaves Nagle's algorithm on and writes its reply in two small parts.
#[tokio::test]
async fn an_answer_in_two_small_parts_is_not_held_up_by_a_late_acknowledgement() {
    let server = StubServer::start(|request| match request.operation() {
        "tools/call" => {
            let answer =
                json!({"jsonrpc": "2.0", "id": request.id(), "result": text_result("quick")});
            StubReply::Parts(vec![
                (Duration::ZERO, sse_head()),
                (Duration::ZERO, chunk(&event(&answer))),
                (Duration::ZERO, "0\r\n\r\n".to_owned()),
            ])
        }
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    let mut times = Vec::new();
    for _ in 0..60 {
        let begun = Instant::now();
        call(&web).await.unwrap();
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let median = times[times.len() / 2];
    assert!(
        median < Duration::from_millis(25),
        "a stall is 40 ms, and this took {median:?}"
    );
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_call_that_is_given_up_is_cancelled_at_the_server() {
    let server = StubServer::start(|request| match request.operation() {
        "tools/call" => StubReply::Hang,
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    let given_up = tokio::spawn(web.call_tool("echo", json!({})).into_future());
    until("the call is at the server", || {
        server.count("tools/call") == 1
    })
    .await;
    given_up.abort();
    assert!(given_up.await.unwrap_err().is_cancelled());
    until("the server is told", || {
        server.count("notifications/cancelled") == 1
    })
    .await;
    let id = server
        .requests()
        .into_iter()
        .find(|request| request.operation() == "tools/call");
    let cancelled = server
        .requests()
        .into_iter()
        .find(|request| request.operation() == "notifications/cancelled");
    assert_eq!(
        cancelled.unwrap().body["params"]["requestId"],
        id.unwrap().id()
    );
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_server_that_takes_what_it_does_not_know_and_says_nothing_is_greeted_the_older_way() {
    let server = StubServer::start(default_reply).await;
    let (runtime, web) = started_with(Transport::http(server.url()), |config| {
        config.protocol = None;
    })
    .await;
    assert_eq!(call(&web).await.unwrap(), "hello");
    assert_eq!(server.requests()[0].operation(), "server/discover");
    assert_eq!(web.status().generation.get(), 1);
    runtime.shutdown(LONG).await;
}

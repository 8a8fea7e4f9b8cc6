//! Replies that exceed a limit, are invalid, or must not be shown (I2, I3).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mcpvisor::{CallError, Config, Known, Runtime, Transport};
use serde_json::json;

use crate::harness::{LONG, call, connected, reaches, started, until};
use mcpvisor_testkit::stub_server::{
    StubReply, StubServer, chunk, default_reply, event, sse_head, text_result,
};

fn mib(count: usize) -> String {
    "x".repeat(count * 1024 * 1024)
}

fn whole(kind: &str, body: &str) -> StubReply {
    StubReply::status("200 OK", &format!("content-type: {kind}\r\n"), body)
}

/// The outcome of a call with this reply.
async fn outcome(
    reply: impl Fn(&serde_json::Value) -> StubReply + Send + Sync + 'static,
) -> CallError {
    let server = StubServer::start(move |request| match request.operation() {
        "tools/call" => reply(&request.id()),
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    let error = call(&web).await.unwrap_err();
    assert_eq!(server.count("tools/call"), 1, "{error}");
    web.ping().await.unwrap();
    runtime.shutdown(LONG).await;
    error
}

#[tokio::test]
async fn an_unreadable_reply_is_reported_as_unreadable() {
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let of = |result: &str| result.to_owned();
    for (kind, body) in [
        ("text/html", of("<html>")),
        ("application/json", of("garbage")),
        (
            "application/json",
            of("{\"jsonrpc\":\"2.0\",\"id\":ID,\"resu"),
        ),
        (
            "application/json",
            of("{\"jsonrpc\":\"2.0\",\"id\":999999,\"result\":{\"content\":[]}}"),
        ),
        ("application/json", of("[]")),
        ("application/json", of("")),
        (
            "application/json",
            format!("{{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{deep}}}"),
        ),
    ] {
        let shown = body.clone();
        let error = outcome(move |id| whole(kind, &body.replace("ID", &id.to_string()))).await;
        assert!(
            matches!(error, CallError::Unreadable { .. }),
            "{kind} {shown}: {error:?}"
        );
        assert_eq!(error.known(), Known::Answered);
    }
}

#[tokio::test]
async fn a_reply_in_an_unrequested_encoding_names_the_encoding() {
    let error = outcome(|_| {
        let headers = "content-type: application/json\r\ncontent-encoding: gzip\r\n";
        StubReply::status("200 OK", headers, "\u{1f}gzipped")
    })
    .await;
    assert_eq!(error.known(), Known::Answered);
    assert!(error.to_string().contains("gzip"), "{error}");
}

#[tokio::test]
async fn large_answers_side_by_side_are_all_read() {
    let text = mib(3);
    let server = StubServer::start(move |request| match request.operation() {
        "tools/call" => {
            let answer = json!({"jsonrpc": "2.0", "id": request.id(), "result": {"content": [{"type": "text", "text": text}]}});
            if request.id().as_u64().is_some_and(|id| id % 2 == 0) {
                whole("application/json", &answer.to_string())
            } else {
                StubReply::events(&[event(&answer)])
            }
        }
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    let calls = (0..12).map(|_| call(&web));
    for answer in futures_util::future::join_all(calls).await {
        assert_eq!(answer.unwrap().len(), 3 * 1024 * 1024);
    }
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn the_message_limit_follows_the_config_and_a_reload_keeps_the_connection() {
    let as_event = Arc::new(AtomicBool::new(false));
    let style = Arc::clone(&as_event);
    let server = StubServer::start(move |request| {
        match (request.operation(), style.load(Ordering::SeqCst)) {
            ("tools/call", false) => StubReply::result(request, &text_result(&mib(2))),
            ("tools/call", true) => {
                let answer =
                    json!({"jsonrpc": "2.0", "id": request.id(), "result": text_result(&mib(2))});
                StubReply::Close(sse_head() + &chunk(&event(&answer)) + "0\r\n\r\n")
            }
            _ => default_reply(request),
        }
    })
    .await;
    let limited = |bytes: usize| {
        let mut config = crate::harness::web(Transport::http(server.url()));
        config.settings.messages.max_bytes = bytes;
        Config::new().server(config)
    };
    const MIB: usize = 1024 * 1024;
    let config = limited(MIB + MIB / 2);
    let runtime = Runtime::builder().config(config).start().await.unwrap();
    runtime.ready(LONG).await.unwrap();
    let web = runtime.server("web").unwrap();
    for style in [false, true] {
        as_event.store(style, Ordering::SeqCst);
        let error = call(&web).await.unwrap_err();
        assert!(
            error.to_string().contains("larger than 1536 KiB"),
            "{error}"
        );
        runtime.reload(limited(3 * MIB)).await.unwrap();
        assert_eq!(call(&web).await.unwrap().len(), 2 * MIB);
        runtime.reload(limited(MIB + MIB / 2)).await.unwrap();
    }
    assert_eq!(web.status().generation.get(), 1);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn an_oversized_event_on_the_servers_own_stream_delays_no_reply() {
    let server = StubServer::start(|request| match request.operation() {
        "GET" => {
            let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
            // Far below the reply limit, and without an end. The stream is not requested again
            // meanwhile, however long the calls take.
            let unfinished = format!("retry: 30000\n{}data: {}", event(&changed), mib(2));
            StubReply::Parts(vec![
                (Duration::ZERO, sse_head() + &chunk(&unfinished)),
                (LONG, String::new()),
            ])
        }
        "tools/call" => StubReply::result(request, &text_result(&mib(3))),
        _ => default_reply(request),
    })
    .await;
    let begun = Instant::now();
    let (runtime, web) = connected(&server).await;
    until("the event before it is heard", || {
        server.count("tools/list") >= 2
    })
    .await;
    // Only one large message is assembled at a time, and that event would be the one.
    for _ in 0..3 {
        let request = web.call_tool("echo", json!({}));
        request.deadline(LONG / 4).await.unwrap();
    }
    // Such a stream is reopened after 1 s, then 2 s, and so on.
    let (opened, passed) = (server.count("GET"), begun.elapsed().as_secs());
    let most = 1 + (passed + 1).ilog2() as usize;
    assert!(opened <= most, "{opened} streams in {passed} s");
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn an_error_without_our_id_answers_the_request_it_came_for() {
    for (status, id) in [
        ("400 Bad Request", json!(null)),
        ("400 Bad Request", json!("server-error")),
        ("400 Bad Request", json!(999_999)),
        ("200 OK", json!(null)),
        ("500 Oh", json!("server-error")),
    ] {
        let body = json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32600, "message": "not like this"}});
        let error = outcome(move |_| {
            StubReply::status(
                status,
                "content-type: application/json\r\n",
                &body.to_string(),
            )
        })
        .await;
        assert!(
            matches!(error, CallError::Answered { .. }),
            "{status}: {error:?}"
        );
        assert!(error.to_string().contains("not like this"), "{error}");
    }
}

#[tokio::test]
async fn an_accepted_request_without_an_answer_has_an_unknown_outcome() {
    let error = outcome(|_| StubReply::status("202 Accepted", "", "")).await;
    assert_eq!(error.known(), Known::Unknown, "{error}");
}

#[tokio::test]
async fn no_secret_of_an_address_or_a_header_is_ever_shown() {
    let server = StubServer::start(|request| {
        // A server that echoes everything it received.
        let told = format!("{:?} {}", request.headers, request.path);
        let body =
            json!({"jsonrpc": "2.0", "id": request.id(), "error": {"code": 1, "message": told}});
        StubReply::status(
            "400 Bad Request",
            "content-type: application/json\r\n",
            &body.to_string(),
        )
    })
    .await;
    let port = server.port;
    let url = format!("http://canary-user:canary-pass@127.0.0.1:{port}/mcp?key=canary-query");
    let endpoint = Transport::http(url).header("X-Key", "canary-header");
    let shown = format!("{endpoint:?}");
    let (runtime, web) = started(endpoint).await;
    until("a try failed", || web.status().last_error.is_some()).await;
    let error = web
        .ping()
        .deadline(Duration::from_millis(50))
        .await
        .unwrap_err();
    let told = format!("{shown} {:?} {error} {error:?}", web.status());
    assert!(!told.contains("canary"), "{told}");
    assert!(told.contains("***"), "it was there: {told}");
    reaches(&web, web.status().state).await;
    runtime.shutdown(LONG).await;
}

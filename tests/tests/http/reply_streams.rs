//! Event streams: broken off, resumed, left open, and the server's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mcpvisor::{Known, StateName};
use serde_json::{Value, json};

use crate::harness::{LONG, call, connected, known, until};
use mcpvisor_testkit::stub_server::{
    StubReply, StubRequest, StubServer, chunk, default_reply, event, one_tool, sse_head,
    text_result,
};

fn answer(id: &Value, text: &str) -> String {
    event(&json!({"jsonrpc": "2.0", "id": id, "result": text_result(text)}))
}

#[tokio::test]
async fn a_stream_that_ends_without_the_answer_leaves_the_outcome_unknown() {
    let broken: [fn(&StubRequest) -> StubReply; 3] = [
        |_| StubReply::events(&[": nothing\n\n".to_owned()]),
        |_| StubReply::Close(sse_head() + &chunk("data: {\"json")),
        |_| StubReply::Close(String::new()),
    ];
    for reply in broken {
        let server = StubServer::start(move |request| match request.operation() {
            "tools/call" => reply(request),
            _ => default_reply(request),
        })
        .await;
        let (runtime, web) = connected(&server).await;
        let error = call(&web).await.unwrap_err();
        assert_eq!(
            (error.code(), error.known()),
            ("outcome_unknown", Known::Unknown),
            "{error}"
        );
        assert_eq!(server.count("tools/call"), 1);
        assert_eq!(
            web.status().state,
            StateName::Connected,
            "the link lives on"
        );
        runtime.shutdown(LONG).await;
    }
}

#[tokio::test]
async fn a_stream_with_numbered_events_is_resumed_after_the_pause_that_the_server_asks_for() {
    let id = Arc::new(std::sync::Mutex::new(Value::Null));
    let kept = Arc::clone(&id);
    let server = StubServer::start(move |request| {
        match (request.operation(), request.header("last-event-id")) {
            ("tools/call", _) => {
                *kept.lock().unwrap() = request.id();
                StubReply::events(&["id: e-7\nretry: 400\ndata:\n\n".to_owned()])
            }
            ("GET", Some("e-7")) => StubReply::events(&["id: e-8\nretry: 1\ndata:\n\n".to_owned()]),
            ("GET", Some("e-8")) => StubReply::events(&[answer(&kept.lock().unwrap(), "resumed")]),
            _ => default_reply(request),
        }
    })
    .await;
    let (runtime, web) = connected(&server).await;
    let begun = Instant::now();
    assert_eq!(call(&web).await.unwrap(), "resumed");
    assert!(
        begun.elapsed() >= Duration::from_millis(400),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(server.count("tools/call"), 1, "it ran once");
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_stream_that_cannot_be_resumed_leaves_the_outcome_unknown() {
    for (status, sessions) in [
        ("405 Method Not Allowed", 1),
        ("500 Oh", 1),
        ("404 Not Found", 2),
    ] {
        let server = StubServer::start(move |request| {
            match (request.operation(), request.header("last-event-id")) {
                ("tools/call", _) => StubReply::events(&["id: 1\ndata:\n\n".to_owned()]),
                ("GET", Some(_)) => StubReply::status(status, "", ""),
                _ => default_reply(request),
            }
        })
        .await;
        let (runtime, web) = connected(&server).await;
        assert_eq!(known(call(&web).await), Known::Unknown, "{status}");
        assert_eq!(server.count("tools/call"), 1, "{status}");
        // A lost session is replaced without a call.
        until("there is a session", || {
            web.status().generation.get() == sessions && web.status().is_ready()
        })
        .await;
        runtime.shutdown(LONG).await;
    }
}

#[tokio::test]
async fn streams_that_stay_open_after_their_answer_do_not_pile_up() {
    let server = StubServer::start(|request| match request.operation() {
        "tools/call" => StubReply::Parts(vec![
            (
                Duration::ZERO,
                sse_head() + &chunk(&answer(&request.id(), "open")),
            ),
            (LONG, String::new()),
        ]),
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    let before = sockets(server.port);
    for _ in 0..60 {
        assert_eq!(call(&web).await.unwrap(), "open");
    }
    let kept = sockets(server.port).saturating_sub(before);
    assert!(kept <= 20, "{kept} connections");
    runtime.shutdown(LONG).await;
}

/// Our open sockets to a port.
pub fn sockets(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let remote = format!("0100007F:{port:04X}");
    let open = |line: &&str| {
        let mut fields = line.split_whitespace().skip(2);
        fields.next() == Some(remote.as_str()) && fields.next() == Some("01")
    };
    table.lines().filter(open).count()
}

#[tokio::test]
async fn a_notification_on_the_servers_own_stream_is_handled_and_the_stream_resumed() {
    let version = Arc::new(AtomicUsize::new(1));
    let tool = Arc::clone(&version);
    let server = StubServer::start(move |request| {
        match (request.operation(), request.header("last-event-id")) {
            ("GET", None) => StubReply::events(&["id: s-1\nretry: 10\ndata:\n\n".to_owned()]),
            ("GET", Some("s-1")) => {
                tool.store(2, Ordering::SeqCst);
                let changed =
                    json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
                StubReply::Parts(vec![
                    (
                        Duration::ZERO,
                        sse_head() + &chunk(&format!("id: s-2\n{}", event(&changed))),
                    ),
                    (LONG, String::new()),
                ])
            }
            ("tools/list", _) if tool.load(Ordering::SeqCst) == 2 => {
                let mut tools = one_tool();
                tools["tools"][0]["name"] = json!("renamed");
                StubReply::result(request, &tools)
            }
            _ => default_reply(request),
        }
    })
    .await;
    let (runtime, web) = connected(&server).await;
    until("the list is fetched again", || {
        web.catalog().tool("renamed").is_some()
    })
    .await;
    assert_eq!(web.status().generation.get(), 1);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_stream_that_finds_the_session_gone_opens_a_new_one() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let server = StubServer::start(move |request| match request.operation() {
        "GET" => match count.fetch_add(1, Ordering::SeqCst) {
            0 => StubReply::Close(sse_head()),
            1 => StubReply::status("404 Not Found", "", ""),
            _ => default_reply(request),
        },
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    until("there is a new session", || {
        web.status().generation.get() == 2
    })
    .await;
    assert_eq!(call(&web).await.unwrap(), "hello");
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_request_of_the_server_is_answered_with_a_request_of_its_own() {
    let server = StubServer::start(|request| match request.operation() {
        "tools/call" => {
            let ping = json!({"jsonrpc": "2.0", "id": "from-server", "method": "ping"});
            StubReply::events(&[event(&ping), answer(&request.id(), "pinged")])
        }
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    assert_eq!(call(&web).await.unwrap(), "pinged");
    until("the ping is answered", || {
        server.requests().iter().any(|request| {
            request.body["id"] == "from-server" && request.body["result"].is_object()
        })
    })
    .await;
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_request_of_the_server_that_is_too_large_is_refused_though_nothing_follows_it() {
    let server = StubServer::start(|request| match request.operation() {
        "tools/call" => {
            let params = json!({"x": "x".repeat(2 * 1024 * 1024)});
            let large = json!({"jsonrpc": "2.0", "id": "theirs", "method": "x", "params": params});
            StubReply::raw(sse_head() + &chunk(&event(&large)))
        }
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    let waits = tokio::spawn(async move { call(&web).await });
    until("it is refused", || {
        server
            .requests()
            .iter()
            .any(|request| request.body["id"] == "theirs" && request.body["error"].is_object())
    })
    .await;
    waits.abort();
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_flood_is_dropped_and_the_answer_behind_it_is_not() {
    let server = StubServer::start(|request| match request.operation() {
        "tools/call" => {
            let noise = json!({"jsonrpc": "2.0", "method": "notifications/x", "params": {}});
            let noise = event(&noise).repeat(20_000);
            StubReply::events(&[noise, answer(&request.id(), "after the flood")])
        }
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    assert_eq!(call(&web).await.unwrap(), "after the flood");
    until("it is counted", || web.status().dropped_flood > 1_000).await;
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_call_whose_stream_cannot_be_resumed_because_the_server_is_gone_is_not_sent_again() {
    let server = StubServer::start(|request| match request.operation() {
        "tools/call" => {
            StubReply::Close(sse_head() + &chunk("id: 1\nretry: 500\ndata:\n\n") + "0\r\n\r\n")
        }
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    let running = {
        let web = web.clone();
        tokio::spawn(async move { call(&web).await })
    };
    until("it is sent", || server.count("tools/call") == 1).await;
    // The server stops while the link waits for the time that the server requested.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let port = server.port;
    server.stop().await;
    assert_eq!(known(running.await.unwrap()), Known::Unknown);
    let server = StubServer::start_on(port, default_reply).await;
    assert_eq!(call(&web).await.unwrap(), "hello");
    assert_eq!(server.count("tools/call"), 1, "only the second call");
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_stream_on_which_nothing_new_comes_is_not_resumed_for_ever() {
    let server =
        StubServer::start(
            |request| match (request.operation(), request.header("last-event-id")) {
                ("tools/call", _) => StubReply::events(&["id: e-1\ndata:\n\n".to_owned()]),
                ("GET", Some("e-1")) => StubReply::events(&["retry: 1\n\n".to_owned()]),
                _ => default_reply(request),
            },
        )
        .await;
    let (runtime, web) = connected(&server).await;
    let request = web.call_tool("echo", json!({}));
    let error = request.deadline(LONG / 4).await.unwrap_err();
    assert_eq!(error.code(), "outcome_unknown", "{error}");
    let requests = server.requests();
    let resumed = requests
        .iter()
        .filter(|it| it.header("last-event-id") == Some("e-1"));
    assert_eq!(resumed.count(), 5);
    assert_eq!(server.count("tools/call"), 1);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_refusal_is_not_read_to_an_end_that_does_not_come() {
    let server = StubServer::start(|request| match request.operation() {
        "tools/call" => {
            let text = "x".repeat(100_000);
            let head = "HTTP/1.1 500 Oh\r\ncontent-length: 1000000\r\n\r\n";
            StubReply::Parts(vec![
                (Duration::ZERO, format!("{head}{text}")),
                (LONG, String::new()),
            ])
        }
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    let request = web.call_tool("echo", json!({}));
    let error = request.deadline(LONG / 4).await.unwrap_err();
    assert_eq!(error.code(), "outcome_unknown", "{error}");
    runtime.shutdown(LONG).await;
}

//! Deviations of real servers, proxies and load balancers from the protocol, and how they are
//! handled.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mcpvisor::{CallError, Known, Transport};
use serde_json::{Value, json};

use crate::harness::{LONG, call, connected, known, started, started_with, until};
use mcpvisor_testkit::stub_server::{
    StubReply, StubRequest, StubServer, chunk, default_reply, event, initialize_reply, one_tool,
    sse_head, text_result,
};

/// Counts requests, starting at one.
#[derive(Clone, Default)]
struct Turn(Arc<AtomicUsize>);

impl Turn {
    fn next(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// A server stream that sends these events and stays open for a while.
fn open_stream(events: &str, lasts: Duration) -> StubReply {
    let first = format!("{}{}", sse_head(), chunk(&format!(": here\n\n{events}")));
    StubReply::Parts(vec![(Duration::ZERO, first), (lasts, String::new())])
}

/// A stream that sends these events and breaks off.
fn broken_stream(events: &str) -> StubReply {
    StubReply::Close(sse_head() + &chunk(events))
}

fn log() -> String {
    event(&json!({"jsonrpc": "2.0", "method": "notifications/message",
        "params": {"level": "info", "data": "something"}}))
}

fn answer(request: &StubRequest, text: &str) -> String {
    event(&json!({"jsonrpc": "2.0", "id": request.id(), "result": text_result(text)}))
}

#[tokio::test]
async fn an_address_without_a_stream_of_its_own_may_say_so_with_404() {
    let server = StubServer::start(|request| match request.operation() {
        "GET" => StubReply::status(
            "404 Not Found",
            "content-type: text/html\r\n",
            "Cannot GET /mcp",
        ),
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    until("it is asked for", || server.count("GET") == 1).await;
    for _ in 0..3 {
        assert_eq!(call(&web).await.unwrap(), "hello");
    }
    assert_eq!(web.status().generation.get(), 1);
    assert_eq!(server.count("initialize"), 1);
    assert_eq!(server.count("GET"), 1);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_404_that_says_that_the_session_is_gone_means_it_on_a_stream_too() {
    let turn = Turn::default();
    let server = StubServer::start(move |request| match request.operation() {
        "GET" if turn.next() == 1 => StubReply::status(
            "404 Not Found",
            "content-type: application/json\r\n",
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}"#,
        ),
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    until("another session", || server.count("initialize") == 2).await;
    assert_eq!(call(&web).await.unwrap(), "hello");
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_stream_that_breaks_off_after_one_event_is_not_reopened_in_a_loop() {
    let server = StubServer::start(|request| match request.operation() {
        "GET" => broken_stream(&log()),
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    until("it is opened again", || server.count("GET") >= 2).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert!(server.count("GET") <= 3, "{}", server.count("GET"));
    assert_eq!(call(&web).await.unwrap(), "hello");
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_server_that_allows_one_stream_has_it_again_when_it_noticed_that_the_first_is_gone() {
    let turn = Turn::default();
    let lists = Turn::default();
    let server = StubServer::start(move |request| match request.operation() {
        "GET" => match turn.next() {
            1 => broken_stream(&log()),
            2 => StubReply::status("409 Conflict", "", "only one stream is allowed"),
            _ => open_stream("", LONG),
        },
        "tools/list" => {
            // No stream is open when the list changes, so no notification reaches the client.
            let name = if lists.next() == 1 { "echo" } else { "other" };
            let tool = json!({"name": name, "inputSchema": {"type": "object"}});
            StubReply::result(request, &json!({"tools": [tool]}))
        }
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    until("it is open again", || server.count("GET") == 3).await;
    until("what changed meanwhile is known", || {
        let catalog = web.catalog();
        catalog.tools.iter().any(|tool| tool.name == "other")
    })
    .await;
    assert_eq!(web.status().generation.get(), 1);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn an_event_that_is_too_large_costs_its_stream_and_not_all_that_follow() {
    let turn = Turn::default();
    let server = StubServer::start(move |request| match request.operation() {
        "GET" if turn.next() == 1 => {
            let huge = format!("data: {}\n\n", "x".repeat(2 * 1024 * 1024));
            open_stream(&huge, LONG)
        }
        "GET" => open_stream("", LONG),
        _ => default_reply(request),
    })
    .await;
    let (runtime, _) = connected(&server).await;
    until("it is opened again", || server.count("GET") == 2).await;
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_retry_pause_holds_until_the_server_sends_another() {
    let asked = Arc::new(std::sync::Mutex::new((Value::Null, Vec::new())));
    let log = Arc::clone(&asked);
    let server = StubServer::start(move |request| {
        match (request.operation(), request.header("last-event-id")) {
            ("tools/call", _) => {
                *log.lock().unwrap() = (request.id(), vec![Instant::now()]);
                StubReply::events(&["id: 1\nretry: 300\ndata:\n\n".to_owned()])
            }
            ("GET", Some(_)) => {
                let (id, times) = &mut *log.lock().unwrap();
                times.push(Instant::now());
                let result = json!({"jsonrpc": "2.0", "id": id, "result": text_result("late")});
                match times.len() {
                    5 => StubReply::events(&[event(&result)]),
                    number => StubReply::events(&[format!("id: {number}\ndata:\n\n")]),
                }
            }
            _ => default_reply(request),
        }
    })
    .await;
    let (runtime, web) = connected(&server).await;
    assert_eq!(call(&web).await.unwrap(), "late");
    let times = asked.lock().unwrap().1.clone();
    let waits: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let wish = Duration::from_millis(295);
    assert!(waits.iter().all(|wait| *wait >= wish), "{waits:?}");
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn an_answer_that_breaks_off_repeatedly_is_not_resumed_without_a_pause() {
    let server =
        StubServer::start(
            |request| match (request.operation(), request.header("last-event-id")) {
                ("tools/call", _) => StubReply::events(&["id: 1\ndata:\n\n".to_owned()]),
                ("GET", Some(_)) => StubReply::events(&["id: 2\nretry: 0\ndata:\n\n".to_owned()]),
                _ => default_reply(request),
            },
        )
        .await;
    let (runtime, web) = connected(&server).await;
    let request = web.call_tool("echo", json!({}));
    let error = request.deadline(Duration::from_secs(1)).await.unwrap_err();
    assert!(matches!(error, CallError::Deadline { .. }), "{error:?}");
    assert!(server.count("GET") <= 13, "{}", server.count("GET"));
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn an_answer_of_a_busy_server_is_resumed_later() {
    let turn = Turn::default();
    let id = Arc::new(std::sync::Mutex::new(Value::Null));
    let server = StubServer::start(
        move |request| match (request.operation(), request.header("last-event-id")) {
            ("tools/call", _) => {
                *id.lock().unwrap() = request.id();
                StubReply::events(&["id: 1\ndata:\n\n".to_owned()])
            }
            ("GET", Some("1")) => match turn.next() {
                1 => StubReply::status("503 Busy", "retry-after: 1\r\n", ""),
                2 => StubReply::Close(String::new()),
                _ => StubReply::events(&[event(
                    &json!({"jsonrpc": "2.0", "id": *id.lock().unwrap(), "result": text_result("late")}),
                )]),
            },
            _ => default_reply(request),
        },
    )
    .await;
    let (runtime, web) = connected(&server).await;
    let begun = Instant::now();
    assert_eq!(call(&web).await.unwrap(), "late");
    assert!(begun.elapsed() >= Duration::from_secs(1), "{begun:?}");
    assert_eq!(server.count("tools/call"), 1);
    runtime.shutdown(LONG).await;
}

/// The head of a refusal whose body never arrives.
fn headless(status: &str, ends: bool) -> StubReply {
    let text = format!("HTTP/1.1 {status}\r\ncontent-length: 500\r\n\r\nhalf");
    if ends {
        return StubReply::Close(text);
    }
    StubReply::Parts(vec![(Duration::ZERO, text), (LONG, String::new())])
}

#[tokio::test]
async fn a_refusal_counts_though_its_body_does_not_come() {
    for ends in [true, false] {
        let turn = Turn::default();
        let server = StubServer::start(move |request| match request.operation() {
            "tools/call" if turn.next() == 1 => headless("404 Not Found", ends),
            _ => default_reply(request),
        })
        .await;
        let (runtime, web) = connected(&server).await;
        assert_eq!(call(&web).await.unwrap(), "hello", "{ends}");
        assert_eq!(server.count("initialize"), 2, "the session was gone");
        runtime.shutdown(LONG).await;
    }
}

#[tokio::test]
async fn a_request_timeout_of_the_server_leaves_the_outcome_unknown() {
    let server = StubServer::start(|request| match request.operation() {
        "tools/call" => StubReply::status("408 Request Timeout", "", ""),
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    assert_eq!(known(call(&web).await), Known::Unknown);
    assert_eq!(server.count("tools/call"), 1);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_server_that_shuts_down_in_good_order_answers_what_it_has() {
    let server = StubServer::start(|request| match request.operation() {
        // The stream breaks off, and the next connection is refused.
        "GET" => StubReply::Parts(vec![
            (Duration::ZERO, sse_head()),
            (Duration::from_millis(300), "no chunk\r\n".to_owned()),
        ]),
        "tools/call" => StubReply::Parts(vec![
            (Duration::from_secs(2), String::new()),
            (Duration::ZERO, {
                let body = json!({"jsonrpc": "2.0", "id": request.id(), "result": text_result("done")});
                let body = body.to_string();
                let length = body.len();
                format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
            }),
        ]),
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    until("it listens", || server.count("GET") == 1).await;
    let running = {
        let web = web.clone();
        tokio::spawn(async move { call(&web).await })
    };
    until("it runs", || server.count("tools/call") == 1).await;
    server.stop_listening();
    assert_eq!(running.await.unwrap().unwrap(), "done");
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_port_that_closes_every_connection_at_once_is_not_dialled_without_end() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
        .await
        .unwrap();
    let port = listener.local_addr().unwrap().port();
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    let closing = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            drop(stream);
        }
    });
    let (runtime, web) = started(Transport::http(format!("http://127.0.0.1:{port}/mcp"))).await;
    until("three attempts", || web.status().attempt >= 3).await;
    let attempts = web.status().attempt as usize;
    let connections = accepted.load(Ordering::SeqCst);
    assert!(
        connections <= 3 * (attempts + 1),
        "{connections} for {attempts}"
    );
    runtime.shutdown(LONG).await;
    closing.abort();
}

#[tokio::test]
async fn the_end_of_the_handshake_may_be_answered_with_a_stream_that_stays_open() {
    let server = StubServer::start(|request| match request.operation() {
        "notifications/initialized" => open_stream("", LONG),
        _ => default_reply(request),
    })
    .await;
    let begun = Instant::now();
    let (runtime, web) = connected(&server).await;
    assert_eq!(call(&web).await.unwrap(), "hello");
    assert!(begun.elapsed() < Duration::from_secs(5), "{begun:?}");
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn the_late_error_of_another_request_is_not_the_answer() {
    let server = StubServer::start(|request| match request.operation() {
        "tools/call" => {
            let other = request.id().as_u64().unwrap() - 1;
            let late = event(&json!({"jsonrpc": "2.0", "id": other,
                "error": {"code": -32000, "message": "of another one"}}));
            StubReply::events(&[late, answer(request, "mine")])
        }
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    assert_eq!(call(&web).await.unwrap(), "mine");
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_redirect_may_be_relative() {
    let server = StubServer::start(
        |request| match (request.path.as_str(), request.operation()) {
            ("/mcp", _) => StubReply::status("307 Temporary Redirect", "location: mcp/\r\n", ""),
            _ => default_reply(request),
        },
    )
    .await;
    let (runtime, web) = connected(&server).await;
    assert_eq!(call(&web).await.unwrap(), "hello");
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn an_empty_id_is_no_session() {
    let server = StubServer::start(|request| match request.operation() {
        "initialize" => initialize_reply(request, Some("")),
        "tools/list" => StubReply::result(request, &one_tool()),
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    assert_eq!(call(&web).await.unwrap(), "hello");
    runtime.shutdown(LONG).await;
    let with_session = |request: &StubRequest| request.header("mcp-session-id").is_some();
    assert!(!server.requests().iter().any(with_session));
    assert_eq!(server.count("DELETE"), 0);
}

#[tokio::test]
async fn a_server_that_serves_one_connection_at_a_time_is_of_use() {
    let begun = Instant::now();
    let server = StubServer::one_at_a_time(default_reply).await;
    // Nothing times out, and connections are closed only after a minute.
    let (runtime, web) = started_with(Transport::http(server.url()), |config| {
        config.settings.timeouts.listing = 5 * LONG;
    })
    .await;
    runtime.ready(LONG).await.unwrap();
    until("its tools are listed", || web.status().tools == 1).await;
    for _ in 0..3 {
        assert_eq!(call(&web).await.unwrap(), "hello");
    }
    assert_eq!(web.status().generation.get(), 1);
    runtime.shutdown(LONG).await;
    assert_eq!(server.count("DELETE"), 1);
    let took = begun.elapsed();
    assert!(took < LONG / 2, "{took:?}");
}

#[tokio::test]
async fn a_refused_stream_is_reopened_after_its_retry_after() {
    let asked: Arc<std::sync::Mutex<Vec<Instant>>> = Arc::default();
    let times = Arc::clone(&asked);
    let server = StubServer::start(move |request| match request.operation() {
        "GET" => {
            let mut times = times.lock().unwrap();
            times.push(Instant::now());
            match times.len() {
                1 => StubReply::status("503 Unavailable", "retry-after: 3\r\n", ""),
                _ => open_stream("", LONG),
            }
        }
        _ => default_reply(request),
    })
    .await;
    let (runtime, _web) = connected(&server).await;
    until("it is asked for again", || server.count("GET") == 2).await;
    let times = asked.lock().unwrap().clone();
    let waited = times[1] - times[0];
    assert!(waited >= Duration::from_millis(2_900), "{waited:?}");
    runtime.shutdown(LONG).await;
}

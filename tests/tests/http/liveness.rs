//! Servers that die, recover, need authorization, are busy or redirect.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mcpvisor::{CallError, FaultClass, Known, StateName, Transport};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use crate::harness::{LONG, call, connected, known, reaches, started, started_with, until};
use mcpvisor_testkit::stub_server::{
    StubReply, StubServer, chunk, default_reply, event, initialize_reply, sse_head, text_result,
};

#[tokio::test]
async fn a_call_that_finds_nobody_there_was_not_sent_and_waits_for_the_server() {
    // Without a server stream, so that the call is the first to notice.
    let server = StubServer::start(default_reply).await;
    let (runtime, web) = started_with(Transport::http(server.url()), |config| {
        config.settings.budget.attempts = 1_000;
        config.settings.backoff.initial = Duration::from_millis(20);
    })
    .await;
    assert_eq!(call(&web).await.unwrap(), "hello");
    let port = server.port;
    server.stop().await;
    let calling = {
        let web = web.clone();
        tokio::spawn(async move { call(&web).await })
    };
    until("its loss is noticed", || !web.status().is_ready()).await;
    let server = StubServer::start_on(port, default_reply).await;
    assert_eq!(calling.await.unwrap().unwrap(), "hello");
    assert_eq!(server.count("tools/call"), 1);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_server_that_is_not_there_yet_is_tried_again() {
    let server = StubServer::start(default_reply).await;
    let port = server.port;
    server.stop().await;
    let (runtime, web) = started(Transport::http(format!("http://127.0.0.1:{port}/mcp"))).await;
    until("a try failed", || web.status().last_error.is_some()).await;
    let status = web.status();
    let fault = status.last_error.unwrap();
    assert_eq!(
        (status.state, fault.class),
        (StateName::Reconnecting, FaultClass::ConnectFailed)
    );
    assert!(fault.message.contains("refused"), "{fault}");
    let server = StubServer::start_on(port, default_reply).await;
    assert_eq!(call(&web).await.unwrap(), "hello");
    drop(server);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn errors_that_need_a_person_fail_permanently_at_once() {
    let server = StubServer::start(|_| {
        StubReply::status("401 Unauthorized", "www-authenticate: Bearer\r\n", "")
    })
    .await;
    let forbidden = StubServer::start(|_| StubReply::status("403 Forbidden", "", "")).await;
    for (endpoint, class) in [
        (Transport::http(server.url()), FaultClass::Authorization),
        (Transport::http(forbidden.url()), FaultClass::Authorization),
        (Transport::http("ftp://host/"), FaultClass::InvalidAddress),
        (Transport::http("http://[::1/"), FaultClass::InvalidAddress),
        (
            Transport::http("not an address"),
            FaultClass::InvalidAddress,
        ),
        (
            Transport::http("http://host:port/"),
            FaultClass::InvalidAddress,
        ),
        (
            Transport::http(server.url()).bearer_token_env("MCPVISOR_NO_SUCH_VARIABLE"),
            FaultClass::Authorization,
        ),
        (
            Transport::http("https://127.0.0.1:1/").root_certificate("/no/such/file.pem"),
            FaultClass::InvalidAddress,
        ),
    ] {
        let (runtime, web) = started(endpoint).await;
        reaches(&web, StateName::PermanentlyFailed).await;
        let status = web.status();
        assert_eq!(status.last_error.unwrap().class, class);
        assert!(status.action.is_some());
        assert_eq!(known(call(&web).await), Known::NotSent);
        runtime.shutdown(LONG).await;
    }
}

#[tokio::test]
async fn a_token_that_is_no_longer_valid_becomes_a_state_with_what_to_do() {
    let revoked = Arc::new(AtomicBool::new(false));
    let token = Arc::clone(&revoked);
    let server = StubServer::start(move |request| match token.load(Ordering::SeqCst) {
        true => StubReply::status("401 Unauthorized", "", ""),
        false => default_reply(request),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    revoked.store(true, Ordering::SeqCst);
    assert_eq!(known(call(&web).await), Known::Refused);
    reaches(&web, StateName::PermanentlyFailed).await;
    assert_eq!(known(call(&web).await), Known::NotSent);
    assert_eq!(
        web.status().last_error.unwrap().class,
        FaultClass::Authorization
    );
    assert_eq!(server.count("tools/call"), 1, "nothing is repeated");
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_token_that_the_server_repeats_is_not_shown() {
    const TOKEN: &str = "canary-token-1";
    let server = StubServer::start(|request| match request.operation() {
        "initialize" => {
            let reply = json!({
                "protocolVersion": "2025-06-18",
                "capabilities": { "tools": {} },
                "serverInfo": { "name": format!("Bearer {TOKEN}"), "version": TOKEN },
                "instructions": TOKEN,
            });
            StubReply::result(request, &reply)
        }
        "tools/call" => {
            let challenge = format!(
                "www-authenticate: Bearer error=\"insufficient_scope\", scope=\"a {TOKEN}\"\r\n"
            );
            StubReply::status("403 Forbidden", &challenge, "")
        }
        _ => default_reply(request),
    })
    .await;
    let endpoint = Transport::http(server.url()).header("Authorization", format!("Bearer {TOKEN}"));
    let (runtime, web) = started(endpoint).await;
    runtime.ready(LONG).await.unwrap();
    let error = call(&web).await.unwrap_err();
    let CallError::Refused { scopes, .. } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(*scopes, ["a"]);
    let shown = format!("{error} {error:?} {:?} {:?}", web.status(), web.info());
    assert!(!shown.contains("canary"), "{shown}");
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_server_without_tls_is_named_in_the_error() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let plain = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let (runtime, web) = started(Transport::http(format!("https://127.0.0.1:{port}/mcp"))).await;
    until("a try failed", || web.status().last_error.is_some()).await;
    let fault = web.status().last_error.unwrap();
    assert_eq!(fault.class, FaultClass::ConnectFailed);
    assert!(fault.message.contains("TLS"), "{fault}");
    runtime.shutdown(LONG).await;
    plain.abort();
}

#[tokio::test]
async fn a_connect_to_a_busy_server_is_retried_after_its_retry_after() {
    let server = StubServer::start(|_| {
        StubReply::status("503 Service Unavailable", "retry-after: 100000\r\n", "")
    })
    .await;
    let (runtime, web) = started(Transport::http(server.url())).await;
    until("a try failed", || web.status().retry_at.is_some()).await;
    let wait = web
        .status()
        .retry_at
        .unwrap()
        .saturating_duration_since(Instant::now());
    assert!(
        wait > Duration::from_secs(100) && wait <= Duration::from_secs(120),
        "{wait:?}"
    );
    assert_eq!(server.count("initialize"), 1);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn retry_after_is_capped_by_the_settings() {
    let server = StubServer::start(|_| {
        StubReply::status("503 Service Unavailable", "retry-after: 100000\r\n", "")
    })
    .await;
    let (runtime, web) = started_with(Transport::http(server.url()), |config| {
        config.settings.backoff.max_retry_after = Duration::from_secs(3_600);
    })
    .await;
    until("a try failed", || web.status().retry_at.is_some()).await;
    let retry_at = web.status().retry_at.unwrap();
    let wait = retry_at.saturating_duration_since(Instant::now());
    assert!(wait > Duration::from_secs(3_500), "{wait:?}");
    runtime.shutdown(LONG).await;

    // A refused call does not wait longer than its settings allow either.
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let server = StubServer::start(move |request| match request.operation() {
        "tools/call" if count.fetch_add(1, Ordering::SeqCst) == 0 => {
            StubReply::status("429 Too Many Requests", "retry-after: 60\r\n", "")
        }
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = started_with(Transport::http(server.url()), |config| {
        config.settings.backoff.max_retry_after = Duration::from_millis(100);
    })
    .await;
    let patience = LONG / 2;
    let request = web.call_tool("echo", json!({})).deadline(patience);
    request.await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_silent_server_costs_a_call_its_deadline_and_no_more() {
    let halves: [fn() -> StubReply; 4] = [
        || StubReply::Hang,
        || StubReply::Parts(vec![(Duration::ZERO, sse_head()), (LONG, String::new())]),
        || {
            StubReply::Parts(vec![(Duration::ZERO, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"json".to_owned()), (LONG, String::new())])
        },
        || {
            StubReply::Parts(vec![
                (
                    Duration::ZERO,
                    "HTTP/1.1 500 Oh\r\ncontent-length: 100\r\n\r\nsorry".to_owned(),
                ),
                (LONG, String::new()),
            ])
        },
    ];
    for half in halves {
        let server = StubServer::start(move |request| match request.operation() {
            "tools/call" => half(),
            _ => default_reply(request),
        })
        .await;
        let (runtime, web) = connected(&server).await;
        let begun = Instant::now();
        let deadline = Duration::from_millis(300);
        let error = web
            .call_tool("echo", json!({}))
            .deadline(deadline)
            .await
            .unwrap_err();
        assert_eq!((error.code(), error.known()), ("deadline", Known::Unknown));
        assert!(
            begun.elapsed() < Duration::from_secs(3),
            "{:?}",
            begun.elapsed()
        );
        runtime.shutdown(LONG).await;
    }
}

#[tokio::test]
async fn a_redirect_that_is_not_followed_reports_its_reason() {
    for (status, location, reason) in [
        ("301 Moved Permanently", "/mcp/", "301"),
        ("302 Found", "/mcp/", "302"),
        ("307 Temporary Redirect", "/mcp", "at most 3"),
        (
            "307 Temporary Redirect",
            "http://elsewhere.test/",
            "another origin",
        ),
    ] {
        let server = StubServer::start(move |request| match request.operation() {
            "tools/call" => StubReply::status(status, &format!("location: {location}\r\n"), ""),
            _ => default_reply(request),
        })
        .await;
        let (runtime, web) = connected(&server).await;
        let error = call(&web).await.unwrap_err();
        assert_eq!(error.known(), Known::Refused);
        let text = error.to_string();
        assert!(
            text.contains("redirects") && text.contains(reason),
            "{text}"
        );
        let same = reason != "another origin";
        assert_ne!(text.contains("another origin"), same, "{text}");
        runtime.shutdown(LONG).await;
    }
}

#[tokio::test]
async fn a_redirect_on_the_same_origin_is_followed_three_times() {
    let server = StubServer::start(
        |request| match (request.path.as_str(), request.operation()) {
            ("/mcp", _) => StubReply::status("308 Permanent Redirect", "location: /real\r\n", ""),
            ("/real", "tools/call") => {
                StubReply::status("307 Temporary Redirect", "location: /real\r\n", "")
            }
            _ => default_reply(request),
        },
    )
    .await;
    let (runtime, web) = connected(&server).await;
    assert_eq!(known(call(&web).await), Known::Refused, "round and round");
    assert_eq!(server.count("tools/call"), 4);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn an_idle_connection_is_checked_and_one_that_fails_is_replaced() {
    let pings = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&pings);
    let server = StubServer::start(move |request| match request.operation() {
        "ping" if count.fetch_add(1, Ordering::SeqCst) == 1 => StubReply::Hang,
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = started_with(Transport::http(server.url()), |config| {
        config.settings.health.keepalive = Duration::from_millis(100);
        config.settings.health.keepalive_timeout = Duration::from_millis(400);
    })
    .await;
    until("the second ping fails", || {
        web.status().generation.get() == 2
    })
    .await;
    assert_eq!(call(&web).await.unwrap(), "hello");
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_failed_health_check_reports_its_cause() {
    let server = StubServer::start(|request| match request.operation() {
        "ping" => StubReply::status("500 Internal StubServer Error", "", ""),
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = started_with(Transport::http(server.url()), |config| {
        config.settings.health.keepalive = Duration::from_millis(100);
    })
    .await;
    let said = || web.status().last_error.map(|fault| fault.message);
    until("a check has failed", || said().is_some()).await;
    let said = said().unwrap();
    assert!(
        said.contains("a ping failed") && said.contains("500"),
        "{said}"
    );
    runtime.shutdown(LONG).await;
}

/// Covers JSON and event-stream replies: what follows the reply must not be lost.
#[tokio::test]
async fn a_server_that_closes_every_connection_after_its_answer_works() {
    let server = StubServer::start(|request| {
        let reply = match request.operation() {
            "initialize" => initialize_reply(request, None),
            "tools/call" => {
                let answer =
                    json!({"jsonrpc": "2.0", "id": request.id(), "result": text_result("closing")});
                StubReply::Parts(vec![(
                    Duration::ZERO,
                    sse_head() + &chunk(&event(&answer)) + "0\r\n\r\n",
                )])
            }
            _ => default_reply(request),
        };
        match reply {
            StubReply::Parts(parts) => {
                StubReply::Close(parts.into_iter().map(|(_, part)| part).collect())
            }
            other => other,
        }
    })
    .await;
    let (runtime, web) = connected(&server).await;
    for _ in 0..20 {
        assert_eq!(call(&web).await.unwrap(), "closing");
    }
    runtime.shutdown(LONG).await;
}

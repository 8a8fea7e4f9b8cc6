//! Headers changed by a reload: the next request carries them, on the existing connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mcpvisor::{Config, FaultClass, HttpEndpoint, Runtime, ServerChange, StateName, Transport};
use tokio::sync::watch;

use crate::harness::{LONG, call, reaches, started, until, web};
use mcpvisor_testkit::stub_server::{StubReply, StubRequest, StubServer, default_reply};

/// Reloads with this endpoint. Returns what happened to the server.
async fn reload(runtime: &Runtime, endpoint: HttpEndpoint) -> ServerChange {
    let config = Config::new().server(web(endpoint));
    let report = runtime.reload(config).await.unwrap();
    let server = report.server("web").unwrap();
    assert_eq!(server.problem, None);
    server.change.clone()
}

fn adjusted() -> ServerChange {
    ServerChange::Adjusted {
        what: vec!["headers"],
    }
}

fn calls(server: &StubServer) -> Vec<StubRequest> {
    let requests = server.requests().into_iter();
    requests
        .filter(|request| request.operation() == "tools/call")
        .collect()
}

#[tokio::test]
async fn the_next_request_carries_the_new_headers_in_the_same_session_and_no_call_is_dropped() {
    let (release, released) = watch::channel(false);
    let server = StubServer::start(move |request| match request.operation() {
        // The first call is answered after the reload.
        "tools/call" if request.header("x-old").is_some() => default_reply(request).held(&released),
        _ => default_reply(request),
    })
    .await;
    let endpoint = || Transport::http(server.url()).header("X-Stays", "as it was");
    let old = endpoint().header("Authorization", "Bearer old-token");
    let (runtime, handle) = started(old.header("X-Old", "1")).await;
    runtime.ready(LONG).await.unwrap();
    let slow = tokio::spawn({
        let handle = handle.clone();
        async move { call(&handle).await }
    });
    until("the first call is on its way", || {
        server.count("tools/call") == 1
    })
    .await;
    let generation = handle.status().generation;

    let new = || endpoint().header("Authorization", "Bearer new-token");
    assert_eq!(reload(&runtime, new()).await, adjusted());
    assert_eq!(call(&handle).await.unwrap(), "hello");
    release.send_replace(true);
    assert_eq!(slow.await.unwrap().unwrap(), "hello", "it was in flight");
    assert_eq!(reload(&runtime, new()).await, ServerChange::Unchanged);

    assert_eq!(handle.status().generation, generation);
    assert_eq!(server.count("initialize"), 1);
    let calls = calls(&server);
    let sent = |name: &str| -> Vec<Option<String>> {
        let values = calls.iter().map(|request| request.header(name));
        values.map(|value| value.map(str::to_owned)).collect()
    };
    let some = |text: &str| Some(text.to_owned());
    let tokens = [some("Bearer old-token"), some("Bearer new-token")];
    assert_eq!(sent("authorization"), tokens);
    assert_eq!(sent("x-old"), [some("1"), None]);
    for (name, value) in [
        ("x-stays", "as it was"),
        ("mcp-session-id", "session-1"),
        ("mcp-protocol-version", "2025-06-18"),
    ] {
        assert_eq!(sent(name), [some(value), some(value)], "{name}");
    }
    runtime.shutdown(LONG).await;
    let last = server.requests().pop().unwrap();
    assert_eq!(last.operation(), "DELETE");
    assert_eq!(last.header("authorization"), Some("Bearer new-token"));
}

/// A server that accepts only the new token once the old one has expired.
async fn strict(expired: &Arc<AtomicBool>) -> StubServer {
    let expired = Arc::clone(expired);
    StubServer::start(move |request| {
        let good = request.header("authorization") == Some("Bearer new-token");
        match good || !expired.load(Ordering::Relaxed) {
            true => default_reply(request),
            false => StubReply::status("401 Unauthorized", "www-authenticate: Bearer\r\n", ""),
        }
    })
    .await
}

#[tokio::test]
async fn a_call_that_was_refused_for_an_old_token_is_answered_after_the_reload() {
    let expired = Arc::new(AtomicBool::new(false));
    let server = strict(&expired).await;
    let with = |token: &str| {
        Transport::http(server.url()).header("Authorization", format!("Bearer {token}"))
    };
    let (runtime, handle) = started(with("old-token")).await;
    runtime.ready(LONG).await.unwrap();
    expired.store(true, Ordering::Relaxed);
    assert!(call(&handle).await.is_err());
    reaches(&handle, StateName::PermanentlyFailed).await;
    assert_eq!(reload(&runtime, with("new-token")).await, adjusted());
    assert_eq!(call(&handle).await.unwrap(), "hello");
    assert_eq!(server.count("initialize"), 2);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_server_that_failed_for_an_old_token_is_connected_with_the_new_one() {
    let server = strict(&Arc::new(AtomicBool::new(true))).await;
    let with = |token: &str| {
        Transport::http(server.url()).header("Authorization", format!("Bearer {token}"))
    };
    let (runtime, handle) = started(with("old-token")).await;
    reaches(&handle, StateName::PermanentlyFailed).await;
    assert_eq!(reload(&runtime, with("new-token")).await, adjusted());
    runtime.ready(LONG).await.unwrap();
    assert_eq!(call(&handle).await.unwrap(), "hello");
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn headers_that_cannot_be_sent_are_a_failure_that_says_so() {
    let server = StubServer::start(default_reply).await;
    let (runtime, handle) = started(Transport::http(server.url())).await;
    runtime.ready(LONG).await.unwrap();
    let broken = Transport::http(server.url()).header("X-Team", "two\nlines");
    let why = vec!["headers"];
    let change = reload(&runtime, broken).await;
    assert_eq!(change, ServerChange::Restarted { why });
    reaches(&handle, StateName::PermanentlyFailed).await;
    let fault = handle.status().last_error.unwrap();
    assert_eq!(fault.class, FaultClass::InvalidAddress);
    // Valid headers end that state.
    assert_eq!(
        reload(&runtime, Transport::http(server.url())).await,
        adjusted()
    );
    assert_eq!(call(&handle).await.unwrap(), "hello");
    runtime.shutdown(LONG).await;
}

/// A server that delays its reply to `initialize`, unless the request has the new token.
async fn slow() -> (StubServer, watch::Sender<bool>) {
    let (release, released) = watch::channel(false);
    let server = StubServer::start(move |request| match request.operation() {
        "initialize" if request.header("authorization") != Some("Bearer new-token") => {
            default_reply(request).held(&released)
        }
        _ => default_reply(request),
    });
    (server.await, release)
}

#[tokio::test]
async fn headers_that_change_in_the_middle_of_a_handshake_are_those_of_the_connection() {
    let (server, release) = slow().await;
    let with = |token: &str| {
        Transport::http(server.url()).header("Authorization", format!("Bearer {token}"))
    };
    let (runtime, handle) = started(with("old-token")).await;
    until("the handshake is under way", || {
        server.count("initialize") == 1
    })
    .await;
    assert_eq!(reload(&runtime, with("new-token")).await, adjusted());
    release.send_replace(true);
    assert_eq!(call(&handle).await.unwrap(), "hello");
    let calls = calls(&server);
    assert_eq!(calls[0].header("authorization"), Some("Bearer new-token"));
    assert_eq!(handle.status().generation.get(), 2);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn an_address_that_changes_in_the_middle_of_a_handshake_is_that_of_the_connection() {
    let ((old, release), new) = (slow().await, StubServer::start(default_reply).await);
    let (runtime, handle) = started(Transport::http(old.url())).await;
    until("the handshake is under way", || {
        old.count("initialize") == 1
    })
    .await;
    let why = vec!["url"];
    let change = reload(&runtime, Transport::http(new.url())).await;
    assert_eq!(change, ServerChange::Restarted { why });
    release.send_replace(true);
    assert_eq!(call(&handle).await.unwrap(), "hello");
    assert_eq!((old.count("tools/call"), new.count("tools/call")), (0, 1));
    runtime.shutdown(LONG).await;
}

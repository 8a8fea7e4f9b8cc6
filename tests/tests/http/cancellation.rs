//! Calls that end before their reply: their outcome, and the cancellation at the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mcpvisor::{CallError, Known, Transport};
use serde_json::json;
use tokio::net::TcpListener;

use crate::harness::{LONG, started_with, until};
use mcpvisor_testkit::stub_server::{StubReply, StubRequest, StubServer, default_reply};

/// The default reply, on a connection that is closed after it.
fn closing(request: &StubRequest) -> StubReply {
    let StubReply::Parts(parts) = default_reply(request) else {
        unreachable!()
    };
    let text = parts[0].1.replacen("\r\n", "\r\nconnection: close\r\n", 1);
    StubReply::Close(text)
}

/// Forwards connections to a port, until it is switched to leave them unanswered: it then only
/// accepts, like a server that hangs before its TLS handshake.
async fn stalling(behind: u16, stalls: Arc<AtomicBool>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let mut stalled = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            if stalls.load(Ordering::SeqCst) {
                stalled.push(stream);
                continue;
            }
            tokio::spawn(async move {
                let mut behind = tokio::net::TcpStream::connect(("127.0.0.1", behind)).await?;
                tokio::io::copy_bidirectional(&mut stream, &mut behind).await
            });
        }
    });
    port
}

#[tokio::test]
async fn a_call_whose_connection_never_opened_was_not_sent_when_its_time_is_up() {
    let server = StubServer::start(closing).await;
    let encrypted = crate::tls::encrypted(&server, false).await;
    let stalls = Arc::new(AtomicBool::new(false));
    let port = stalling(encrypted, Arc::clone(&stalls)).await;
    let (runtime, web) = started_with(crate::tls::trusting(port), |_| {}).await;
    runtime.ready(LONG).await.unwrap();
    until("everything is quiet", || {
        server.count("GET") == 1 && web.status().tools == 1
    })
    .await;
    stalls.store(true, Ordering::SeqCst);
    let call = web.call_tool("echo", json!({}));
    let error = call.deadline(Duration::from_millis(500)).await.unwrap_err();
    assert!(
        matches!(error, CallError::Deadline { sent: false, .. }),
        "{error:?}"
    );
    assert_eq!(error.known(), Known::NotSent);
    assert_eq!(server.count("tools/call"), 0);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_request_that_was_sent_once_is_unknown_though_its_retry_never_left() {
    let stalls = Arc::new(AtomicBool::new(false));
    let (begins, listed) = (Arc::clone(&stalls), AtomicBool::new(false));
    let server = StubServer::start(move |request| {
        if request.operation() == "tools/list" && listed.swap(true, Ordering::SeqCst) {
            // The next connection is the retry's.
            begins.store(true, Ordering::SeqCst);
            return StubReply::Close("HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n".to_owned());
        }
        closing(request)
    })
    .await;
    let encrypted = crate::tls::encrypted(&server, false).await;
    let port = stalling(encrypted, Arc::clone(&stalls)).await;
    let (runtime, web) = started_with(crate::tls::trusting(port), |_| {}).await;
    runtime.ready(LONG).await.unwrap();
    until("everything is quiet", || {
        server.count("GET") == 1 && web.status().tools == 1
    })
    .await;
    let list = web.list_tools(None).deadline(Duration::from_secs(2));
    let error = list.await.unwrap_err();
    assert!(
        matches!(error, CallError::Deadline { sent: true, .. }),
        "{error:?}"
    );
    assert_eq!(server.count("tools/list"), 2, "the retry never left");
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn the_server_is_told_of_every_call_that_is_given_up_though_the_connection_is_closed_then() {
    const CALLS: usize = 20;
    let server = StubServer::start(|request| match request.operation() {
        "tools/call" => StubReply::Hang,
        // More than the limit of concurrent ones, so that some have to wait.
        "notifications/cancelled" => StubReply::Parts(vec![(
            Duration::from_millis(50),
            "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_owned(),
        )]),
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = started_with(Transport::http(server.url()), |config| {
        config.settings.close.stdin = LONG / 2;
    })
    .await;
    runtime.ready(LONG).await.unwrap();
    let calls: Vec<_> = (0..CALLS)
        .map(|_| {
            let call = web.call_tool("echo", json!({})).deadline(LONG);
            tokio::spawn(async move { call.await.map(drop) })
        })
        .collect();
    until("they are sent", || server.count("tools/call") == CALLS).await;
    for call in calls {
        call.abort();
        let _ = call.await;
    }
    runtime.shutdown(LONG).await;
    assert_eq!(server.count("notifications/cancelled"), CALLS);
    let requests = server.requests();
    assert_eq!(
        requests.last().unwrap().operation(),
        "DELETE",
        "the session ends last"
    );
}

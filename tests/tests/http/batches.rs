//! Several messages in one body or event, as a server of 2025-03-26 may send them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mcpvisor::{EventKind, Transport};
use serde_json::{Value, json};

use crate::harness::{LONG, call, connected, started_with};
use mcpvisor_testkit::stub_server::{
    StubReply, StubRequest, StubServer, chunk, default_reply, event, sse_head, text_result,
};

/// A log message, followed by the reply.
fn batch(request: &StubRequest) -> Value {
    let log = json!({"level": "info", "data": "before the answer"});
    json!([
        {"jsonrpc": "2.0", "method": "notifications/message", "params": log},
        {"jsonrpc": "2.0", "id": request.id(), "result": text_result("hello")},
    ])
}

/// The reply to `initialize` of a server with that version.
fn welcome(request: &StubRequest) -> StubReply {
    let info = json!({"name": "small", "version": "1"});
    let capabilities = json!({"tools": {}, "logging": {}});
    let version = "2025-03-26";
    let result =
        json!({"protocolVersion": version, "capabilities": capabilities, "serverInfo": info});
    StubReply::result(request, &result)
}

/// Calls a server with these replies a few times, and checks that each log message arrives.
async fn answered(reply: fn(&StubRequest) -> StubReply) {
    let server = StubServer::start(move |request| match request.operation() {
        "initialize" => welcome(request),
        "tools/call" => reply(request),
        _ => default_reply(request),
    })
    .await;
    let (runtime, handle) = started_with(Transport::http(server.url()), |config| {
        config.protocol = None;
    })
    .await;
    runtime.ready(LONG).await.unwrap();
    assert_eq!(handle.status().protocol.unwrap(), "2025-03-26");
    let mut events = runtime.events();
    // More than the number of streams that may stay open after their reply.
    for _ in 0..20 {
        assert_eq!(call(&handle).await.unwrap(), "hello");
        let log =
            async { while !matches!(events.recv().await.unwrap().kind, EventKind::Log(_)) {} };
        tokio::time::timeout(LONG, log).await.unwrap();
    }
    assert_eq!(handle.status().generation.get(), 1);
    assert_eq!(server.count("tools/call"), 20, "none was sent twice");
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn each_message_of_a_batch_is_handled_as_if_sent_alone() {
    let sessions = AtomicUsize::new(0);
    let server = StubServer::start(move |request| match request.operation() {
        "initialize" => {
            let session = sessions.fetch_add(1, Ordering::Relaxed) + 1;
            mcpvisor_testkit::stub_server::initialize_reply(
                request,
                Some(&format!("session-{session}")),
            )
        }
        "tools/call" if request.header("mcp-session-id") == Some("session-1") => {
            let mut lost = batch(request);
            let error = json!({"code": -32000, "message": "Session expired"});
            lost[1] = json!({"jsonrpc": "2.0", "id": request.id(), "error": error});
            StubReply::json(&lost)
        }
        "ping" if request.header("mcp-session-id") == Some("session-1") => {
            StubReply::status("404 Not Found", "", "")
        }
        "tools/call" => StubReply::json(&batch(request)),
        _ => default_reply(request),
    })
    .await;
    let (runtime, handle) = connected(&server).await;
    assert_eq!(call(&handle).await.unwrap(), "hello", "in the next session");
    assert_eq!(server.count("initialize"), 2);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_body_with_several_messages_is_read_in_order() {
    answered(|request| StubReply::json(&batch(request))).await;
}

#[tokio::test]
async fn an_event_with_several_messages_is_read_in_order() {
    answered(|request| StubReply::events(&[event(&batch(request))])).await;
}

#[tokio::test]
async fn an_event_with_several_messages_on_an_open_stream_is_read_in_order() {
    answered(|request| {
        let message = chunk(&event(&batch(request)));
        StubReply::Parts(vec![
            (Duration::ZERO, sse_head()),
            (Duration::ZERO, message),
            (LONG, "0\r\n\r\n".to_owned()),
        ])
    })
    .await;
}

//! The misbehaving server itself: without faults, a third-party client works with it.

use mcpvisor_testkit::eventually;
use mcpvisor_testkit::http_server::{HttpOptions, HttpServer};
use rmcp::model::ClientConfig;
use rmcp::model::ProtocolVersion;
use rmcp::service::{ClientLifecycleMode, ClientServiceExt};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::json;

use crate::bare::{self, Bare};
use crate::fleet::DEADLINE;

#[tokio::test]
async fn a_client_of_others_works_with_it_in_either_kind_of_reply() {
    let without = HttpOptions::without_sessions();
    let resumable = HttpOptions::resumable();
    for options in [
        HttpOptions::default(),
        HttpOptions::sse(),
        resumable,
        without,
    ] {
        let server = HttpServer::start(options).await;
        let bare = Bare::connect(&server).await;
        let echoed = bare.call("echo", json!({ "a": 1 })).await.unwrap();
        assert_eq!(echoed.structured_content, Some(json!({ "a": 1 })));
        bare.call("run", json!({ "key": "k" })).await.unwrap();
        assert_eq!(server.runs("k"), 1);
        assert_eq!(server.requests("tools/call"), 2);
        let sessions = u64::from(options.sessions);
        assert_eq!(server.sessions_opened(), sessions);
        bare.0.cancel().await.unwrap();
        let deleted = || server.sessions_deleted() == sessions;
        eventually(DEADLINE, "the end of the session", deleted).await;
    }
}

#[tokio::test]
async fn a_client_of_2026_07_28_works_with_it_without_a_session() {
    let server = HttpServer::start(HttpOptions::modern()).await;
    let config = StreamableHttpClientTransportConfig::with_uri(server.url());
    let transport = StreamableHttpClientTransport::with_client(bare::client(), config);
    let lifecycle = ClientLifecycleMode::Discover {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
    };
    let client = ClientConfig::default();
    let client = client.serve_with_lifecycle(transport, lifecycle).await;
    let bare = Bare(client.unwrap());
    let echoed = bare.call("echo", json!({ "a": 1 })).await.unwrap();
    assert_eq!(echoed.structured_content, Some(json!({ "a": 1 })));
    assert_eq!(
        (server.requests("initialize"), server.sessions_opened()),
        (0, 0)
    );
}

#[tokio::test]
async fn it_forgets_freezes_ends_and_comes_back_on_its_port() {
    let server = HttpServer::start(HttpOptions::default()).await;
    let bare = Bare::connect(&server).await;
    assert_eq!(server.forget_sessions(), 1);
    // rmcp opens another session by itself.
    bare.call("echo", json!({})).await.unwrap();
    assert_eq!(server.sessions_opened(), 2);
    let before = server.address();
    server.restart().await;
    assert_eq!(server.address(), before);
    bare.call("echo", json!({})).await.unwrap();
    assert_eq!(server.sessions_opened(), 3);
    server.freeze(true);
    let frozen = bare.call("echo", json!({}));
    assert!(crate::bare::hangs(frozen).await);
    server.freeze(false);
    bare.call("echo", json!({})).await.unwrap();
}

#[tokio::test]
async fn a_fault_is_injected_as_often_as_configured() {
    let server = HttpServer::start(HttpOptions::without_sessions()).await;
    let bare = Bare::connect(&server).await;
    server.fault("http-status=500").times(2);
    for works in [false, false, true] {
        assert_eq!(bare.call("echo", json!({})).await.is_ok(), works);
    }
    bare.inject("http-status=500").await.unwrap_err();
    server.fault("http-status=500").on("tools/list").for_ever();
    bare.call("echo", json!({})).await.unwrap();
    for _ in 0..3 {
        bare.0.list_tools(None).await.unwrap_err();
    }
    server.disarm();
    bare.0.list_tools(None).await.unwrap();
}

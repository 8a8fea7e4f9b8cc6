//! Servers that redirect their clients to another origin. (Figure 23.)

use std::collections::HashMap;

use mcpvisor::{FaultClass, Known, StateName, Transport};
use mcpvisor_testkit::eventually;
use mcpvisor_testkit::http_server::{HttpOptions, HttpServer, ReplyKind};
use rmcp::model::{ClientConfig, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::json;

use crate::arena::*;
use crate::bare::Bare;
use crate::fleet::*;

/// The secret that must never reach another origin.
const CANARY: &str = "c4n4ry-of-this-origin";

/// A fleet of one whose requests all carry canaries.
async fn with_canaries(server: HttpServer) -> Arena {
    let url = server
        .url()
        .replace("http://", &format!("http://user:{CANARY}@"));
    let url = format!("{url}?key={CANARY}");
    let endpoint = match server.options().reply {
        ReplyKind::Session => Transport::sse(url),
        ReplyKind::Json | ReplyKind::Sse => Transport::http(url),
    };
    let endpoint = endpoint
        .header("Authorization", format!("Bearer {CANARY}"))
        .header("X-Api-Key", CANARY);
    let web = crate::fleet::server("web", endpoint).settings(quick());
    let runtime = fleet([web]).await;
    let handle = runtime.server("web").unwrap();
    Arena {
        server,
        runtime,
        handle,
    }
}

#[tokio::test]
async fn figure_23_no_redirect_to_another_origin_is_followed() {
    let (json, sse) = (HttpOptions::default(), HttpOptions::http_sse());
    let methods = [
        ("tools/call", json),
        ("tools/list", json),
        ("GET", json),
        ("DELETE", json),
        ("notifications/initialized", json),
        ("tools/call", sse),
        ("tools/list", sse),
        ("GET", sse),
        ("initialize", sse),
        ("notifications/initialized", sse),
    ];
    let rounds = size(1, 20);
    for (method, options) in methods.repeat(rounds) {
        let server = HttpServer::start(options).await;
        server.fault("http-redirect").on(method).for_ever();
        let arena = with_canaries(server).await;
        if method == "tools/call" {
            arena.runtime.ready(DEADLINE).await.unwrap();
            let error = arena.run("never").await.unwrap_err();
            assert_eq!(error.known(), Known::Refused, "{error}");
            says(&error, &["web", "redirects"]);
            let sent = arena.server.requests("tools/call");
            assert_eq!(sent, 1, "not sent to that path of this origin");
            assert!(!error.to_string().contains(CANARY), "{error}");
        } else {
            let call = arena
                .handle
                .call_tool("echo", json!({}))
                .deadline(SHORT * 5);
            let _ = call.await;
        }
        let server = arena.server.clone();
        // DELETE is sent only during the shutdown below.
        if method != "DELETE" {
            let redirected = || server.injected(method) > 0;
            eventually(DEADLINE, method, redirected).await;
        }
        arena.end().await;
        assert!(server.injected(method) > 0, "{method} was sent elsewhere");
        assert_eq!(
            server.other_origin_received(),
            Vec::<String>::new(),
            "{method}"
        );
        let sent = format!("{:?}", server.received());
        assert!(sent.contains(CANARY), "at home the canaries are sent");
    }
    let fleets = methods.len() * rounds;
    println!("figure 23: {fleets} fleets sent elsewhere, nothing arrived there");
}

#[tokio::test]
async fn figure_23_an_endpoint_on_another_origin_is_refused_for_good() {
    let rounds = size(1, 20);
    for _ in 0..rounds {
        let server = HttpServer::start(HttpOptions::http_sse()).await;
        server.fault("sse-endpoint-elsewhere").on("GET").for_ever();
        let arena = with_canaries(server).await;
        reaches(&arena.handle, StateName::PermanentlyFailed).await;
        let status = arena.handle.status();
        let fault = status.last_error.unwrap();
        assert_eq!(fault.class, FaultClass::InvalidAddress);
        says(&fault, &["another origin", "nothing was sent there"]);
        assert!(!fault.to_string().contains(CANARY), "{fault}");
        says(&status.action.unwrap(), &["correct \"url\""]);
        let server = arena.server.clone();
        assert_eq!(server.requests("initialize"), 0, "not sent here either");
        arena.end().await;
        assert_eq!(server.other_origin_received(), Vec::<String>::new());
    }
    println!("figure 23: {rounds} endpoints on another origin, nothing arrived there");
}

#[tokio::test]
async fn figure_23_a_handshake_that_is_sent_elsewhere_fails_and_nothing_arrives_there() {
    let server = HttpServer::start(HttpOptions::default()).await;
    for method in ["initialize", "server/discover"] {
        server.fault("http-redirect").on(method).for_ever();
    }
    let arena = with_canaries(server).await;
    let call = arena
        .handle
        .call_tool("echo", json!({}))
        .deadline(SHORT * 3);
    let error = call.await.unwrap_err();
    assert!(!error.to_string().contains(CANARY), "{error}");
    let fault = arena.handle.status().last_error.unwrap();
    says(&fault, &["redirect"]);
    let server = arena.server.clone();
    arena.end().await;
    assert_eq!(server.other_origin_received(), Vec::<String>::new());
}

#[tokio::test]
async fn control_figure_23_a_plain_client_gives_its_headers_away() {
    let server = HttpServer::start(HttpOptions::default()).await;
    let mut config = StreamableHttpClientTransportConfig::with_uri(server.url());
    let name = "x-api-key".parse().unwrap();
    config.custom_headers = HashMap::from([(name, CANARY.parse().unwrap())]);
    mcpvisor_tests::provide_tls();
    let plain = reqwest::Client::builder().no_proxy().build().unwrap();
    let transport = StreamableHttpClientTransport::with_client(plain, config);
    let legacy = ProtocolVersion::LATEST_WITH_INITIALIZE;
    let client = ClientConfig::default().with_protocol_version(legacy);
    let client = client.serve_with_lifecycle(transport, ClientLifecycleMode::Initialize);
    let bare = Bare(client.await.unwrap());
    server.fault("http-redirect").once();
    let arrived = eventually(DEADLINE, "the canary, elsewhere", || {
        server.other_origin_received().concat().contains(CANARY)
    });
    tokio::pin!(arrived);
    // The outcome of the call does not matter here.
    tokio::select! {
        () = &mut arrived => {}
        _ = bare.call("echo", json!({})) => arrived.await,
    }
}

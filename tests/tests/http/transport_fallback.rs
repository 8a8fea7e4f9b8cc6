//! Servers whose transport the config leaves open: Streamable HTTP, else HTTP+SSE.

use std::path::PathBuf;

use mcpvisor::{FaultClass, Runtime, ServerConfig, ServerHandle, StateName, Transport};
use mcpvisor_testkit::http_server::{HttpOptions, HttpServer, ReplyKind};
use mcpvisor_testkit::{eventually, eventually_in};
use rmcp::model::ProtocolVersion;
use serde_json::json;

use crate::arena::*;
use crate::fleet::*;

/// A state folder that is removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("mcpvisor-fallback-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        // Left over from a killed process with the same pid.
        let _ = std::fs::remove_dir_all(&folder);
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server that the config describes by its URL alone.
fn web(server: &HttpServer) -> ServerConfig {
    crate::fleet::server("web", Transport::http(server.url())).settings(quick())
}

async fn start(config: ServerConfig, folder: &Folder) -> (Runtime, ServerHandle) {
    let builder = Runtime::builder().governor(no_governor());
    let builder = builder.state_dir(&folder.0).server(config);
    let runtime = builder.start().await.unwrap();
    let handle = runtime.server("web").unwrap();
    (runtime, handle)
}

/// The HTTP method and the JSON-RPC method of each request so far, up to the first list.
fn handshake(server: &HttpServer) -> Vec<String> {
    let received = server.received().into_iter();
    let shown = received.map(|it| format!("{} {}", it.http_method, it.method));
    shown.take_while(|it| !it.ends_with("/list")).collect()
}

#[tokio::test]
async fn a_server_that_speaks_only_http_sse_is_found_and_remembered_for_the_next_run() {
    let folder = Folder::new("remembered");
    let server = HttpServer::start(HttpOptions::http_sse()).await;
    let (runtime, handle) = start(web(&server), &folder).await;
    runtime.ready(DEADLINE).await.unwrap();
    assert_eq!(handle.status().transport, "sse");
    assert_eq!(handle.status().generation.get(), 1, "in the same attempt");
    let tried = ["POST server/discover", "POST initialize", "GET "];
    assert_eq!(handshake(&server)[..3], tried);
    // The next connection of this run.
    server.restart().await;
    handle
        .call_tool("echo", json!({}))
        .deadline(DEADLINE)
        .await
        .unwrap();
    assert_eq!(handle.status().transport, "sse");
    let refused = |server: &HttpServer| {
        let received = server.received();
        received
            .iter()
            .filter(|it| it.http_method == "POST" && it.path == "/sse")
            .count()
    };
    assert_eq!(refused(&server), 2, "only the first connection probes");
    runtime.shutdown(DEADLINE).await;
    // The next run.
    let (runtime, handle) = start(web(&server), &folder).await;
    runtime.ready(DEADLINE).await.unwrap();
    assert_eq!(handle.status().transport, "sse");
    assert_eq!(refused(&server), 2);
    runtime.shutdown(DEADLINE).await;
}

#[tokio::test]
async fn a_remembered_transport_that_fails_is_forgotten() {
    let folder = Folder::new("forgotten");
    let server = HttpServer::start(HttpOptions::http_sse()).await;
    let (runtime, handle) = start(web(&server), &folder).await;
    runtime.ready(DEADLINE).await.unwrap();
    assert_eq!(handle.status().transport, "sse");
    // The server is replaced by one that speaks Streamable HTTP at the same address.
    server.set_reply(ReplyKind::Json);
    server.restart().await;
    ready_after(&handle, 1).await;
    assert_eq!(handle.status().transport, "http");
    handle.call_tool("echo", json!({})).await.unwrap();
    // And back.
    server.set_reply(ReplyKind::Session);
    let before = handle.status().generation.get();
    server.restart().await;
    runtime.reconnect("web").await.unwrap();
    ready_after(&handle, before).await;
    assert_eq!(handle.status().transport, "sse");
    runtime.shutdown(DEADLINE).await;
}

#[tokio::test]
async fn an_unreachable_server_is_not_forgotten() {
    let folder = Folder::new("unreachable");
    let server = HttpServer::start(HttpOptions::http_sse()).await;
    let (runtime, handle) = start(web(&server), &folder).await;
    runtime.ready(DEADLINE).await.unwrap();
    let probes = server.requests("server/discover");
    server.stop().await;
    let mut status = handle.watch();
    eventually_in(DEADLINE, "failed attempts", &mut status, |status| {
        status.attempt > 3
    })
    .await;
    server.resume().await;
    ready_after(&handle, 1).await;
    assert_eq!(handle.status().transport, "sse");
    assert_eq!(server.requests("server/discover"), probes);
    runtime.shutdown(DEADLINE).await;
}

#[tokio::test]
async fn a_server_that_speaks_neither_has_the_error_of_the_post_with_a_hint() {
    for status in ["404", "405", "400"] {
        let server = HttpServer::start(HttpOptions::default()).await;
        for method in ["server/discover", "initialize"] {
            server
                .fault(&format!("http-status={status}"))
                .on(method)
                .for_ever();
        }
        let arena = Arena::start(server, quick()).await;
        let mut watched = arena.handle.watch();
        let fault = eventually_in(DEADLINE, "a fault", &mut watched, |it| {
            it.last_error.clone()
        });
        let fault = fault.await;
        assert_eq!(fault.class, FaultClass::ConnectFailed, "{fault:?}");
        // The stream is refused because the request has no session.
        let hint = "HTTP+SSE does not work either (Bad Request: No valid session ID";
        says(&fault, &[&format!("HTTP {status}"), hint, "check the url"]);
        assert_eq!(arena.handle.status().transport, "http");
        arena.end().await;
    }
}

#[tokio::test]
async fn other_refusals_lead_to_no_other_transport() {
    let modern = Some(ProtocolVersion::V_2026_07_28);
    let cases = [
        // Failures, and a demand for authorization, show nothing about the transport.
        ("http-status=500", None),
        ("http-503", None),
        ("http-401", None),
        // An error that only modern servers send.
        ("http-400-headers", None),
        // HTTP+SSE does not have the version that the config requires.
        ("http-404", modern),
    ];
    for (fault, protocol) in cases {
        let server = HttpServer::start(HttpOptions::default()).await;
        for method in ["server/discover", "initialize"] {
            server.fault(fault).on(method).for_ever();
        }
        let folder = Folder::new(fault);
        let mut config = web(&server);
        config.protocol = protocol;
        let (runtime, handle) = start(config, &folder).await;
        let mut status = handle.watch();
        eventually_in(DEADLINE, fault, &mut status, |it| it.last_error.clone()).await;
        let gets = server.received();
        let gets = gets.iter().filter(|it| it.http_method == "GET").count();
        assert_eq!(gets, 0, "{fault}");
        runtime.shutdown(DEADLINE).await;
    }
}

#[tokio::test]
async fn a_stream_without_an_endpoint_is_not_waited_for_until_the_connect_timeout() {
    let server = HttpServer::start(HttpOptions::http_sse()).await;
    server.fault("sse-no-endpoint").on("GET").for_ever();
    let folder = Folder::new("no-endpoint");
    let mut config = web(&server);
    config.settings.timeouts.connect = secs(120);
    let (runtime, handle) = start(config, &folder).await;
    let mut status = handle.watch();
    let fault = eventually_in(DEADLINE, "a fault", &mut status, |it| it.last_error.clone()).await;
    says(&fault, &["HTTP 405", "did not send its endpoint in time"]);
    runtime.shutdown(DEADLINE).await;
}

#[tokio::test]
async fn a_server_that_demands_authorization_on_the_stream_alone_says_so() {
    let server = HttpServer::start(HttpOptions::http_sse()).await;
    server.fault("http-401").on("GET").for_ever();
    let folder = Folder::new("authorization");
    let (runtime, handle) = start(web(&server), &folder).await;
    reaches(&handle, StateName::PermanentlyFailed).await;
    let fault = handle.status().last_error.unwrap();
    assert_eq!(fault.class, FaultClass::Authorization, "{fault:?}");
    runtime.shutdown(DEADLINE).await;
}

#[tokio::test]
async fn an_endpoint_elsewhere_is_the_error_and_not_the_refused_post() {
    let server = HttpServer::start(HttpOptions::http_sse()).await;
    server.fault("sse-endpoint-elsewhere").on("GET").for_ever();
    let folder = Folder::new("elsewhere");
    let (runtime, handle) = start(web(&server), &folder).await;
    reaches(&handle, StateName::PermanentlyFailed).await;
    says(&handle.status().last_error.unwrap(), &["another origin"]);
    runtime.shutdown(DEADLINE).await;
    let nothing = || server.other_origin_received().is_empty();
    eventually(DEADLINE, "nothing elsewhere", nothing).await;
}

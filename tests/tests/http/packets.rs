//! Servers whose small packets wait for the client's acknowledgement, which costs 40 ms each
//! without a workaround.

use std::time::Duration;

use mcpvisor_testkit::http_server::{HttpOptions, HttpServer};
use rmcp::model::{ClientConfig, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::json;

use crate::arena::*;
use crate::bare::Bare;

/// Calls until the system delays its acknowledgements fully.
const WARM_UP: usize = 30;

/// Timed calls.
const CALLS: usize = 25;

/// A stall takes 40 ms; half of the calls may be slowed down by a busy machine.
const STALL: Duration = Duration::from_millis(35);

fn lazy() -> HttpOptions {
    HttpOptions {
        nodelay: false,
        ..HttpOptions::sse()
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[tokio::test]
async fn a_server_without_tcp_nodelay_costs_no_stall() {
    let arena = Arena::new(lazy()).await;
    let mut times = Vec::new();
    for number in 0..WARM_UP + CALLS {
        let (outcome, took) = timed(arena.run(&format!("{number}"))).await;
        outcome.unwrap();
        times.push(took);
    }
    let median = median(times.split_off(WARM_UP));
    println!("without TCP_NODELAY: {median:?} per call");
    assert!(median < STALL, "{median:?}");
    arena.end().await;
}

#[tokio::test]
async fn control_a_client_that_keeps_its_connections_and_does_nothing_stalls() {
    let server = HttpServer::start(lazy()).await;
    mcpvisor_tests::provide_tls();
    let config = StreamableHttpClientTransportConfig::with_uri(server.url());
    let pooled = reqwest::Client::builder().no_proxy().build().unwrap();
    let transport = StreamableHttpClientTransport::with_client(pooled, config);
    let legacy = ProtocolVersion::LATEST_WITH_INITIALIZE;
    let client = ClientConfig::default().with_protocol_version(legacy);
    let client = client.serve_with_lifecycle(transport, ClientLifecycleMode::Initialize);
    let bare = Bare(client.await.unwrap());
    let mut times = Vec::new();
    for _ in 0..WARM_UP + CALLS {
        let (outcome, took) = timed(bare.call("echo", json!({}))).await;
        outcome.unwrap();
        times.push(took);
    }
    let median = median(times.split_off(WARM_UP));
    println!("without TCP_NODELAY, bare rmcp with a pool: {median:?} per call");
    assert!(median >= STALL, "{median:?}");
}

//! A runtime with one server, `web`, and helpers to call it and wait for it.

use std::time::Duration;

use mcpvisor::rmcp::model::ProtocolVersion;
use mcpvisor::{
    CallError, Config, HttpEndpoint, Known, Runtime, ServerConfig, ServerHandle, StateName,
    Transport,
};

use mcpvisor_testkit::stub_server::StubServer;

/// Upper bound for every step, even on a busy machine.
pub const LONG: Duration = Duration::from_secs(60);

/// Starts a runtime and waits until its server is connected.
pub async fn connected(server: &StubServer) -> (Runtime, ServerHandle) {
    let (runtime, handle) = started(Transport::http(server.url())).await;
    runtime.ready(LONG).await.unwrap();
    (runtime, handle)
}

pub async fn started(endpoint: HttpEndpoint) -> (Runtime, ServerHandle) {
    started_with(endpoint, |_| {}).await
}

pub async fn started_with(
    endpoint: HttpEndpoint,
    change: impl FnOnce(&mut ServerConfig),
) -> (Runtime, ServerHandle) {
    let mut config = web(endpoint);
    change(&mut config);
    let config = Config::new().server(config);
    let runtime = Runtime::builder().config(config).start().await.unwrap();
    let handle = runtime.server("web").unwrap();
    (runtime, handle)
}

/// The config of the server.
pub fn web(endpoint: HttpEndpoint) -> ServerConfig {
    let mut config = ServerConfig::new("web", endpoint).unwrap().required(true);
    // These tests are about sessions, so no protocol without sessions is tried first.
    config.protocol = Some(ProtocolVersion::V_2025_06_18);
    config
}

/// Calls the only tool.
pub async fn call(handle: &ServerHandle) -> Result<String, CallError> {
    let request = handle.call_tool("echo", serde_json::json!({}));
    let result = tokio::time::timeout(LONG, request.deadline(LONG)).await;
    let result = result.unwrap_or_else(|_| panic!("a call hangs"))?;
    Ok(serde_json::to_value(&result.content[0]).unwrap()["text"]
        .as_str()
        .unwrap()
        .to_owned())
}

/// What is known about a failed call.
pub fn known(result: Result<String, CallError>) -> Known {
    result.unwrap_err().known()
}

/// Waits for a state.
pub async fn reaches(handle: &ServerHandle, state: StateName) {
    let reached = async {
        while handle.status().state != state {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let reached = tokio::time::timeout(LONG, reached).await;
    assert!(reached.is_ok(), "{:?}", handle.status());
}

/// Waits until a condition holds.
pub async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(LONG, waiting).await.is_ok(), "{what}");
}

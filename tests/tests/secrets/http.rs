//! Secrets of HTTP servers: in the URL, in headers and in a variable. (Figure 20.)

use mcpvisor::{Runtime, ServerConfig, ServerHandle, Transport};
use mcpvisor_testkit::eventually_in;
use mcpvisor_testkit::http_server::{HttpOptions, HttpServer};
use serde_json::{Value, json};

use crate::evidence::{Evidence, shows};
use crate::traced_run::run_traced;
use crate::{DEADLINE, canary};

/// The variable that holds the token.
const TOKEN: &str = "MCPVISOR_TEST_BEARER";

/// An endpoint with canaries in its URL, headers and variables.
fn endpoint(address: &str) -> Transport {
    let address = address.replace("://", &format!("://user:{}@", canary("userinfo")));
    let endpoint = Transport::http(format!("{address}?key={}", canary("query")))
        .header("X-Api-Key", canary("header"))
        .bearer_token_env(TOKEN)
        .secret(canary("named"));
    endpoint.into()
}

fn configured(name: &str, transport: Transport) -> ServerConfig {
    let mut server = ServerConfig::new(name, transport).unwrap();
    server.settings.budget.attempts = 2;
    server.settings.backoff.initial = std::time::Duration::from_millis(10);
    server
}

/// A server that misbehaves in every handshake.
async fn failing(fault: &str) -> HttpServer {
    let server = HttpServer::start(HttpOptions::default()).await;
    for method in ["initialize", "server/discover"] {
        server.fault(fault).on(method).for_ever();
    }
    server
}

#[test]
fn no_secret_of_a_server_over_http_is_shown_anywhere() {
    let name = "http::no_secret_of_a_server_over_http_is_shown_anywhere";
    run_traced(name, (TOKEN, canary("bearer")), 10, run_fleet);
}

async fn run_fleet(evidence: &mut Evidence) {
    let good = HttpServer::start(HttpOptions::default()).await;
    let absent = HttpServer::start(HttpOptions::default()).await;
    absent.stop().await;
    let mut failing_servers = Vec::new();
    for fault in [
        "http-401",
        "http-404",
        "http-redirect",
        "http-content-type",
        "http-repeat=500",
        "http-repeat=400",
        "http-repeat=403",
        "http-repeat-error=400",
        "http-repeat-error=401",
        "http-repeat-error=404",
        "http-repeat-error=500",
        "http-repeat-error=200",
        "http-close",
    ] {
        failing_servers.push(failing(fault).await);
    }
    let mut builder = Runtime::builder()
        .server(configured("good", endpoint(&good.url())))
        .server(configured("absent", endpoint(&absent.url())));
    for (number, server) in failing_servers.iter().enumerate() {
        builder = builder.server(configured(
            &format!("bad-{number}"),
            endpoint(&server.url()),
        ));
    }
    // Invalid URLs.
    for (number, address) in ["ftp://example.invalid/mcp", "http://", "://"]
        .iter()
        .enumerate()
    {
        builder = builder.server(configured(&format!("odd-{number}"), endpoint(address)));
    }
    let odd = Transport::http(canary("address")).secret(canary("address"));
    builder = builder.server(configured("odd", odd.into()));
    evidence.debug("builder", &builder);
    let runtime = builder.start().await.unwrap();
    let mut events = runtime.events();

    use_the_good_one(&runtime, &good, evidence).await;
    for name in runtime.servers() {
        let server = runtime.server(name.as_str()).unwrap();
        if name.as_str() != "good" {
            let failed = |status: &mcpvisor::ServerStatus| status.last_error.is_some();
            let what = format!("{name} failed");
            eventually_in(DEADLINE, what, &mut server.watch(), failed).await;
        }
        look_at(&server, evidence).await;
    }
    evidence.debug("runtime", &runtime);
    evidence.debug("report", &runtime.shutdown(DEADLINE).await);
    while let Ok(Some(event)) = events.try_recv() {
        evidence.debug("event", &event);
    }
}

/// Calls that work, calls that fail in ways in which a server may echo its input, a lost session
/// and a restart. Checks that the server received the secrets.
async fn use_the_good_one(runtime: &Runtime, server: &HttpServer, evidence: &mut Evidence) {
    let good = runtime.server("good").unwrap();
    let call = good.call_tool("echo", Value::Null).deadline(DEADLINE);
    call.await.unwrap();
    let received = format!("{:?}", server.received());
    for place in ["header", "bearer", "query"] {
        assert!(received.contains(&canary(place)), "{place} was sent");
    }
    for fault in [
        "http-repeat=500",
        "http-repeat=400",
        "http-repeat=401",
        "http-repeat=404",
        "http-repeat=410",
        "http-repeat-error=401",
        "http-repeat-error=404",
        "http-repeat-error=503",
        "http-redirect",
        "http-drop",
    ] {
        server.fault(fault).times(2);
        let call = good.call_tool("run", json!({ "key": fault }));
        let error = call.deadline(DEADLINE).await.unwrap_err();
        evidence.error("struck call", &error);
        server.disarm();
        look_at(&good, evidence).await;
    }
    server.restart().await;
    // Whether the call was in flight when the server stopped is covered by another test.
    if let Err(error) = good.list_tools(None).deadline(DEADLINE).await {
        evidence.error("call of a server that restarts", &error);
    }
    runtime.reconnect("good").await.unwrap();
}

async fn look_at(server: &ServerHandle, evidence: &mut Evidence) {
    evidence.debug("handle", server);
    let status = server.status();
    evidence.debug("status", &status);
    evidence.add("status as JSON", serde_json::to_string(&status).unwrap());
    let call = server.call_tool("echo", Value::Null);
    let call = call.deadline(std::time::Duration::from_millis(500));
    if let Err(error) = call.await {
        evidence.error("call", &error);
    }
}

#[test]
fn control_a_plain_description_of_the_same_server_shows_its_secrets() {
    use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
    let mut config = StreamableHttpClientTransportConfig::with_uri(canary("query"));
    config.auth_header = Some(canary("bearer"));
    assert!(shows(&format!("{config:?}")));
}

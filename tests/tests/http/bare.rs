//! The control: rmcp's own client, used as documented, with the same server.

use std::time::Duration;

use mcpvisor_testkit::http_server::HttpServer;
use rmcp::model::{CallToolRequestParams, CallToolResult, ClientConfig, ProtocolVersion};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, RunningService, ServiceError,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, RoleClient};
use serde_json::{Value, json};

/// Counts as a hang: a guaranteed outcome takes a few hundred milliseconds.
pub(crate) const HANG: Duration = Duration::from_secs(4);

/// A connected client.
pub(crate) struct Bare<H: ClientHandler = ClientConfig>(pub(crate) RunningService<RoleClient, H>);

/// rmcp's default client, restricted to the server itself: it uses no proxy of the environment and
/// follows no redirect.
pub(crate) fn client() -> reqwest::Client {
    mcpvisor_tests::provide_tls();
    let client = reqwest::Client::builder().pool_max_idle_per_host(0);
    let client = client.redirect(reqwest::redirect::Policy::none());
    client.no_proxy().build().unwrap()
}

/// Does the handshake.
pub(crate) async fn serve(
    server: &HttpServer,
) -> Result<RunningService<RoleClient, ClientConfig>, ClientInitializeError> {
    let legacy = ProtocolVersion::LATEST_WITH_INITIALIZE;
    let client = ClientConfig::default().with_protocol_version(legacy);
    serve_with(client, server).await
}

/// Does the handshake with this handler.
pub(crate) async fn serve_with<H: ClientHandler>(
    handler: H,
    server: &HttpServer,
) -> Result<RunningService<RoleClient, H>, ClientInitializeError> {
    let config = StreamableHttpClientTransportConfig::with_uri(server.url());
    let transport = StreamableHttpClientTransport::with_client(client(), config);
    handler
        .serve_with_lifecycle(transport, ClientLifecycleMode::Initialize)
        .await
}

impl Bare {
    pub(crate) async fn connect(server: &HttpServer) -> Self {
        Self(serve(server).await.unwrap())
    }
}

impl<H: ClientHandler> Bare<H> {
    pub(crate) async fn call(
        &self,
        tool: &'static str,
        arguments: Value,
    ) -> Result<CallToolResult, ServiceError> {
        let mut request = CallToolRequestParams::new(tool);
        request.arguments = arguments.as_object().cloned();
        self.0.call_tool(request).await
    }

    /// Injects a fault into a call.
    pub(crate) async fn inject(&self, fault: &str) -> Result<CallToolResult, ServiceError> {
        self.call("misbehave", json!({ "fault": fault })).await
    }
}

/// Whether a future does not complete.
pub(crate) async fn hangs(what: impl IntoFuture) -> bool {
    tokio::time::timeout(HANG, what.into_future())
        .await
        .is_err()
}

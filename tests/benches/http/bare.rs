//! rmcp's own client over HTTP, built with TLS support like ours.

use rmcp::RoleClient;
use rmcp::model::{ClientConfig, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;

use crate::Outcome;

/// A connected client. Dropping it closes the connection.
pub(crate) type BareClient = RunningService<RoleClient, ClientConfig>;

/// A client that reuses connections.
pub(crate) fn pooled() -> Outcome<reqwest::Client> {
    Ok(reqwest::Client::builder().no_proxy().build()?)
}

/// A client that closes the connection after each request, as rmcp's default does.
pub(crate) fn unpooled() -> Outcome<reqwest::Client> {
    let client = reqwest::Client::builder().pool_max_idle_per_host(0);
    Ok(client.no_proxy().build()?)
}

/// Connects like rmcp's default client and does the handshake.
pub(crate) async fn connect(url: &str) -> Outcome<BareClient> {
    connect_with(unpooled()?, url).await
}

/// Connects with an existing client and does the handshake.
pub(crate) async fn connect_with(client: reqwest::Client, url: &str) -> Outcome<BareClient> {
    let config = StreamableHttpClientTransportConfig::with_uri(url);
    shake_hands(StreamableHttpClientTransport::with_client(client, config)).await
}

async fn shake_hands(
    transport: StreamableHttpClientTransport<reqwest::Client>,
) -> Outcome<BareClient> {
    let legacy = ProtocolVersion::LATEST_WITH_INITIALIZE;
    let client = ClientConfig::default().with_protocol_version(legacy);
    let lifecycle = ClientLifecycleMode::Initialize;
    Ok(client.serve_with_lifecycle(transport, lifecycle).await?)
}

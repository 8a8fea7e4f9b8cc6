//! rmcp's own client over HTTP, built so that it can reach servers over TLS, as ours is.

use rmcp::RoleClient;
use rmcp::model::{ClientConfig, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;

use crate::Outcome;

/// A connected client; the connection ends with it.
pub(crate) type BareClient = RunningService<RoleClient, ClientConfig>;

/// A client that keeps connections for the next request.
pub(crate) fn pooled() -> Outcome<reqwest::Client> {
    Ok(reqwest::Client::builder().no_proxy().build()?)
}

/// A client that closes a connection after its request, as rmcp's default does.
pub(crate) fn unpooled() -> Outcome<reqwest::Client> {
    let client = reqwest::Client::builder().pool_max_idle_per_host(0);
    Ok(client.no_proxy().build()?)
}

/// Connects as rmcp's default client does, and does the handshake.
pub(crate) async fn connect(url: &str) -> Outcome<BareClient> {
    connect_with(unpooled()?, url).await
}

/// Connects with a client that is there, and does the handshake.
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

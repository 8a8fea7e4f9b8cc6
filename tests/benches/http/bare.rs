//! rmcp's own client over HTTP.

use rmcp::RoleClient;
use rmcp::model::{ClientConfig, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;

use crate::Outcome;

/// A connected client; the connection ends with it.
pub(crate) type BareClient = RunningService<RoleClient, ClientConfig>;

/// What becomes of a connection after its request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pool {
    /// It is kept for the next one.
    Shared,
    /// It is closed: rmcp's default.
    None,
}

/// Connects and does the handshake.
pub(crate) async fn connect(url: &str, pool: Pool) -> Outcome<BareClient> {
    let transport = match pool {
        Pool::None => StreamableHttpClientTransport::from_uri(url),
        Pool::Shared => {
            let client = reqwest::Client::builder().build()?;
            let config = StreamableHttpClientTransportConfig::with_uri(url);
            StreamableHttpClientTransport::with_client(client, config)
        }
    };
    let legacy = ProtocolVersion::LATEST_WITH_INITIALIZE;
    let client = ClientConfig::default().with_protocol_version(legacy);
    let lifecycle = ClientLifecycleMode::Initialize;
    Ok(client.serve_with_lifecycle(transport, lifecycle).await?)
}

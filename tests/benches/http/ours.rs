//! The runtime over HTTP, with its defaults.

use std::time::Duration;

use mcpvisor::{GovernorSettings, HttpEndpoint, Runtime, ServerConfig, ServerSettings, Transport};
use rmcp::model::ProtocolVersion;

use crate::Outcome;
use crate::ours::{ATTEMPTS, Ours};

/// One server. A measurement may kill it any number of times: the budget and the governor are wide,
/// and the retry after a proven connection is always immediate.
pub(crate) async fn connect(url: &str) -> Outcome<Ours> {
    let mut settings = ServerSettings::default();
    settings.budget.attempts = ATTEMPTS;
    settings.backoff.immediate_every = Duration::ZERO;
    let mut governor = GovernorSettings::default();
    governor.burst_floor = usize::MAX;
    let server = server("bench", Transport::http(url))?.settings(settings);
    Ours::start(Runtime::builder().governor(governor).server(server)).await
}

/// Many servers, all ready.
pub(crate) async fn fleet(url: &str, servers: usize) -> Outcome<Ours> {
    let mut runtime = Runtime::builder();
    for number in 0..servers {
        runtime = runtime.server(server(&format!("bench-{number}"), Transport::http(url))?);
    }
    Ours::start(runtime).await
}

/// Uses the newest protocol version with sessions, as rmcp's client does.
pub(crate) fn server(name: &str, endpoint: HttpEndpoint) -> Outcome<ServerConfig> {
    let mut server = ServerConfig::new(name, endpoint)?;
    server.protocol = Some(ProtocolVersion::LATEST_WITH_INITIALIZE);
    Ok(server)
}

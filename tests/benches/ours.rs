//! Our side: the runtime with default settings except for the protocol version, used as a program
//! would.

use std::time::Duration;

use mcpvisor::{GovernorSettings, Runtime, ServerConfig, ServerHandle, ServerSettings, Transport};
use rmcp::model::{CallToolResult, JsonObject, ProtocolVersion};

use crate::Outcome;
use crate::caller::Caller;
use crate::service::BenchServer;
use crate::side::Way;

/// Upper bound for a fleet to start or close, unless something is broken.
const PATIENCE: Duration = Duration::from_secs(30);

/// Connection attempts for the server that is killed repeatedly.
pub(crate) const ATTEMPTS: u32 = 100_000;

impl Caller for ServerHandle {
    async fn call(&self, tool: &'static str, arguments: JsonObject) -> Outcome<CallToolResult> {
        Ok(self.call_tool(tool, arguments).await?)
    }
}

/// A running fleet.
pub(crate) struct Ours(Runtime);

impl Ours {
    pub(crate) async fn start(runtime: mcpvisor::RuntimeBuilder) -> Outcome<Self> {
        let runtime = runtime.start().await?;
        runtime.ready(PATIENCE).await?;
        Ok(Self(runtime))
    }

    /// The server of a fleet of one.
    pub(crate) fn caller(&self) -> Outcome<ServerHandle> {
        Ok(self.0.server("bench")?)
    }

    /// Closes every server and waits until they are closed.
    pub(crate) async fn close(self) {
        self.0.shutdown(PATIENCE).await;
    }
}

/// One stdio server. A measurement may kill it any number of times: the budget and the governor are
/// wide, and the retry after a proven connection is always immediate.
pub(crate) async fn stdio() -> Outcome<Ours> {
    let mut settings = ServerSettings::default();
    settings.budget.attempts = ATTEMPTS;
    settings.backoff.immediate_every = Duration::ZERO;
    let mut governor = GovernorSettings::default();
    governor.burst_floor = usize::MAX;
    let server = server("bench", Way::Stdio)?.settings(settings);
    Ours::start(Runtime::builder().governor(governor).server(server)).await
}

/// One in-process server.
pub(crate) async fn in_process() -> Outcome<Ours> {
    let server = server("bench", Way::InProcess)?;
    Ours::start(Runtime::builder().server(server)).await
}

/// Many servers, all ready.
pub(crate) async fn fleet(way: Way, servers: usize) -> Outcome<Ours> {
    let mut runtime = Runtime::builder();
    for number in 0..servers {
        runtime = runtime.server(server(&format!("bench-{number}"), way)?);
    }
    Ours::start(runtime).await
}

/// Uses the default protocol version of rmcp's own client, so that both sides do the same work.
fn server(name: &str, way: Way) -> Outcome<ServerConfig> {
    let mut server = ServerConfig::new(name, transport(way)?)?;
    server.protocol = Some(ProtocolVersion::LATEST_WITH_INITIALIZE);
    Ok(server)
}

fn transport(way: Way) -> Outcome<Transport> {
    Ok(match way {
        Way::Stdio => Transport::stdio(std::env::current_exe()?)
            .arg("server")
            .into(),
        Way::InProcess => Transport::in_process(BenchServer),
        Way::Http => Err("a server over HTTP has an address")?,
    })
}

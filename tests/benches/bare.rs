//! The baseline: rmcp's own client, used as documented.

use rmcp::model::{CallToolRequestParams, CallToolResult, JsonObject};
use rmcp::service::RunningService;
use rmcp::transport::TokioChildProcess;
use rmcp::{Peer, RoleClient, RoleServer, ServiceExt};
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::Outcome;
use crate::caller::Caller;
use crate::service::BenchServer;

/// Capacity of a duplex stream, in bytes.
const DUPLEX_BUFFER: usize = 64 * 1024;

/// A connected client. Dropping it closes the connection.
pub(crate) type BareClient = RunningService<RoleClient, ()>;

impl Caller for Peer<RoleClient> {
    async fn call(&self, tool: &'static str, arguments: JsonObject) -> Outcome<CallToolResult> {
        let request = CallToolRequestParams::new(tool).with_arguments(arguments);
        Ok(self.call_tool(request).await?)
    }
}

/// Starts the bench server as a child and does the handshake.
pub(crate) async fn stdio() -> Outcome<BareClient> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("server");
    Ok(().serve(TokioChildProcess::new(command)?).await?)
}

/// Both ends of a connection inside this process.
pub(crate) struct InProcess {
    pub(crate) client: BareClient,
    server: RunningService<RoleServer, BenchServer>,
}

impl InProcess {
    /// Connects a client and a bench server through a duplex stream and does the handshake.
    pub(crate) async fn connect() -> Outcome<Self> {
        let (here, there) = tokio::io::duplex(DUPLEX_BUFFER);
        let server = tokio::spawn(BenchServer.serve(there));
        let client = ().serve(here).await?;
        Ok(Self {
            client,
            server: server.await??,
        })
    }

    /// Closes both ends and waits for them.
    pub(crate) async fn close(self) -> Outcome<()> {
        self.client.cancel().await?;
        self.server.waiting().await?;
        Ok(())
    }
}

/// Opens many connections concurrently and returns them once all are up.
pub(crate) async fn fleet<C, F>(servers: usize, connect: impl Fn() -> F) -> Outcome<Vec<C>>
where
    C: Send + 'static,
    F: Future<Output = Outcome<C>> + Send + 'static,
{
    let mut connecting = JoinSet::new();
    for _ in 0..servers {
        connecting.spawn(connect());
    }
    let mut fleet = Vec::with_capacity(servers);
    while let Some(connected) = connecting.join_next().await {
        fleet.push(connected??);
    }
    Ok(fleet)
}

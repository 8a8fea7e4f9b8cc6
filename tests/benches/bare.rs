//! The side to compare with: rmcp's own client, used as its documentation shows.

use rmcp::model::{CallToolRequestParams, CallToolResult, JsonObject};
use rmcp::service::RunningService;
use rmcp::transport::TokioChildProcess;
use rmcp::{Peer, RoleClient, RoleServer, ServiceExt};
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::Outcome;
use crate::caller::Caller;
use crate::service::BenchServer;

/// How much a duplex stream holds before its writer waits, in bytes.
const DUPLEX_BUFFER: usize = 64 * 1024;

/// A connected client; the connection ends with it.
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
    /// The end that calls.
    pub(crate) client: BareClient,
    server: RunningService<RoleServer, BenchServer>,
}

impl InProcess {
    /// Joins a client and a bench server by a duplex stream and does the handshake.
    pub(crate) async fn connect() -> Outcome<Self> {
        let (here, there) = tokio::io::duplex(DUPLEX_BUFFER);
        let server = tokio::spawn(BenchServer.serve(there));
        let client = ().serve(here).await?;
        Ok(Self {
            client,
            server: server.await??,
        })
    }

    /// Ends both ends and waits for them.
    pub(crate) async fn close(self) -> Outcome<()> {
        self.client.cancel().await?;
        self.server.waiting().await?;
        Ok(())
    }
}

/// Connects many at once and gives them when all are there.
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

//! The control: rmcp's own client, used as documented, with the same bad server.
//!
//! It must fail the same checks: a check that it passed would prove nothing.

use std::process::Stdio;
use std::time::Duration;

use mcpvisor_testkit::processes::{MARKER, Marker};
use rmcp::model::{CallToolRequestParams, CallToolResult};
use rmcp::service::{ClientInitializeError, RunningService, ServiceError};
use rmcp::transport::TokioChildProcess;
use rmcp::{ClientHandler, RoleClient, ServiceExt};
use serde_json::json;
use tokio::process::Command;

/// Counts as a hang: a guaranteed outcome takes a few hundred milliseconds.
pub(crate) const HANG: Duration = Duration::from_secs(4);

/// A connected client.
pub(crate) struct Bare<H: ClientHandler = ()> {
    pub(crate) client: RunningService<RoleClient, H>,
    /// Leaked processes are killed on drop.
    pub(crate) left: Left,
}

/// The processes of a test. They are killed on drop.
pub(crate) struct Left(pub(crate) Marker);

impl Drop for Left {
    fn drop(&mut self) {
        self.0.kill_all();
    }
}

/// Creates a marker whose processes do not outlive the test.
pub(crate) fn left() -> Left {
    Left(Marker::new("bare"))
}

/// Starts the bad server and does the handshake.
pub(crate) async fn serve<H: ClientHandler>(
    handler: H,
    left: &Left,
    faults: &[&str],
) -> Result<RunningService<RoleClient, H>, ClientInitializeError> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bad-server"));
    command.args(faults.iter().flat_map(|fault| ["--fault", fault]));
    command.env(MARKER, left.0.value());
    let child = TokioChildProcess::builder(command).stderr(Stdio::null());
    let (child, _) = child.spawn().unwrap();
    handler.serve(child).await
}

impl Bare {
    pub(crate) async fn connect(faults: &[&str]) -> Self {
        Self::connect_with((), faults).await
    }
}

impl<H: ClientHandler> Bare<H> {
    pub(crate) async fn connect_with(handler: H, faults: &[&str]) -> Self {
        let left = left();
        let client = serve(handler, &left, faults).await.unwrap();
        Self { client, left }
    }

    /// Injects a fault into a call.
    pub(crate) async fn inject(&self, fault: &str) -> Result<CallToolResult, ServiceError> {
        let arguments = json!({ "fault": fault }).as_object().cloned();
        let mut request = CallToolRequestParams::new("misbehave");
        request.arguments = arguments;
        self.client.call_tool(request).await
    }

    /// Whether a call with this fault never gets an outcome.
    pub(crate) async fn hangs(&self, fault: &str) -> bool {
        hangs(self.inject(fault)).await
    }
}

/// Whether a future does not complete.
pub(crate) async fn hangs(what: impl IntoFuture) -> bool {
    tokio::time::timeout(HANG, what.into_future())
        .await
        .is_err()
}

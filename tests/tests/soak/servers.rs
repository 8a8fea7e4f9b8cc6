//! The fleet of twenty: bad servers, good ones and in-process ones.

use mcpvisor::{Runtime, ServerHandle, ServerSettings, StateName, Transport};
use mcpvisor_testkit::leaks::Snapshot;
use mcpvisor_testkit::processes::Marker;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ErrorData, ServerCapabilities,
    ServerConfig as ServerInfo,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use serde_json::json;

use crate::fleet::*;

/// The kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Bad,
    Good,
    InProcess,
}

/// An in-process server: `echo` answers, nothing else does.
#[derive(Debug, Clone, Copy)]
struct Echo;

impl ServerHandler for Echo {
    fn get_info(&self) -> ServerInfo {
        ServerInfo::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if request.name != "echo" {
            context.ct.cancelled().await;
        }
        Ok(CallToolResult::success(Vec::new()).into())
    }
}

/// One server of the fleet.
#[derive(Clone)]
pub(crate) struct One {
    pub(crate) kind: Kind,
    pub(crate) handle: ServerHandle,
}

pub(crate) struct Servers {
    pub(crate) runtime: Runtime,
    pub(crate) all: Vec<One>,
    marker: Marker,
}

impl Servers {
    /// Starts twelve bad servers, four good ones and four in-process ones, and waits until they are
    /// ready.
    pub(crate) async fn start() -> Self {
        let marker = Marker::new("soak");
        let kinds: Vec<Kind> = (0..20)
            .map(|number| match number % 5 {
                0..=2 => Kind::Bad,
                3 => Kind::Good,
                _ => Kind::InProcess,
            })
            .collect();
        let configs = kinds.iter().enumerate().map(|(number, kind)| {
            let name = format!("server-{number}");
            match kind {
                Kind::Bad => server(&name, bad_server(&marker, &[])),
                Kind::Good => server(&name, fixture(&marker, &[])),
                Kind::InProcess => server(&name, Transport::in_process(Echo)),
            }
            .settings(impatient())
        });
        let runtime = fleet(configs).await;
        runtime.ready(DEADLINE).await.unwrap();
        let all = kinds.into_iter().enumerate();
        let all = all.map(|(number, kind)| One {
            kind,
            handle: runtime.server(format!("server-{number}")).unwrap(),
        });
        Self {
            all: all.collect(),
            runtime,
            marker,
        }
    }

    /// Reconnects every server and calls it, which removes all traces of faults. Takes a snapshot.
    pub(crate) async fn renewed(&self) -> Snapshot {
        for one in &self.all {
            reaches(&one.handle, StateName::Connected).await;
            let old = one.handle.status().generation.get();
            self.runtime
                .reconnect(one.handle.name().as_str())
                .await
                .unwrap();
            ready_after(&one.handle, old).await;
            let call = one.handle.call_tool("echo", json!({}));
            call.deadline(DEADLINE).await.unwrap();
        }
        settled().await
    }

    /// Shuts down, and checks that no process is left.
    pub(crate) async fn end(self) {
        self.runtime.shutdown(secs(10)).await;
        assert_eq!(self.marker.processes(), []);
    }
}

/// The minimum of several snapshots, so that transient resources are not counted.
async fn settled() -> Snapshot {
    let mut least = Snapshot::take();
    for _ in 0..20 {
        tokio::time::sleep(millis(50)).await;
        let now = Snapshot::take();
        if now.tasks <= least.tasks && now.descriptors.len() <= least.descriptors.len() {
            least = now;
        }
    }
    least
}

/// Settings with which servers are given up and restarted within a few seconds, without a limit.
fn impatient() -> ServerSettings {
    let mut settings = eager();
    settings.timeouts.connect = secs(5);
    settings.timeouts.idle = secs(1);
    settings.health.threshold = 2;
    settings.health.keepalive = secs(1);
    settings.health.keepalive_timeout = secs(1);
    settings.close.drain = millis(200);
    settings.close.stdin = millis(200);
    settings.close.terminate = millis(200);
    settings
}

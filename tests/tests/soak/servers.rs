//! The fleet of twenty: bad servers, good ones and such as live in this process.

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

/// What a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Bad,
    Good,
    InProcess,
}

/// A server in this process: `echo` answers, nothing else does.
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

/// One of them.
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
    /// Twelve bad ones, four good ones and four in this process, all ready.
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

    /// Every server on a new connection, and answering: what is there now, and no trace of a fault.
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

    /// Ends all of them, and finds no process left.
    pub(crate) async fn end(self) {
        self.runtime.shutdown(secs(10)).await;
        assert_eq!(self.marker.processes(), []);
    }
}

/// The least of a few looks: what is only passing by is not counted.
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

/// Servers that are given up and started again within a few seconds, as often as it takes.
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

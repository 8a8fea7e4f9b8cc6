//! A third-party HTTP server: server-everything, on Node.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rmcp::model::JsonObject;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use crate::Outcome;
use crate::caller::{Caller, Callers};
use crate::plan::Plan;
use crate::report::{Both, Row};

use super::bare;
use super::ours;

/// How long it may take to start.
const START: Duration = Duration::from_secs(60);

/// Where the third-party servers are installed, if they are.
pub(crate) fn installed() -> Option<PathBuf> {
    std::env::var_os("MCPVISOR_PEERS").map(PathBuf::from)
}

/// The 99th percentile of calls, compared with rmcp's default client.
pub(crate) async fn slowest(
    plan: &Plan,
    peers: &Path,
    callers: Callers,
    gate: Option<f64>,
) -> Outcome<Row> {
    let server = Everything::start(peers).await?;
    let bare = bare::connect(&server.url).await?;
    let ours = ours::connect(&server.url).await?;
    let mut rounds = Vec::new();
    for round in 0..=plan.rounds / 3 {
        let ours = p99(plan, callers, &ours.caller()?).await?;
        let bare = p99(plan, callers, bare.peer()).await?;
        // The first round opens the connections of both sides.
        if round > 0 {
            rounds.push((ours, bare));
        }
    }
    ours.close().await;
    bare.cancel().await?;
    let measure = format!("http, {callers}: p99 of a call to a Node server");
    Ok(Row::ratio(measure, "ms", Both::of_rounds(&rounds), gate))
}

/// The 99th percentile of one burst, in milliseconds.
async fn p99(plan: &Plan, callers: Callers, caller: &impl Caller) -> Outcome<f64> {
    let calls = plan.burst(callers).calls;
    let mut tasks = JoinSet::new();
    for _ in 0..callers.count() {
        let caller = caller.clone();
        tasks.spawn(async move {
            let mut times = Vec::with_capacity(calls);
            for _ in 0..calls {
                let begun = Instant::now();
                let message = ("message".to_owned(), "hello".into());
                caller
                    .call("echo", JsonObject::from_iter([message]))
                    .await?;
                times.push(begun.elapsed());
            }
            Outcome::Ok(times)
        });
    }
    let mut times = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        times.extend(ended??);
    }
    times.sort_unstable();
    let slowest = times.get(times.len() * 99 / 100).ok_or("no calls")?;
    Ok(slowest.as_secs_f64() * 1e3)
}

/// The server process, killed on drop.
struct Everything {
    url: String,
    _process: Child,
}

impl Everything {
    async fn start(peers: &Path) -> Outcome<Self> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let package = "node_modules/@modelcontextprotocol/server-everything/dist/index.js";
        let process = Command::new("node")
            .arg(peers.join(package))
            .arg("streamableHttp")
            .env("PORT", address.port().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        tokio::time::timeout(START, open(address))
            .await
            .map_err(|_| "server-everything does not start")?;
        Ok(Self {
            url: format!("http://{address}/mcp"),
            _process: process,
        })
    }
}

/// Waits until the port accepts connections.
async fn open(address: SocketAddr) {
    while TcpStream::connect(address).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

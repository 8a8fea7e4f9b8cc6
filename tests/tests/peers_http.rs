//! Third-party HTTP servers, restarted on their port under load.
//!
//! `just peers` installs them and sets `MCPVISOR_PEERS`; without it, each test reports that it was
//! skipped. The servers are `server-everything` from npm and one based on PyPI's `fastmcp`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

mod fleet;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fleet::*;
use mcpvisor::for_model::ModelText;
use mcpvisor::rmcp::model::{ElicitResult, ElicitationAction};
use mcpvisor::{CallError, Callbacks, Runtime, ServerHandle, TaskStart, Transport};
use mcpvisor_testkit::delay::DelayProxy;
use mcpvisor_testkit::eventually;
use rmcp::model::ProtocolVersion;
use serde_json::json;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

/// They start slowly on a busy machine.
const START: Duration = Duration::from_secs(120);

/// Restarts per server.
const RESTARTS: usize = 4;

/// A server with the tool that both servers have.
const PYTHON: &str = r#"
from fastmcp import Context, FastMCP

mcp = FastMCP("peer")


@mcp.tool
def echo(message: str) -> str:
    return "Echo: " + message


@mcp.tool
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("Your name?", response_type=str)
    return answer.action + " " + answer.data


reads = 0


@mcp.resource("browser://{name}")
def browser(name: str) -> str:
    global reads
    reads += 1
    raise ValueError("Session not found: " + name)


@mcp.tool
def count_reads() -> int:
    return reads
"#;

/// A server whose tools run as tasks (the extension of 2026-07-28).
const PYTHON_TASKS: &str = r#"
import asyncio
from datetime import timedelta

from fastmcp import FastMCP
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension

mcp = FastMCP("peer")
mcp.add_extension(TasksExtension())
quick = TaskConfig(poll_interval=timedelta(milliseconds=200))


@mcp.tool(task=quick)
async def work(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"
"#;

/// Where the servers are installed.
struct Peers(PathBuf);

impl Peers {
    fn installed() -> Option<Self> {
        let folder = std::env::var_os("MCPVISOR_PEERS").map(PathBuf::from);
        if folder.is_none() {
            println!("skipped: MCPVISOR_PEERS is not set; `.ci/peers` installs the servers");
        }
        folder.map(Self)
    }

    fn everything(&self, transport: &str, port: u16) -> Command {
        let package = "node_modules/@modelcontextprotocol/server-everything";
        let mut command = Command::new("node");
        command.arg(self.0.join(package).join("dist/index.js"));
        command.arg(transport).env("PORT", port.to_string());
        command
    }

    fn fastmcp(&self, script: &Path, transport: &str, port: u16) -> Command {
        let mut command = Command::new(self.0.join("python/bin/fastmcp"));
        command.arg("run").arg(script);
        command.args(["--no-banner", "--transport", transport]);
        command.args(["--host", "127.0.0.1"]);
        command.args(["--port", &port.to_string()]);
        command
    }
}

/// A closed port.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A server process, killed on drop.
struct Process {
    command: Command,
    port: u16,
    child: Option<Child>,
}

impl Process {
    async fn start(mut command: Command, port: u16) -> Self {
        command.stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = Self {
            command,
            port,
            child: None,
        };
        process.begin().await;
        process
    }

    /// Starts the process and waits until its port is open.
    async fn begin(&mut self) {
        self.child = Some(self.command.spawn().unwrap());
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        let open = || TcpStream::connect(address).is_ok();
        eventually(START, "an open port", open).await;
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    async fn restart(&mut self) {
        self.kill();
        self.begin().await;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The path of Streamable HTTP, and that of HTTP+SSE.
const STREAMABLE: &str = "mcp";
const SSE: &str = "sse";

/// A fleet of one, connected and listed.
async fn ready_in_time(
    port: u16,
    path: &str,
    protocol: Option<ProtocolVersion>,
) -> (Runtime, ServerHandle) {
    let mut settings = eager();
    // A server that is down for seconds is retried at intervals, not continuously.
    settings.backoff.max = millis(100);
    settings.timeouts.connect = START;
    settings.timeouts.reconnect_wait = START;
    let endpoint = Transport::http(format!("http://127.0.0.1:{port}/{path}"));
    let mut peer = server("peer", endpoint).settings(settings);
    peer.protocol = protocol;
    let runtime = fleet([peer]).await;
    runtime.ready(START).await.unwrap();
    let handle = runtime.server("peer").unwrap();
    (runtime, handle)
}

async fn echo(handle: &ServerHandle, message: &str) -> Result<(), CallError> {
    let call = handle.call_tool("echo", json!({ "message": message }));
    let result = call.deadline(START).await?;
    let text = &result.content[0].as_text().unwrap().text;
    assert_eq!(*text, format!("Echo: {message}"), "its own answer");
    Ok(())
}

/// Restarts a server under load, and once without calls.
async fn is_found_again(command: Command, port: u16, path: &str) {
    let mut process = Process::start(command, port).await;
    let (runtime, peer) = ready_in_time(port, path, None).await;
    let transport = if path == SSE { "sse" } else { "http" };
    assert_eq!(peer.status().transport, transport);
    let stop = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    for caller in 0..16 {
        let (peer, stop) = (peer.clone(), Arc::clone(&stop));
        callers.spawn(async move {
            let (mut answered, mut unknown) = (0, 0);
            while !stop.load(Ordering::Relaxed) {
                match echo(&peer, &format!("{caller}-{answered}")).await {
                    Ok(()) => answered += 1,
                    Err(CallError::OutcomeUnknown { .. }) => unknown += 1,
                    Err(other) => panic!("{other:?}"),
                }
            }
            (answered, unknown)
        });
    }
    for _ in 0..RESTARTS {
        tokio::time::sleep(millis(500)).await;
        process.restart().await;
        echo(&peer, "back").await.unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    let counts = callers.join_all().await;
    let answered: usize = counts.iter().map(|(answered, _)| answered).sum();
    let unknown: usize = counts.iter().map(|(_, unknown)| unknown).sum();
    println!("{transport}: {RESTARTS} restarts, {answered} calls answered, {unknown} unknown");
    assert!(answered > RESTARTS);
    process.restart().await;
    echo(&peer, "after").await.unwrap();
    assert_eq!(peer.status().transport, transport);
    let report = runtime.shutdown(secs(30)).await;
    assert!(report.is_clean(), "{report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_over_http_is_found_again_after_restarts_under_load() {
    let Some(peers) = Peers::installed() else {
        return;
    };
    let port = free_port();
    is_found_again(peers.everything("streamableHttp", port), port, STREAMABLE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_over_http_sse_is_found_again_after_restarts_under_load() {
    let Some(peers) = Peers::installed() else {
        return;
    };
    let port = free_port();
    is_found_again(peers.everything("sse", port), port, SSE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fastmcp_over_http_sse_is_found_again_after_restarts_under_load() {
    let Some(peers) = Peers::installed() else {
        return;
    };
    let script = script("sse-restarts");
    let port = free_port();
    is_found_again(peers.fastmcp(&script, "sse", port), port, SSE).await;
    std::fs::remove_file(script).unwrap();
}

/// Its questions come on the stream of the session, and the answers are sent to the endpoint.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fastmcp_over_http_sse_asks_its_questions() {
    let Some(peers) = Peers::installed() else {
        return;
    };
    let script = script("sse-questions");
    let port = free_port();
    let _process = Process::start(peers.fastmcp(&script, "sse", port), port).await;
    let callbacks = Callbacks::new().elicitation_form(|_| async {
        let content = json!({ "value": "Ada" });
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content))
    });
    let endpoint = Transport::sse(format!("http://127.0.0.1:{port}/{SSE}"));
    let mut peer = server("peer", endpoint);
    peer.settings.timeouts.connect = START;
    let runtime = Runtime::builder().server(peer).callbacks(callbacks);
    let runtime = runtime.start().await.unwrap();
    runtime.ready(START).await.unwrap();
    let handle = runtime.server("peer").unwrap();
    let result = handle.call_tool("ask", json!({})).deadline(START).await;
    let text = result.model_text();
    assert!(text.contains("accept Ada"), "{text}");
    runtime.shutdown(secs(30)).await;
    std::fs::remove_file(script).unwrap();
}

/// In a version with sessions: a tool error that mentions a session is passed through, and a
/// session lost in a restart is replaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fastmcp_keeps_its_session_through_errors_of_its_own_and_loses_it_in_a_restart() {
    let Some(peers) = Peers::installed() else {
        return;
    };
    let name = format!("mcpvisor-fastmcp-sessions-{}.py", std::process::id());
    let script = std::env::temp_dir().join(name);
    std::fs::write(&script, PYTHON).unwrap();
    let port = free_port();
    let mut process = Process::start(peers.fastmcp(&script, "http", port), port).await;
    let legacy = ProtocolVersion::V_2025_06_18;
    let (runtime, peer) = ready_in_time(port, STREAMABLE, Some(legacy)).await;
    let read = peer.read_resource("browser://seven").deadline(START);
    match read.await.unwrap_err() {
        CallError::Answered { error, .. } => {
            assert!(error.message.contains("Session not found"), "{error:?}");
        }
        other => panic!("{other:?}"),
    }
    let count = peer.call_tool("count_reads", json!({})).deadline(START);
    let count = count.await.unwrap();
    assert_eq!(count.content[0].as_text().unwrap().text, "1", "read once");
    assert_eq!(peer.status().generation.get(), 1, "no reconnect");
    for restart in 1..=3 {
        process.restart().await;
        echo(&peer, "after").await.unwrap();
        let generation = peer.status().generation.get();
        println!("restart {restart}: generation {generation}");
        assert!(generation > restart);
    }
    runtime.shutdown(secs(30)).await;
    std::fs::remove_file(script).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fastmcp_over_http_is_found_again_after_restarts_under_load() {
    let Some(peers) = Peers::installed() else {
        return;
    };
    let script = script("restarts");
    let port = free_port();
    is_found_again(peers.fastmcp(&script, "http", port), port, STREAMABLE).await;
    std::fs::remove_file(script).unwrap();
}

/// Writes the server to a file for this test.
fn script(test: &str) -> PathBuf {
    let name = format!("mcpvisor-fastmcp-{test}-{}.py", std::process::id());
    let script = std::env::temp_dir().join(name);
    std::fs::write(&script, PYTHON).unwrap();
    script
}

/// It speaks both eras but announces only the modern one, and can send requests only in the older
/// one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fastmcp_asks_its_questions_where_the_older_protocol_is_preferred() {
    let Some(peers) = Peers::installed() else {
        return;
    };
    let script = script("questions");
    let port = free_port();
    let _process = Process::start(peers.fastmcp(&script, "http", port), port).await;
    for (older, version, said) in [
        (false, "2026-07-28", "unavailable on 2026-07-28"),
        (true, "2025-11-25", "accept Ada"),
    ] {
        let callbacks = Callbacks::new().elicitation_form(|_| async {
            let content = json!({ "value": "Ada" });
            Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content))
        });
        let endpoint = Transport::http(format!("http://127.0.0.1:{port}/mcp"));
        let mut peer = server("peer", endpoint).prefer_older_protocol(older);
        peer.settings.timeouts.connect = START;
        let runtime = Runtime::builder().server(peer).callbacks(callbacks);
        let runtime = runtime.start().await.unwrap();
        runtime.ready(START).await.unwrap();
        let handle = runtime.server("peer").unwrap();
        assert_eq!(handle.status().protocol.as_deref(), Some(version));
        let result = handle.call_tool("ask", json!({})).deadline(START).await;
        let text = result.model_text();
        assert!(text.contains(said), "{version}: {text}");
        runtime.shutdown(secs(30)).await;
    }
    std::fs::remove_file(script).unwrap();
}

/// Figure 32: agents that elicit at once through one shared connection. `server-everything` and
/// FastMCP send each request in the response to the call that caused it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_agents_that_elicit_at_once_get_their_own_questions() {
    const AGENTS: usize = 50;
    let Some(peers) = Peers::installed() else {
        return;
    };
    let script = script("agents");
    let (node, python) = (free_port(), free_port());
    for (command, port, tool, field) in [
        (
            peers.everything("streamableHttp", node),
            node,
            "trigger-elicitation-request",
            "name",
        ),
        (
            peers.fastmcp(&script, "http", python),
            python,
            "ask",
            "value",
        ),
    ] {
        let _process = Process::start(command, port).await;
        let endpoint = Transport::http(format!("http://127.0.0.1:{port}/mcp"));
        let mut peer = server("peer", endpoint).prefer_older_protocol(true);
        peer.settings.timeouts.connect = START;
        let any = Callbacks::new()
            .elicitation_form(|_| async { Ok(ElicitResult::new(ElicitationAction::Decline)) });
        let runtime = Runtime::builder().server(peer).client_callbacks(&any);
        let runtime = runtime.start().await.unwrap();
        runtime.ready(START).await.unwrap();
        // All questions are open at once before the first one is answered.
        let together = Arc::new(Barrier::new(AGENTS));
        let mut calls = JoinSet::new();
        for agent in 0..AGENTS {
            let together = Arc::clone(&together);
            let answers = Callbacks::new().elicitation_form(move |_| {
                let together = Arc::clone(&together);
                async move {
                    together.wait().await;
                    let content = json!({ field: format!("agent-{agent}-") });
                    Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content))
                }
            });
            let client = runtime.client(format!("agent {agent}")).callbacks(answers);
            let handle = client.build().server("peer").unwrap();
            calls.spawn(async move {
                let result = handle.call_tool(tool, json!({})).deadline(START).await;
                (agent, result.model_text())
            });
        }
        while let Some(call) = calls.join_next().await {
            let (agent, text) = call.unwrap();
            assert!(text.contains(&format!("agent-{agent}-")), "{agent}: {text}");
        }
        let status = runtime.server("peer").unwrap().status();
        assert_eq!(status.ambiguous_requests, 0);
        runtime.shutdown(secs(30)).await;
    }
    std::fs::remove_file(script).unwrap();
}

/// The network latency in each direction.
const EACH_WAY: Duration = Duration::from_millis(30);

/// A pause of 3 to 7 s, different in each round.
fn thinking(agent: usize, round: usize) -> Duration {
    millis(3_000 + (agent * 7_919 + round * 1_237) as u64 % 4_000)
}

/// Runs agents with their own connections, which pause between calls. Returns how many calls were
/// answered and how many were lost.
async fn think_and_call(port: u16, agents: usize, calls: usize) -> (usize, usize) {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let proxy = DelayProxy::start(address, EACH_WAY).await.unwrap();
    let url = format!("http://{}/mcp", proxy.address());
    let mut settings = eager();
    settings.timeouts.connect = START;
    let servers = (0..agents).map(|agent| {
        let server = server(&format!("agent-{agent}"), Transport::http(&url));
        server.settings(settings.clone())
    });
    let runtime = fleet(servers).await;
    runtime.ready(2 * START).await.unwrap();
    let mut thinkers = JoinSet::new();
    for agent in 0..agents {
        let handle = runtime.server(format!("agent-{agent}")).unwrap();
        thinkers.spawn(async move {
            let (mut answered, mut unknown) = (0, 0);
            for round in 0..calls {
                tokio::time::sleep(thinking(agent, round)).await;
                match echo(&handle, &format!("{agent}-{round}")).await {
                    Ok(()) => answered += 1,
                    Err(CallError::OutcomeUnknown { .. }) => unknown += 1,
                    Err(other) => panic!("{other:?}"),
                }
            }
            (answered, unknown)
        });
    }
    let counts = thinkers.join_all().await;
    let answered = counts.iter().map(|(answered, _)| answered).sum();
    let unknown = counts.iter().map(|(_, unknown)| unknown).sum();
    println!(
        "{answered} calls answered, {unknown} unknown, {} connections",
        proxy.connections()
    );
    runtime.shutdown(START).await;
    (answered, unknown)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_that_think_between_their_calls_lose_none_of_them_to_fastmcp() {
    let Some(peers) = Peers::installed() else {
        return;
    };
    let script = script("thinking");
    let port = free_port();
    let _process = Process::start(peers.fastmcp(&script, "http", port), port).await;
    let (agents, calls) = (size(20, 200), size(2, 10));
    let counts = think_and_call(port, agents, calls).await;
    std::fs::remove_file(script).unwrap();
    assert_eq!(counts, (agents * calls, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_callers_of_everything_open_at_most_twice_as_many_connections() {
    const CALLERS: usize = 64;
    let Some(peers) = Peers::installed() else {
        return;
    };
    let port = free_port();
    let _process = Process::start(peers.everything("streamableHttp", port), port).await;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let proxy = DelayProxy::start(address, Duration::ZERO).await.unwrap();
    let (runtime, peer) = ready_in_time(proxy.address().port(), STREAMABLE, None).await;
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let peer = peer.clone();
        callers.spawn(async move {
            for round in 0..20 {
                echo(&peer, &format!("{caller}-{round}")).await.unwrap();
            }
        });
    }
    callers.join_all().await;
    let opened = proxy.connections();
    println!("{CALLERS} callers, {opened} connections");
    assert!(opened <= 2 * CALLERS, "{opened} connections");
    runtime.shutdown(START).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fastmcp_runs_tasks_that_are_awaited_picked_up_and_cancelled() {
    let Some(peers) = Peers::installed() else {
        return;
    };
    let name = format!("mcpvisor-fastmcp-tasks-{}.py", std::process::id());
    let script = std::env::temp_dir().join(name);
    std::fs::write(&script, PYTHON_TASKS).unwrap();
    let port = free_port();
    let _process = Process::start(peers.fastmcp(&script, "http", port), port).await;
    let (runtime, peer) = ready_in_time(port, STREAMABLE, None).await;
    let text =
        |result: &rmcp::model::CallToolResult| result.content[0].as_text().unwrap().text.clone();
    let call = peer
        .call_tool("work", json!({ "seconds": 1 }))
        .deadline(START);
    assert_eq!(text(&call.await.unwrap()), "done");

    let started = async |seconds: u32| {
        let call = peer.call_tool("work", json!({ "seconds": seconds }));
        match call.deadline(START).as_task().await.unwrap() {
            TaskStart::Started(task) => task,
            other => panic!("{other:?}"),
        }
    };
    let (short, long) = (started(2).await, started(3_600).await);
    let error = peer.task("nowhere").status().await.unwrap_err();
    assert!(matches!(error, CallError::TaskUnknown { .. }), "{error}");
    long.cancel().await.unwrap();
    let ended = long.result().deadline(START).await.unwrap_err();
    assert!(matches!(ended, CallError::TaskCancelled { .. }), "{ended}");
    let id = short.id().to_owned();
    drop((short, long, peer));
    runtime.shutdown(secs(30)).await;

    // Another run of the host picks it up.
    let (runtime, peer) = ready_in_time(port, STREAMABLE, None).await;
    let result = peer.task(id).result().deadline(START).await.unwrap();
    assert_eq!(text(&result), "done");
    runtime.shutdown(secs(30)).await;
    let _ = std::fs::remove_file(script);
}

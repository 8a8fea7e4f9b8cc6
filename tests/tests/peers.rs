//! Third-party servers: the same guarantees with programs in actual use.
//!
//! `just peers` installs them and sets `MCPVISOR_PEERS`; without it, each test reports that it was
//! skipped. The servers are `server-everything` from npm and `mcp-server-time` from PyPI.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

mod fleet;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fleet::*;
use mcpvisor::for_model::ModelText;
use mcpvisor::{
    CallError, Callbacks, Client, ConnectionScope, Runtime, ServerHandle, ServerSettings,
    StdioCommand, Transport,
};
use mcpvisor_testkit::processes::{self, MARKER, Marker};
use mcpvisor_testkit::{eventually, eventually_in};
use rmcp::model::{CallToolResult, ElicitResult, ElicitationAction, ProtocolVersion};
use serde_json::{Value, json};
use tokio::sync::{Barrier, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// They start slowly on a busy machine.
const START: Duration = Duration::from_secs(120);

/// The allowance for a busy machine.
const BUSY: Duration = Duration::from_secs(5);

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

    /// The script of npm's `server-everything`.
    fn script(&self) -> PathBuf {
        let package = "node_modules/@modelcontextprotocol/server-everything";
        self.0.join(package).join("dist/index.js")
    }

    fn everything(&self, marker: &Marker) -> StdioCommand {
        let command = Transport::stdio("node").arg(self.script()).arg("stdio");
        command.env(MARKER, marker.value())
    }

    /// npm's `server-memory`, which keeps what it remembers in a file.
    fn memory(&self, marker: &Marker, file: &str) -> StdioCommand {
        let package = "node_modules/@modelcontextprotocol/server-memory";
        let script = self.0.join(package).join("dist/index.js");
        let command = Transport::stdio("node").arg(script);
        command
            .env(MARKER, marker.value())
            .env("MEMORY_FILE_PATH", file)
    }

    fn time(&self, marker: &Marker) -> StdioCommand {
        let command = Transport::stdio(self.0.join("python/bin/mcp-server-time"));
        command.env(MARKER, marker.value())
    }
}

/// A fleet of one, connected and listed.
async fn ready_in_time(command: StdioCommand) -> (Runtime, ServerHandle) {
    let mut settings = eager();
    settings.timeouts.connect = START;
    settings.timeouts.reconnect_wait = START;
    let runtime = fleet([server("peer", command).settings(settings)]).await;
    runtime.ready(START).await.unwrap();
    let handle = runtime.server("peer").unwrap();
    (runtime, handle)
}

/// Shuts down within the grace period plus a second, and checks that no process is left.
async fn ends(runtime: Runtime, marker: &Marker) -> Duration {
    let begin = Instant::now();
    runtime.shutdown(secs(30)).await;
    let took = begin.elapsed();
    let grace = ServerSettings::default().close.total();
    assert!(took < grace + secs(1) + BUSY, "{took:?}");
    assert_eq!(marker.processes(), []);
    took
}

fn text(result: &CallToolResult) -> &str {
    &result.content[0].as_text().unwrap().text
}

async fn echo(handle: &ServerHandle, message: &str) -> Result<String, CallError> {
    let call = handle.call_tool("echo", json!({ "message": message }));
    let result = call.deadline(START).await?;
    Ok(text(&result).to_owned())
}

/// Kills the only process of a server, and waits until it is back.
async fn killed(handle: &ServerHandle, marker: &Marker) {
    let generation = handle.status().generation.get();
    let running = marker.processes();
    assert_eq!(running.len(), 1, "{running:?}");
    processes::kill(running[0].pid);
    let mut status = handle.watch();
    eventually_in(START, "another connection", &mut status, |status| {
        status.is_ready() && status.generation.get() > generation
    })
    .await;
}

#[tokio::test]
async fn everything_connects_lists_and_answers() {
    let Some(peers) = Peers::installed() else {
        return;
    };
    let marker = Marker::new("everything");
    let (runtime, peer) = ready_in_time(peers.everything(&marker)).await;
    let catalog = peer.catalog();
    for tool in ["echo", "get-sum", "toggle-simulated-logging"] {
        assert!(catalog.tool(tool).is_some(), "{tool}");
    }
    assert!(!catalog.prompts.is_empty() && !catalog.resources.is_empty());
    assert_eq!(echo(&peer, "hello").await.unwrap(), "Echo: hello");
    let sum = peer.call_tool("get-sum", json!({ "a": 2, "b": 40 }));
    assert!(text(&sum.await.unwrap()).contains("42"));
    let uri = catalog.resources[0].uri.clone();
    let read = peer.read_resource(&uri).await.unwrap();
    assert!(!read.contents.is_empty());
    let refused = peer.call_tool("get-sum", json!({ "a": "x" })).await;
    match refused {
        Ok(result) => assert_eq!(result.is_error, Some(true)),
        Err(error) => assert!(matches!(error, CallError::Answered { .. }), "{error:?}"),
    }
    ends(runtime, &marker).await;
}

#[tokio::test]
async fn time_connects_lists_and_answers() {
    let Some(peers) = Peers::installed() else {
        return;
    };
    let marker = Marker::new("time");
    let (runtime, peer) = ready_in_time(peers.time(&marker)).await;
    let tools: Vec<_> = peer
        .catalog()
        .tools
        .iter()
        .map(|it| it.name.to_string())
        .collect();
    assert!(
        tools.iter().any(|name| name == "get_current_time"),
        "{tools:?}"
    );
    let asked = json!({ "timezone": "Europe/Berlin" });
    let answer = peer.call_tool("get_current_time", asked).await.unwrap();
    assert!(text(&answer).contains("Europe/Berlin"), "{answer:?}");
    let nonsense = peer.call_tool("get_current_time", json!({ "timezone": "Nowhere" }));
    match nonsense.await {
        Ok(result) => assert_eq!(result.is_error, Some(true)),
        Err(error) => assert!(matches!(error, CallError::Answered { .. }), "{error:?}"),
    }
    ends(runtime, &marker).await;
}

#[tokio::test]
async fn time_speaks_the_modern_era_and_an_older_one() {
    let Some(peers) = Peers::installed() else {
        return;
    };
    for version in [ProtocolVersion::V_2026_07_28, ProtocolVersion::V_2025_06_18] {
        let marker = Marker::new("time-eras");
        let mut settings = eager();
        settings.timeouts.connect = START;
        settings.timeouts.reconnect_wait = START;
        settings.health.keepalive = secs(1);
        let mut config = server("peer", peers.time(&marker)).settings(settings);
        config.protocol = Some(version.clone());
        let runtime = fleet([config]).await;
        runtime.ready(START).await.unwrap();
        let peer = runtime.server("peer").unwrap();
        assert_eq!(peer.status().protocol.as_deref(), Some(version.as_str()));
        let asked = json!({ "timezone": "Europe/Berlin" });
        let answer = peer.call_tool("get_current_time", asked.clone()).await;
        assert!(text(&answer.unwrap()).contains("Europe/Berlin"));
        peer.ping().await.unwrap();
        killed(&peer, &marker).await;
        let again = peer.call_tool("get_current_time", asked).deadline(START);
        assert!(text(&again.await.unwrap()).contains("Europe/Berlin"));
        assert_eq!(peer.status().protocol.as_deref(), Some(version.as_str()));
        ends(runtime, &marker).await;
    }
}

#[tokio::test]
async fn a_killed_server_comes_back_and_its_call_is_told() {
    let Some(peers) = Peers::installed() else {
        return;
    };
    let marker = Marker::new("killed");
    let (runtime, peer) = ready_in_time(peers.everything(&marker)).await;
    let long = json!({ "duration": 60, "steps": 60 });
    let call = peer.call_tool("trigger-long-running-operation", long);
    let call = tokio::spawn(call.deadline(START).into_future());
    let mut status = peer.watch();
    eventually_in(START, "the call", &mut status, |status| {
        status.in_flight == 1
    })
    .await;
    let begin = Instant::now();
    let (outcome, ()) = tokio::join!(call, killed(&peer, &marker));
    let error = outcome.unwrap().unwrap_err();
    assert!(
        matches!(error, CallError::OutcomeUnknown { .. }),
        "{error:?}"
    );
    assert!(begin.elapsed() < START);
    assert_eq!(echo(&peer, "again").await.unwrap(), "Echo: again");
    ends(runtime, &marker).await;

    let marker = Marker::new("killed-time");
    let (runtime, peer) = ready_in_time(peers.time(&marker)).await;
    killed(&peer, &marker).await;
    let asked = json!({ "timezone": "Asia/Tokyo" });
    peer.call_tool("get_current_time", asked).await.unwrap();
    ends(runtime, &marker).await;
}

#[tokio::test]
async fn a_server_that_ignores_the_end_of_its_input_ends_within_its_grace() {
    let Some(peers) = Peers::installed() else {
        return;
    };
    let marker = Marker::new("stubborn");
    let (runtime, peer) = ready_in_time(peers.everything(&marker)).await;
    let toggled = peer.call_tool("toggle-simulated-logging", Value::Null);
    toggled.await.unwrap();
    let took = ends(runtime, &marker).await;
    let stdin = ServerSettings::default().close.stdin;
    assert!(
        took >= stdin,
        "it did not wait for the end of input: {took:?}"
    );
}

#[tokio::test]
async fn progress_after_a_cancellation_is_nobodys() {
    let Some(peers) = Peers::installed() else {
        return;
    };
    let marker = Marker::new("progress");
    let (runtime, peer) = ready_in_time(peers.everything(&marker)).await;
    let (sink, mut progress) = mpsc::channel(64);
    let long = json!({ "duration": 9, "steps": 90 });
    let call = peer
        .call_tool("trigger-long-running-operation", long)
        .on_progress(sink)
        .deadline(secs(3));
    let error = call.await.unwrap_err();
    assert!(
        matches!(error, CallError::Deadline { sent: true, .. }),
        "{error:?}"
    );
    let mut seen = 0;
    while progress.recv().await.is_some() {
        seen += 1;
    }
    assert!(seen > 0, "there was progress before");
    // The server works on it for six more seconds. Other calls are answered meanwhile.
    let until = Instant::now() + secs(7);
    while Instant::now() < until {
        assert_eq!(echo(&peer, "meanwhile").await.unwrap(), "Echo: meanwhile");
        tokio::time::sleep(millis(50)).await;
    }
    let status = peer.status();
    assert_eq!((status.generation.get(), status.in_flight), (1, 0));
    ends(runtime, &marker).await;
}

#[tokio::test]
async fn lists_that_change_right_after_the_handshake_are_listed_once_more_for_each_change_at_most()
{
    let Some(peers) = Peers::installed() else {
        return;
    };
    let marker = Marker::new("burst");
    let log = std::env::temp_dir().join(marker.value());
    let answers = log.with_extension("answers");
    // Both directions are logged to files.
    let script = r#"tee "$0" | node "$1" stdio | tee "$2""#;
    let command = Transport::stdio("sh").arg("-c").arg(script);
    let command = command.arg(&log).arg(peers.script()).arg(&answers);
    let (runtime, peer) = ready_in_time(command.env(MARKER, marker.value())).await;
    // Longer than the interval between two refreshes.
    tokio::time::sleep(secs(1)).await;
    eventually(START, "a fresh catalog", || peer.status().is_ready()).await;
    // Reads the requests first, so that the change behind each counted request is counted too.
    let said = std::fs::read_to_string(&log).unwrap();
    let answered = std::fs::read_to_string(&answers).unwrap();
    for list in ["tools", "prompts", "resources"] {
        let asked = said.matches(&format!("\"{list}/list\"")).count();
        let changed = format!("notifications/{list}/list_changed");
        let changes = answered.matches(&changed).count();
        assert!(
            (1..=1 + changes).contains(&asked),
            "{list} changed {changes} times and were asked for {asked} times"
        );
    }
    ends(runtime, &marker).await;
    for file in [log, answers] {
        std::fs::remove_file(file).unwrap();
    }
}

#[tokio::test]
async fn restarts_under_load_cost_no_outcome() {
    let Some(peers) = Peers::installed() else {
        return;
    };
    let marker = Marker::new("load");
    let (runtime, peer) = ready_in_time(peers.everything(&marker)).await;
    let mut callers = JoinSet::new();
    let until = Instant::now() + secs(10);
    for caller in 0..16 {
        let peer = peer.clone();
        callers.spawn(async move {
            let mut answered = 0;
            while Instant::now() < until {
                let message = format!("{caller}-{answered}");
                match echo(&peer, &message).await {
                    Ok(text) => {
                        assert_eq!(text, format!("Echo: {message}"), "its own answer");
                        answered += 1;
                    }
                    Err(CallError::OutcomeUnknown { .. }) => {}
                    Err(other) => panic!("{other:?}"),
                }
            }
            answered
        });
    }
    let mut kills = 0;
    while Instant::now() < until - secs(1) {
        killed(&peer, &marker).await;
        kills += 1;
        tokio::time::sleep(millis(500)).await;
    }
    let answered: usize = callers.join_all().await.iter().sum();
    println!("{kills} kills, {answered} calls answered");
    assert!(kills > 0 && answered > 0);
    assert_eq!(echo(&peer, "after").await.unwrap(), "Echo: after");
    ends(runtime, &marker).await;
}

/// Its tool has to be called as a task (2025-11-25), and asks a question in the middle of it.
#[tokio::test]
async fn everything_runs_a_task_and_asks_for_what_it_needs() {
    let Some(peers) = Peers::installed() else {
        return;
    };
    let marker = Marker::new("everything-task");
    let mut settings = eager();
    settings.timeouts.connect = START;
    let peer = server("peer", peers.everything(&marker)).settings(settings);
    let callbacks = mcpvisor::Callbacks::new().elicitation_form(|_| async {
        let answer = rmcp::model::ElicitResult::new(rmcp::model::ElicitationAction::Accept);
        Ok(answer.with_content(json!({ "interpretation": "the river" })))
    });
    let builder = Runtime::builder().server(peer).callbacks(callbacks);
    let runtime = builder.start().await.unwrap();
    runtime.ready(START).await.unwrap();
    let peer = runtime.server("peer").unwrap();
    let arguments = json!({ "topic": "Amazon", "ambiguous": true });
    let call = peer.call_tool("simulate-research-query", arguments);
    let result = call.deadline(START).await.unwrap();
    assert!(text(&result).contains("the river"), "{result:?}");

    let call = peer.call_tool("simulate-research-query", json!({ "topic": "Nile" }));
    let started = call.deadline(START).as_task().await.unwrap();
    let mcpvisor::TaskStart::Started(task) = started else {
        panic!("answered at once");
    };
    let info = task.cancel().await.unwrap();
    assert_eq!(info.status, rmcp::model::TaskStatus::Cancelled);
    let error = peer.task("nowhere").status().await.unwrap_err();
    assert!(matches!(error, CallError::TaskUnknown { .. }), "{error}");
    ends(runtime, &marker).await;
}

/// Every agent has a process and a file of its own, across kills and sleeps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_of_a_server_with_memory_do_not_see_each_other_s_entities() {
    const AGENTS: usize = 6;
    let Some(peers) = Peers::installed() else {
        return;
    };
    let marker = Marker::new("memory");
    let folder = std::env::temp_dir().join(format!("mcpvisor-memory-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("${MCPVISOR_CLIENT}.json");
    let command = peers.memory(&marker, file.to_str().unwrap());
    let mut config = server("memory", command).settings(eager());
    config = config.scope(ConnectionScope::Client).max_connections(3);
    config.settings.timeouts.connect = START;
    let runtime = Runtime::builder().server(config).start().await.unwrap();
    let agents: Vec<Client> = (0..AGENTS)
        .map(|agent| runtime.client(format!("agent {agent}")).build())
        .collect();
    for round in 0..4 {
        let mut calls = JoinSet::new();
        for agent in agents.clone() {
            calls.spawn(async move { remember(&agent, round).await });
        }
        while let Some(call) = calls.join_next().await {
            call.unwrap();
        }
        marker.kill_all();
    }
    runtime.shutdown(secs(30)).await;
    eventually(DEADLINE, "no process is left", || {
        marker.processes().is_empty()
    })
    .await;
    std::fs::remove_dir_all(folder).unwrap();
}

/// Adds an entity, and checks that the graph has those of this agent alone.
async fn remember(agent: &Client, round: usize) {
    let entity = json!({
        "name": format!("{} in round {round}", agent.name()),
        "entityType": "test", "observations": [],
    });
    let call = |tool: &str, arguments: Value| {
        let handle = agent.server("memory").unwrap();
        let tool = tool.to_owned();
        async move {
            loop {
                let call = handle.call_tool(tool.clone(), arguments.clone());
                match call.deadline(START).await {
                    Ok(result) => return result,
                    // Its process was killed. An entity that exists is not added again.
                    Err(CallError::OutcomeUnknown { .. } | CallError::NotSent { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    };
    call("create_entities", json!({ "entities": [entity] })).await;
    let graph = call("read_graph", json!({})).await;
    let graph = graph.structured_content.unwrap();
    let names = graph["entities"].as_array().unwrap().iter();
    let names: Vec<&str> = names.map(|it| it["name"].as_str().unwrap()).collect();
    let expected = (0..=round).map(|round| format!("{} in round {round}", agent.name()));
    assert_eq!(names, expected.collect::<Vec<_>>());
}

/// Figure 32 over stdio: a connection for each agent, since a request over stdio does not name its
/// call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_agents_with_connections_of_their_own_are_asked_their_own_questions() {
    const AGENTS: usize = 50;
    let Some(peers) = Peers::installed() else {
        return;
    };
    let marker = Marker::new("own-questions");
    let mut config = server("peer", peers.everything(&marker)).prefer_older_protocol(true);
    config = config
        .scope(ConnectionScope::Client)
        .max_connections(AGENTS + 1);
    config.settings.timeouts.connect = START;
    let runtime = Runtime::builder().server(config).start().await.unwrap();
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
                let content = json!({ "name": format!("agent-{agent}-") });
                Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content))
            }
        });
        let client = runtime.client(format!("agent {agent}")).callbacks(answers);
        let handle = client.build().server("peer").unwrap();
        calls.spawn(async move {
            let call = handle.call_tool("trigger-elicitation-request", json!({}));
            (agent, call.deadline(START).await.model_text())
        });
    }
    while let Some(call) = calls.join_next().await {
        let (agent, text) = call.unwrap();
        assert!(text.contains(&format!("agent-{agent}-")), "{agent}: {text}");
    }
    let ambiguous: u64 = runtime
        .status()
        .iter()
        .map(|it| it.ambiguous_requests)
        .sum();
    assert_eq!(ambiguous, 0);
    runtime.shutdown(secs(30)).await;
    eventually(DEADLINE, "no process is left", || {
        marker.processes().is_empty()
    })
    .await;
}

//! Small fleets for the tests in this folder, and helpers to observe them.

#![allow(dead_code, reason = "each specification uses some of it")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

use std::time::Duration;

use mcpvisor::{
    CallError, Event, EventKind, Events, GovernorSettings, Runtime, ServerConfig, ServerHandle,
    ServerSettings, StateName, StdioCommand, Transport,
};
use mcpvisor_testkit::eventually::eventually_in;
use mcpvisor_testkit::processes::{MARKER, Marker};
use mcpvisor_testkit::scripted::ScriptedServer;
use rmcp::model::CallToolResult;
use serde_json::Value;

/// Upper bound for every step. Only a hang takes longer.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Whether the figures run at full size.
pub(crate) fn in_full() -> bool {
    std::env::var("MCPVISOR_FULL").is_ok_and(|value| value == "1")
}

/// The size of a figure: in CI, or in full.
pub(crate) fn size(ci: usize, full: usize) -> usize {
    if in_full() { full } else { ci }
}

/// Silences the reports of intended panics.
pub(crate) fn without_reports_of_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let payload = panic.payload().downcast_ref::<&str>();
        if payload != Some(&"a test requested a crash") {
            report(panic);
        }
    }));
}

/// The fixture server as a child with a marker.
pub(crate) fn fixture(marker: &Marker, flags: &[&str]) -> StdioCommand {
    Transport::stdio(env!("CARGO_BIN_EXE_fixture-server"))
        .args(flags.iter().copied())
        .env(MARKER, marker.value())
}

/// The misbehaving server with armed faults, as a child with a marker.
pub(crate) fn bad_server(marker: &Marker, faults: &[&str]) -> StdioCommand {
    let command = Transport::stdio(env!("CARGO_BIN_EXE_bad-server"));
    let args = faults.iter().flat_map(|fault| ["--fault", fault]);
    command.args(args).env(MARKER, marker.value())
}

/// Every call fault of the misbehaving server, at a size that finishes quickly.
pub(crate) const CALL_FAULTS: &[&str] = &[
    "exit-on-call",
    "kill-on-call",
    "sigstop-on-call",
    "close-stdout-on-call",
    "close-stdin-on-call",
    "grandchild-holds-stdout",
    "spawn-grandchildren=3",
    "stop-reading-stdin",
    "mute-calls",
    "garbage",
    "truncated-json",
    "half-answer-exit",
    "wrong-id",
    "foreign-id",
    "wrong-shape",
    "bad-utf8",
    "nesting=1000",
    "line=17825792",
    "values=1000000",
    "slow-drip=20",
    "late-answer=1500",
    "duplicate-answers",
    "flood=20000",
    "flood-requests=20000",
    "stderr-flood=1000000",
];

/// A scripted in-process server.
pub(crate) fn scripted(server: &ScriptedServer) -> Transport {
    let server = server.clone();
    Transport::channel(move |end| {
        let generation = end.generation.get();
        server.clone().serve(end.incoming, end.outgoing, generation)
    })
}

pub(crate) fn server(name: &str, transport: impl Into<Transport>) -> ServerConfig {
    ServerConfig::new(name, transport).unwrap()
}

/// The defaults with some changes.
pub(crate) fn settings(change: impl FnOnce(&mut ServerSettings)) -> ServerSettings {
    let mut settings = ServerSettings::default();
    change(&mut settings);
    settings
}

/// Settings with which a server is reconnected immediately, however often a test breaks it.
pub(crate) fn eager() -> ServerSettings {
    settings(|settings| {
        settings.budget.attempts = 1_000_000;
        settings.backoff.initial = millis(1);
        settings.backoff.max = millis(1);
        settings.backoff.immediate_every = Duration::ZERO;
    })
}

/// A governor that never delays a connection.
pub(crate) fn no_governor() -> GovernorSettings {
    let mut governor = GovernorSettings::default();
    governor.max_connects = 1_000;
    governor.max_stdio = 1_000;
    governor.burst_floor = 1_000_000;
    governor
}

pub(crate) async fn fleet(servers: impl IntoIterator<Item = ServerConfig>) -> Runtime {
    let builder = Runtime::builder().governor(no_governor());
    servers
        .into_iter()
        .fold(builder, |builder, server| builder.server(server))
        .start()
        .await
        .unwrap()
}

/// Starts a fleet of one and waits until it is connected and listed.
pub(crate) async fn ready(server: ServerConfig) -> (Runtime, ServerHandle) {
    let name = server.name.clone();
    let runtime = fleet([server]).await;
    runtime.ready(DEADLINE).await.unwrap();
    let handle = runtime.server(name.as_str()).unwrap();
    (runtime, handle)
}

/// Waits for a state.
pub(crate) async fn reaches(handle: &ServerHandle, state: StateName) {
    let mut status = handle.watch();
    let what = format!("{} {state}", handle.name());
    eventually_in(DEADLINE, what, &mut status, |status| status.state == state).await;
}

/// Waits until the server is connected and listed on a later connection than this.
pub(crate) async fn ready_after(handle: &ServerHandle, generation: u64) {
    let mut status = handle.watch();
    let what = format!("{} ready after generation {generation}", handle.name());
    eventually_in(DEADLINE, what, &mut status, |status| {
        status.is_ready() && status.generation.get() > generation
    })
    .await;
}

/// The next event in which `look` finds a value. Skips the others.
pub(crate) async fn next_event<T>(
    events: &mut Events,
    mut look: impl FnMut(&Event) -> Option<T>,
) -> T {
    let found = async {
        loop {
            let event = events.recv().await.unwrap();
            if let Some(found) = look(&event) {
                return found;
            }
        }
    };
    tokio::time::timeout(DEADLINE, found)
        .await
        .expect("no such event")
}

/// The next state of a server.
pub(crate) async fn next_state(events: &mut Events) -> StateName {
    next_event(events, |event| match event.kind {
        EventKind::StateChanged { to, .. } => Some(to),
        _ => None,
    })
    .await
}

/// The structured result of a tool.
#[track_caller]
pub(crate) fn structured(result: Result<CallToolResult, CallError>) -> Value {
    result.unwrap().structured_content.unwrap()
}

/// The process id of the current server process.
pub(crate) async fn pid(handle: &ServerHandle) -> u32 {
    let answer = structured(handle.call_tool("pid", Value::Null).await);
    answer["pid"].as_u64().unwrap().try_into().unwrap()
}

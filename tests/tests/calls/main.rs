//! Call semantics: one accurate outcome in time, nothing run twice, and fair queueing.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

#[path = "../fleet/mod.rs"]
mod fleet;

mod admission;
mod client_callbacks;
mod client_quota;
mod deadlines;
mod outcomes;
mod retries;
mod states;

use std::future::IntoFuture;

use mcpvisor::rmcp::model::CallToolResult;
use mcpvisor::{
    CallError, FromResult, NotSentReason, Request, Runtime, ServerHandle, ServerSettings,
};
use mcpvisor_testkit::scripted::{Behaviour, Record, Script, ScriptedServer};
use tokio::task::JoinHandle;

use fleet::{DEADLINE, ready, server};

type Answer = Result<CallToolResult, CallError>;

fn spawn<R: FromResult + Send + 'static>(request: Request<R>) -> JoinHandle<Result<R, CallError>> {
    tokio::spawn(request.into_future())
}

async fn started(
    script: Script,
    settings: ServerSettings,
) -> (ScriptedServer, Runtime, ServerHandle) {
    let scripted = ScriptedServer::new(script);
    let (runtime, handle) = ready(server("a", scripted.transport()).settings(settings)).await;
    (scripted, runtime, handle)
}

async fn received(record: &Record, tool: &str, calls: usize) {
    let what = format!("{calls} calls of {tool}");
    record
        .until(DEADLINE, what, |record| record.calls(tool).len() == calls)
        .await;
}

#[track_caller]
fn not_sent(answer: Answer) -> NotSentReason {
    match answer.unwrap_err() {
        CallError::NotSent { reason, .. } => reason,
        other => panic!("{other}"),
    }
}

/// Whether the call was sent before its deadline passed, and whether it was the idle timeout.
fn deadline_of(error: &CallError) -> (bool, bool) {
    match error {
        CallError::Deadline { sent, idle, .. } => (*sent, *idle),
        other => panic!("{other}"),
    }
}

/// The first requests of these kinds, up to this number, are lost with their connection.
fn losing(times: usize) -> Script {
    let lost = || Behaviour::first(times, Behaviour::end(), Behaviour::answer());
    let script = ["charge", "look"]
        .into_iter()
        .fold(Script::new(), |script, name| script.tool(name, lost()));
    let methods = [
        "resources/read",
        "prompts/get",
        "completion/complete",
        "resources/subscribe",
        "resources/unsubscribe",
        "logging/setLevel",
        "ping",
    ];
    methods
        .into_iter()
        .fold(script, |script, method| script.on(method, lost()))
}

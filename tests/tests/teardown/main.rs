//! Disabling, shutdown, partial failure and drop: D1 to D5.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

#[path = "../fleet/mod.rs"]
mod fleet;
mod interrupted;
mod shutdown;

use std::future::Future;

use fleet::*;
use mcpvisor::{
    CallError, CloseOutcome, ControlError, EventKind, EventsError, FaultClass, Known,
    NotSentReason, Runtime, ServerHandle, ServerSettings, StateName, Transport,
};
use mcpvisor_testkit::leaks::{Slack, Snapshot, assert_returns_to};
use mcpvisor_testkit::processes::{self, Marker};
use mcpvisor_testkit::scripted::{Behaviour, Ending, Script, ScriptedServer};
use mcpvisor_testkit::{eventually, in_own_process};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Duration, Instant};

/// Ignores requests to end, and has to be killed.
const STUBBORN: [&str; 2] = ["--ignore-eof", "--ignore-sigterm"];

/// The allowance for a busy machine.
const SLACK: Duration = Duration::from_secs(3);

fn slow_tool() -> Script {
    Script::new().tool("slow", Behaviour::answer().held())
}

/// Starts a call and waits until the server has received it.
async fn in_flight(
    scripted: &ScriptedServer,
    handle: &ServerHandle,
) -> JoinHandle<Result<Value, CallError>> {
    let before = scripted.record().calls("slow").len();
    let request = handle.call_tool("slow", json!({ "a": 1 }));
    let call = tokio::spawn(async move {
        let result = request.await?;
        Ok(result.structured_content.unwrap())
    });
    scripted
        .record()
        .until(DEADLINE, "the call at the server", |record| {
            record.calls("slow").len() > before
        })
        .await;
    call
}

fn disable(runtime: &Runtime, name: &'static str) -> JoinHandle<Result<(), ControlError>> {
    let runtime = runtime.clone();
    tokio::spawn(async move { runtime.disable(name).await })
}

#[track_caller]
fn not_sent(result: Result<rmcp::model::CallToolResult, CallError>) -> NotSentReason {
    match result {
        Err(CallError::NotSent { reason, .. }) => reason,
        other => panic!("expected: not sent; got {other:?}"),
    }
}

/// An in-process server that does not end when its client disconnects.
fn clinging(server: &ScriptedServer) -> Transport {
    let server = server.clone();
    Transport::channel(move |end| {
        let server = server.clone();
        async move {
            let generation = end.generation.get();
            server
                .serve(end.incoming, end.outgoing.clone(), generation)
                .await;
            std::future::pending::<()>().await;
        }
    })
}

fn close_within(stdin: Duration, terminate: Duration) -> ServerSettings {
    settings(|settings| {
        settings.close.stdin = stdin;
        settings.close.terminate = terminate;
    })
}

/// Runs a test in its own process, because it counts the resources of the process.
fn isolated<F: Future>(name: &str, test: impl FnOnce() -> F) {
    in_own_process(name, 2 * DEADLINE, test);
}

/// A snapshot after the first child: tokio keeps some descriptors for signals from then on.
async fn warmed_up() -> Snapshot {
    let warm_up = Marker::new("warm-up");
    let (runtime, _) = ready(server("one", fixture(&warm_up, &[]))).await;
    runtime.shutdown(secs(5)).await;
    drop(runtime);
    warm_up.assert_none_left(DEADLINE).await;
    Snapshot::take()
}

// D1

#[tokio::test(start_paused = true)]
async fn a_teardown_detaches_then_drains_then_closes() {
    let scripted_server = ScriptedServer::new(slow_tool());
    let (runtime, handle) = ready(server("one", scripted(&scripted_server))).await;
    let call = in_flight(&scripted_server, &handle).await;

    let disabling = disable(&runtime, "one");
    reaches(&handle, StateName::Disabling).await;
    let begin = Instant::now();
    let refused = not_sent(handle.call_tool("echo", json!({})).await);
    assert_eq!(refused, NotSentReason::Disabled);
    assert_eq!(begin.elapsed(), Duration::ZERO, "refused at once");
    tokio::time::sleep(secs(4)).await;
    assert_eq!(scripted_server.record().ended(), [], "still draining");
    assert!(!disabling.is_finished());

    scripted_server.control().release("slow", 1);
    assert_eq!(call.await.unwrap().unwrap(), json!({ "a": 1 }));
    disabling.await.unwrap().unwrap();
    assert_eq!(handle.status().state, StateName::Disabled);
    assert_eq!(scripted_server.record().ended(), [(1, Ending::ByClient)]);
    assert_eq!(scripted_server.record().calls("echo"), []);
    assert_eq!(begin.elapsed(), secs(4), "closed as soon as it was drained");
}

#[tokio::test(start_paused = true)]
async fn a_drain_has_a_deadline_and_what_it_cuts_off_is_unknown() {
    let scripted_server = ScriptedServer::new(slow_tool());
    let (runtime, handle) = ready(server("one", scripted(&scripted_server))).await;
    let call = in_flight(&scripted_server, &handle).await;
    let begin = Instant::now();
    runtime.disable("one").await.unwrap();
    assert_eq!(begin.elapsed(), secs(5));
    let error = call.await.unwrap().unwrap_err();
    assert!(
        matches!(error, CallError::OutcomeUnknown { .. }),
        "{error:?}"
    );
    assert_eq!(handle.status().state, StateName::Disabled);
}

#[tokio::test(start_paused = true)]
async fn whatever_close_returns_the_server_is_disabled_and_the_error_is_shown() {
    let scripted_server = ScriptedServer::new(Script::new());
    let (runtime, handle) = ready(server("one", clinging(&scripted_server))).await;
    runtime.disable("one").await.unwrap();
    let status = handle.status();
    assert_eq!(status.state, StateName::Disabled);
    let fault = status.last_error.unwrap();
    assert_eq!(fault.class, FaultClass::Close);
    assert!(fault.message.contains("aborted"), "{fault:?}");
}

#[tokio::test(start_paused = true)]
async fn an_earlier_fault_does_not_hide_the_error_of_the_close() {
    let scripted_server = ScriptedServer::new(Script::new());
    let (runtime, handle) = ready(server("one", clinging(&scripted_server))).await;
    handle.report_broken(handle.status().generation);
    ready_after(&handle, 1).await;
    assert!(handle.status().last_error.is_some(), "nothing proven since");
    let report = runtime.shutdown(secs(60)).await;
    let [closed] = &report.servers[..] else {
        panic!("{report:?}");
    };
    assert!(
        matches!(&closed.how, CloseOutcome::Problem(problem) if problem.contains("aborted")),
        "{closed:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_close_is_never_rolled_back() {
    let scripted_server = ScriptedServer::new(slow_tool());
    let (runtime, handle) = ready(server("one", scripted(&scripted_server))).await;
    let call = in_flight(&scripted_server, &handle).await;
    let disabling = disable(&runtime, "one");
    reaches(&handle, StateName::Disabling).await;
    let mut events = runtime.events();
    runtime.enable("one").await.unwrap();
    assert_eq!(handle.status().state, StateName::Disabling);

    scripted_server.control().release("slow", 1);
    call.await.unwrap().unwrap();
    disabling.await.unwrap().unwrap();
    ready_after(&handle, 1).await;
    let record = scripted_server.record();
    assert_eq!(record.ended(), [(1, Ending::ByClient)]);
    assert_eq!(record.opened(), [1, 2]);
    assert_eq!(record.most_open_at_once(), 1);
    assert_eq!(next_state(&mut events).await, StateName::Connecting);
    assert_eq!(next_state(&mut events).await, StateName::Connected);
}

// D2

#[tokio::test(start_paused = true)]
async fn disabling_twice_is_disabling_once() {
    let scripted_server = ScriptedServer::new(slow_tool());
    let (runtime, handle) = ready(server("one", scripted(&scripted_server))).await;
    let call = in_flight(&scripted_server, &handle).await;
    let mut events = runtime.events();
    let wishes = [disable(&runtime, "one"), disable(&runtime, "one")];
    reaches(&handle, StateName::Disabling).await;
    scripted_server.control().release("slow", 1);
    for wish in wishes {
        wish.await.unwrap().unwrap();
    }
    call.await.unwrap().unwrap();
    runtime.disable("one").await.unwrap();
    assert_eq!(handle.status().state, StateName::Disabled);
    assert_eq!(scripted_server.record().ended(), [(1, Ending::ByClient)]);
    assert_eq!(next_state(&mut events).await, StateName::Disabling);
    assert_eq!(next_state(&mut events).await, StateName::Disabled);
    assert!(events.try_recv().unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_off_is_not_reconnected_and_says_why() {
    let scripted_server = ScriptedServer::new(slow_tool());
    let (runtime, handle) = ready(server("one", scripted(&scripted_server))).await;
    let call = in_flight(&scripted_server, &handle).await;
    let disabling = disable(&runtime, "one");
    reaches(&handle, StateName::Disabling).await;
    let refused = runtime.reconnect("one").await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "one is disabling; enable it instead of reconnecting it"
    );
    scripted_server.control().release("slow", 1);
    disabling.await.unwrap().unwrap();
    call.await.unwrap().unwrap();

    let refused = runtime.reconnect("one").await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "one is disabled; enable it instead of reconnecting it"
    );
    tokio::time::sleep(secs(3_600)).await;
    assert_eq!(handle.status().state, StateName::Disabled);
    assert_eq!(scripted_server.record().opened(), [1]);
    assert_eq!(
        not_sent(handle.call_tool("echo", json!({})).await),
        NotSentReason::Disabled
    );
}

#[tokio::test(start_paused = true)]
async fn disabling_survives_a_crash_of_the_actor() {
    let scripted_server = ScriptedServer::new(Script::new());
    let (runtime, handle) = ready(server("one", scripted(&scripted_server))).await;
    runtime.disable("one").await.unwrap();
    handle.crash_actor();
    eventually(DEADLINE, "the restart", || handle.status().restarts == 1).await;
    tokio::time::sleep(secs(60)).await;
    assert_eq!(handle.status().state, StateName::Disabled);
    assert_eq!(scripted_server.record().opened(), [1]);
}

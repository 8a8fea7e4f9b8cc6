//! Switching off, shutting down, failing half-way and going away: D1 to D5.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

mod fleet;

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

/// Refuses to end, and has to be killed.
const STUBBORN: [&str; 2] = ["--ignore-eof", "--ignore-sigterm"];

/// What a busy machine may add to a bounded time.
const SLACK: Duration = Duration::from_secs(3);

fn slow_tool() -> Script {
    Script::new().tool("slow", Behaviour::answer().held())
}

/// A call that is with the server.
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

/// An in-process server that does not end when its client is gone.
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

// D3

fn isolated<F: Future>(name: &str, test: impl FnOnce() -> F) {
    in_own_process(name, 2 * DEADLINE, test);
}

#[test]
fn a_shutdown_runs_all_servers_at_once_and_leaves_nothing() {
    let name = "a_shutdown_runs_all_servers_at_once_and_leaves_nothing";
    isolated(name, async || {
        // Tokio keeps some descriptors for signals once it has had a child.
        let warm_up = Marker::new("warm-up");
        let (runtime, _) = ready(server("one", fixture(&warm_up, &[]))).await;
        runtime.shutdown(secs(5)).await;
        drop(runtime);
        warm_up.nobody_left(DEADLINE).await;
        let before = Snapshot::take();

        let marker = Marker::new("at-once");
        let step = millis(500);
        let names: Vec<String> = (0..8).map(|number| format!("server-{number}")).collect();
        let runtime = fleet(names.iter().map(|name| {
            server(name, fixture(&marker, &STUBBORN)).settings(close_within(step, step))
        }))
        .await;
        runtime.ready(DEADLINE).await.unwrap();
        let grandchild = runtime.server("server-0").unwrap();
        structured(grandchild.call_tool("spawn_grandchild", json!({})).await);
        assert_eq!(marker.processes().len(), 9);

        let begin = Instant::now();
        let report = runtime.shutdown(secs(20)).await;
        let took = begin.elapsed();
        assert_eq!(marker.processes(), [], "not one process, at once");
        assert!(took >= 2 * step, "{took:?}");
        assert!(took < 8 * step, "one after the other: {took:?}");
        assert_eq!(report.servers.len(), 8);
        for closed in &report.servers {
            assert!(
                matches!(&closed.how, CloseOutcome::Problem(how) if how.contains("killed")),
                "{closed:?}"
            );
        }
        drop((runtime, grandchild));
        assert_returns_to(&before, Slack::NONE, DEADLINE).await;
    });
}

#[tokio::test]
async fn a_short_limit_shrinks_every_step() {
    let marker = Marker::new("short");
    let (runtime, handle) = ready(server("one", fixture(&marker, &STUBBORN))).await;
    // The default steps add up to nine seconds, five of them for the calls in flight.
    let request = handle.call_tool("sleep", json!({ "ms": 600_000 }));
    let call = tokio::spawn(request.into_future());
    eventually(DEADLINE, "the call", || handle.status().in_flight == 1).await;
    let begin = Instant::now();
    let report = runtime.shutdown(millis(900)).await;
    let took = begin.elapsed();
    assert_eq!(marker.processes(), []);
    assert!(took < millis(900) + SLACK, "{took:?}");
    assert!(
        took >= millis(800),
        "every step was given its share: {took:?}"
    );
    let how = &report.servers[0].how;
    let killed = matches!(how, CloseOutcome::Problem(how) if how.contains("killed"));
    assert!(killed, "by its own steps, not from above: {how:?}");
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.known(), Known::Unknown, "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_lets_calls_in_flight_finish_and_refuses_the_others() {
    let scripted_server = ScriptedServer::new(slow_tool());
    let one_at_a_time = settings(|settings| settings.admission.in_flight = 1);
    let config = server("one", scripted(&scripted_server)).settings(one_at_a_time);
    let (runtime, handle) = ready(config).await;
    let call = in_flight(&scripted_server, &handle).await;
    let waiting = tokio::spawn(handle.call_tool("echo", json!({})).into_future());
    eventually(DEADLINE, "the waiting call", || {
        handle.status().waiting == 1
    })
    .await;
    let mut events = runtime.events();
    let ending = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.shutdown(secs(30)).await }
    });
    assert_eq!(not_sent(waiting.await.unwrap()), NotSentReason::Stopping);
    assert_eq!(
        not_sent(handle.call_tool("echo", json!({})).await),
        NotSentReason::Stopping
    );
    scripted_server.control().release("slow", 1);
    call.await.unwrap().unwrap();
    assert!(ending.await.unwrap().is_clean());
    // A reader hears how it ended, and then that there is nothing to come.
    let mut states = Vec::new();
    let end = loop {
        match events.recv().await {
            Ok(event) => states.extend(match event.kind {
                EventKind::StateChanged { to, .. } => Some(to),
                _ => None,
            }),
            Err(end) => break end,
        }
    };
    assert_eq!(states, [StateName::Disabling, StateName::Disabled]);
    assert_eq!(end, EventsError::Closed);

    let gone = handle.call_tool("echo", json!({})).await.unwrap_err();
    assert!(matches!(gone, CallError::RuntimeGone { .. }), "{gone:?}");
    let gone = runtime.enable("one").await.unwrap_err();
    assert!(matches!(gone, ControlError::RuntimeGone), "{gone:?}");
    let late = server("late", scripted(&scripted_server));
    let gone = runtime.add(late).await.unwrap_err();
    assert!(matches!(gone, ControlError::RuntimeGone), "{gone:?}");
    assert_eq!(scripted_server.record().opened(), [1]);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_wins_over_reconnects_in_every_stage() {
    let flaky = || ScriptedServer::new(Script::new());
    let opening = flaky().on_generation(2, Script::new().on("initialize", Behaviour::silence()));
    let waiting = flaky().on_generation(2, Script::new().on("initialize", Behaviour::end()));
    let closing = flaky();
    let servers = [
        server("opening", scripted(&opening)),
        server("waiting", scripted(&waiting)),
        server("closing", clinging(&closing)).settings(close_within(secs(100), secs(100))),
    ];
    let runtime = fleet(servers).await;
    runtime.ready(DEADLINE).await.unwrap();
    let handles = ["opening", "waiting"].map(|name| runtime.server(name).unwrap());
    let mut callers = Vec::new();
    for (scripted_server, handle) in [&opening, &waiting].into_iter().zip(&handles) {
        scripted_server.control().end();
        reaches(handle, StateName::Reconnecting).await;
        callers.push(tokio::spawn(
            handle.call_tool("echo", json!({})).into_future(),
        ));
    }
    runtime.reconnect("closing").await.unwrap();
    opening
        .record()
        .until(DEADLINE, "its second connect", |record| {
            record.opened() == [1, 2]
        })
        .await;
    eventually(DEADLINE, "the backoff", || {
        handles[1].status().retry_at.is_some()
    })
    .await;

    let begin = Instant::now();
    let report = runtime.shutdown(secs(9)).await;
    assert!(begin.elapsed() <= secs(9), "{:?}", begin.elapsed());
    assert_eq!(report.servers.len(), 3);
    for caller in callers {
        assert_eq!(not_sent(caller.await.unwrap()), NotSentReason::Stopping);
    }
    let connects = || [&opening, &waiting, &closing].map(|it| it.record().opened().len());
    let at_the_end = connects();
    tokio::time::sleep(secs(3_600)).await;
    assert_eq!(connects(), at_the_end, "nobody connects any more");
    assert_eq!(opening.control().live(), [0; 0]);
}

#[tokio::test]
async fn a_shutdown_ends_what_a_crashed_actor_left_behind() {
    let marker = Marker::new("orphan");
    // Left to itself, the connection of the crashed actor would take 40 s to close.
    let patient = close_within(secs(20), secs(20));
    let config = server("one", fixture(&marker, &STUBBORN)).settings(patient);
    let (runtime, handle) = ready(config).await;
    handle.crash_actor();
    eventually(DEADLINE, "the restart", || handle.status().restarts == 1).await;
    let begin = Instant::now();
    runtime.shutdown(millis(500)).await;
    assert_eq!(marker.processes(), []);
    assert!(
        begin.elapsed() < millis(500) + SLACK,
        "{:?}",
        begin.elapsed()
    );
}

#[tokio::test]
async fn a_later_wish_with_more_patience_does_not_prolong_a_shutdown() {
    let marker = Marker::new("twice");
    let (runtime, handle) = ready(server("one", fixture(&marker, &STUBBORN))).await;
    let begin = Instant::now();
    let first = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.shutdown(millis(900)).await }
    });
    reaches(&handle, StateName::Disabling).await;
    runtime.shutdown(secs(60)).await;
    first.await.unwrap();
    assert!(
        begin.elapsed() < millis(900) + SLACK,
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(marker.processes(), []);
}

#[tokio::test]
async fn a_later_wish_with_less_patience_shortens_a_shutdown() {
    let marker = Marker::new("hurry");
    let patient = close_within(secs(20), secs(20));
    let config = server("one", fixture(&marker, &STUBBORN)).settings(patient);
    let (runtime, handle) = ready(config).await;
    let begin = Instant::now();
    let first = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.shutdown(secs(60)).await }
    });
    reaches(&handle, StateName::Disabling).await;
    runtime.shutdown(millis(300)).await;
    assert_eq!(marker.processes(), []);
    first.await.unwrap();
    assert!(
        begin.elapsed() < millis(300) + SLACK,
        "{:?}",
        begin.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn in_process_servers_that_cling_are_ended_within_the_limit() {
    let scripted_server = ScriptedServer::new(Script::new());
    let clinging = |number| server(&format!("server-{number}"), clinging(&scripted_server));
    let runtime = fleet((0..20).map(clinging)).await;
    runtime.ready(DEADLINE).await.unwrap();
    let begin = Instant::now();
    let report = runtime.shutdown(millis(900)).await;
    assert_eq!(report.servers.len(), 20);
    assert!(begin.elapsed() <= millis(900), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn a_removed_server_is_closed_and_forgotten() {
    let marker = Marker::new("remove");
    let config = || server("one", fixture(&marker, &[]));
    let (runtime, handle) = ready(config()).await;
    let mut events = runtime.events();
    runtime.remove("one").await.unwrap();
    assert_eq!(marker.processes(), []);
    assert!(runtime.server("one").is_err());
    assert!(runtime.servers().is_empty());
    let removed = |event: &mcpvisor::Event| matches!(event.kind, EventKind::Removed).then_some(());
    next_event(&mut events, removed).await;
    assert_eq!(
        not_sent(handle.call_tool("echo", json!({})).await),
        NotSentReason::Removed
    );
    let unknown = runtime.remove("one").await.unwrap_err();
    assert!(matches!(unknown, ControlError::Unknown(_)), "{unknown:?}");

    runtime.add(config()).await.unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    pid(&runtime.server("one").unwrap()).await;
    runtime.shutdown(secs(5)).await;
    assert_eq!(marker.processes(), []);
}

// D4

#[test]
fn a_connect_that_fails_half_way_leaves_nothing_behind() {
    let name = "a_connect_that_fails_half_way_leaves_nothing_behind";
    isolated(name, async || {
        let warm_up = Marker::new("warm-up");
        let (runtime, _) = ready(server("one", fixture(&warm_up, &[]))).await;
        let impatient = || {
            settings(|settings| {
                settings.timeouts.connect = millis(300);
                settings.close.stdin = millis(100);
                settings.close.terminate = millis(100);
                settings.backoff.initial = millis(10);
                settings.budget.attempts = 2;
                settings.budget.first_probe = secs(3_600);
            })
        };
        let before = Snapshot::take();

        let marker = Marker::new("half-way");
        let failing: [(&str, &[&str], StateName); 4] = [
            ("silent", &["--mute-initialize"], StateName::Disconnected),
            (
                "stubborn",
                &["--mute-initialize", "--ignore-eof", "--ignore-sigterm"],
                StateName::Disconnected,
            ),
            ("exits", &["--exit-at-once", "3"], StateName::Disconnected),
            (
                "foreign",
                &["--protocol", "1999-01-01", "--ignore-eof"],
                StateName::PermanentlyFailed,
            ),
        ];
        for (name, flags, _) in failing {
            let config = server(name, fixture(&marker, flags)).settings(impatient());
            runtime.add(config).await.unwrap();
        }
        let mut handles = Vec::new();
        for (name, _, state) in failing {
            let handle = runtime.server(name).unwrap();
            reaches(&handle, state).await;
            handles.push(handle);
        }
        // The last close may still be on its way. What stays is the four servers themselves at rest,
        // and the timers of three probes.
        marker.nobody_left(DEADLINE).await;
        let at_rest = Slack {
            tasks: 4 + 3,
            ..Slack::NONE
        };
        assert_returns_to(&before, at_rest, DEADLINE).await;
        let generations: Vec<u64> = handles
            .iter()
            .map(|handle| handle.status().generation.get())
            .collect();
        // The one that exits was asked once more, in case it was the question that it did not like.
        assert_eq!(generations, [2, 2, 3, 1]);
        runtime.shutdown(secs(5)).await;
    });
}

#[tokio::test(start_paused = true)]
async fn an_in_process_connect_that_fails_half_way_is_ended() {
    let silent = ScriptedServer::new(Script::new().on("initialize", Behaviour::silence()));
    let impatient = settings(|settings| settings.budget.attempts = 3);
    let config = server("one", scripted(&silent)).settings(impatient);
    let runtime = fleet([config]).await;
    let handle = runtime.server("one").unwrap();
    let mut status = handle.watch();
    let parked = status.wait_for(|status| status.state == StateName::Disconnected);
    tokio::time::timeout(secs(600), parked)
        .await
        .unwrap()
        .unwrap();
    silent
        .record()
        .until(DEADLINE, "every connection ended", |record| {
            record.ended().len() == 3
        })
        .await;
    assert_eq!(silent.control().live(), [0; 0]);
    assert_eq!(silent.record().most_open_at_once(), 1);
}

// D5, as far as it goes

#[test]
fn the_last_handle_that_is_dropped_asks_for_the_shutdown() {
    let name = "the_last_handle_that_is_dropped_asks_for_the_shutdown";
    isolated(name, async || {
        let warm_up = Marker::new("warm-up");
        let (runtime, _) = ready(server("one", fixture(&warm_up, &[]))).await;
        runtime.shutdown(secs(5)).await;
        drop(runtime);
        warm_up.nobody_left(DEADLINE).await;
        let before = Snapshot::take();

        let marker = Marker::new("last-handle");
        let (runtime, handle) = ready(server("one", fixture(&marker, &[]))).await;
        let mut events = runtime.events();
        drop(runtime);
        // A handle of one server keeps the runtime.
        pid(&handle).await;
        let tool = handle.tool("echo");
        drop(handle);
        tool.call(Default::default()).await.unwrap();
        assert_eq!(marker.processes().len(), 1);

        drop(tool);
        marker.nobody_left(DEADLINE).await;
        let last = async {
            loop {
                match events.recv().await {
                    Ok(_) | Err(EventsError::Lagged(_)) => {}
                    Err(error) => return error,
                }
            }
        };
        let last = tokio::time::timeout(DEADLINE, last).await.unwrap();
        assert_eq!(last, EventsError::Closed);
        drop(events);
        assert_returns_to(&before, Slack::NONE, DEADLINE).await;
    });
}

#[test]
fn a_dropped_tokio_runtime_kills_the_groups() {
    let marker = Marker::new("dropped");
    let host = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let (fleet, grandchild) = host.block_on(async {
        let (runtime, handle) = ready(server("one", fixture(&marker, &STUBBORN))).await;
        let answer = structured(handle.call_tool("spawn_grandchild", json!({})).await);
        (runtime, answer["pid"].as_u64().unwrap() as u32)
    });
    assert_eq!(marker.processes().len(), 2);
    drop(host);
    let watcher = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    watcher.block_on(async {
        marker.nobody_left(DEADLINE).await;
        // Who is ending has no environment any more, and is there for a moment still.
        eventually(DEADLINE, "the grandchild's end", || {
            processes::Process::read(grandchild).is_none_or(|it| it.is_zombie())
        })
        .await;
    });
    drop(fleet);
}

//! O4: a panic in the actor of a server affects only that server.

use std::future::IntoFuture;
use std::time::Duration;

use mcpvisor::{
    CallError, ControlError, FaultClass, Known, NotSentReason, ServerHandle, StateName,
};
use mcpvisor_testkit::processes::Marker;
use mcpvisor_testkit::scripted::{Behaviour, Script, ScriptedServer};
use mcpvisor_testkit::stdio_server::JOURNAL;
use mcpvisor_testkit::{eventually, eventually_async, eventually_in};
use serde_json::json;
use tokio::time::Instant;

use crate::fleet::{
    DEADLINE, eager, fixture, fleet, pid, reaches, ready, ready_after, secs, server, settings,
    structured,
};

/// Crashes the actor and waits until it runs again.
async fn crash(handle: &ServerHandle) {
    let mut status = handle.watch();
    let before = status.borrow_and_update().restarts;
    handle.crash_actor();
    let patience = secs(600);
    eventually_in(patience, "the restart", &mut status, |status| {
        status.restarts == before + 1
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn twenty_crashes_of_an_actor_touch_neither_siblings_nor_what_readers_see() {
    let scripted = ScriptedServer::new(Script::new());
    let sibling = ScriptedServer::new(Script::new().tool("slow", Behaviour::answer().held()));
    let runtime = fleet([
        server("a", scripted.transport()).settings(eager()),
        server("b", sibling.transport()),
    ])
    .await;
    runtime.ready(DEADLINE).await.unwrap();
    let [a, b] = ["a", "b"].map(|name| runtime.server(name).unwrap());
    let in_flight = tokio::spawn(b.call_tool("slow", json!({})).into_future());
    let tools = |handle: &ServerHandle| handle.catalog().tools.len();

    for round in 1..=20 {
        let mut status = a.watch();
        a.crash_actor();
        // The last good catalog stays visible during the recovery.
        eventually_in(DEADLINE, "the way back", &mut status, |status| {
            assert_eq!(tools(&a), 1, "{status:?}");
            status.restarts == round && status.is_ready()
        })
        .await;
        assert_eq!(a.status().generation.get(), round + 1);
        structured(a.call_tool("echo", json!({})).await);
        structured(b.call_tool("echo", json!({})).await);
    }
    assert_eq!(scripted.record().opened(), (1..=21).collect::<Vec<_>>());
    let status = b.status();
    assert_eq!((status.generation.get(), status.restarts), (1, 0));
    sibling.control().release("slow", 1);
    structured(in_flight.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn callers_of_an_actor_that_crashes_get_an_outcome_at_once() {
    let script = Script::new().tool("silent", Behaviour::silence());
    let scripted = ScriptedServer::new(script);
    let one_at_a_time = settings(|settings| settings.admission.in_flight = 1);
    let (_runtime, handle) = ready(server("a", scripted.transport()).settings(one_at_a_time)).await;
    let call = || tokio::spawn(handle.call_tool("silent", json!({})).into_future());
    let (in_flight, in_line) = (call(), call());
    eventually(DEADLINE, "one in flight, one in line", || {
        let status = handle.status();
        (status.in_flight, status.waiting) == (1, 1)
    })
    .await;

    let started = Instant::now();
    handle.crash_actor();
    let both = async { (in_flight.await.unwrap(), in_line.await.unwrap()) };
    let both = tokio::time::timeout(DEADLINE, both).await;
    let (lost, unsent) = both.expect("an outcome, not silence");
    let (lost, unsent) = (lost.unwrap_err(), unsent.unwrap_err());
    assert!(matches!(lost, CallError::OutcomeUnknown { .. }), "{lost}");
    let CallError::NotSent { reason, .. } = &unsent else {
        panic!("{unsent}");
    };
    assert_eq!(*reason, NotSentReason::ActorRestarted);
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert_eq!(scripted.record().calls("silent").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_budget_counts_connects_and_crashes_and_parks_the_actor_when_spent() {
    let scripted = ScriptedServer::new(Script::new());
    let budget = settings(|settings| settings.budget.attempts = 7);
    let (runtime, handle) = ready(server("a", scripted.transport()).settings(budget)).await;

    // The first connect, each crash and each reconnect use one attempt: 7 in total.
    for round in 1..=3 {
        crash(&handle).await;
        reaches(&handle, StateName::Connected).await;
        assert_eq!(handle.status().attempts_used, 2 * round + 1);
    }
    crash(&handle).await;
    let status = handle.status();
    assert_eq!(status.state, StateName::Disconnected);
    assert_eq!(status.last_error.unwrap().class, FaultClass::ActorCrashed);
    assert_eq!(handle.catalog().tools.len(), 1, "parked, and readable");
    assert_eq!(scripted.record().opened(), [1, 2, 3, 4]);
    // A parked server that keeps crashing is parked again, without a hot loop.
    let started = Instant::now();
    for _ in 0..10 {
        crash(&handle).await;
        assert_eq!(handle.status().state, StateName::Disconnected);
    }
    assert!(started.elapsed() >= secs(9), "{:?}", started.elapsed());
    // The user resets it.
    runtime.reconnect("a").await.unwrap();
    ready_after(&handle, 4).await;
    structured(handle.call_tool("echo", json!({})).await);
}

#[tokio::test]
async fn a_crashed_actor_leaves_no_child_behind_and_the_siblings_child_alone() {
    let marker = Marker::new("o4");
    let runtime = fleet([
        server("a", fixture(&marker, &[])).settings(eager()),
        server("b", fixture(&marker, &[])),
    ])
    .await;
    runtime.ready(DEADLINE).await.unwrap();
    let [a, b] = ["a", "b"].map(|name| runtime.server(name).unwrap());
    let (mut child, sibling) = (pid(&a).await, pid(&b).await);
    for round in 1..=5 {
        crash(&a).await;
        ready_after(&a, round).await;
        let next = pid(&a).await;
        assert_ne!(next, child);
        child = next;
        let mut left: Vec<u32> = marker.processes().iter().map(|p| p.pid).collect();
        left.retain(|pid| *pid != child && *pid != sibling);
        assert_eq!(left, [] as [u32; 0], "the old child was closed first");
    }
    assert_eq!(pid(&b).await, sibling);
    runtime.shutdown(secs(5)).await;
    marker.assert_none_left(DEADLINE).await;
}

#[tokio::test]
async fn without_a_supervisor_every_handle_says_so_at_once() {
    let marker = Marker::new("o4-supervisor");
    let scripted = ScriptedServer::new(Script::new().tool("silent", Behaviour::silence()));
    let runtime = fleet([
        server("a", scripted.transport()),
        server("b", fixture(&marker, &[])),
    ])
    .await;
    runtime.ready(DEADLINE).await.unwrap();
    let [a, b] = ["a", "b"].map(|name| runtime.server(name).unwrap());
    let in_flight = tokio::spawn(a.call_tool("silent", json!({})).into_future());
    scripted
        .record()
        .until(DEADLINE, "the call", |record| {
            record.calls("silent").len() == 1
        })
        .await;

    runtime.crash_supervisor();
    let lost = tokio::time::timeout(DEADLINE, in_flight).await.unwrap();
    assert_eq!(lost.unwrap().unwrap_err().known(), Known::Unknown);
    let answer = async |handle: &ServerHandle| {
        let started = Instant::now();
        let answer = handle.call_tool("echo", json!({})).await.unwrap_err();
        assert_eq!(answer.known(), Known::NotSent, "{answer}");
        (answer, started.elapsed())
    };
    for handle in [&a, &b] {
        // The supervisor takes a moment to stop; from then on no call waits.
        eventually_async(DEADLINE, "the end of the supervisor", async || {
            matches!(answer(handle).await.0, CallError::RuntimeGone { .. })
        })
        .await;
        let (gone, after) = answer(handle).await;
        assert!(matches!(gone, CallError::RuntimeGone { .. }), "{gone}");
        assert!(after < secs(5), "{after:?}");
        assert_eq!(handle.status().state, StateName::Disabled);
        assert_eq!(handle.catalog().tools.len(), 0);
    }
    let started = Instant::now();
    let problem = runtime.ready(DEADLINE).await.unwrap_err();
    assert!(problem.to_string().contains("has shut down"), "{problem}");
    assert!(started.elapsed() < secs(5), "{:?}", started.elapsed());
    let gone = [
        runtime.reconnect("a").await,
        runtime.disable("b").await,
        runtime.remove("b").await,
        runtime
            .add(server("c", ScriptedServer::new(Script::new()).transport()))
            .await,
    ];
    for answer in gone {
        assert!(
            matches!(answer, Err(ControlError::RuntimeGone)),
            "{answer:?}"
        );
    }
    let report = runtime.shutdown(secs(1)).await;
    assert!(
        !report.is_clean(),
        "nobody closed them as asked: {report:?}"
    );
    let told: Vec<_> = report.servers.iter().map(|it| it.server.as_str()).collect();
    assert_eq!(told, ["a", "b"]);
    marker.assert_none_left(DEADLINE).await;
}

#[tokio::test]
async fn a_second_shutdown_says_how_the_first_one_closed() {
    let scripted = ScriptedServer::new(Script::new());
    let (runtime, _) = ready(server("a", scripted.transport())).await;
    let first = runtime.shutdown(secs(5)).await;
    let second = runtime.shutdown(secs(5)).await;
    assert!(first.is_clean(), "{first:?}");
    assert_eq!(first.servers, second.servers);
}

#[tokio::test]
async fn a_weak_reference_keeps_no_runtime() {
    let marker = Marker::new("o4-weak");
    let held = std::sync::Arc::new(std::sync::OnceLock::<mcpvisor::WeakRuntime>::new());
    let known = std::sync::Arc::clone(&held);
    let callbacks = mcpvisor::Callbacks::new().roots(move |_| {
        let runtime = known.get().and_then(mcpvisor::WeakRuntime::upgrade);
        async move { Ok(runtime.map(|_| Vec::new()).unwrap_or_default()) }
    });
    let builder = mcpvisor::Runtime::builder().callbacks(callbacks);
    let builder = builder.server(server("a", fixture(&marker, &[])));
    let runtime = builder.start().await.unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    held.set(runtime.downgrade()).unwrap();
    assert!(held.get().unwrap().upgrade().is_some());
    drop(runtime);
    assert!(held.get().unwrap().upgrade().is_none());
    marker.assert_none_left(DEADLINE).await;
}

#[test]
fn with_the_executor_every_handle_is_gone_too() {
    let executor = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build().unwrap()
    };
    let scripted = ScriptedServer::new(Script::new());
    let theirs = executor();
    let (runtime, handle) = theirs.block_on(ready(server("a", scripted.transport())));
    drop(theirs);
    assert_eq!(handle.status().state, StateName::Disabled);
    executor().block_on(async {
        let problem = runtime.ready(DEADLINE).await.unwrap_err();
        assert!(problem.to_string().contains("has shut down"), "{problem}");
        let gone = handle.call_tool("echo", json!({})).await.unwrap_err();
        assert!(matches!(gone, CallError::RuntimeGone { .. }), "{gone}");
    });
}

#[tokio::test]
async fn a_server_that_is_added_again_waits_for_the_connection_of_the_removed_one() {
    let marker = Marker::new("added-again");
    let folder = std::env::temp_dir().join(format!("mcpvisor-{}", marker.value()));
    std::fs::create_dir_all(&folder).unwrap();
    let journal = folder.join("processes");
    let stubborn = ["--ignore-eof", "--ignore-sigterm"];
    let config = || {
        let command = fixture(&marker, &stubborn).env(JOURNAL, &journal);
        server("one", command).settings(settings(|settings| {
            settings.close.stdin = secs(1);
            settings.close.terminate = secs(1);
        }))
    };
    let (runtime, handle) = ready(config()).await;
    // The process of the crashed actor is still closing when the server is removed.
    crash(&handle).await;
    let removed = runtime.clone();
    let removal = tokio::spawn(async move { removed.remove("one").await });
    eventually_async(DEADLINE, "the server added again", async || {
        runtime.add(config()).await
    })
    .await;
    runtime.ready(DEADLINE).await.unwrap();
    removal.await.unwrap().unwrap();
    runtime.shutdown(secs(5)).await;
    let started = std::fs::read_to_string(&journal).unwrap();
    let words: Vec<&str> = started
        .lines()
        .filter_map(|it| it.split(' ').next())
        .collect();
    assert_eq!(words, ["opened", "opened"], "{started}");
    let _ = std::fs::remove_dir_all(&folder);
}

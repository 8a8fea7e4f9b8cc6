//! Figure 16: repeated disabling and enabling, and repeated crashes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mcpvisor::{CallError, Runtime, ServerHandle};
use mcpvisor_testkit::in_own_process;
use mcpvisor_testkit::leaks::{Growth, Slack, Snapshot};
use mcpvisor_testkit::processes::Marker;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::fleet::*;
use crate::{MIB, limit};

/// Calls in a loop until stopped. Every call must have an outcome in time.
fn calling(handle: &ServerHandle, stop: &Arc<AtomicBool>) -> JoinHandle<usize> {
    let (handle, stop) = (handle.clone(), Arc::clone(stop));
    tokio::spawn(async move {
        let mut answered = 0;
        while !stop.load(Ordering::Relaxed) {
            let call = handle.call_tool("echo", json!({})).deadline(DEADLINE);
            match call.await {
                Ok(_) => answered += 1,
                Err(CallError::NotSent { .. } | CallError::OutcomeUnknown { .. }) => {
                    // Calls are refused immediately while it is disabled. Retry, but let other
                    // tasks run.
                    tokio::time::sleep(millis(1)).await;
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        answered
    })
}

/// How long resources may take to be released.
const SETTLES: Duration = Duration::from_secs(5);

/// Repeats an action on a server while it is called. Returns what has grown.
async fn repeat_under_load(
    rounds: usize,
    mut what: impl AsyncFnMut(&Runtime, &ServerHandle),
) -> Result<(), Growth> {
    let marker = Marker::new("again");
    let config = server("one", fixture(&marker, &[])).settings(eager());
    let (runtime, handle) = ready(config).await;
    let stop = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..4).map(|_| calling(&handle, &stop)).collect();
    // One-time growth, such as thread pools and allocator caches, happens in the first rounds.
    for _ in 0..rounds.min(50) {
        what(&runtime, &handle).await;
    }
    let before = Snapshot::take();
    for _ in 0..rounds {
        what(&runtime, &handle).await;
    }
    let slack = Slack::NONE.memory(4 * MIB);
    let until = Instant::now() + SETTLES;
    let grown = loop {
        let grown = before.growth(&Snapshot::take(), slack);
        if grown.is_ok() || Instant::now() > until {
            break grown;
        }
        tokio::time::sleep(millis(20)).await;
    };
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        let answered = tokio::time::timeout(2 * DEADLINE, caller).await;
        assert!(answered.unwrap().unwrap() > 0, "nothing was ever answered");
    }
    assert!(runtime.shutdown(secs(5)).await.is_clean());
    assert_eq!(marker.processes(), []);
    grown
}

async fn off_and_on(runtime: &Runtime, handle: &ServerHandle) {
    let generation = handle.status().generation.get();
    runtime.disable("one").await.unwrap();
    runtime.enable("one").await.unwrap();
    ready_after(handle, generation).await;
}

#[test]
fn figure_16_switching_off_and_on_for_ever_leaves_nothing_behind() {
    let name = "endurance::figure_16_switching_off_and_on_for_ever_leaves_nothing_behind";
    in_own_process(name, limit(), async || {
        let rounds = size(300, 10_000);
        repeat_under_load(rounds, off_and_on).await.unwrap();
        println!("figure 16: off and on {rounds} times, nothing has grown");
    });
}

#[test]
fn figure_16_crash_after_crash_of_an_actor_leaves_nothing_behind() {
    let name = "endurance::figure_16_crash_after_crash_of_an_actor_leaves_nothing_behind";
    in_own_process(name, limit(), async || {
        without_reports_of_panics();
        let (rounds, mut crashes) = (size(100, 1_000), 0);
        let grown = repeat_under_load(rounds, async |_, handle| {
            let generation = handle.status().generation.get();
            handle.crash_actor();
            ready_after(handle, generation).await;
            crashes += 1;
            assert_eq!(handle.status().restarts, crashes);
        });
        grown.await.unwrap();
        println!("figure 16: {crashes} crashes, nothing has grown");
    });
}

#[test]
fn control_figure_16_what_stays_behind_once_a_round_is_seen() {
    let name = "endurance::control_figure_16_what_stays_behind_once_a_round_is_seen";
    in_own_process(name, limit(), async || {
        let mut kept = Vec::new();
        let grown = repeat_under_load(20, async |runtime, handle| {
            off_and_on(runtime, handle).await;
            tokio::spawn(std::future::pending::<()>());
            kept.push(std::fs::File::open("/dev/null").unwrap());
        });
        let grown = grown.await.unwrap_err();
        for what in ["tasks", "descriptors"] {
            assert!(format!("{grown:?}").contains(what), "{what}: {grown:?}");
        }
    });
}

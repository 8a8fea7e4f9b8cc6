//! A pool under `kill -9` of random instances.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mcpvisor::{CallError, Known, ServerHandle};
use mcpvisor_testkit::leaks::{Slack, Snapshot, assert_returns_to};
use mcpvisor_testkit::processes::{self, Marker};
use mcpvisor_testkit::scripted::{Behaviour, Script};
use mcpvisor_testkit::{eventually, in_own_process};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::fleet::*;
use crate::stations::Stations;

const INSTANCES: usize = 8;
const CALLERS: usize = 64;

/// How long the tool takes. A caller pauses longer than that, so that the pool is not saturated:
/// the calls of a killed instance go to the others.
const SERVICE: u64 = 20;

/// What one caller saw.
#[derive(Default)]
struct Seen {
    outcomes: HashMap<String, Result<(), Known>>,
    /// How long answered calls took.
    took: Vec<Duration>,
}

struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    callers: Vec<JoinHandle<Seen>>,
}

impl Load {
    fn start(handle: &ServerHandle, file: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let answered = Arc::new(AtomicUsize::new(0));
        let callers = (0..CALLERS).map(|caller| {
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            let (handle, file) = (handle.clone(), file.to_owned());
            tokio::spawn(call_until(stop, caller, handle, file, answered))
        });
        let callers = callers.collect();
        Self {
            stop,
            answered,
            callers,
        }
    }

    /// Waits for this many more answers.
    async fn more_answers(&self, more: usize) {
        let before = self.answered.load(Ordering::Relaxed);
        eventually(DEADLINE, "answers", || {
            self.answered.load(Ordering::Relaxed) >= before + more
        })
        .await;
    }

    async fn end(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Seen::default();
        for caller in self.callers {
            let seen = caller.await.unwrap();
            all.outcomes.extend(seen.outcomes);
            all.took.extend(seen.took);
        }
        all
    }
}

/// Requests one side effect after another until stopped.
async fn call_until(
    stop: Arc<AtomicBool>,
    caller: usize,
    handle: ServerHandle,
    file: PathBuf,
    answered: Arc<AtomicUsize>,
) -> Seen {
    let mut seen = Seen::default();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let text = format!("{caller}-{number}");
        let arguments = json!({ "file": file, "text": text, "ms": SERVICE });
        let began = Instant::now();
        let call = handle.call_tool("append", arguments).deadline(DEADLINE);
        let outcome = match call.await {
            Ok(_) => {
                answered.fetch_add(1, Ordering::Relaxed);
                seen.took.push(began.elapsed());
                Ok(())
            }
            Err(error @ (CallError::NotSent { .. } | CallError::OutcomeUnknown { .. })) => {
                Err(error.known())
            }
            Err(other) => panic!("{text}: {other:?}"),
        };
        seen.outcomes.insert(text, outcome);
        tokio::time::sleep(millis(SERVICE + number % 20)).await;
    }
    seen
}

/// The processes of the pool that run, in no order.
fn pids(marker: &Marker) -> Vec<u32> {
    marker.processes().iter().map(|it| it.pid).collect()
}

fn percentile(mut took: Vec<Duration>, percent: usize) -> Duration {
    took.sort_unstable();
    took[took.len() * percent / 100]
}

/// Asserts that outcomes match the side effects. Returns the number of unknown outcomes.
fn check(seen: &Seen, file: &Path) -> usize {
    let mut runs: HashMap<String, usize> = HashMap::new();
    for line in std::fs::read_to_string(file).unwrap().lines() {
        *runs.entry(line.to_owned()).or_default() += 1;
    }
    let twice: Vec<_> = runs.iter().filter(|(_, runs)| **runs > 1).collect();
    assert!(twice.is_empty(), "ran twice: {twice:?}");
    let mut unknown = 0;
    for (text, outcome) in &seen.outcomes {
        let ran = runs.contains_key(text);
        match outcome {
            Ok(()) => assert!(ran, "{text} was answered and never ran"),
            Err(Known::NotSent) => assert!(!ran, "{text} was not sent and ran"),
            Err(_) => unknown += 1,
        }
    }
    unknown
}

/// How the calls of one run went: with kills, or without.
async fn run(handle: &ServerHandle, marker: &Marker, file: &Path, kills: usize) -> Seen {
    let load = Load::start(handle, file);
    for _ in 0..kills {
        load.more_answers(CALLERS * size(2, 8)).await;
        let all = pids(marker);
        processes::kill(all[fastrand::usize(..all.len())]);
    }
    load.more_answers(CALLERS * 4).await;
    load.end().await
}

/// Paused time advances only while every task waits, so only waiting takes time.
#[tokio::test(start_paused = true)]
async fn losses_of_random_instances_keep_the_calls_of_others_waiting_for_nothing() {
    const LOSSES: u64 = 50;
    let service = millis(SERVICE);
    let script = Script::new().tool("work", Behaviour::answer().after(service));
    let stations = Stations::new(script);
    let config = server("a", stations.transport()).settings(eager());
    let (runtime, handle) = ready(config.instances(INSTANCES)).await;
    runtime.settled(DEADLINE).await;
    let stop = Arc::new(AtomicBool::new(false));
    let callers = (0..CALLERS).map(|caller| {
        let (handle, stop) = (handle.clone(), Arc::clone(&stop));
        tokio::spawn(async move {
            let (mut took, mut unknown) = (Vec::new(), 0);
            while !stop.load(Ordering::Relaxed) {
                let began = tokio::time::Instant::now();
                match handle.call_tool("work", json!({})).await {
                    Ok(_) => took.push(began.elapsed()),
                    Err(CallError::OutcomeUnknown { .. }) => unknown += 1,
                    Err(other) => panic!("{other}"),
                }
                tokio::time::sleep(millis(1 + caller as u64 % 7)).await;
            }
            (took, unknown)
        })
    });
    let callers: Vec<_> = callers.collect();
    for loss in 0..LOSSES {
        tokio::time::sleep(millis(30 + loss % 11)).await;
        let live = stations.all().into_iter();
        let live: Vec<_> = live.filter(|it| !it.control().live().is_empty()).collect();
        live[fastrand::usize(..live.len())].control().end();
    }
    stop.store(true, Ordering::Relaxed);
    let (mut took, mut unknown) = (Vec::new(), 0);
    for caller in callers {
        let (answered, lost) = caller.await.unwrap();
        took.extend(answered);
        unknown += lost;
    }
    assert!(unknown >= LOSSES, "{unknown}");
    let received: usize = stations.calls("work").iter().sum();
    assert_eq!(
        received as u64,
        took.len() as u64 + unknown,
        "none was sent twice"
    );
    assert_eq!(percentile(took, 99), service);
}

#[test]
fn kills_of_random_instances_cost_their_own_calls_and_no_others() {
    let name = "pool_kills::kills_of_random_instances_cost_their_own_calls_and_no_others";
    in_own_process(name, 10 * DEADLINE, async || {
        let marker = Marker::new("pool-kills");
        let file = std::env::temp_dir().join(marker.value());
        let config = server("a", fixture(&marker, &[])).settings(eager());
        let (runtime, handle) = ready(config.instances(INSTANCES)).await;
        runtime.settled(DEADLINE).await;
        let running = Snapshot::take();
        // The best of a few runs, of which one should be undisturbed by other processes.
        let mut ratios = Vec::new();
        let (mut calls, mut unknown) = (0, 0);
        while ratios.len() < size(1, 5) && ratios.iter().all(|ratio| *ratio > 1.1) {
            let mut p99 = Vec::new();
            for kills in [0, size(10, 100)] {
                let seen = run(&handle, &marker, &file, kills).await;
                calls += seen.outcomes.len();
                unknown += check(&seen, &file);
                std::fs::remove_file(&file).unwrap();
                p99.push(percentile(seen.took, 99).as_secs_f64());
            }
            ratios.push(p99[1] / p99[0]);
            runtime.settled(DEADLINE).await;
        }
        println!("{calls} calls, {unknown} unknown, none ran twice; p99 with kills {ratios:.2?}");
        // Starting a process takes a processor from the others, so this needs a machine of its own.
        let is_unchanged = ratios.iter().any(|ratio| *ratio <= 1.1);
        assert!(is_unchanged || !in_full(), "{ratios:.2?}");
        assert_returns_to(&running, Slack::NONE, DEADLINE).await;
        assert_eq!(marker.processes().len(), INSTANCES);
        assert!(runtime.shutdown(secs(10)).await.is_clean());
        assert_eq!(marker.processes(), []);
    });
}

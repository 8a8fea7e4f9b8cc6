//! Figure 3: `kill -9` under load.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use mcpvisor::{CallError, Known, RetryPolicy, ServerHandle};
use mcpvisor_testkit::leaks::{Slack, Snapshot, assert_returns_to};
use mcpvisor_testkit::processes::{self, Marker};
use mcpvisor_testkit::{eventually, in_own_process};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::fleet::*;
use crate::limit;

/// The outcome that callers received for each side effect.
type Outcomes = HashMap<String, Result<(), Known>>;

/// Requests one side effect after another until stopped.
fn appending(
    caller: usize,
    handle: &ServerHandle,
    file: PathBuf,
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    wish: RetryPolicy,
) -> JoinHandle<Outcomes> {
    let handle = handle.clone();
    tokio::spawn(async move {
        let mut outcomes = HashMap::new();
        for number in 0.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let text = format!("{caller}-{number}");
            let arguments = json!({ "file": file, "text": text, "ms": number % 5 });
            let call = handle.call_tool("append", arguments).deadline(DEADLINE);
            let outcome = match call.retry(wish).await {
                Ok(_) => {
                    answered.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                }
                Err(error @ (CallError::NotSent { .. } | CallError::OutcomeUnknown { .. })) => {
                    Err(error.known())
                }
                Err(other) => panic!("{text}: {other:?}"),
            };
            assert!(outcomes.insert(text, outcome).is_none());
        }
        outcomes
    })
}

/// The side effects that ran, and the outcomes that callers received.
struct Load {
    outcomes: Outcomes,
    runs: HashMap<String, usize>,
}

impl Load {
    /// Kills a server repeatedly while 64 callers request side effects from it.
    async fn run(kills: usize, handle: &ServerHandle, file: PathBuf, wish: RetryPolicy) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let answered = Arc::new(AtomicUsize::new(0));
        let callers: Vec<_> = (0..64)
            .map(|caller| {
                let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
                appending(caller, handle, file.clone(), stop, answered, wish)
            })
            .collect();
        for _ in 0..kills {
            let before = answered.load(Ordering::Relaxed);
            eventually(DEADLINE, "calls under way", || {
                answered.load(Ordering::Relaxed) > before + 64
            })
            .await;
            processes::kill(pid(handle).await);
        }
        stop.store(true, Ordering::Relaxed);
        let mut outcomes = HashMap::new();
        for caller in callers {
            outcomes.extend(caller.await.unwrap());
        }
        ready_after(handle, kills as u64).await;
        let mut runs: HashMap<String, usize> = HashMap::new();
        for line in std::fs::read_to_string(&file).unwrap().lines() {
            *runs.entry(line.to_owned()).or_default() += 1;
        }
        std::fs::remove_file(file).unwrap();
        Self { outcomes, runs }
    }

    /// The side effects that ran more than once.
    fn twice(&self) -> Vec<&String> {
        let twice = self.runs.iter().filter(|(_, runs)| **runs > 1);
        twice.map(|(text, _)| text).collect()
    }

    /// Asserts that outcomes match the side effects. Returns the number of unknown outcomes.
    fn check(mut self) -> usize {
        assert_eq!(self.twice(), Vec::<&String>::new(), "ran twice");
        let mut unknown = 0;
        for (text, outcome) in &self.outcomes {
            let ran = self.runs.remove(text).is_some();
            match outcome {
                Ok(()) => assert!(ran, "{text} was answered and never ran"),
                Err(Known::NotSent) => assert!(!ran, "{text} was not sent and ran"),
                Err(_) => unknown += 1,
            }
        }
        assert!(self.runs.is_empty(), "nobody asked for {:?}", self.runs);
        unknown
    }
}

#[test]
fn figure_3_kills_under_load_cost_no_outcome_and_run_nothing_twice() {
    let name = "kills::figure_3_kills_under_load_cost_no_outcome_and_run_nothing_twice";
    in_own_process(name, limit(), async || {
        let kills = size(20, 200);
        let marker = Marker::new("kills");
        let file = std::env::temp_dir().join(marker.value());
        let config = server("one", fixture(&marker, &[])).settings(eager());
        let (runtime, handle) = ready(config).await;
        let running = Snapshot::take();
        let load = Load::run(kills, &handle, file, RetryPolicy::Default).await;
        assert_eq!(handle.status().generation.get(), kills as u64 + 1);
        let calls = load.outcomes.len();
        let unknown = load.check();
        assert!(unknown >= kills, "each kill met calls");
        assert_returns_to(&running, Slack::NONE, DEADLINE).await;
        assert_eq!(marker.processes().len(), 1);
        assert!(runtime.shutdown(secs(5)).await.is_clean());
        assert_eq!(marker.processes(), []);
        assert_eq!(Snapshot::take().zombies, []);
        println!("figure 3: {kills} kills, {calls} calls, {unknown} unknown, none ran twice");
    });
}

#[test]
fn control_figure_3_a_client_that_repeats_what_was_lost_runs_it_twice() {
    let name = "kills::control_figure_3_a_client_that_repeats_what_was_lost_runs_it_twice";
    in_own_process(name, limit(), async || {
        let marker = Marker::new("repeats");
        let file = std::env::temp_dir().join(marker.value());
        let config = server("one", fixture(&marker, &[])).settings(eager());
        let (runtime, handle) = ready(config).await;
        let load = Load::run(20, &handle, file, RetryPolicy::Always).await;
        assert!(!load.twice().is_empty(), "nothing ran twice");
        runtime.shutdown(secs(5)).await;
    });
}

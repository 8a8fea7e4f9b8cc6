//! O2: connect, reconnect and close of one server never overlap.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mcpvisor::{ControlError, Runtime, ServerHandle, StateName, Transport};
use mcpvisor_testkit::eventually_async;
use mcpvisor_testkit::scripted::{Script, ScriptedServer};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::fleet::{DEADLINE, eager, millis, ready, ready_after, secs, server, structured};

/// The number of connections of a server, from the opening to the end of the close.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overlap(Arc<(AtomicUsize, AtomicUsize)>);

struct Open(Overlap);

impl Overlap {
    fn open(&self) -> Open {
        let (now, most) = &*self.0;
        let open = now.fetch_add(1, Ordering::SeqCst) + 1;
        most.fetch_max(open, Ordering::SeqCst);
        Open(self.clone())
    }

    fn most(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A scripted server that takes `linger` to end after its connection is closed.
pub(crate) fn lingering(
    scripted: &ScriptedServer,
    linger: Duration,
    overlap: &Overlap,
) -> Transport {
    let (scripted, overlap) = (scripted.clone(), overlap.clone());
    Transport::channel(move |end| {
        let open = overlap.open();
        let generation = end.generation.get();
        let serving = scripted
            .clone()
            .serve(end.incoming, end.outgoing, generation);
        async move {
            serving.await;
            tokio::time::sleep(linger).await;
            drop(open);
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_control_requests_never_open_two_connections() {
    const TASKS: usize = 8;
    const CONNECTIONS: usize = 20;
    let scripted = ScriptedServer::new(Script::new());
    let overlap = Overlap::default();
    let transport = lingering(&scripted, millis(1), &overlap);
    let (runtime, handle) = ready(server("a", transport).settings(eager())).await;

    let mut storm = JoinSet::new();
    for task in 0..TASKS {
        let (runtime, handle, record) = (runtime.clone(), handle.clone(), scripted.record());
        storm.spawn(async move {
            let mut number = task;
            while record.opened().len() < CONNECTIONS {
                send_control_request(&runtime, &handle, number).await;
                // Some requests wait for the previous one to complete.
                if number % 5 == 0 {
                    tokio::time::sleep(millis(20)).await;
                }
                number += 7;
            }
        });
    }
    let storm = tokio::time::timeout(DEADLINE, storm.join_all());
    storm.await.expect("every wish was answered");

    // The last crash may still be in progress.
    eventually_async(DEADLINE, "it is on", async || runtime.enable("a").await).await;
    runtime.ready(DEADLINE).await.unwrap();
    structured(handle.call_tool("echo", json!({})).await);
    runtime.shutdown(secs(10)).await;
    assert_eq!(overlap.most(), 1);
}

/// Sends one control request; it is performed, merged, or refused with a reason.
async fn send_control_request(runtime: &Runtime, handle: &ServerHandle, number: usize) {
    let outcome = match number % 6 {
        0 | 1 => runtime.reconnect("a").await,
        2 => runtime.disable("a").await,
        3 => runtime.enable("a").await,
        4 => {
            handle.report_broken(handle.status().generation);
            Ok(())
        }
        _ => {
            handle.crash_actor();
            Ok(())
        }
    };
    match outcome {
        Ok(()) | Err(ControlError::Disabled { .. } | ControlError::Interrupted(_)) => {}
        Err(problem) => panic!("a wish without an answer: {problem}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_enabled_while_it_closes_is_waited_for() {
    let scripted = ScriptedServer::new(Script::new());
    let overlap = Overlap::default();
    let transport = lingering(&scripted, secs(1), &overlap);
    let (runtime, handle) = ready(server("a", transport)).await;
    let on = async {
        runtime.enable("a").await.unwrap();
        assert_eq!(handle.status().state, StateName::Disabling);
        let settled = runtime.settled(DEADLINE).await;
        assert_eq!(settled[0].state, StateName::Connected);
        runtime.ready(DEADLINE).await.unwrap();
    };
    let (off, ()) = tokio::join!(runtime.disable("a"), on);
    off.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_control_request_during_a_close_waits_for_it_and_is_merged() {
    let scripted = ScriptedServer::new(Script::new());
    let overlap = Overlap::default();
    let transport = lingering(&scripted, secs(1), &overlap);
    let (runtime, handle) = ready(server("a", transport)).await;

    let started = Instant::now();
    for _ in 0..3 {
        runtime.reconnect("a").await.unwrap();
    }
    assert_eq!(started.elapsed(), Duration::ZERO, "none of them waits");
    ready_after(&handle, 1).await;
    assert_eq!(
        scripted.record().opened(),
        [1, 2],
        "three wishes, one reconnect"
    );
    let openings = scripted.record().openings();
    assert!(openings[1] - started >= secs(1), "after the close");

    // Disabled and enabled during one close.
    let (off, on) = tokio::join!(runtime.disable("a"), runtime.enable("a"));
    off.unwrap();
    on.unwrap();
    ready_after(&handle, 2).await;
    assert_eq!(scripted.record().opened(), [1, 2, 3]);
    assert_eq!(overlap.most(), 1);
    // Impossible requests are refused with a reason.
    runtime.disable("a").await.unwrap();
    let refused = runtime.reconnect("a").await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "a is disabled; enable it instead of reconnecting it"
    );
}

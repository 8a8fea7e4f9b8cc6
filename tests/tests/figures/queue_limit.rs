//! Figure 17: more calls than the queue holds.

use mcpvisor::{CallError, ServerHandle};
use mcpvisor_testkit::leaks::{Slack, Snapshot, assert_returns_to};
use mcpvisor_testkit::scripted::{Behaviour, Script, ScriptedServer};
use mcpvisor_testkit::{eventually, in_own_process};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::fleet::*;
use crate::{MIB, limit};

/// Concurrent calls and their outcomes so far.
struct Crowd {
    callers: JoinSet<Result<(), CallError>>,
    busy: usize,
}

/// Sends many calls, and waits until all beyond the limit are refused.
async fn crowd(handle: &ServerHandle, calls: usize, fit: usize) -> Crowd {
    let mut callers = JoinSet::new();
    for number in 0..calls {
        let call = handle.call_tool("slow", json!({ "number": number }));
        callers.spawn(async move { call.await.map(drop) });
    }
    let mut busy = 0;
    while busy < calls - fit {
        let next = tokio::time::timeout(DEADLINE, callers.join_next());
        match next.await.unwrap().unwrap().unwrap() {
            Err(CallError::Busy { .. }) => busy += 1,
            other => panic!("{other:?}"),
        }
    }
    Crowd { callers, busy }
}

#[test]
fn figure_17_calls_beyond_the_line_are_refused_at_once_and_take_no_memory() {
    let name =
        "queue_limit::figure_17_calls_beyond_the_line_are_refused_at_once_and_take_no_memory";
    in_own_process(name, limit(), async || {
        let slow = Script::new().tool("slow", Behaviour::answer().held());
        let scripted_server = ScriptedServer::new(slow);
        let (runtime, handle) = ready(server("one", scripted(&scripted_server))).await;
        let before = Snapshot::take();
        let places = 64 + 1_024;

        let begin = Instant::now();
        let mut first = crowd(&handle, 10_000, places).await;
        println!("10,000 calls took {:?}", begin.elapsed());
        assert_eq!((first.busy, first.callers.len()), (10_000 - places, places));
        eventually(DEADLINE, "every place taken", || {
            let status = handle.status();
            if (status.in_flight, status.waiting) == (64, 1_024) {
                Ok(())
            } else {
                Err((status.in_flight, status.waiting))
            }
        })
        .await;
        assert_eq!(scripted_server.record().calls("slow").len(), 64);
        let full = Snapshot::take();
        let growth = full.memory.saturating_sub(before.memory);
        assert!(growth < 64 * MIB, "{growth} bytes for 10,000 calls");
        println!("figure 17: {} refused, {growth} bytes grown", first.busy);

        // Further calls take no memory, however many there are. The first crowds are not measured:
        // their tasks belong to the test, and the allocator retains their memory.
        for _ in 0..3 {
            crowd(&handle, 10_000, 0).await;
        }
        let warm = Snapshot::take();
        for _ in 0..3 {
            let more = crowd(&handle, 10_000, 0).await;
            assert_eq!((more.busy, more.callers.len()), (10_000, 0));
        }
        let slack = Slack::NONE.memory(16 * MIB);
        assert_returns_to(&warm, slack, DEADLINE).await;

        scripted_server.control().release("slow", places);
        while let Some(answer) = first.callers.join_next().await {
            answer.unwrap().unwrap();
        }
        assert_eq!(scripted_server.record().calls("slow").len(), places);
        // A caller may read the count before the actor has updated it.
        eventually(DEADLINE, "nobody in flight or in line", || {
            match (handle.status().in_flight, handle.status().waiting) {
                (0, 0) => Ok(()),
                left => Err(left),
            }
        })
        .await;
        runtime.shutdown(secs(5)).await;
    });
}

#[test]
fn control_figure_17_a_line_without_a_bound_refuses_nobody() {
    let name = "queue_limit::control_figure_17_a_line_without_a_bound_refuses_nobody";
    in_own_process(name, limit(), async || {
        let slow = Script::new().tool("slow", Behaviour::answer().held());
        let scripted_server = ScriptedServer::new(slow);
        let endless = settings(|settings| settings.admission.waiting = 1_000_000);
        let config = server("one", scripted(&scripted_server)).settings(endless);
        let (runtime, handle) = ready(config).await;
        let all = crowd(&handle, 10_000, 10_000).await;
        eventually(DEADLINE, "all wait", || handle.status().waiting == 9_936).await;
        assert_eq!((all.busy, all.callers.len()), (0, 10_000));
        drop(all);
        runtime.shutdown(secs(5)).await;
    });
}

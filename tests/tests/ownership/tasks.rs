//! O1: the task that opens a connection also closes it.

use std::collections::BTreeMap;
use std::future::{IntoFuture, poll_fn};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use mcpvisor::rmcp::model::ClientJsonRpcMessage;
use mcpvisor::{CallError, Generation, ServerHandle, Transport};
use mcpvisor_testkit::eventually;
use mcpvisor_testkit::processes::Marker;
use mcpvisor_testkit::scripted::{Behaviour, Ending, Script, ScriptedServer};
use serde_json::json;
use tokio::sync::mpsc;

use crate::fleet::{DEADLINE, eager, fixture, millis, pid, ready, ready_after, secs, server};

/// The tasks that touched the client's end of each connection, by sending or closing.
#[derive(Debug, Clone, Default)]
struct Touches(Arc<Mutex<BTreeMap<u64, Vec<Option<tokio::task::Id>>>>>);

impl Touches {
    /// The only task that touched this connection.
    #[track_caller]
    fn owner(&self, generation: u64) -> tokio::task::Id {
        let touches = self.0.lock().unwrap();
        let mut tasks = touches.get(&generation).unwrap().clone();
        assert!(tasks.len() > 1, "opened and closed: {touches:?}");
        tasks.dedup();
        assert_eq!(tasks.len(), 1, "one task alone: {touches:?}");
        tasks[0].expect("not the task of the test")
    }
}

/// Wakes the server's task, and records the waking task.
struct Noting {
    touches: Touches,
    generation: u64,
    server: Waker,
}

impl Wake for Noting {
    fn wake(self: Arc<Self>) {
        let mut touches = self.touches.0.lock().unwrap();
        let of_generation = touches.entry(self.generation).or_default();
        of_generation.push(tokio::task::try_id());
        self.server.wake_by_ref();
    }
}

/// A scripted server that records which tasks use the other end of its connections.
fn noting(server: &ScriptedServer, touches: &Touches) -> Transport {
    let (server, touches) = (server.clone(), touches.clone());
    Transport::channel(move |mut end| {
        let (forward, incoming) = mpsc::unbounded_channel();
        let generation = end.generation.get();
        let serving = server.clone().serve(incoming, end.outgoing, generation);
        let touches = touches.clone();
        async move {
            let receive = async {
                while let Some(message) = next(&mut end.incoming, &touches, generation).await {
                    let _ = forward.send(message);
                }
                drop(forward);
            };
            tokio::join!(serving, receive);
        }
    })
}

async fn next(
    incoming: &mut mpsc::UnboundedReceiver<ClientJsonRpcMessage>,
    touches: &Touches,
    generation: u64,
) -> Option<ClientJsonRpcMessage> {
    poll_fn(|context| {
        let waker = Waker::from(Arc::new(Noting {
            touches: touches.clone(),
            generation,
            server: context.waker().clone(),
        }));
        incoming.poll_recv(&mut Context::from_waker(&waker))
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn the_task_that_opens_a_connection_is_the_one_that_closes_it() {
    let script = Script::new().tool("silent", Behaviour::silence());
    let scripted = ScriptedServer::new(script);
    let touches = Touches::default();
    let (runtime, handle) = ready(server("a", noting(&scripted, &touches)).settings(eager())).await;

    // Closed because of a requested reconnect, while callers drop their calls.
    let silent = |deadline| handle.call_tool("silent", json!({})).deadline(deadline);
    silent(millis(5)).await.unwrap_err();
    tokio::spawn(silent(secs(60)).into_future()).abort();
    drop(handle.clone());
    runtime.reconnect("a").await.unwrap();
    ready_after(&handle, 1).await;
    // Because a caller, in its own task, reported it as broken.
    let caller = handle.clone();
    let report = async move { caller.report_broken(caller.status().generation) };
    tokio::spawn(report).await.unwrap();
    ready_after(&handle, 2).await;
    // Because the actor crashed.
    handle.crash_actor();
    ready_after(&handle, 3).await;
    // Because it is disabled, and finally because the runtime shuts down.
    runtime.disable("a").await.unwrap();
    runtime.enable("a").await.unwrap();
    ready_after(&handle, 4).await;
    runtime.shutdown(secs(10)).await;

    let ended: Vec<u64> = (1..=5).collect();
    let closed_by_client = ended
        .iter()
        .map(|&g| (g, Ending::ByClient))
        .collect::<Vec<_>>();
    assert_eq!(scripted.record().ended(), closed_by_client);
    let mut owners: Vec<_> = ended.iter().map(|&g| touches.owner(g)).collect();
    owners.sort();
    owners.dedup();
    assert_eq!(owners.len(), 5, "one task per generation");
}

#[tokio::test]
async fn no_caller_no_timer_and_no_dropped_handle_closes_a_child() {
    let marker = Marker::new("o1");
    let (runtime, handle) = ready(server("a", fixture(&marker, &[]))).await;
    let child = pid(&handle).await;
    let sleep = |handle: &ServerHandle| handle.call_tool("sleep", json!({ "ms": 60_000 }));

    // Deadlines and idle timeouts pass.
    let late = sleep(&handle).deadline(secs(1)).await;
    assert!(matches!(late, Err(CallError::Deadline { sent: true, .. })));
    let idle = sleep(&handle).idle_timeout(millis(500)).await;
    assert!(matches!(idle, Err(CallError::Deadline { idle: true, .. })));
    // Callers leave, with and without their handles.
    let client = runtime.client("leaver").build();
    let leaver = tokio::spawn(sleep(&client.server("a").unwrap()).into_future());
    eventually(DEADLINE, "the call in flight", || {
        handle.status().in_flight == 1
    })
    .await;
    leaver.abort();
    assert!(leaver.await.unwrap_err().is_cancelled());
    drop(client);
    // A caller reports a connection that ended long ago.
    handle.report_broken(Generation::NONE);

    assert_eq!(pid(&handle).await, child);
    assert_eq!(handle.status().generation.get(), 1);
    runtime.shutdown(secs(5)).await;
    marker.assert_none_left(DEADLINE).await;
}

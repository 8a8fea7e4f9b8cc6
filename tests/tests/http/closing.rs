//! What closes a session, when, and how long that may take. (O1, D3.)

use mcpvisor_testkit::eventually;
use mcpvisor_testkit::http_server::{HttpOptions, HttpServer};
use mcpvisor_testkit::tasks::most_tasks;
use serde_json::json;
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use crate::arena::*;
use crate::fleet::*;

/// Concurrent calls.
const CROWD: usize = 16;

/// Tasks of normal operation, such as a listing or a check.
const A_FEW: usize = 8;

#[tokio::test]
async fn a_session_is_deleted_when_its_connection_is_closed_and_only_then() {
    let arena = Arena::new(HttpOptions::default()).await;
    // A caller that leaves, a deadline and a dropped handle close nothing.
    let call = arena.handle.call_tool("sleep", json!({ "ms": 60_000 }));
    drop(tokio::time::timeout(millis(50), call.into_future()).await);
    let call = arena.handle.call_tool("sleep", json!({ "ms": 60_000 }));
    call.deadline(millis(50)).await.unwrap_err();
    drop(arena.runtime.client("agent").build());
    drop(arena.handle.clone());
    arena.recovers(1).await;
    assert_eq!(arena.server.sessions_deleted(), 0);
    // A requested reconnect ends the old session and opens another.
    arena.runtime.reconnect("web").await.unwrap();
    ready_after(&arena.handle, 1).await;
    let deleted = || arena.server.sessions_deleted() == 1;
    eventually(DEADLINE, "the end of the old session", deleted).await;
    assert_eq!(arena.server.sessions_opened(), 2);
    arena.runtime.disable("web").await.unwrap();
    assert_eq!(
        (
            arena.server.sessions_deleted(),
            arena.server.open_sessions()
        ),
        (2, 0)
    );
    arena.runtime.enable("web").await.unwrap();
    arena.recovers(3).await;
    let server = arena.server.clone();
    let report = arena.end().await;
    assert!(report.is_clean(), "{report:?}");
    assert_eq!((server.sessions_deleted(), server.open_sessions()), (3, 0));
    let deletes = server.received();
    let deletes = deletes.iter().filter(|it| it.http_method == "DELETE");
    assert_eq!(deletes.count(), 3, "each session was deleted once");
}

#[tokio::test]
async fn a_server_that_ignores_the_end_of_its_session_holds_nobody_up() {
    for fault in ["http-stall-headers", "http-half-open"] {
        let arena = Arena::new(HttpOptions::default()).await;
        arena.server.fault(fault).on("DELETE").for_ever();
        let server = arena.server.clone();
        // Asserts that the shutdown stays within the grace period.
        arena.end().await;
        let deletes = server.received();
        let deletes = deletes.iter().filter(|it| it.http_method == "DELETE");
        assert_eq!(deletes.count(), 1, "{fault}");
    }
}

#[tokio::test]
async fn a_server_that_has_no_end_of_sessions_is_closed_cleanly() {
    let arena = Arena::new(HttpOptions::default()).await;
    arena
        .server
        .fault("http-status=405")
        .on("DELETE")
        .for_ever();
    let report = arena.end().await;
    assert!(report.is_clean(), "{report:?}");
}

#[tokio::test]
async fn a_frozen_server_can_be_shut_down_in_time() {
    let arena = Arena::new(HttpOptions::sse()).await;
    arena.server.freeze(true);
    let call = arena.handle.call_tool("echo", json!({})).deadline(SHORT);
    call.await.unwrap_err();
    arena.end().await;
}

/// Sends concurrent calls, each on its own socket.
async fn crowd(arena: &Arena, ms: u64) {
    let mut calls = JoinSet::new();
    for number in 0..CROWD {
        let call = json!({ "key": format!("{number}"), "ms": ms });
        let call = arena.handle.call_tool("run", call).deadline(DEADLINE);
        calls.spawn(call.into_future());
    }
    for outcome in calls.join_all().await {
        outcome.unwrap();
    }
}

#[test]
fn sockets_have_no_task_of_their_own_and_close_with_the_one_that_opened_them() {
    // The server runs on another runtime, so its tasks are not counted.
    let backstage = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let server = backstage.block_on(HttpServer::start(HttpOptions::sse()));
    let closed = || {
        let nobody = || server.open_connections() == 0;
        backstage.block_on(eventually(DEADLINE, "every socket closed", nobody));
    };
    let here = Builder::new_current_thread().enable_all().build().unwrap();
    let arena = here.block_on(async {
        let arena = Arena::start(server.clone(), quick()).await;
        arena.runtime.ready(DEADLINE).await.unwrap();
        let ((), tasks) = most_tasks(crowd(&arena, 300)).await;
        assert!(tasks <= CROWD + A_FEW, "{tasks} tasks");
        assert!(
            server.open_connections() > CROWD as u64 / 2,
            "they wait for more"
        );
        arena.runtime.disable("web").await.unwrap();
        arena
    });
    closed();
    // The tokio runtime shuts down with calls in flight.
    here.block_on(async {
        arena.runtime.enable("web").await.unwrap();
        arena.runtime.ready(DEADLINE).await.unwrap();
        let busy = || server.open_connections() > CROWD as u64;
        let busy = eventually(DEADLINE, "the calls in flight", busy);
        tokio::select! {
            () = crowd(&arena, 60_000) => panic!("they take a minute"),
            () = busy => {}
        }
    });
    drop(here);
    closed();
}

//! Who closes a session, when, and how long that may take. (O1, D3.)

use mcpvisor_testkit::eventually;
use mcpvisor_testkit::http_server::HttpManners;
use serde_json::json;

use crate::arena::*;
use crate::fleet::*;

#[tokio::test]
async fn a_session_is_deleted_when_its_connection_is_closed_and_only_then() {
    let arena = Arena::new(HttpManners::default()).await;
    // Neither a caller that leaves, nor a deadline, nor a dropped handle closes anything.
    let call = arena.handle.call_tool("sleep", json!({ "ms": 60_000 }));
    drop(tokio::time::timeout(millis(50), call.into_future()).await);
    let call = arena.handle.call_tool("sleep", json!({ "ms": 60_000 }));
    call.deadline(millis(50)).await.unwrap_err();
    drop(arena.runtime.client("agent").build());
    drop(arena.handle.clone());
    arena.recovers(1).await;
    assert_eq!(arena.server.sessions_deleted(), 0);
    // A reconnect that was asked for ends the old session and opens another.
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
        let arena = Arena::new(HttpManners::default()).await;
        arena.server.fault(fault).on("DELETE").for_ever();
        // Its end is bounded by the grace: `end` looks at it.
        arena.end().await;
    }
}

#[tokio::test]
async fn a_server_that_has_no_end_of_sessions_is_closed_cleanly() {
    let arena = Arena::new(HttpManners::default()).await;
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
    let arena = Arena::new(HttpManners::sse()).await;
    arena.server.freeze(true);
    let call = arena.handle.call_tool("echo", json!({})).deadline(SHORT);
    call.await.unwrap_err();
    arena.end().await;
}

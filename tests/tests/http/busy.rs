//! Servers that report a temporary overload or failure. (`Retry-After`, 5xx.)

use mcpvisor::{Known, RetryPolicy, StateName};
use mcpvisor_testkit::http_server::{HttpOptions, HttpServer};
use serde_json::json;

use crate::arena::*;
use crate::fleet::*;

#[tokio::test]
async fn a_busy_server_that_says_when_is_asked_again_then() {
    for fault in ["http-429-after=1", "http-503-after=1"] {
        let arena = Arena::new(HttpOptions::default()).await;
        arena.server.fault(fault).once();
        let (outcome, took) = timed(arena.run("once")).await;
        outcome.unwrap();
        assert!(took >= secs(1), "{fault}: {took:?}");
        assert_eq!(arena.server.requests("tools/call"), 2, "{fault}");
        assert_eq!(arena.server.requests("initialize"), 1, "{fault}");
        assert_eq!(arena.server.runs("once"), 1);
        assert_eq!(arena.generation(), 1, "{fault}: no reconnect");
        arena.end().await;
    }
}

#[tokio::test]
async fn a_busy_server_that_stays_busy_is_asked_twice_and_no_more() {
    let arena = Arena::new(HttpOptions::default()).await;
    arena.server.fault("http-429-after=1").for_ever();
    let error = arena.run("never").await.unwrap_err();
    assert_eq!(error.known(), Known::Refused, "{error:?}");
    assert_eq!(arena.server.requests("tools/call"), 2);
    arena.end().await;
}

#[tokio::test]
async fn a_busy_server_that_asks_for_more_time_than_there_is_costs_the_deadline_at_most() {
    let arena = Arena::new(HttpOptions::default()).await;
    arena.server.fault("http-503-after=1000000").for_ever();
    let call = arena.handle.call_tool("run", json!({ "key": "never" }));
    let (outcome, took) = timed(call.deadline(SHORT)).await;
    outcome.unwrap_err();
    assert!(took < SHORT + tolerance(), "{took:?}");
    assert_eq!(arena.server.runs("never"), 0);
    arena.end().await;
}

#[tokio::test]
async fn a_busy_server_that_does_not_say_when_is_asked_again_only_for_what_is_safe() {
    for fault in [
        "http-429",
        "http-503",
        "http-status=500",
        "http-status=502",
        "http-status=504",
    ] {
        let arena = Arena::new(HttpOptions::default()).await;
        arena.server.fault(fault).once();
        let error = arena.run("once").await.unwrap_err();
        assert_eq!(error.known(), Known::Unknown, "{fault}: {error:?}");
        assert_eq!(arena.server.requests("tools/call"), 1, "{fault}");
        arena.server.fault(fault).on("resources/read").once();
        arena.ask("resources/read").await.unwrap();
        // A caller can also declare its call as safe to retry.
        arena.server.fault(fault).once();
        let call = arena.handle.call_tool("run", json!({ "key": "safe" }));
        call.retry(RetryPolicy::Always)
            .deadline(DEADLINE)
            .await
            .unwrap();
        assert_eq!(arena.handle.status().state, StateName::Connected, "{fault}");
        assert_eq!(arena.generation(), 1, "{fault}: no reconnect");
        arena.end().await;
    }
}

#[tokio::test]
async fn a_connect_waits_as_long_as_the_server_says_up_to_the_cap() {
    let server = HttpServer::start(HttpOptions::default()).await;
    for method in ["initialize", "server/discover"] {
        server.fault("http-503-after=1").on(method).once();
    }
    let (arena, took) = timed(async {
        let arena = Arena::start(server, quick()).await;
        arena.runtime.ready(DEADLINE).await.unwrap();
        arena
    })
    .await;
    assert!(took >= secs(1), "it waited: {took:?}");
    arena.end().await;

    let server = HttpServer::start(HttpOptions::default()).await;
    for method in ["initialize", "server/discover"] {
        server.fault("http-503-after=1000000").on(method).once();
    }
    let mut settings = quick();
    settings.backoff.max_retry_after = millis(300);
    let arena = Arena::start(server, settings).await;
    arena.runtime.ready(DEADLINE).await.unwrap();
    arena.end().await;
}

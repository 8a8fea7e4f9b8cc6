//! Servers that never answer, or answer too late. (Figure 7.)

use std::time::Duration;

use mcpvisor::{CallError, FaultClass, Known, StateName};
use mcpvisor_testkit::eventually_in;
use mcpvisor_testkit::http_server::{HttpOptions, HttpServer};
use serde_json::json;

use crate::arena::*;
use crate::bare::{self, Bare};
use crate::fleet::*;

/// An unanswered handshake: the call fails at its deadline and was not sent.
async fn never_connects(options: HttpOptions, fault: &str, methods: &[&str]) -> Duration {
    let server = HttpServer::start(options).await;
    for method in methods {
        server.fault(fault).on(method).for_ever();
    }
    let arena = Arena::start(server, quick()).await;
    let call = arena.handle.call_tool("echo", json!({})).deadline(SHORT);
    let (outcome, took) = timed(call).await;
    let late = assert_unsent_and_late(outcome, took, fault);
    assert_eq!(arena.handle.status().state, StateName::Connecting);
    arena.end().await;
    late
}

/// An unanswered call fails at its deadline, and the next one works on the same connection.
async fn goes_on(options: HttpOptions, fault: &str) -> Duration {
    let arena = Arena::new(options).await;
    let (outcome, took) = arena.inject(fault, SHORT).await;
    let late = assert_sent_and_late(outcome, took, fault);
    arena.recovers(1).await;
    arena.end().await;
    late
}

/// An answer that stops in the middle of the stream of the session: the call fails at its deadline,
/// and the check replaces the connection.
async fn is_replaced(fault: &str) -> Duration {
    let mut settings = quick();
    settings.health.keepalive = millis(300);
    settings.health.keepalive_timeout = secs(2);
    let arena = Arena::with(HttpOptions::http_sse(), settings).await;
    let (outcome, took) = arena.inject(fault, SHORT).await;
    let late = assert_sent_and_late(outcome, took, fault);
    ready_after(&arena.handle, 1).await;
    arena.recovers(2).await;
    arena.end().await;
    late
}

#[tokio::test]
async fn figure_7_an_outcome_comes_at_the_deadline_whatever_is_silent_over_http_sse() {
    let sse = HttpOptions::http_sse();
    let mut latest = Duration::ZERO;
    for round in 0..size(1, 20) {
        for (fault, method) in [
            ("http-stall-headers", "GET"),
            ("http-half-open", "GET"),
            ("sse-no-endpoint", "GET"),
            ("http-stall-headers", "initialize"),
            ("http-202", "initialize"),
        ] {
            let connecting = async || never_connects(sse, fault, &[method]).await;
            latest = latest.max(at_best(TOLERANCE, connecting).await);
        }
        for fault in ["http-stall-headers", "http-202", "http-slow-drip=10"] {
            let late = at_best(TOLERANCE, async || goes_on(sse, fault).await).await;
            latest = latest.max(late);
        }
        let late = at_best(TOLERANCE, async || is_replaced("http-stall-body").await).await;
        latest = latest.max(late);
        println!("figure 7, http+sse: round {round}, at most {latest:?} after the deadline");
    }
}

#[tokio::test]
async fn figure_7_an_outcome_comes_at_the_deadline_whatever_is_silent() {
    let mut latest = Duration::ZERO;
    for round in 0..size(1, 20) {
        for fault in ["http-stall-headers", "http-half-open"] {
            let late = at_best(TOLERANCE, async || {
                let methods = ["initialize", "server/discover"];
                never_connects(HttpOptions::default(), fault, &methods).await
            })
            .await;
            latest = latest.max(late);
        }
        for options in [HttpOptions::default(), HttpOptions::sse()] {
            for fault in ["http-stall-headers", "http-stall-body", "http-slow-drip=50"] {
                let late = at_best(TOLERANCE, async || goes_on(options, fault).await).await;
                latest = latest.max(late);
            }
        }
        println!("figure 7, http: round {round}, at most {latest:?} after the deadline");
    }
}

#[tokio::test]
async fn figure_7_a_request_that_is_accepted_and_never_answered_has_an_outcome() {
    let arena = Arena::new(HttpOptions::default()).await;
    let (outcome, took) = arena.inject("http-202", SHORT).await;
    let error = outcome.unwrap_err();
    assert_eq!(error.known(), Known::Unknown, "{error:?}");
    assert!(took < SHORT + tolerance(), "{took:?}");
    arena.recovers(1).await;
    arena.end().await;
}

#[tokio::test]
async fn figure_7_a_half_open_socket_holds_nobody_beyond_the_deadline_and_is_found_by_the_check() {
    for options in [HttpOptions::default(), HttpOptions::http_sse()] {
        let mut settings = quick();
        settings.health.keepalive = millis(300);
        settings.health.keepalive_timeout = secs(2);
        let arena = Arena::with(options, settings).await;
        arena.recovers(1).await;
        arena.server.freeze(true);
        let call = arena.handle.call_tool("echo", json!({})).deadline(SHORT);
        let (outcome, took) = timed(call).await;
        let error = outcome.unwrap_err();
        assert!(matches!(error, CallError::Deadline { .. }), "{error:?}");
        assert!(took < SHORT + tolerance(), "{took:?}");
        let mut status = arena.handle.watch();
        let fault = eventually_in(DEADLINE, "the fault", &mut status, |status| {
            status.last_error.clone()
        })
        .await;
        assert_eq!(fault.class, FaultClass::Timeout, "{fault:?}");
        arena.server.freeze(false);
        ready_after(&arena.handle, 1).await;
        let call = arena.handle.call_tool("echo", json!({})).deadline(DEADLINE);
        call.await.unwrap();
        arena.end().await;
    }
}

#[tokio::test]
async fn control_figure_7_bare_rmcp_waits_for_ever() {
    let server = HttpServer::start(HttpOptions::default()).await;
    server.fault("http-stall-headers").on("initialize").once();
    assert!(bare::hangs(bare::serve(&server)).await);
    let faults = [
        "http-stall-headers",
        "http-stall-body",
        "http-202",
        "http-400-null-id",
    ];
    for fault in faults {
        let bare = Bare::connect(&server).await;
        assert!(bare::hangs(bare.inject(fault)).await, "{fault}");
    }
}

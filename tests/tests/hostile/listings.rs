//! Servers whose tool list never ends, is too long, or keeps changing. (Figure 19.)

use mcpvisor::{CallError, FaultClass, Known, RetryPolicy, ServerStatus};
use mcpvisor_testkit::{eventually, eventually_in};
use serde_json::json;

use crate::arena::*;
use crate::bare::{self, Bare};
use crate::fleet::*;

/// A listing that exceeds a limit: the last good one stays in use, and calls still work.
async fn last_good_is_kept(fault: &str, said: &str) {
    let arena = Arena::new(&[]).await;
    let good = arena.bad.catalog();
    assert!(good.tool("echo").is_some());
    arena.answered(fault).await;
    let mut status = arena.bad.watch();
    let (problem, took) = timed(eventually_in(
        DEADLINE,
        "the end of the listing",
        &mut status,
        |status| status.last_error.clone(),
    ))
    .await;
    println!("figure 19: {fault}: {problem} after {took:?}");
    assert_eq!(problem.class, FaultClass::Discovery);
    says(&problem, &[said]);
    let kept = arena.bad.catalog();
    assert_eq!(kept.tools, good.tools);
    assert!(kept.stale, "and it is said that it may be old");
    arena.recovers(1).await;
    arena.end().await;
}

#[tokio::test]
async fn figure_19_a_listing_without_end_stops_at_the_cap() {
    last_good_is_kept("endless-cursor", "more than 100 pages").await;
}

#[tokio::test]
async fn figure_19_a_listing_that_goes_round_stops() {
    last_good_is_kept("repeating-cursor", "a cursor that repeats").await;
}

#[tokio::test]
async fn figure_19_a_listing_that_is_too_long_is_refused() {
    last_good_is_kept("huge-tool-list=10001", "more than 10000 items").await;
}

#[tokio::test]
async fn control_figure_19_bare_rmcp_lists_for_ever() {
    for fault in ["endless-cursor", "repeating-cursor"] {
        let bare = Bare::connect(&[fault]).await;
        assert!(bare::hangs(bare.client.list_all_tools()).await, "{fault}");
    }
}

#[tokio::test]
async fn a_tool_that_changed_meanwhile_is_not_called_again() {
    let arena = Arena::new(&[]).await;
    arena.answered("change-tools").await;
    eventually(DEADLINE, "the change", || {
        let echo = arena.bad.catalog().tool("echo").cloned();
        echo.unwrap().description.unwrap().contains("version")
    })
    .await;
    let mut status = arena.bad.watch();
    let fresh = |status: &ServerStatus| status.is_ready();
    eventually_in(DEADLINE, "a fresh catalog", &mut status, fresh).await;
    arena.recovers(1).await;
    arena.end().await;

    let arena = Arena::new(&["change-tools"]).await;
    let killed = arena
        .bad
        .call_tool("kill_self", json!({}))
        .retry(RetryPolicy::Always)
        .deadline(DEADLINE);
    let error = killed.await.unwrap_err();
    assert!(matches!(error, CallError::ToolChanged { .. }), "{error:?}");
    assert_eq!(error.known(), Known::Unknown);
    arena.recovers(2).await;
    arena.end().await;
}

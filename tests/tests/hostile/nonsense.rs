//! Servers that send invalid messages. (Figure 8.)

use mcpvisor::{CallError, FaultClass, Known, NotSentReason, StateName};
use mcpvisor_testkit::eventually;
use serde_json::json;

use crate::arena::*;
use crate::bare::Bare;
use crate::fleet::*;

/// An unreadable reply to a known request: the call fails immediately, and the connection stays
/// open.
async fn unreadable(fault: &str, said: &[&str]) {
    let arena = Arena::new(&[]).await;
    let error = arena.at_once(fault).await;
    assert!(matches!(error, CallError::Unreadable { .. }), "{error:?}");
    assert_eq!(error.known(), Known::Answered);
    says(&error, &["bad", "tools/call"]);
    says(&error, said);
    arena.recovers(1).await;
    arena.end().await;
}

/// A line that matches no request: it is counted and completes no call.
async fn passed_over(fault: &str) {
    let arena = Arena::new(&[]).await;
    arena.at_its_deadline(fault).await;
    eventually(DEADLINE, "the line", || arena.bad.status().strays == 1).await;
    arena.recovers(1).await;
    arena.end().await;
}

#[tokio::test]
async fn figure_8_an_answer_that_is_cut_off_fails_its_call_at_once() {
    unreadable("truncated-json", &["the reply is not valid JSON"]).await;
}

#[tokio::test]
async fn an_answer_of_another_shape_fails_its_call_at_once() {
    unreadable("wrong-shape", &["invalid reply to tools/call"]).await;
}

#[tokio::test]
async fn an_answer_that_is_no_text_fails_its_call_at_once() {
    unreadable("bad-utf8", &["utf-8"]).await;
}

#[tokio::test]
async fn figure_8_garbage_is_passed_over() {
    passed_over("garbage").await;
}

#[tokio::test]
async fn figure_8_an_answer_to_something_else_is_passed_over() {
    passed_over("wrong-id").await;
    passed_over("foreign-id").await;
}

#[tokio::test]
async fn control_figure_8_bare_rmcp_gives_no_outcome() {
    let bare = Bare::connect(&[]).await;
    for fault in ["garbage", "truncated-json", "wrong-id", "foreign-id"] {
        assert!(bare.hangs(fault).await, "{fault}");
    }
}

#[tokio::test]
async fn only_the_first_of_many_answers_counts() {
    let arena = Arena::new(&[]).await;
    arena.answered("duplicate-answers=50").await;
    arena.recovers(1).await;
    assert_eq!(arena.bad.status().strays, 49);
    arena.end().await;
}

#[tokio::test]
async fn a_greeting_before_the_handshake_is_passed_over() {
    let arena = Arena::new(&["banner"]).await;
    arena.recovers(1).await;
    arena.end().await;
}

#[tokio::test]
async fn a_version_that_nobody_speaks_fails_for_good() {
    let arena = Arena::start(&["wrong-version"], quick()).await;
    reaches(&arena.bad, StateName::PermanentlyFailed).await;
    let call = arena.bad.call_tool("echo", json!({})).deadline(DEADLINE);
    let (outcome, took) = timed(call).await;
    let error = outcome.unwrap_err();
    assert!(took < tolerance(), "{took:?}");
    let failed = matches!(
        error,
        CallError::NotSent {
            reason: NotSentReason::Failed { .. },
            ..
        }
    );
    assert!(failed, "{error:?}");
    let fault = arena.bad.status().last_error.unwrap();
    assert_eq!(fault.class, FaultClass::IncompatibleVersion);
    arena.end().await;
}

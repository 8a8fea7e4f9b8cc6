//! Servers that never answer, or answer too late. (Figure 7.)

use std::time::Duration;

use mcpvisor::{CallError, StateName};
use mcpvisor_testkit::eventually;
use serde_json::json;

use crate::arena::*;
use crate::bare::{self, Bare};
use crate::fleet::*;

/// Larger than any pipe buffer.
const FILLING: usize = 4 * 1024 * 1024;

/// An unanswered handshake: the call fails at its deadline and was not sent.
async fn never_connects(fault: &str) -> Duration {
    let arena = Arena::start(&[fault], quick()).await;
    let call = arena.bad.call_tool("echo", json!({})).deadline(SHORT);
    let (outcome, took) = timed(call).await;
    says(outcome.as_ref().unwrap_err(), &["bad", "connecting"]);
    let late = assert_unsent_and_late(outcome, took, fault);
    assert_eq!(arena.bad.status().state, StateName::Connecting);
    arena.end().await;
    late
}

/// An unanswered call fails at its deadline, and the next one works on the same connection.
async fn goes_on(fault: &str) -> Duration {
    let arena = Arena::new(&[]).await;
    let (outcome, took) = arena.inject(fault, SHORT).await;
    let late = assert_sent_and_late(outcome, took, fault);
    arena.recovers(1).await;
    arena.end().await;
    late
}

/// A call to a server that has stopped responding.
async fn says_no_more(fault: &str) -> Duration {
    let arena = Arena::new(&[]).await;
    let (outcome, took) = arena.inject(fault, SHORT).await;
    let late = assert_sent_and_late(outcome, took, fault);
    arena.end().await;
    late
}

#[tokio::test]
async fn figure_7_an_outcome_comes_at_the_deadline_whatever_is_silent() {
    let mut latest = Duration::ZERO;
    for round in 0..size(1, 20) {
        for fault in ["mute-initialize", "sigstop-on-initialize"] {
            let late = at_best(TOLERANCE, async || never_connects(fault).await).await;
            latest = latest.max(late);
        }
        for fault in ["mute-calls", "late-answer=1000"] {
            let late = at_best(TOLERANCE, async || goes_on(fault).await).await;
            latest = latest.max(late);
        }
        for fault in ["sigstop-on-call", "slow-drip=50", "stop-reading-stdin"] {
            let late = at_best(TOLERANCE, async || says_no_more(fault).await).await;
            latest = latest.max(late);
        }
        println!("figure 7: round {round}, at most {latest:?} after the deadline");
    }
}

#[tokio::test]
async fn control_figure_7_bare_rmcp_waits_for_ever() {
    for fault in ["mute-initialize", "sigstop-on-initialize"] {
        let left = bare::left();
        assert!(
            bare::hangs(bare::serve((), &left, &[fault])).await,
            "{fault}"
        );
    }
    for fault in ["mute-calls", "sigstop-on-call", "stop-reading-stdin"] {
        let bare = Bare::connect(&[]).await;
        assert!(bare.hangs(fault).await, "{fault}");
    }
}

#[tokio::test]
async fn a_full_pipe_that_nobody_reads_holds_up_no_call_beyond_its_deadline() {
    let arena = Arena::new(&[]).await;
    arena.at_its_deadline("stop-reading-stdin").await;
    let arguments = json!({ "text": "x".repeat(FILLING) });
    for number in 0..3 {
        let call = arena.bad.call_tool("echo", arguments.clone());
        let (outcome, took) = timed(call.deadline(SHORT)).await;
        if number == 0 {
            // Part of the call is in the pipe, so the server may have received it.
            assert_sent_and_late(outcome, took, "the call that fills the pipe");
            continue;
        }
        let error = outcome.unwrap_err();
        assert!(matches!(error, CallError::Deadline { .. }), "{error:?}");
        assert!(took < SHORT + tolerance(), "{took:?}");
    }
    arena.end().await;
}

#[tokio::test]
async fn a_late_answer_reaches_no_other_call() {
    let arena = Arena::new(&[]).await;
    arena.at_its_deadline("late-answer=600").await;
    // Other calls work while it arrives, and each gets its own reply.
    for number in 0..100 {
        let call = arena
            .bad
            .call_tool("sleep", json!({ "ms": 5, "number": number }));
        let answer = structured(call.deadline(DEADLINE).await);
        assert_eq!(answer["number"], number);
    }
    eventually(DEADLINE, "it was passed over", || {
        arena.bad.status().strays == 1
    })
    .await;
    arena.recovers(1).await;
    arena.end().await;
}

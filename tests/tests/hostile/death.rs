//! Servers that die, stop or close their pipes in the middle of a call.

use mcpvisor::for_model::ModelText;
use mcpvisor::{CallError, FaultClass, Known, NotSentReason, StateName, Transport};
use mcpvisor_testkit::eventually_in;
use mcpvisor_testkit::processes::Process;
use serde_json::json;

use crate::arena::*;
use crate::bare::Bare;
use crate::fleet::*;
use crate::shell_server;

/// A fault that ends the connection: the call fails immediately with an unknown outcome, and the
/// next one works on a new connection.
async fn ends_the_connection(fault: &str, said: &[&str]) {
    let arena = Arena::new(&[]).await;
    let error = arena.at_once(fault).await;
    assert!(
        matches!(error, CallError::OutcomeUnknown { .. }),
        "{error:?}"
    );
    assert_eq!(error.known(), Known::Unknown);
    says(&error, &["bad", "tools/call"]);
    says(&error, said);
    arena.recovers(2).await;
    arena.end().await;
}

#[tokio::test]
async fn a_server_that_exits_is_noticed_at_once() {
    ends_the_connection("exit-on-call=7", &["exited with code 7"]).await;
}

#[tokio::test]
async fn a_server_that_is_killed_is_noticed_at_once() {
    ends_the_connection("kill-on-call", &["killed by signal 9"]).await;
}

#[tokio::test]
async fn a_server_that_closes_its_stdout_and_stays_is_noticed_at_once() {
    ends_the_connection("close-stdout-on-call", &["closed its stdout"]).await;
}

#[tokio::test]
async fn a_death_is_noticed_at_once_though_a_grandchild_holds_stdout() {
    ends_the_connection("grandchild-holds-stdout", &["killed by signal 9"]).await;
}

#[tokio::test]
async fn a_server_that_exits_is_noticed_though_a_grandchild_holds_its_stdout() {
    let fleet = shell_server::Fleet::start("sleep 100 & exit 3").await;
    shell_server::assert_lost(fleet.fails().await, "code 3");
    fleet.end().await;
}

#[tokio::test]
async fn control_bare_rmcp_does_not_notice_a_death_while_a_grandchild_holds_stdout() {
    let bare = Bare::connect(&[]).await;
    assert!(bare.hangs("grandchild-holds-stdout").await);
}

#[tokio::test]
async fn half_an_answer_is_none() {
    ends_the_connection("half-answer-exit", &["exited with code 1"]).await;
}

#[tokio::test]
async fn a_call_that_a_closed_stdin_does_not_take_is_sent_to_the_next_connection() {
    let arena = Arena::new(&[]).await;
    arena.answered("close-stdin-on-call").await;
    // None of the next call was written, so it is sent on the next connection.
    arena.recovers(2).await;
    arena.end().await;
}

#[tokio::test]
async fn a_call_to_a_stopped_server_ends_at_its_deadline() {
    let arena = Arena::new(&[]).await;
    arena.at_its_deadline("sigstop-on-call").await;
    assert_eq!(arena.marker.processes()[0].state, 'T', "it did stop");
    // The server stops although it only reacts to SIGKILL.
    let report = arena.end().await;
    assert!(!report.is_clean(), "{report:?}");
}

#[tokio::test]
async fn a_stopped_server_is_found_by_the_check_and_replaced() {
    let mut settings = quick();
    settings.health.keepalive = millis(300);
    settings.health.keepalive_timeout = secs(2);
    let arena = Arena::start(&[], settings).await;
    arena.recovers(1).await;
    let stopped = pid(&arena.bad).await;
    arena.at_its_deadline("sigstop-on-call").await;
    let mut status = arena.bad.watch();
    let fault = eventually_in(DEADLINE, "the fault", &mut status, |status| {
        status.last_error.clone()
    })
    .await;
    assert_eq!(fault.class, FaultClass::Timeout);
    ready_after(&arena.bad, 1).await;
    assert_eq!(Process::read(stopped), None, "and the old one is gone");
    arena.recovers(2).await;
    arena.end().await;
}

#[tokio::test]
async fn a_server_that_exits_in_every_handshake_is_parked_and_says_why() {
    let mut settings = quick();
    settings.budget.attempts = 3;
    let arena = Arena::start(&["exit-on-initialize=5"], settings).await;
    reaches(&arena.bad, StateName::Disconnected).await;
    let call = arena.bad.call_tool("echo", json!({})).deadline(DEADLINE);
    let (outcome, took) = timed(call).await;
    let error = outcome.unwrap_err();
    // A call wakes the server once more, but not within a second of the last attempt.
    assert!(took < secs(1) + tolerance(), "{took:?}");
    let parked = matches!(
        error,
        CallError::NotSent {
            reason: NotSentReason::Parked(_),
            ..
        }
    );
    assert!(parked, "{error:?}");
    says(&error, &["bad", "exited with code 5"]);
    arena.end().await;
}

/// The error text shows the last lines of stderr and `stderr()` returns more of it; `model_text()`
/// shows none.
#[tokio::test]
async fn the_stderr_of_a_child_is_beside_its_error() {
    let script = "for i in $(seq 50); do echo \"  at frame $i\" >&2; done; echo 'Error: no database' >&2; exit 3";
    let mut dead = server("dead", Transport::stdio("sh").args(["-c", script]));
    dead.settings.timeouts.reconnect_wait = millis(500);
    dead.settings.budget.attempts = 2;
    let runtime = fleet([dead]).await;
    let server = runtime.server("dead").unwrap();
    let call = server.call_tool("any", json!({}));
    let error = tokio::time::timeout(DEADLINE, call).await.unwrap();
    let error = error.unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("at frame 49 | at frame 50 | Error: no database"),
        "{text}"
    );
    assert!(text.len() < 400 && !text.contains('\n'), "{text}");
    let stderr = error.stderr().unwrap();
    assert!(stderr.contains("at frame 1\n") && stderr.ends_with("Error: no database"));
    let for_model = error.model_text();
    assert!(
        !for_model.contains("frame") && !for_model.contains("database"),
        "{for_model}"
    );
    assert!(for_model.contains("exited with code 3"), "{for_model}");
    let fault = server.status().last_error.unwrap();
    assert!(!fault.message.contains("stderr"), "{fault:?}");
    assert_eq!(fault.stderr.as_deref(), Some(stderr));
    runtime.shutdown(DEADLINE).await;
}

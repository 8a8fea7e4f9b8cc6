//! Servers that send invalid messages. (Figure 8.)

use mcpvisor::{CallError, Known};
use mcpvisor_testkit::http_server::HttpOptions;

use crate::arena::*;

const BOTH: fn() -> [HttpOptions; 2] = || [HttpOptions::default(), HttpOptions::sse()];

/// An unreadable reply to a known request: the call fails immediately, and the connection stays
/// open.
async fn unreadable(fault: &str) {
    for options in BOTH() {
        let arena = Arena::new(options).await;
        let error = arena.at_once(fault).await;
        assert!(matches!(error, CallError::Unreadable { .. }), "{error:?}");
        assert_eq!(error.known(), Known::Answered);
        says(&error, &["web", "tools/call"]);
        arena.recovers(1).await;
        arena.end().await;
    }
}

/// A closed connection instead of a reply: the call fails immediately, and nothing is repeated.
async fn outcome_unknown(fault: &str) {
    for options in BOTH() {
        let arena = Arena::new(options).await;
        let error = arena.at_once(fault).await;
        assert_eq!(error.known(), Known::Unknown, "{fault}: {error:?}");
        says(&error, &["web", "tools/call"]);
        assert_eq!(arena.server.requests("tools/call"), 1, "{fault}");
        arena.recovers(1).await;
        arena.end().await;
    }
}

#[tokio::test]
async fn figure_8_another_content_type_fails_its_call_at_once() {
    unreadable("http-content-type").await;
}

#[tokio::test]
async fn figure_8_half_of_a_json_body_fails_its_call_at_once() {
    unreadable("http-bad-json").await;
}

#[tokio::test]
async fn figure_8_an_answer_that_is_nested_too_deep_fails_its_call_at_once() {
    unreadable("http-nesting=200").await;
    // Deep enough to overflow the stack of a recursive parser.
    unreadable("http-nesting=4000000").await;
}

#[tokio::test]
async fn figure_8_an_event_that_is_no_json_and_an_answer_to_something_else_have_an_outcome() {
    for fault in ["http-bad-event", "http-wrong-id"] {
        for options in BOTH() {
            let arena = Arena::new(options).await;
            let error = arena.at_once(fault).await;
            let known = matches!(error.known(), Known::Unknown | Known::Answered);
            assert!(known, "{fault}: {error:?}");
            says(&error, &["web", "tools/call"]);
            arena.recovers(1).await;
            arena.end().await;
        }
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_none_and_its_call_is_not_repeated() {
    for fault in ["http-close", "http-drop", "http-empty-stream"] {
        outcome_unknown(fault).await;
    }
}

#[tokio::test]
async fn a_refusal_that_names_nobody_is_the_answer_to_its_request() {
    let arena = Arena::new(HttpOptions::default()).await;
    let error = arena.at_once("http-400-null-id").await;
    let known = matches!(error.known(), Known::Refused | Known::Answered);
    assert!(known, "{error:?}");
    says(&error, &["web", "Invalid request parameters"]);
    arena.recovers(1).await;
    arena.end().await;
}

#[tokio::test]
async fn what_only_reads_is_repeated_once_when_its_answer_breaks_off() {
    for fault in [
        "http-close",
        "http-drop",
        "http-status=500",
        "http-status=502",
    ] {
        let arena = Arena::new(HttpOptions::default()).await;
        arena.server.fault(fault).on("resources/read").once();
        arena.ask("resources/read").await.unwrap();
        assert_eq!(arena.server.requests("resources/read"), 2, "{fault}");
        arena.server.fault(fault).on("prompts/get").for_ever();
        let error = arena.ask("prompts/get").await.unwrap_err();
        assert_eq!(error.known(), Known::Unknown, "{fault}: {error:?}");
        assert_eq!(arena.server.requests("prompts/get"), 2, "{fault}: no loop");
        arena.end().await;
    }
}

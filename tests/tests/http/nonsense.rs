//! Servers that send invalid messages. (Figure 8.)

use mcpvisor::{CallError, Known};
use mcpvisor_testkit::eventually;
use mcpvisor_testkit::http_server::HttpOptions;

use crate::arena::*;
use crate::fleet::*;

const BOTH: fn() -> [HttpOptions; 2] = || [HttpOptions::default(), HttpOptions::sse()];

const ALL: fn() -> [HttpOptions; 3] = || {
    let [json, events] = BOTH();
    [json, events, HttpOptions::http_sse()]
};

/// An unreadable reply to a known request: the call fails immediately, and the connection stays
/// open.
async fn unreadable(options: impl IntoIterator<Item = HttpOptions>, fault: &str) {
    for options in options {
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
    unreadable(BOTH(), "http-content-type").await;
}

#[tokio::test]
async fn figure_8_half_of_a_json_body_fails_its_call_at_once() {
    unreadable(ALL(), "http-bad-json").await;
}

#[tokio::test]
async fn figure_8_an_answer_that_is_nested_too_deep_fails_its_call_at_once() {
    unreadable(ALL(), "http-nesting=200").await;
    // Deep enough to overflow the stack of a recursive parser.
    unreadable(ALL(), "http-nesting=4000000").await;
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

/// On the stream of a session, such an event belongs to no request.
#[tokio::test]
async fn figure_8_an_event_that_answers_nothing_leaves_its_call_to_the_deadline_over_http_sse() {
    for fault in ["http-bad-event", "http-wrong-id"] {
        let arena = Arena::new(HttpOptions::http_sse()).await;
        let (outcome, took) = arena.inject(fault, SHORT).await;
        assert_sent_and_late(outcome, took, fault);
        let counted = || arena.handle.status().strays == 1;
        eventually(DEADLINE, "the stray", counted).await;
        arena.recovers(1).await;
        arena.end().await;
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_none_and_its_call_is_not_repeated_over_http_sse() {
    for (fault, generation) in [
        ("http-close", 1),
        ("http-drop", 2),
        ("http-empty-stream", 2),
    ] {
        let arena = Arena::new(HttpOptions::http_sse()).await;
        let error = arena.at_once(fault).await;
        assert_eq!(error.known(), Known::Unknown, "{fault}: {error:?}");
        says(&error, &["web", "tools/call"]);
        assert_eq!(arena.server.requests("tools/call"), 1, "{fault}");
        arena.recovers(generation).await;
        arena.end().await;
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
    let faults = [
        "http-close",
        "http-drop",
        "http-status=500",
        "http-status=502",
    ];
    let both = [HttpOptions::default(), HttpOptions::http_sse()];
    for (fault, options) in faults.iter().flat_map(|fault| both.map(|it| (*fault, it))) {
        let arena = Arena::new(options).await;
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

//! Servers that send oversized replies. (Figure 8.)

use std::time::Duration;

use mcpvisor::{CallError, Known};
use mcpvisor_testkit::http_server::{HttpOptions, HttpServer};
use mcpvisor_testkit::in_own_process;
use mcpvisor_testkit::leaks::{Snapshot, peak_memory};

use crate::arena::*;
use crate::bare::Bare;
use crate::fleet::*;

const MIB: u64 = 1024 * 1024;

/// The maximum size of a body and of an event.
const CAP: u64 = 16 * MIB;

/// Deadline of one test in its own process.
const LIMIT: Duration = Duration::from_secs(180);

/// Checks that reading has grown the memory of this process by at most three times the limit. The
/// server runs in the same process, and buffers little of what it writes.
fn within_three_caps(what: &str, before: u64) {
    let grown = peak_memory().saturating_sub(before);
    println!(
        "figure 8, http: {what}: memory +{} MiB at the most",
        grown / MIB
    );
    assert!(grown < 3 * CAP, "{what}: +{} MiB", grown / MIB);
}

/// A reply that exceeds a limit: the call fails and names the limit, and the next one works.
async fn refused(options: HttpOptions, fault: &str, said: &str) {
    let arena = Arena::new(options).await;
    let before = Snapshot::take().memory;
    let (outcome, took) = arena.inject(fault, DEADLINE).await;
    let error = outcome.unwrap_err();
    assert!(matches!(error, CallError::Unreadable { .. }), "{error:?}");
    assert_eq!(error.known(), Known::Answered);
    says(&error, &["web", said]);
    println!("figure 8, http: {fault}: an outcome after {took:?}");
    within_three_caps(fault, before);
    assert_eq!(arena.server.requests("tools/call"), 1, "{fault}");
    arena.recovers(1).await;
    arena.end().await;
}

#[test]
fn figure_8_a_json_body_without_an_end_is_refused_at_the_cap() {
    let name = "oversize::figure_8_a_json_body_without_an_end_is_refused_at_the_cap";
    in_own_process(name, LIMIT, async || {
        refused(HttpOptions::default(), "http-endless-body", "16 MiB").await;
    });
}

#[test]
fn figure_8_an_event_without_an_end_is_refused_at_the_cap() {
    let name = "oversize::figure_8_an_event_without_an_end_is_refused_at_the_cap";
    in_own_process(name, LIMIT, async || {
        refused(HttpOptions::sse(), "http-endless-event", "16 MiB").await;
    });
}

#[test]
fn figure_8_a_body_and_an_event_beyond_the_cap_are_refused() {
    let name = "oversize::figure_8_a_body_and_an_event_beyond_the_cap_are_refused";
    in_own_process(name, LIMIT, async || {
        let size = size(40, 400) as u64 * MIB;
        for options in [HttpOptions::default(), HttpOptions::sse()] {
            refused(options, &format!("http-body={size}"), "16 MiB").await;
        }
    });
}

#[test]
fn figure_8_an_answer_of_too_many_values_is_refused_before_it_is_read() {
    let name = "oversize::figure_8_an_answer_of_too_many_values_is_refused_before_it_is_read";
    in_own_process(name, LIMIT, async || {
        let sse = HttpOptions::http_sse();
        for options in [HttpOptions::default(), HttpOptions::sse(), sse] {
            refused(options, "http-values=4000000", "JSON values").await;
        }
    });
}

#[test]
fn figure_8_an_event_beyond_the_cap_is_skipped_on_the_stream_of_a_session() {
    let name = "oversize::figure_8_an_event_beyond_the_cap_is_skipped_on_the_stream_of_a_session";
    in_own_process(name, LIMIT, async || {
        for size in [17 * MIB, 40 * MIB] {
            let fault = format!("http-body={size}");
            refused(HttpOptions::http_sse(), &fault, "16 MiB").await;
        }
    });
}

#[test]
fn figure_8_an_event_without_an_end_ends_the_stream_of_a_session() {
    let name = "oversize::figure_8_an_event_without_an_end_ends_the_stream_of_a_session";
    in_own_process(name, LIMIT, async || {
        for fault in [
            "http-endless-event".to_owned(),
            format!("http-body={}", 400 * MIB),
        ] {
            let arena = Arena::new(HttpOptions::http_sse()).await;
            let before = Snapshot::take().memory;
            let (outcome, took) = arena.inject(&fault, DEADLINE).await;
            let error = outcome.unwrap_err();
            assert_eq!(error.known(), Known::Unknown, "{error:?}");
            says(&error, &["web", "16 MiB"]);
            println!("figure 8, http+sse: {fault}: an outcome after {took:?}");
            within_three_caps(&fault, before);
            assert_eq!(arena.server.requests("tools/call"), 1, "{fault}");
            arena.recovers(2).await;
            arena.end().await;
        }
    });
}

#[tokio::test]
async fn an_answer_just_within_the_cap_is_read() {
    let sse = HttpOptions::http_sse();
    for options in [HttpOptions::default(), HttpOptions::sse(), sse] {
        let arena = Arena::new(options).await;
        let fault = format!("http-body={}", 15 * MIB);
        let answer = arena.inject(&fault, DEADLINE).await.0.unwrap();
        let text = answer.content[0].as_text().unwrap().text.len();
        assert_eq!(text as u64, 15 * MIB);
        arena.recovers(1).await;
        arena.end().await;
    }
}

#[test]
fn control_figure_8_bare_rmcp_reads_any_json_body_into_memory() {
    let name = "oversize::control_figure_8_bare_rmcp_reads_any_json_body_into_memory";
    in_own_process(name, LIMIT, async || {
        let server = HttpServer::start(HttpOptions::default()).await;
        let bare = Bare::connect(&server).await;
        let before = Snapshot::take().memory;
        let endless = bare.inject("http-endless-body");
        let ended = tokio::time::timeout(secs(2), endless).await;
        assert!(ended.is_err(), "it never stops reading: {ended:?}");
        let grown = peak_memory() - before;
        println!("figure 8, http, bare rmcp: +{} MiB", grown / MIB);
        assert!(grown > 3 * CAP, "+{} MiB", grown / MIB);
    });
}

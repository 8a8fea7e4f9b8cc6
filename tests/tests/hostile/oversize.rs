//! Servers that send oversized replies. (Figure 8.)

use mcpvisor::{CallError, Known};
use mcpvisor_testkit::in_own_process;
use mcpvisor_testkit::leaks::{Snapshot, peak_memory};
use serde_json::json;

use crate::arena::*;
use crate::bare::Bare;
use crate::fleet::*;
use crate::shell_server;

const MIB: u64 = 1024 * 1024;

/// The maximum line length.
const CAP: u64 = 16 * MIB;

/// Deadline of one test in its own process.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(180);

/// A reply that exceeds a limit: the call fails and names the limit, and the connection stays open.
async fn refused(arena: &Arena, fault: &str, said: &str) {
    let (outcome, took) = arena.inject(fault, DEADLINE).await;
    let error = outcome.unwrap_err();
    assert!(matches!(error, CallError::Unreadable { .. }), "{error:?}");
    assert_eq!(error.known(), Known::Answered);
    says(&error, &["bad", said]);
    println!("figure 8: {fault}: an outcome after {took:?}");
    arena.recovers(1).await;
}

/// Checks that reading has grown the memory of this process by at most three times the line limit.
fn within_three_caps(what: &str, before: u64) {
    let grown = peak_memory().saturating_sub(before);
    println!("figure 8: {what}: memory +{} MiB at the most", grown / MIB);
    assert!(grown < 3 * CAP, "{what}: +{} MiB", grown / MIB);
}

#[test]
fn figure_8_an_answer_that_is_nested_too_deep_is_refused() {
    let name = "oversize::figure_8_an_answer_that_is_nested_too_deep_is_refused";
    in_own_process(name, LIMIT, async || {
        let arena = Arena::new(&[]).await;
        let before = Snapshot::take().memory;
        refused(&arena, "nesting=200", "nested deeper than 128").await;
        // Deep enough to overflow the stack of a recursive parser.
        refused(&arena, "nesting=4000000", "nested deeper than 128").await;
        within_three_caps("nesting", before);
        arena.end().await;
    });
}

#[test]
fn figure_8_a_line_beyond_the_cap_is_refused() {
    let name = "oversize::figure_8_a_line_beyond_the_cap_is_refused";
    in_own_process(name, LIMIT, async || {
        let arena = Arena::new(&[]).await;
        let before = Snapshot::take().memory;
        refused(&arena, &format!("line={}", 17 * MIB), "longer than 16 MiB").await;
        // Does not wait for the end of this line.
        let endless = format!("line={}", size(100, 400) as u64 * MIB);
        let (outcome, took) = arena.inject(&endless, DEADLINE).await;
        let error = outcome.unwrap_err();
        assert!(
            matches!(error, CallError::OutcomeUnknown { .. }),
            "{error:?}"
        );
        says(&error, &["bad", "longer than 64 MiB"]);
        println!("figure 8: {endless}: an outcome after {took:?}");
        within_three_caps("a long line", before);
        arena.recovers(2).await;
        arena.end().await;
    });
}

#[test]
fn a_line_just_within_the_cap_is_answered() {
    let name = "oversize::a_line_just_within_the_cap_is_answered";
    in_own_process(name, LIMIT, async || {
        let arena = Arena::new(&[]).await;
        let before = Snapshot::take().memory;
        let answer = arena.answered(&format!("line={}", 15 * MIB)).await;
        let text = answer.content[0].as_text().unwrap().text.len();
        assert_eq!(text as u64, 15 * MIB);
        within_three_caps("15 MiB in one line", before);
        arena.recovers(1).await;
        arena.end().await;
    });
}

#[test]
fn figure_8_an_answer_of_too_many_values_is_refused_before_it_is_read() {
    let name = "oversize::figure_8_an_answer_of_too_many_values_is_refused_before_it_is_read";
    in_own_process(name, LIMIT, async || {
        let arena = Arena::new(&[]).await;
        let before = Snapshot::take().memory;
        refused(&arena, "values=8000000", "more than 262144 JSON values").await;
        within_three_caps("a line of 1,1,…", before);
        arena.end().await;
    });
}

#[test]
fn control_figure_8_bare_rmcp_reads_all_values_into_memory() {
    let name = "oversize::control_figure_8_bare_rmcp_reads_all_values_into_memory";
    in_own_process(name, LIMIT, async || {
        let bare = Bare::connect(&[]).await;
        let before = Snapshot::take().memory;
        // Far below the line limit.
        let values = size(2_000_000, 8_000_000);
        let _ = bare.inject(&format!("values={values}")).await;
        let grown = peak_memory() - before;
        println!("figure 8, bare rmcp: +{} MiB", grown / MIB);
        assert!(grown > 3 * CAP, "+{} MiB", grown / MIB);
    });
}

#[tokio::test]
async fn control_figure_8_bare_rmcp_gives_no_outcome_of_a_long_line() {
    let bare = Bare::connect(&[]).await;
    assert!(bare.hangs(&format!("line={}", 17 * MIB)).await);
}

/// The error that the server gets for a request of this size, sent after `before`.
async fn refusal(before: &str, size: &str) -> String {
    let ask = r#"BEFORE
        printf '{"jsonrpc":"2.0","id":"theirs","method":"roots/list","params":{"x":"'; SIZE; say '"}}'
        while IFS= read -r line; do case $line in *'"theirs"'*) break;; esac; done
        answer "$id" '{"content":[],"structuredContent":'"$line"'}'"#;
    let fleet =
        shell_server::Fleet::start(&ask.replace("BEFORE", before).replace("SIZE", size)).await;
    let call = fleet.hostile.call_tool("worst", json!({}));
    let told = call.deadline(DEADLINE).await.unwrap();
    fleet.decent.call_tool("fine", json!({})).await.unwrap();
    fleet.end().await;
    let told = told.structured_content.unwrap();
    told["error"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_request_that_is_not_read_is_answered_all_the_same() {
    let large = "the request is too large for this client";
    assert_eq!(refusal("", "mib 2 x").await, large);
    assert_eq!(refusal("", "mib 20 x").await, large);
    // Behind a full queue of messages, unless the machine was slow.
    let log =
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;
    let burst = format!("yes '{log}' | head -n 10000");
    let told = refusal(&burst, "head -c 400000 /dev/zero | tr '\\0' x").await;
    let expected = [
        "too many messages at once; ask again later",
        "this client does not offer that",
    ];
    assert!(expected.contains(&&*told), "{told}");
}

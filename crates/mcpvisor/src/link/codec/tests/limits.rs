//! What is too large, too deep or too much.

use super::*;

/// A line with a result of ours, whose id stands in front or behind.
fn both_ways(result: &str) -> [String; 2] {
    [
        format!(r#"{{"jsonrpc":"2.0","id":7,"result":{result}}}"#),
        format!(r#"{{"jsonrpc":"2.0","result":{result},"id":7}}"#),
    ]
}

fn problem_of(line: &str) -> String {
    match read(line, ReplyKind::CallTool) {
        Inbound::Unreadable {
            id: CallId(7),
            problem,
        } => problem,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_reply_beyond_a_bound_fails_its_call_and_names_the_bound() {
    let deep = "[".repeat(128) + &"]".repeat(128);
    // An acknowledgement is not read any further, and a member that nobody knows is skipped.
    let hidden = format!(r#"{{"content":[],"x":{deep}}}"#);
    let values = format!(r#"{{"structuredContent":[{}1]}}"#, "1,".repeat(262_144));
    let objects = r#"{"a":0},"#.repeat(60_000);
    let memory = format!(r#"{{"structuredContent":[{objects}1]}}"#);
    for (result, named) in [
        (&deep, "nested deeper than 128"),
        (&hidden, "nested deeper than 128"),
        (&values, "more than 262144 JSON values"),
        (&memory, "more than 48 MiB"),
    ] {
        for line in both_ways(result) {
            let problem = problem_of(&line);
            assert!(problem.contains(named), "{problem}");
        }
    }
}

#[test]
fn a_bound_is_no_matter_for_what_nobody_waits_for() {
    let deep = "[".repeat(200) + &"]".repeat(200);
    for line in [
        format!(r#"{{"jsonrpc":"2.0","id":8,"result":{deep}}}"#),
        format!(r#"{{"jsonrpc":"2.0","x":{deep}}}"#),
        deep.clone(),
    ] {
        assert!(is_stray(&read(&line, ReplyKind::Any)), "{line}");
    }
    let tools = r#""method":"notifications/tools/list_changed""#;
    let line = format!(r#"{{"jsonrpc":"2.0","params":{deep},{tools}}}"#);
    assert!(matches!(
        decode(
            line.as_bytes(),
            check_limits(line.as_bytes(), &Default::default()),
            &Seven(ReplyKind::Any),
            |_| true
        ),
        Decoded::Dropped([ListKind::Tools])
    ));
}

#[test]
fn a_reply_that_breaks_before_its_id_is_told_is_not_lost_either() {
    for line in [
        r#"{"jsonrpc":"2.0","result":{"x":nonsense},"id":7}"#,
        r#"{"result":{"x":[1,2},"id":7,"jsonrpc":"2.0"}"#,
    ] {
        assert!(problem_of(line).contains("not valid JSON"), "{line}");
    }
    // The number may go on where the line was cut off.
    let cut = r#"{"jsonrpc":"2.0","result":{},"id":7"#;
    assert!(is_stray(&read(cut, ReplyKind::CallTool)));
}

#[test]
fn a_large_result_is_read_as_what_is_expected_or_not_at_all() {
    let text = "x".repeat(100_000);
    let whole = reply(json!({"content": [{"type": "text", "text": text}]}));
    assert!(matches!(
        read(&whole, ReplyKind::CallTool),
        Inbound::Response { result: Ok(_), .. }
    ));
    assert!(problem_of(&reply(json!({"content": text}))).contains("cannot be read"));
    let odd = json!({"jsonrpc": "2.0", "id": 7, "error": {"code": "odd", "message": text}});
    assert!(problem_of(&odd.to_string()).contains("cannot be read"));
}

#[test]
fn without_room_replies_are_read_and_nothing_else_is() {
    let decode = |line: &str| {
        decode(
            line.as_bytes(),
            check_limits(line.as_bytes(), &Default::default()),
            &Seven(ReplyKind::Any),
            |_| false,
        )
    };
    let answer = reply(json!({}));
    assert!(matches!(decode(&answer), Decoded::Reply(_)));
    assert!(matches!(decode("banner"), Decoded::DroppedNoise));
    assert!(matches!(
        decode(r#"{"jsonrpc":"2.0","id":8,"result":{}}"#),
        Decoded::DroppedNoise
    ));
    for (message, changed) in [
        (r#""method":"notifications/message""#, &[] as &[ListKind]),
        (
            r#""method":"notifications/tools/list_changed""#,
            &[ListKind::Tools],
        ),
        (
            r#""method":"notifications\/tools\/list_changed""#,
            &[ListKind::Tools],
        ),
        (
            r#""method":"notifications/prompts/list_changed","params":{}"#,
            &[ListKind::Prompts],
        ),
        (
            r#""method":"notifications/resources/list_changed""#,
            &[ListKind::Resources, ListKind::Templates],
        ),
    ] {
        let decoded = decode(&format!(r#"{{"jsonrpc":"2.0",{message}}}"#));
        assert!(
            matches!(decoded, Decoded::Dropped(lists) if lists == changed),
            "{message}: {decoded:?}"
        );
    }
    for method in ["ping", "notifications/tools/list_changed"] {
        let decoded = decode(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#
        ));
        assert!(is_refused_request(
            &decoded,
            &RequestId::Number(1),
            RejectReason::TooMany
        ));
    }
}

fn is_refused_request(decoded: &Decoded, id: &RequestId, why: RejectReason) -> bool {
    matches!(decoded, Decoded::RejectedRequest(refused, because) if refused == id && *because == why)
}

#[test]
fn what_nobody_asked_for_must_not_be_large() {
    let decode = |id: &str, text: &str| {
        let line = format!(r#"{{"jsonrpc":"2.0",{id}"method":"x","params":{{"a":{text}}}}}"#);
        let line = line.as_bytes();
        decode(
            line,
            check_limits(line, &Default::default()),
            &Seven(ReplyKind::Any),
            |_| true,
        )
    };
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    for text in [format!("\"{}\"", "x".repeat(MAX_UNSOLICITED_BYTES)), deep] {
        assert!(matches!(decode("", &text), Decoded::Dropped([])));
        let theirs = RequestId::String("theirs".into());
        let decoded = decode(r#""id":"theirs","#, &text);
        assert!(is_refused_request(
            &decoded,
            &theirs,
            RejectReason::TooLarge
        ));
        // An id that is large itself is not kept, and one that is none cannot be answered.
        let long = format!(r#""id":"{}","#, "x".repeat(1_000));
        for id in [&long, r#""id":[1],"#] {
            assert!(matches!(decode(id, &text), Decoded::Dropped([])), "{id}");
        }
    }
}

//! Messages that exceed a limit or the capacity.

use super::*;

/// A reply with its id before and after the result.
fn with_id_on_either_side(result: &str) -> [String; 2] {
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
fn a_reply_beyond_a_limit_fails_its_call_and_names_the_limit() {
    let deep = "[".repeat(128) + &"]".repeat(128);
    // The depth also counts in members that the decoder skips.
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
        for line in with_id_on_either_side(result) {
            let problem = problem_of(&line);
            assert!(problem.contains(named), "{problem}");
        }
    }
}

#[test]
fn other_messages_beyond_a_limit_are_stray_or_dropped() {
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
fn a_reply_that_is_invalid_before_its_id_fails_its_request() {
    for line in [
        r#"{"jsonrpc":"2.0","result":{"x":nonsense},"id":7}"#,
        r#"{"result":{"x":[1,2},"id":7,"jsonrpc":"2.0"}"#,
    ] {
        assert!(problem_of(line).contains("not valid JSON"), "{line}");
    }
    // The number may be cut off.
    let cut = r#"{"jsonrpc":"2.0","result":{},"id":7"#;
    assert!(is_stray(&read(cut, ReplyKind::CallTool)));
}

#[test]
fn a_large_result_is_decoded_only_as_the_expected_kind() {
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
fn without_capacity_only_replies_are_decoded() {
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
        assert!(is_rejected_request(
            &decoded,
            &RequestId::Number(1),
            RejectReason::TooMany
        ));
    }
}

fn is_rejected_request(decoded: &Decoded, id: &RequestId, why: RejectReason) -> bool {
    matches!(decoded, Decoded::RejectedRequest(refused, because) if refused == id && *because == why)
}

#[test]
fn large_unsolicited_messages_are_dropped() {
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
        assert!(is_rejected_request(
            &decoded,
            &theirs,
            RejectReason::TooLarge
        ));
        // A request with a long or invalid id cannot be answered.
        let long = format!(r#""id":"{}","#, "x".repeat(1_000));
        for id in [&long, r#""id":[1],"#] {
            assert!(matches!(decode(id, &text), Decoded::Dropped([])), "{id}");
        }
    }
}

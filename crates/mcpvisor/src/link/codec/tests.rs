mod encoding;
mod limits;

use mcpvisor_core::{CallId, ListKind};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam,
    ClientJsonRpcMessage, ClientRequest, ClientResult, CustomRequest, ErrorCode, ErrorData,
    GetMeta, InitializedNotification, JsonRpcMessage, ListToolsRequest, MetaObject, NumberOrString,
    PaginatedRequestParams, PingRequest, ProgressToken, RequestId, RequestMetaObject,
    ServerJsonRpcMessage, ServerResult,
};
use serde_json::{Value, json};

use super::decode::{Decoded, MAX_UNSOLICITED_BYTES, decode};
use super::encode;
use super::weigh::check_limits;
use crate::link::{Inbound, PendingRequests, PendingSnapshot, RejectReason, ReplyKind};

/// Request 7 is pending, and nothing else.
struct Seven(ReplyKind);

impl PendingRequests for Seven {
    fn reply_kind(&self, id: CallId) -> Option<ReplyKind> {
        (id == CallId(7)).then_some(self.0)
    }

    fn snapshot(&self) -> PendingSnapshot {
        PendingSnapshot(vec![(CallId(7), self.0)])
    }
}

/// Decodes a line without a capacity limit.
fn inbound(line: &[u8], kind: ReplyKind) -> Option<Inbound> {
    match decode(
        line,
        check_limits(line, &Default::default()),
        &Seven(kind),
        |_| true,
    ) {
        Decoded::Empty => None,
        Decoded::Reply(inbound) | Decoded::Unsolicited(inbound, _) => Some(inbound),
        refused => panic!("{refused:?}"),
    }
}

fn read(line: impl AsRef<[u8]>, kind: ReplyKind) -> Inbound {
    inbound(line.as_ref(), kind).expect("a message")
}

/// The text of an inbound message, for comparing: rmcp's types have no equality.
fn shown(inbound: &Inbound) -> String {
    format!("{inbound:?}")
}

/// Decodes a line with rmcp.
fn by_rmcp(line: &str) -> Inbound {
    match serde_json::from_str::<ServerJsonRpcMessage>(line).expect(line) {
        JsonRpcMessage::Request(request) => Inbound::Request {
            id: request.id,
            request: request.request,
            cause: None,
        },
        JsonRpcMessage::Notification(notification) => Inbound::Notification {
            notification: notification.notification,
            cause: None,
        },
        JsonRpcMessage::Response(response) => Inbound::Response {
            id: crate::link::outgoing::call_id(&response.id).unwrap(),
            result: Ok(response.result),
        },
        JsonRpcMessage::Error(error) => Inbound::Response {
            id: crate::link::outgoing::call_id(&error.id.unwrap()).unwrap(),
            result: Err(error.error),
        },
    }
}

fn is_stray(inbound: &Inbound) -> bool {
    matches!(inbound, Inbound::Stray { .. })
}

fn reply(result: Value) -> String {
    json!({"jsonrpc": "2.0", "id": 7, "result": result}).to_string()
}

/// One result of every kind.
fn results() -> Vec<(ReplyKind, Value)> {
    let tool = json!({"name": "t", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}});
    vec![
        (
            ReplyKind::CallTool,
            json!({"content": [
                {"type": "text", "text": "ä\n\"", "annotations": {"priority": 0.6}},
                {"type": "image", "data": "aGk=", "mimeType": "image/png"},
                {"type": "audio", "data": "aGk=", "mimeType": "audio/wav", "_meta": {"a": 1}},
                {"type": "resource", "resource": {"uri": "x:1", "text": "t"}},
                {"type": "resource_link", "uri": "x:2", "name": "n"}],
                "structuredContent": {"n": [1, 2.5, null]}, "isError": true, "_meta": {"k": "v"}}),
        ),
        (ReplyKind::CallTool, json!({"content": []})),
        (ReplyKind::CallTool, json!({"structuredContent": null})),
        (
            ReplyKind::CallTool,
            json!({"resultType": "complete", "content": []}),
        ),
        (
            ReplyKind::ListTools,
            json!({"tools": [tool], "nextCursor": "", "ttlMs": -5, "cacheScope": ""}),
        ),
        (ReplyKind::ListTools, json!({"tools": []})),
        (
            ReplyKind::ListPrompts,
            json!({"prompts": [{"name": "p", "arguments": [{"name": "a", "required": true}]}]}),
        ),
        (
            ReplyKind::GetPrompt,
            json!({"description": "d", "messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}]}),
        ),
        (
            ReplyKind::ListResources,
            json!({"resources": [{"uri": "x:1", "name": "n", "size": 3}]}),
        ),
        (
            ReplyKind::ListTemplates,
            json!({"resourceTemplates": [{"uriTemplate": "x:{y}", "name": "n"}]}),
        ),
        (
            ReplyKind::ReadResource,
            json!({"contents": [{"uri": "x:1", "text": "t"}, {"uri": "x:2", "blob": "aGk="}]}),
        ),
        (
            ReplyKind::Complete,
            json!({"completion": {"values": ["a"], "total": 1, "hasMore": false}}),
        ),
        (
            ReplyKind::Initialize,
            json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": "s", "version": "1"}, "instructions": "i"}),
        ),
        (ReplyKind::Empty, json!({})),
    ]
}

#[test]
fn every_expected_result_is_decoded_as_rmcp_does() {
    for (kind, result) in results() {
        let line = reply(result);
        let expected = shown(&by_rmcp(&line));
        assert_eq!(shown(&read(&line, kind)), expected, "{line}");
        assert_eq!(shown(&read(&line, ReplyKind::Any)), expected, "{line}");
    }
}

#[test]
fn a_result_of_an_unexpected_kind_is_decoded_as_rmcp_does() {
    let odd = [
        json!({"resultType": "input_required", "inputRequests": {}, "requestState": "s"}),
        json!({"resultType": "task", "taskId": "t", "status": "working", "ttlMs": null,
            "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z"}),
        json!({"something": "else"}),
        json!({"content": 5}),
        json!([1, 2]),
        json!("text"),
        json!(null),
    ];
    for result in odd {
        let line = reply(result);
        let expected = shown(&by_rmcp(&line));
        assert_eq!(shown(&read(&line, ReplyKind::CallTool)), expected, "{line}");
        assert_eq!(
            shown(&read(&line, ReplyKind::GetPrompt)),
            expected,
            "{line}"
        );
    }
}

#[test]
fn an_acknowledgement_may_carry_anything() {
    for result in [json!({}), json!({"_meta": {}, "ok": true}), json!(null)] {
        let inbound = read(reply(result), ReplyKind::Empty);
        assert!(
            matches!(
                inbound,
                Inbound::Response {
                    result: Ok(ServerResult::EmptyResult(_)),
                    ..
                }
            ),
            "{inbound:?}"
        );
    }
}

#[test]
fn requests_and_notifications_are_decoded_as_rmcp_does() {
    let messages = [
        json!({"id": 1, "method": "ping"}),
        json!({"id": "a-b", "method": "ping", "params": {"_meta": {"x": 1}}}),
        json!({"id": 1.0, "method": "roots/list"}),
        json!({"id": 2, "method": "sampling/createMessage", "params": {"maxTokens": 5, "messages":
            [{"role": "user", "content": {"type": "text", "text": "hi"}}]}}),
        json!({"id": 3, "method": "elicitation/create", "params": {"message": "m", "requestedSchema":
            {"type": "object", "properties": {}}}}),
        json!({"id": 4, "method": "x/custom", "params": {"a": 1}}),
        json!({"method": "notifications/progress", "params": {"progressToken": 7, "progress": 0.5, "total": 1}}),
        json!({"method": "notifications/progress", "params": {"progress": "odd"}}),
        json!({"method": "notifications/message", "params": {"level": "info", "data": {"a": 1}}}),
        json!({"method": "notifications/cancelled", "params": {"requestId": 1, "reason": "r", "_meta": {"a": 1}}}),
        json!({"method": "notifications/resources/updated", "params": {"uri": "x:1"}}),
        json!({"method": "notifications/resources/list_changed"}),
        json!({"method": "notifications/tools/list_changed", "params": {}}),
        json!({"method": "notifications/prompts/list_changed"}),
        json!({"method": "notifications/x", "params": {"a": 1}}),
    ];
    for mut message in messages {
        message["jsonrpc"] = json!("2.0");
        let line = message.to_string();
        assert_eq!(
            shown(&read(&line, ReplyKind::Any)),
            shown(&by_rmcp(&line)),
            "{line}"
        );
    }
}

#[test]
fn an_id_may_be_an_integer_a_float_or_a_string() {
    for id in ["7", "7.0", "0.7e1", "\"7\""] {
        let line = format!(r#"{{"result":{{"content":[]}},"jsonrpc":"2.0","id":{id}}}"#);
        let inbound = read(&line, ReplyKind::CallTool);
        assert!(
            matches!(
                inbound,
                Inbound::Response {
                    id: CallId(7),
                    result: Ok(ServerResult::CallToolResult(_))
                }
            ),
            "{id}: {inbound:?}"
        );
    }
    for id in [
        "8",
        "-7",
        "7.5",
        "null",
        "\"seven\"",
        "[7]",
        "18446744073709551615",
        "1e99",
    ] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
        assert!(is_stray(&read(&line, ReplyKind::CallTool)), "{id}");
    }
}

#[test]
fn errors_are_decoded_leniently() {
    let cases = [
        (
            json!({"code": -32602, "message": "m", "data": {"a": 1}}),
            ErrorData::new(ErrorCode(-32602), "m", Some(json!({"a": 1}))),
        ),
        (
            json!({"code": -32000}),
            ErrorData::new(ErrorCode(-32000), "the server gave no message", None),
        ),
        (
            json!({"code": "-32001", "message": {"odd": 1}}),
            ErrorData::new(ErrorCode(-32001), r#"{"odd":1}"#, None),
        ),
        (
            json!({"code": 5.0, "message": "m"}),
            ErrorData::new(ErrorCode(5), "m", None),
        ),
        (
            json!({"code": 1e30, "message": "m"}),
            ErrorData::internal_error("m", None),
        ),
        (json!("plain"), ErrorData::internal_error("plain", None)),
        (json!([1]), ErrorData::internal_error("[1]", None)),
    ];
    for (error, expected) in cases {
        let line = json!({"jsonrpc": "2.0", "id": 7, "error": error}).to_string();
        match read(&line, ReplyKind::CallTool) {
            Inbound::Response {
                id: CallId(7),
                result: Err(error),
            } => assert_eq!(error, expected, "{line}"),
            other => panic!("{line}: {other:?}"),
        }
    }
}

#[test]
fn a_null_error_beside_a_result_is_ignored() {
    let line = r#"{"jsonrpc":"2.0","id":7,"error":null,"result":{"content":[]}}"#;
    assert!(matches!(
        read(line, ReplyKind::CallTool),
        Inbound::Response { result: Ok(_), .. }
    ));
}

#[test]
fn other_input_is_stray_and_described_without_control_characters() {
    let lines: [&[u8]; 11] = [
        b"Server listening on stdio",
        b"\x1b[31mred\x1b[0m",
        b"\xff\xfe",
        b"{}",
        b"[]",
        b"7",
        br#"{"level":"error","id":7,"error":"boom"}"#,
        br#"{"jsonrpc":"1.0","id":7,"result":{}}"#,
        br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}"#,
        br#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"parse error"}}"#,
        br#"{"jsonrpc":"2.0","id":7,"method":"ping","result":{}}"#,
    ];
    for line in lines {
        let Inbound::Stray { problem } = read(line, ReplyKind::CallTool) else {
            panic!("{:?}", String::from_utf8_lossy(line));
        };
        assert!(!problem.chars().any(char::is_control), "{problem}");
    }
    let Inbound::Stray { problem } = read("x".repeat(10_000), ReplyKind::Any) else {
        panic!("noise");
    };
    assert!(problem.len() < 200 && problem.ends_with('…'), "{problem}");
}

#[test]
fn an_empty_line_is_ignored() {
    for line in ["", " ", "\r", "\t \r"] {
        assert!(inbound(line.as_bytes(), ReplyKind::Any).is_none());
    }
    assert!(matches!(
        read("  {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\r", ReplyKind::Any),
        Inbound::Notification { .. }
    ));
}

#[test]
fn a_byte_order_mark_before_a_message_is_ignored() {
    let marked = format!("\u{feff}{}", reply(json!({"content": []})));
    for line in [
        marked.clone(),
        format!(" {marked}\r"),
        "\u{feff} \u{feff}".to_owned(),
    ] {
        let inbound = inbound(line.as_bytes(), ReplyKind::CallTool);
        let is_noise = line.ends_with('\u{feff}');
        match inbound {
            Some(Inbound::Response { id: CallId(7), .. }) => assert!(!is_noise, "{line}"),
            other => assert!(is_noise && is_stray(&other.unwrap()), "{line}"),
        }
    }
    assert!(inbound("\u{feff}\r".as_bytes(), ReplyKind::Any).is_none());
    let batch = format!("\u{feff}[{}]", reply(json!({"content": []})));
    let decoded = decode(
        batch.as_bytes(),
        check_limits(batch.as_bytes(), &Default::default()),
        &Seven(ReplyKind::CallTool),
        |_| true,
    );
    assert!(matches!(decoded, Decoded::Batch(messages) if messages.len() == 1));
}

#[test]
fn an_error_after_a_byte_order_mark_is_decoded() {
    let line =
        "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-1,\"message\":\"m\"}}";
    let error = super::decode::decode_error_body(line.as_bytes(), true).unwrap();
    assert_eq!((error.code.0, &*error.message), (-1, "m"));
}

#[test]
fn an_invalid_reply_with_an_id_fails_its_request() {
    let deep = "[".repeat(200) + &"]".repeat(200);
    let lines: [Vec<u8>; 7] = [
        br#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"te"#.to_vec(),
        br#"{"jsonrpc":"2.0","id":7,"error":{"code":"#.to_vec(),
        br#"{"jsonrpc":"2.0","id":7,"result":{}} trailing"#.to_vec(),
        b"{\"jsonrpc\":\"2.0\",\"result\":{\"x\":\"\xff\"},\"id\":7}".to_vec(),
        format!(r#"{{"jsonrpc":"2.0","id":7,"result":{deep}}}"#).into_bytes(),
        br#"{"jsonrpc":"2.0","id":7,"result":1e999}"#.to_vec(),
        br#"{"jsonrpc":"2.0","id":7}"#.to_vec(),
    ];
    for line in lines {
        let inbound = read(&line, ReplyKind::CallTool);
        assert!(
            matches!(inbound, Inbound::Unreadable { id: CallId(7), .. }),
            "{}: {inbound:?}",
            String::from_utf8_lossy(&line)
        );
    }
    // Cut off before it is known to be a reply, or a reply to no pending request.
    for line in [
        r#"{"jsonrpc":"2.0","id":7"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"ping","par"#,
        r#"{"jsonrpc":"2.0","id":8,"result":{"#,
        r#"{"jsonrpc":"2.0","id":8}"#,
        r#"{"jsonrpc":"2.0"}"#,
        r#"{"id":7,"result":{"#,
    ] {
        assert!(is_stray(&read(line, ReplyKind::CallTool)), "{line}");
    }
}

#[test]
fn garbage_never_panics_and_never_answers_another_request() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut lines: Vec<Vec<u8>> = results()
        .into_iter()
        .map(|(_, result)| reply(result).into_bytes())
        .collect();
    lines.push(br#"{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"m"}}"#.to_vec());
    lines.push(br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}"#.to_vec());
    let kinds: Vec<ReplyKind> = results().into_iter().map(|(kind, _)| kind).collect();
    for _ in 0..20_000 {
        let mut line = random.choice(&lines).unwrap().clone();
        for _ in 0..random.usize(1..4) {
            mutate(&mut line, &mut random);
        }
        let kind = *random.choice(&kinds).unwrap();
        let limit_check = check_limits(&line, &Default::default());
        let decoded = match decode(&line, limit_check, &Seven(kind), |_| true) {
            // A mutated line may happen to be a batch.
            Decoded::Batch(messages) => messages,
            one => vec![one],
        };
        for message in decoded {
            if let Decoded::Reply(inbound) | Decoded::Unsolicited(inbound, _) = message
                && let Inbound::Response { id, .. } | Inbound::Unreadable { id, .. } = inbound
            {
                assert_eq!(id, CallId(7));
            }
        }
    }
}

fn mutate(line: &mut Vec<u8>, random: &mut fastrand::Rng) {
    if line.is_empty() {
        return;
    }
    let at = random.usize(..line.len());
    match random.u8(..6) {
        0 => line.truncate(at),
        1 => line[at] = random.u8(..),
        2 => line.insert(at, *random.choice(b"{}[]\",:\\0e").unwrap()),
        3 => {
            line.remove(at);
        }
        4 => {
            let copy = line[at..].to_vec();
            line.extend(copy);
        }
        _ => {
            line.drain(..at);
        }
    }
}

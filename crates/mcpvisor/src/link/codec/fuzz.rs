//! Decoding any line neither panics nor loses or invents a reply.

use mcpvisor_core::CallId;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::decode::{Decoded, decode};
use super::weigh::check_limits;
use crate::fuzz::{budget, bytes, json, object};
use crate::link::{Inbound, PendingRequests, PendingSnapshot, ReplyKind};

const SEEDS: &[&str] = &[
    r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"hi"}],"isError":false}}"#,
    r#"{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"a","inputSchema":{"type":"object"}}],"nextCursor":"x"}}"#,
    r#"{"jsonrpc":"2.0","id":3,"error":{"code":-32601,"message":"no","data":[1,{"a":null}]}}"#,
    r#"{"jsonrpc":"2.0","id":9,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"a","version":"1"}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":0.5,"total":1}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"\ud83e\uddc0"}}"#,
    r#"{"jsonrpc":"2.0","id":"a","method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}"#,
    r#"{"jsonrpc":"2.0","id":1.0,"method":"ping"}"#,
    r#"[{"jsonrpc":"2.0","id":1,"result":{}}]"#,
    "Server started on stdio",
];

/// Every kind of result, each under its own id from 1 on.
const PENDING: [ReplyKind; 12] = [
    ReplyKind::CallTool,
    ReplyKind::ListTools,
    ReplyKind::ListPrompts,
    ReplyKind::GetPrompt,
    ReplyKind::ListResources,
    ReplyKind::ListTemplates,
    ReplyKind::ReadResource,
    ReplyKind::Complete,
    ReplyKind::Initialize,
    ReplyKind::Discover,
    ReplyKind::Empty,
    ReplyKind::Any,
];

struct Pending;

impl PendingRequests for Pending {
    fn reply_kind(&self, id: CallId) -> Option<ReplyKind> {
        let index = usize::try_from(id.0.checked_sub(1)?).ok()?;
        PENDING.get(index).copied()
    }

    fn snapshot(&self) -> PendingSnapshot {
        let pending = (1..).map(CallId).zip(PENDING);
        PendingSnapshot(pending.collect())
    }
}

/// The description of a stray line: 120 characters, each at most as long as an escape.
const MAX_STRAY_BYTES: usize = 120 * 10 + 100;

/// Checks what holds for every line. Returns the message, or the last one of a batch.
fn check(line: &[u8]) -> Result<Option<Inbound>, TestCaseError> {
    check_decoded(decode(
        line,
        check_limits(line, &Default::default()),
        &Pending,
        |_| true,
    ))
}

fn check_decoded(decoded: Decoded) -> Result<Option<Inbound>, TestCaseError> {
    let inbound = match decoded {
        Decoded::Reply(inbound) | Decoded::Unsolicited(inbound, _) => Some(inbound),
        Decoded::Empty
        | Decoded::Dropped(_)
        | Decoded::RejectedRequest(..)
        | Decoded::DroppedNoise => None,
        Decoded::Batch(messages) => {
            let mut last = None;
            for message in messages {
                prop_assert!(!matches!(message, Decoded::Batch(_)), "a batch in a batch");
                last = check_decoded(message)?;
            }
            return Ok(last);
        }
    };
    match &inbound {
        Some(Inbound::Response { id, .. } | Inbound::Unreadable { id, .. }) => {
            prop_assert!(Pending.reply_kind(*id).is_some(), "{id:?} is not pending");
        }
        Some(Inbound::Stray { problem }) => {
            prop_assert!(problem.len() <= MAX_STRAY_BYTES, "{problem}");
            prop_assert!(!problem.chars().any(char::is_control), "{problem:?}");
        }
        Some(
            Inbound::Failed { .. }
            | Inbound::PossibleSessionLoss { .. }
            | Inbound::SessionGone { .. },
        ) => {
            prop_assert!(false, "the decoder never returns {inbound:?}");
        }
        #[cfg(feature = "http")]
        Some(Inbound::NotificationsMissed | Inbound::Unauthorized { .. }) => {
            prop_assert!(false, "the decoder never returns this")
        }
        Some(Inbound::Request { .. } | Inbound::Notification { .. } | Inbound::Dropped(_))
        | None => {}
    }
    Ok(inbound)
}

/// The members of a message, valid and invalid, in any order.
fn members() -> impl Strategy<Value = Vec<(String, Value)>> {
    let key = select(&["jsonrpc", "id", "method", "params", "result", "error", "x"][..]);
    let value = prop_oneof![
        Just(json!("2.0")),
        (0..14_i64).prop_map(Value::from),
        select(&["ping", "notifications/progress", "roots/list", "x"][..]).prop_map(Value::from),
        json(),
    ];
    vec((key.prop_map(str::to_owned), value), 0..7)
}

/// An id of ours, in the forms in which servers repeat it.
fn our_id() -> impl Strategy<Value = (u64, Value)> {
    (1..=PENDING.len() as u64).prop_flat_map(|id| {
        let repeated = vec![json!(id), json!(id.to_string()), json!(id as f64)];
        (Just(id), select(repeated))
    })
}

/// A reply to a pending request, with any result or error and unknown members.
fn reply() -> impl Strategy<Value = (u64, String)> {
    let body = prop_oneof![
        json().prop_map(|value| ("result".to_owned(), value)),
        json()
            .prop_filter("a null error is none", |value| !value.is_null())
            .prop_map(|value| ("error".to_owned(), value)),
    ];
    let others = vec(("x[a-z]{0,3}", json()), 0..2);
    (our_id(), body, others, any::<bool>()).prop_map(|((id, repeated), body, others, last)| {
        let mut members = vec![
            ("jsonrpc".to_owned(), json!("2.0")),
            ("id".to_owned(), repeated),
        ];
        let at = if last { members.len() } else { 0 };
        members.insert(at, body);
        members.extend(others);
        (id, object(&members))
    })
}

proptest! {
    #![proptest_config(budget(1_000))]

    #[test]
    fn no_line_panics_or_answers_an_unknown_request(line in bytes(SEEDS)) {
        check(&line)?;
    }

    #[test]
    fn no_batch_panics_or_answers_an_unknown_request(batch in vec(members(), 0..4), end in select(&["]", "", ",", "] x"][..])) {
        let messages: Vec<String> = batch.iter().map(|members| object(members)).collect();
        check(format!("[{}{end}", messages.join(",")).as_bytes())?;
    }

    #[test]
    fn a_reply_in_a_batch_is_never_lost((id, line) in reply(), other in members()) {
        let batch = format!("[{},{line}]", object(&other));
        match check(batch.as_bytes())? {
            Some(Inbound::Response { id: answered, .. } | Inbound::Unreadable { id: answered, .. }) => {
                prop_assert_eq!(answered, CallId(id));
            }
            other => prop_assert!(false, "{batch} was read as {other:?}"),
        }
    }

    #[test]
    fn no_mixture_of_members_panics_or_answers_an_unknown_request(members in members()) {
        check(object(&members).as_bytes())?;
    }
}

proptest! {
    #![proptest_config(budget(300))]

    /// A lost reply would leave its caller waiting.
    #[test]
    fn a_reply_is_never_lost_whatever_its_content((id, line) in reply()) {
        match check(line.as_bytes())? {
            Some(Inbound::Response { id: answered, .. } | Inbound::Unreadable { id: answered, .. }) => {
                prop_assert_eq!(answered, CallId(id));
            }
            other => prop_assert!(false, "{line} was read as {other:?}"),
        }
    }

    #[test]
    fn a_truncated_reply_never_succeeds((_, line) in reply(), cut in any::<proptest::sample::Index>()) {
        let read = check(&line.as_bytes()[..cut.index(line.len())])?;
        prop_assert!(!matches!(read, Some(Inbound::Response { .. })), "{read:?}");
    }
}

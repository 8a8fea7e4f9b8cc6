//! Batches: several messages in one JSON array, which only protocol version 2025-03-26 has.

use std::cell::Cell;

use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::decode::{Decoded, decode_text, noise};
use crate::link::PendingRequests;
use crate::link::flood_gate::round_up_to_tokens;

/// Messages per batch; a larger batch is dropped as noise.
pub(crate) const MAX_MESSAGES: usize = 1_024;

/// Decodes each message of a batch as if it came alone. An array without messages is noise, and so
/// is one with too many messages or without its end.
pub(super) fn decode_batch(
    line: &str,
    pending: &impl PendingRequests,
    fits: impl Fn(usize) -> bool,
) -> Decoded {
    let messages = match elements(line) {
        Ok(elements) if elements.iter().any(|it| is_message(it)) => elements,
        Err(problem) if problem.is_data() => return noise(&problem.to_string(), line, fits),
        Ok(_) | Err(_) => return noise("not a JSON-RPC message", line, fits),
    };
    // Earlier messages of the batch reduce the capacity for later ones.
    let taken = Cell::new(0_usize);
    let fits = |bytes: usize| fits(taken.get().saturating_add(bytes));
    let read = messages.into_iter().map(|message| {
        let decoded = match is_message(message) {
            true => decode_text(message.get(), pending, fits),
            false => noise("not a JSON-RPC message", message.get(), fits),
        };
        if let Decoded::Unsolicited(_, bytes) = &decoded {
            taken.set(taken.get().saturating_add(round_up_to_tokens(*bytes)));
        }
        decoded
    });
    Decoded::Batch(read.collect())
}

fn is_message(value: &RawValue) -> bool {
    value.get().starts_with('{')
}

/// The elements of an array, as raw JSON.
fn elements(line: &str) -> serde_json::Result<Vec<&RawValue>> {
    let mut deserializer = serde_json::Deserializer::from_str(line);
    let elements = deserializer.deserialize_seq(Elements)?;
    deserializer.end()?;
    Ok(elements)
}

struct Elements;

impl<'a> Visitor<'a> for Elements {
    type Value = Vec<&'a RawValue>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an array of messages")
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = array.next_element()? {
            if elements.len() == MAX_MESSAGES {
                return Err(A::Error::custom(format!(
                    "a batch of more than {MAX_MESSAGES} messages"
                )));
            }
            elements.push(element);
        }
        Ok(elements)
    }
}

#[cfg(test)]
mod tests {
    use mcpvisor_core::{CallId, ListKind};

    use super::*;
    use crate::link::codec::decode::decode;
    use crate::link::codec::weigh::check_limits;
    use crate::link::{Inbound, PendingSnapshot, ReplyKind};

    const LOG: &str = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}"#;
    const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    const PING: &str = r#"{"jsonrpc":"2.0","id":"theirs","method":"ping"}"#;

    fn answer(id: u64) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[]}}}}"#)
    }

    fn read(line: &str, fits: impl Fn(usize) -> bool) -> Decoded {
        let pending = PendingSnapshot(vec![
            (CallId(7), ReplyKind::CallTool),
            (CallId(8), ReplyKind::CallTool),
        ]);
        decode(
            line.as_bytes(),
            check_limits(line.as_bytes(), &Default::default()),
            &pending,
            fits,
        )
    }

    /// The kinds of the messages in a batch.
    fn kinds(line: &str, fits: impl Fn(usize) -> bool) -> Vec<String> {
        let Decoded::Batch(messages) = read(line, fits) else {
            panic!("not a batch: {line}");
        };
        let kind = |decoded| match decoded {
            Decoded::Reply(Inbound::Response { id, .. }) => format!("answer {id}"),
            Decoded::Unsolicited(Inbound::Request { .. }, _) => "request".to_owned(),
            Decoded::Unsolicited(Inbound::Notification { .. }, _) => "notification".to_owned(),
            Decoded::Unsolicited(Inbound::Stray { .. }, _) => "stray".to_owned(),
            Decoded::Dropped(lists) => format!("dropped {lists:?}"),
            Decoded::DroppedNoise => "dropped noise".to_owned(),
            other => panic!("{other:?}"),
        };
        messages.into_iter().map(kind).collect()
    }

    #[test]
    fn each_message_of_a_batch_is_decoded_in_order_as_if_it_came_alone() {
        let refusal = r#"{"jsonrpc":"2.0","id":8,"error":{"code":-32000,"message":"no"}}"#;
        let line = format!(
            " [ {LOG} ,{},{PING}, 1, [{}], {refusal}, {} ] ",
            answer(7),
            answer(8),
            answer(9)
        );
        let expected = [
            "notification",
            "answer 7",
            "request",
            "stray",
            "stray",
            "answer 8",
            "stray",
        ];
        assert_eq!(kinds(&line, |_| true), expected);
    }

    #[test]
    fn admitted_messages_reduce_the_capacity_for_later_ones_but_not_for_replies() {
        let three_tokens = |bytes: usize| round_up_to_tokens(bytes) <= round_up_to_tokens(0) * 3;
        let line = format!("[{LOG},{LOG},{PING},{LOG},{CHANGED},1,{}]", answer(7));
        let expected = [
            "notification",
            "notification",
            "request",
            "dropped []",
            &format!("dropped {:?}", [ListKind::Tools]),
            "dropped noise",
            "answer 7",
        ];
        assert_eq!(kinds(&line, three_tokens), expected);
    }

    #[test]
    fn an_invalid_batch_is_one_stray() {
        let answer = answer(7);
        let deep = format!("[{answer},{}1{}]", "[".repeat(200), "]".repeat(200));
        for line in [
            "[]",
            "[1, \"x\", null]",
            "[INFO] it starts",
            &format!("[[{answer}]]"),
            &format!("[{answer}"),
            &format!("[{answer},"),
            &format!("[{answer},]"),
            &format!("[{answer}] x"),
            &deep,
        ] {
            let decoded = read(line, |_| true);
            assert!(
                matches!(decoded, Decoded::Unsolicited(Inbound::Stray { .. }, 0)),
                "{line}: {decoded:?}"
            );
        }
    }

    #[test]
    fn the_number_of_messages_per_batch_is_limited() {
        let batch = |logs: usize| {
            let logs = vec![LOG; logs].join(",");
            format!("[{},{logs}]", answer(7))
        };
        assert_eq!(kinds(&batch(MAX_MESSAGES - 1), |_| true)[0], "answer 7");
        let Decoded::Unsolicited(Inbound::Stray { problem }, _) =
            read(&batch(MAX_MESSAGES), |_| true)
        else {
            panic!("expected a stray");
        };
        assert!(problem.contains("more than 1024 messages"), "{problem}");
    }
}

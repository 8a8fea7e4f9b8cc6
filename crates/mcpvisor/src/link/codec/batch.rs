//! Several messages in one JSON array, which the protocol has in 2025-03-26 alone.

use std::cell::Cell;

use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::decode::{Decoded, decode_text, noise};
use crate::link::PendingRequests;
use crate::link::flood_gate::round_up_to_tokens;

/// So many messages may be in one batch.
pub(crate) const MAX_MESSAGES: usize = 1_024;

/// Reads each message of a batch as if it had come alone. An array without a message is noise, and
/// so is one that has too many of them, or that is cut off.
pub(super) fn decode_batch(
    line: &str,
    pending: &impl PendingRequests,
    room: impl Fn(usize) -> bool,
) -> Decoded {
    let messages = match members(line) {
        Ok(members) if members.iter().any(|it| is_message(it)) => members,
        Err(problem) if problem.is_data() => return noise(&problem.to_string(), line, room),
        Ok(_) | Err(_) => return noise("no JSON-RPC message", line, room),
    };
    // What was let in before takes room from what comes after.
    let taken = Cell::new(0_usize);
    let room = |bytes: usize| room(taken.get().saturating_add(bytes));
    let read = messages.into_iter().map(|message| {
        let decoded = match is_message(message) {
            true => decode_text(message.get(), pending, room),
            false => noise("no JSON-RPC message", message.get(), room),
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

/// The members of an array, as they were written.
fn members(line: &str) -> serde_json::Result<Vec<&RawValue>> {
    let mut deserializer = serde_json::Deserializer::from_str(line);
    let members = Members.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(members)
}

struct Members;

impl<'a> DeserializeSeed<'a> for Members {
    type Value = Vec<&'a RawValue>;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'a> Visitor<'a> for Members {
    type Value = Vec<&'a RawValue>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an array of messages")
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = array.next_element()? {
            if members.len() == MAX_MESSAGES {
                return Err(A::Error::custom(format!(
                    "a batch of more than {MAX_MESSAGES} messages"
                )));
            }
            members.push(member);
        }
        Ok(members)
    }
}

#[cfg(test)]
mod tests {
    use mcpvisor_core::{CallId, ListKind};

    use super::*;
    use crate::link::codec::{check_limits, decode};
    use crate::link::{Inbound, PendingSnapshot, ReplyKind};

    const LOG: &str = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}"#;
    const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    const PING: &str = r#"{"jsonrpc":"2.0","id":"theirs","method":"ping"}"#;

    fn answer(id: u64) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[]}}}}"#)
    }

    fn read(line: &str, room: impl Fn(usize) -> bool) -> Decoded {
        let pending = PendingSnapshot(vec![
            (CallId(7), ReplyKind::CallTool),
            (CallId(8), ReplyKind::CallTool),
        ]);
        decode(
            line.as_bytes(),
            check_limits(line.as_bytes(), &Default::default()),
            &pending,
            room,
        )
    }

    /// What is in a batch, one word each.
    fn words(line: &str, room: impl Fn(usize) -> bool) -> Vec<String> {
        let Decoded::Batch(messages) = read(line, room) else {
            panic!("{line} is no batch");
        };
        let word = |decoded| match decoded {
            Decoded::Reply(Inbound::Response { id, .. }) => format!("answer {id}"),
            Decoded::Unsolicited(Inbound::Request { .. }, _) => "request".to_owned(),
            Decoded::Unsolicited(Inbound::Notification(_), _) => "notification".to_owned(),
            Decoded::Unsolicited(Inbound::Stray { .. }, _) => "stray".to_owned(),
            Decoded::Dropped(lists) => format!("refused {lists:?}"),
            Decoded::DroppedNoise => "refused noise".to_owned(),
            other => panic!("{other:?}"),
        };
        messages.into_iter().map(word).collect()
    }

    #[test]
    fn each_message_of_a_batch_is_read_in_its_turn_as_if_it_came_alone() {
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
        assert_eq!(words(&line, |_| true), expected);
    }

    #[test]
    fn what_was_let_in_takes_room_from_what_comes_after_and_from_no_answer() {
        let three_places = |bytes: usize| round_up_to_tokens(bytes) <= round_up_to_tokens(0) * 3;
        let line = format!("[{LOG},{LOG},{PING},{LOG},{CHANGED},1,{}]", answer(7));
        let expected = [
            "notification",
            "notification",
            "request",
            "refused []",
            &format!("refused {:?}", [ListKind::Tools]),
            "refused noise",
            "answer 7",
        ];
        assert_eq!(words(&line, three_places), expected);
    }

    #[test]
    fn what_is_no_batch_is_noise_once() {
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
    fn the_messages_of_a_batch_are_bounded_in_number() {
        let batch = |logs: usize| {
            let logs = vec![LOG; logs].join(",");
            format!("[{},{logs}]", answer(7))
        };
        assert_eq!(words(&batch(MAX_MESSAGES - 1), |_| true)[0], "answer 7");
        let Decoded::Unsolicited(Inbound::Stray { problem }, _) =
            read(&batch(MAX_MESSAGES), |_| true)
        else {
            panic!("it is read");
        };
        assert!(problem.contains("more than 1024 messages"), "{problem}");
    }
}

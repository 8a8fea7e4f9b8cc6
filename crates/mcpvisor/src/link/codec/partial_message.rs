//! Identifies a message that cannot be decoded as a whole, by the head and tail of its line.
//!
//! The members that identify a message (id, method) are short, and one member between them is
//! large. So the id is in the head or the tail of the line, wherever the server writes it.

use mcpvisor_core::{CallId, ListKind};
use rmcp::model::RequestId;

use super::envelope::Envelope;
use crate::link::PendingRequests;

/// Bytes examined at each end of a line.
pub(crate) const END_BYTES: usize = 4 * 1024;

/// An oversized line is skipped if it ends within this multiple of the maximum length.
pub(crate) const MAX_SKIPPED_FACTOR: usize = 4;

/// Members tried at the end of a line.
const MAX_TAIL_MEMBERS: usize = 16;

/// The head and tail of a line that exceeds the maximum length.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct OversizedLine {
    /// The first bytes, at most [`END_BYTES`].
    pub(crate) head: Vec<u8>,
    /// The last bytes, at most [`END_BYTES`].
    pub(crate) tail: Vec<u8>,
}

impl OversizedLine {
    /// Whether the line starts like a message.
    pub(crate) fn may_be_message(&self) -> bool {
        self.head.trim_ascii_start().starts_with(b"{")
    }

    /// Appends a part of the line, and keeps the first and the last bytes.
    pub(crate) fn push(&mut self, part: &[u8]) {
        let room = END_BYTES - self.head.len();
        self.head.extend_from_slice(&part[..part.len().min(room)]);
        let last = &part[part.len().saturating_sub(END_BYTES)..];
        let surplus = (self.tail.len() + last.len()).saturating_sub(END_BYTES);
        self.tail.drain(..surplus);
        self.tail.extend_from_slice(last);
    }
}

/// What is known about a message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PartialMessage {
    id: Option<CallId>,
    /// The id as written, which may be an id of the server's own request.
    pub(super) request_id: Option<RequestId>,
    is_json_rpc: bool,
    /// Whether there is a result or an error.
    has_outcome: bool,
    pub(super) method: Option<String>,
}

impl PartialMessage {
    /// Reads the members in the head and the tail of a line.
    pub(super) fn from_ends(head: &[u8], tail: &[u8]) -> Self {
        let head = &head[..head.len().min(END_BYTES)];
        let tail = &tail[tail.len().saturating_sub(END_BYTES)..];
        let mut message = Self::default();
        let text = String::from_utf8_lossy(head);
        if text.trim_start().starts_with('{') {
            let mut envelope = Envelope::default();
            let _ = envelope.read(&text);
            message.add(&envelope);
            message.add_tail_members(&String::from_utf8_lossy(tail));
        }
        message
    }

    /// Adds members that are not known yet.
    pub(super) fn add(&mut self, envelope: &Envelope<'_>) {
        self.id = self.id.or_else(|| envelope.call_id());
        self.request_id = self.request_id.take().or_else(|| envelope.request_id());
        self.is_json_rpc |= envelope.is_json_rpc();
        self.has_outcome |= envelope.has_outcome;
        self.method = self.method.take().or_else(|| envelope.method());
    }

    /// The pending call that this message answers.
    pub(super) fn pending_call(&self, pending: &impl PendingRequests) -> Option<CallId> {
        self.call().filter(|id| pending.reply_kind(*id).is_some())
    }

    /// The call that this message answers, pending or not.
    pub(super) fn call(&self) -> Option<CallId> {
        let is_reply = self.is_json_rpc && self.has_outcome && self.method.is_none();
        self.id.filter(|_| is_reply)
    }

    /// Whether the message is known to be a reply, a request or a notification.
    pub(super) fn is_identified(&self) -> bool {
        self.call().is_some() || self.is_json_rpc && self.method.is_some()
    }

    /// Adds the complete members before the closing brace, from the last one backwards. If the text
    /// after a comma, with a brace put before it, parses as an object, it ends the message itself:
    /// after a comma inside a string or a nested object, a quotation mark or bracket is left over.
    fn add_tail_members(&mut self, tail: &str) {
        let candidates = tail
            .rmatch_indices(',')
            .map(|(at, _)| tail[at + 1..].trim());
        let members = candidates.filter(|rest| rest.starts_with('"'));
        for rest in members.take(MAX_TAIL_MEMBERS) {
            let object = format!("{{{rest}");
            let mut envelope = Envelope::default();
            if envelope.read(&object).is_ok() {
                self.add(&envelope);
            }
        }
    }
}

/// The lists that a notification reports as changed.
pub(super) fn changed_lists(method: &str) -> &'static [ListKind] {
    match method {
        "notifications/tools/list_changed" => &[ListKind::Tools],
        "notifications/prompts/list_changed" => &[ListKind::Prompts],
        "notifications/resources/list_changed" => &[ListKind::Resources, ListKind::Templates],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the ends of a line, with a huge value in place of `#`.
    fn read(line: &str) -> PartialMessage {
        let line = line.replace(
            '#',
            &"[1,{\"id\":3,\"x\":\"y\"},\"a,\\\"id\\\":4}\"],".repeat(2_000),
        );
        PartialMessage::from_ends(line.as_bytes(), line.as_bytes())
    }

    #[test]
    fn the_id_is_found_before_and_after_a_large_member() {
        for line in [
            r#"{"jsonrpc":"2.0","id":7,"result":{"x":[#0]}}"#,
            r#"{"jsonrpc":"2.0","result":{"x":[#0]},"id":7}"#,
            r#"{"result":{"x":[#0]},"jsonrpc":"2.0","id":7}"#,
            r#"{"result":{"x":[#0]} , "id" : 7 , "jsonrpc" : "2.0" } "#,
            r#"{"id":"7","error":{"data":[#0]},"jsonrpc":"2.0"}"#,
        ] {
            assert_eq!(read(line).call(), Some(CallId(7)), "{line}");
        }
    }

    #[test]
    fn other_messages_are_not_taken_for_replies() {
        for line in [
            r#"{"jsonrpc":"2.0","id":7,"method":"x","params":{"x":[#0]}}"#,
            r#"{"params":{"x":[#0]},"method":"x","jsonrpc":"2.0","id":7}"#,
            r#"{"jsonrpc":"2.0","result":{"x":[#{"id":7}]}}"#,
            r#"{"jsonrpc":"2.0","result":{"x":[#0],"y":"a,\"id\":7}"}}"#,
            r#"{"jsonrpc":"2.0","result":{"x":[#0],"y":"a,"}}"#,
            r#"{"jsonrpc":"2.0","result":{"a":[#0],"id":7}}"#,
            r#"{"id":7,"result":{"x":[#0]}}"#,
            r#"[{"jsonrpc":"2.0","id":7,"result":{"x":[#0]}}]"#,
            "#",
            "",
        ] {
            assert_eq!(read(line).call(), None, "{line}");
        }
    }

    #[test]
    fn a_method_is_found_at_both_ends() {
        for line in [
            r#"{"jsonrpc":"2.0","method":"notifications\/x","params":[#0]}"#,
            r#"{"params":[#0],"method":"notifications/x","jsonrpc":"2.0"}"#,
        ] {
            let message = read(line);
            assert!(message.is_identified(), "{line}");
            assert_eq!(message.method.as_deref(), Some("notifications/x"));
        }
    }
}

//! What a line tells of itself when it cannot be read as a whole.
//!
//! The members that say what a message is are short, and one large member is between them. So the
//! two ends of a line tell whose reply it is, wherever in it the id stands.

use mcpvisor_core::{CallId, ListKind};
use rmcp::model::RequestId;

use super::envelope::Envelope;
use crate::link::PendingRequests;

/// So much is looked at, at each end of a line, in bytes.
pub(crate) const END: usize = 4 * 1024;

/// So many members are looked for at the end of a line.
const MEMBERS: usize = 16;

#[cfg(any(test, feature = "stdio"))]
/// The two ends of a line that is too long to be kept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    /// The first bytes, at most [`END`].
    pub(crate) head: Vec<u8>,
    /// The last bytes, at most [`END`].
    pub(crate) tail: Vec<u8>,
}

#[cfg(any(test, feature = "stdio"))]
impl Ends {
    /// The ends of a line that starts so; nothing is known of its other end.
    pub(crate) fn starting_with(part: &[u8]) -> Self {
        Self {
            head: part[..part.len().min(END)].to_vec(),
            tail: Vec::new(),
        }
    }

    /// Whether it begins like a message. Noise tells nothing, however it ends.
    pub(crate) fn may_tell(&self) -> bool {
        self.head.trim_ascii_start().starts_with(b"{")
    }

    /// Adds a part of the line, of which the last bytes are kept.
    pub(crate) fn push(&mut self, part: &[u8]) {
        let kept = &part[part.len().saturating_sub(END)..];
        let surplus = (self.tail.len() + kept.len()).saturating_sub(END);
        self.tail.drain(..surplus);
        self.tail.extend_from_slice(kept);
    }
}

/// What is known of a message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    id: Option<CallId>,
    /// The id as a server writes it, which may be one of its own.
    pub(super) request: Option<RequestId>,
    json_rpc: bool,
    answers: bool,
    /// What it asks for or says, if it is no reply.
    pub(super) method: Option<String>,
}

impl Told {
    /// What the ends tell.
    pub(super) fn by_ends(head: &[u8], tail: &[u8]) -> Self {
        let head = &head[..head.len().min(END)];
        let tail = &tail[tail.len().saturating_sub(END)..];
        let mut told = Self::default();
        let text = String::from_utf8_lossy(head);
        if text.trim_start().starts_with('{') {
            let mut envelope = Envelope::default();
            let _ = envelope.read(&text);
            told.add(&envelope);
            told.add_last_members(&String::from_utf8_lossy(tail));
        }
        told
    }

    pub(super) fn add(&mut self, envelope: &Envelope<'_>) {
        self.id = self.id.or_else(|| envelope.call_id());
        if self.request.is_none() {
            self.request = envelope.request_id();
        }
        self.json_rpc |= envelope.is_json_rpc();
        self.answers |= envelope.answers;
        if self.method.is_none() {
            self.method = envelope.method();
        }
    }

    /// The pending call that this is the reply to.
    pub(super) fn pending(&self, pending: &impl PendingRequests) -> Option<CallId> {
        self.reply().filter(|id| pending.reply_kind(*id).is_some())
    }

    /// The call that this is the reply to, whether anyone waits for it or not.
    pub(super) fn reply(&self) -> Option<CallId> {
        let is_reply = self.json_rpc && self.answers && self.method.is_none();
        self.id.filter(|_| is_reply)
    }

    /// Whether it is known what it is: a reply, a request or a notification.
    pub(super) fn is_known(&self) -> bool {
        self.reply().is_some() || self.json_rpc && self.method.is_some()
    }

    /// Looks for whole members before the last bracket, from the last one on. What follows a comma
    /// and is an object to the very end, once it is opened, is the end of the message itself: a
    /// comma inside of a text or of a nested object leaves a quotation mark or a bracket too many.
    fn add_last_members(&mut self, tail: &str) {
        let candidates = tail
            .rmatch_indices(',')
            .map(|(at, _)| tail[at + 1..].trim());
        let members = candidates.filter(|rest| rest.starts_with('"'));
        for rest in members.take(MEMBERS) {
            let object = format!("{{{rest}");
            let mut envelope = Envelope::default();
            if envelope.read(&object).is_ok() {
                self.add(&envelope);
            }
        }
    }
}

/// The lists that a notification says have changed.
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

    /// What is told of a line with something huge in the place of `#`.
    fn told(line: &str) -> Told {
        let line = line.replace(
            '#',
            &"[1,{\"id\":3,\"x\":\"y\"},\"a,\\\"id\\\":4}\"],".repeat(2_000),
        );
        Told::by_ends(line.as_bytes(), line.as_bytes())
    }

    #[test]
    fn the_id_is_told_before_and_after_what_is_large() {
        for line in [
            r#"{"jsonrpc":"2.0","id":7,"result":{"x":[#0]}}"#,
            r#"{"jsonrpc":"2.0","result":{"x":[#0]},"id":7}"#,
            r#"{"result":{"x":[#0]},"jsonrpc":"2.0","id":7}"#,
            r#"{"result":{"x":[#0]} , "id" : 7 , "jsonrpc" : "2.0" } "#,
            r#"{"id":"7","error":{"data":[#0]},"jsonrpc":"2.0"}"#,
        ] {
            assert_eq!(told(line).reply(), Some(CallId(7)), "{line}");
        }
    }

    #[test]
    fn what_is_no_reply_of_ours_is_not_taken_for_one() {
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
            assert_eq!(told(line).reply(), None, "{line}");
        }
    }

    #[test]
    fn a_method_is_told_from_both_ends() {
        for line in [
            r#"{"jsonrpc":"2.0","method":"notifications\/x","params":[#0]}"#,
            r#"{"params":[#0],"method":"notifications/x","jsonrpc":"2.0"}"#,
        ] {
            let told = told(line);
            assert!(told.is_known(), "{line}");
            assert_eq!(told.method.as_deref(), Some("notifications/x"));
        }
    }
}

//! Decodes one line as one message, or as a batch.

use std::borrow::Cow;
use std::fmt::Display;

use mcpvisor_core::ListKind;
use mcpvisor_core::settings::MessageSettings;
use rmcp::model::{ErrorData, RequestId, ServerResult};
use serde::de::Error as _;

use super::batch::decode_batch;
use super::envelope::Envelope;
use super::partial_message::{OversizedLine, PartialMessage, changed_lists};
use super::payload::{decode_error, decode_notification, decode_result};
use super::weigh::{LimitCheck, check_limits_inline, estimate_memory};
use crate::link::{Inbound, PendingRequests, RejectReason, ReplyKind};

/// Characters of a stray line in its description.
const MAX_EXCERPT_CHARS: usize = 120;

/// The memory of an unsolicited message, in bytes; a larger one is dropped.
pub(crate) const MAX_UNSOLICITED_BYTES: usize = 1024 * 1024;

/// Bytes of the id of a rejected request; a request with a longer id is not answered.
const MAX_ID_BYTES: usize = 256;

/// The result of decoding a line.
#[derive(Debug)]
pub(crate) enum Decoded {
    /// The line is empty.
    Empty,
    /// The reply to a pending request, valid or not.
    Reply(Inbound),
    /// A request, a notification or noise, and its memory in bytes.
    Unsolicited(Inbound, usize),
    /// A message beyond the capacity, which was not decoded. Carries the lists that it reports as
    /// changed.
    Dropped(&'static [ListKind]),
    /// A request beyond the capacity, which was not decoded.
    RejectedRequest(RequestId, RejectReason),
    /// Noise beyond the capacity.
    DroppedNoise,
    /// Several messages. Batches do not nest.
    Batch(Vec<Decoded>),
}

impl Decoded {
    /// Whether this is, or contains, a reply to a pending request.
    pub(crate) fn is_reply(&self) -> bool {
        match self {
            Self::Reply(_) => true,
            Self::Batch(messages) => messages.iter().any(Self::is_reply),
            Self::Empty
            | Self::Unsolicited(..)
            | Self::Dropped(_)
            | Self::RejectedRequest(..)
            | Self::DroppedNoise => false,
        }
    }
}

/// Decodes a line, with or without trailing white space.
///
/// `fits` returns whether an unsolicited message of this many bytes is within the capacity. Replies
/// are not limited by it.
pub(crate) fn decode(
    line: &[u8],
    limit_check: LimitCheck,
    pending: &impl PendingRequests,
    fits: impl Fn(usize) -> bool,
) -> Decoded {
    let line = trimmed(line);
    if line.is_empty() {
        return Decoded::Empty;
    }
    let is_batch = line[0] == b'[';
    if line[0] != b'{' && !is_batch {
        return noise("not a JSON-RPC message", &excerpt(line), fits);
    }
    if let Err(limit) = limit_check {
        return over_limit(line, &limit, identify(line), pending, fits);
    }
    match std::str::from_utf8(line) {
        Ok(text) if is_batch => decode_batch(text, pending, fits),
        Ok(text) => decode_text(text, pending, fits),
        Err(problem) => {
            let message = PartialMessage::from_ends(line, line);
            invalid_json(line, &problem, &message, pending, fits)
        }
    }
}

/// A line without surrounding white space and without a byte order mark, which some runtimes write
/// before their first line.
fn trimmed(line: &[u8]) -> &[u8] {
    let line = line.trim_ascii();
    match line.strip_prefix("\u{feff}".as_bytes()) {
        Some(marked) => marked.trim_ascii_start(),
        None => line,
    }
}

/// Decodes a line beyond the maximum length; `None` if its head and tail do not identify it.
pub(crate) fn decode_oversized(
    line: &OversizedLine,
    problem: &str,
    pending: &impl PendingRequests,
    fits: impl Fn(usize) -> bool,
) -> Option<Decoded> {
    let message = PartialMessage::from_ends(&line.head, &line.tail);
    message
        .is_identified()
        .then(|| over_limit(&line.head, &problem, message, pending, fits))
}

/// Decodes the error in the body or in an event of an HTTP response. In a body the error may have
/// any id, because the response belongs to the request; in an event it has no id of a request of
/// ours.
pub(crate) fn decode_error_body(text: &[u8], is_whole_body: bool) -> Option<ErrorData> {
    let text = trimmed(text);
    let limits = MessageSettings::default();
    check_limits_inline(text, &limits)?.ok()?;
    let text = std::str::from_utf8(text).ok()?;
    let mut envelope = Envelope::default();
    envelope.read(text).ok()?;
    let is_error = envelope.is_json_rpc() && envelope.method.is_none();
    let belongs = is_whole_body || envelope.call_id().is_none();
    let error = envelope.error().filter(|_| is_error && belongs)?;
    decode_error(error).ok()
}

/// Decodes a single message.
pub(super) fn decode_text(
    line: &str,
    pending: &impl PendingRequests,
    fits: impl Fn(usize) -> bool,
) -> Decoded {
    let mut envelope = Envelope::default();
    if let Err(problem) = envelope.read(line) {
        let mut message = PartialMessage::from_ends(line.as_bytes(), line.as_bytes());
        message.add(&envelope);
        return invalid_json(line.as_bytes(), &problem, &message, pending, fits);
    }
    if !envelope.is_json_rpc() {
        return noise("not a JSON-RPC message", line, fits);
    }
    match (envelope.method, envelope.result, envelope.error()) {
        (None, Some(result), None) => reply(&envelope, line, pending, fits, |kind| {
            decode_result(kind, result.get()).map(Ok)
        }),
        (None, _, Some(error)) => reply(&envelope, line, pending, fits, |_| {
            decode_error(error).map(Err)
        }),
        // Some servers omit a result that is null. Without this the call would wait for its deadline.
        (None, None, None) if envelope.call_id().is_some() => {
            reply(&envelope, line, pending, fits, |_| {
                Err(serde_json::Error::custom(
                    "it has neither a result nor an error",
                ))
            })
        }
        (Some(method), None, None) => unsolicited(&envelope, method.get(), line, fits),
        _ => noise("neither a request nor a reply", line, fits),
    }
}

/// Decodes a request or a notification, if it is within the capacity.
fn unsolicited(
    envelope: &Envelope<'_>,
    method: &str,
    line: &str,
    fits: impl Fn(usize) -> bool,
) -> Decoded {
    let memory = estimate_memory(line.as_bytes());
    let rejected = match memory {
        ..=MAX_UNSOLICITED_BYTES if fits(memory) => None,
        ..=MAX_UNSOLICITED_BYTES => Some(RejectReason::TooMany),
        _ => Some(RejectReason::TooLarge),
    };
    let inbound = if let Some(reason) = rejected {
        return match envelope.id {
            Some(_) => reject_request(envelope.request_id(), reason),
            None => Decoded::Dropped(changed_lists(&envelope.method().unwrap_or_default())),
        };
    } else if envelope.id.is_some() {
        request(envelope, line)
    } else {
        notification(method, line)
    };
    Decoded::Unsolicited(inbound, memory)
}

fn request(envelope: &Envelope<'_>, line: &str) -> Inbound {
    let Some(id) = envelope.request_id() else {
        return stray("a request whose id is neither a number nor a string", line);
    };
    match serde_json::from_str(line) {
        Ok(request) => Inbound::Request {
            id,
            request,
            cause: None,
        },
        Err(_) => stray("an invalid request", line),
    }
}

fn notification(method: &str, line: &str) -> Inbound {
    match decode_notification(method, line) {
        Ok(notification) => Inbound::Notification {
            notification,
            cause: None,
        },
        Err(_) => stray("an invalid notification", line),
    }
}

/// Rejects a request that was not decoded. It is only counted if its id is invalid or too long to
/// answer.
fn reject_request(id: Option<RequestId>, reason: RejectReason) -> Decoded {
    let is_short = |id: &RequestId| match id {
        RequestId::Number(_) => true,
        RequestId::String(text) => text.len() <= MAX_ID_BYTES,
    };
    match id.filter(is_short) {
        Some(id) => Decoded::RejectedRequest(id, reason),
        None => Decoded::Dropped(&[]),
    }
}

/// Identifies a line that must not be decoded.
fn identify(line: &[u8]) -> PartialMessage {
    let mut message = PartialMessage::from_ends(line, line);
    if !message.is_identified()
        && let Ok(text) = std::str::from_utf8(line)
    {
        let mut envelope = Envelope::default();
        let _ = envelope.read(text);
        message.add(&envelope);
    }
    message
}

/// A line that exceeds a limit.
fn over_limit(
    line: &[u8],
    limit: &dyn Display,
    message: PartialMessage,
    pending: &impl PendingRequests,
    fits: impl Fn(usize) -> bool,
) -> Decoded {
    if let Some(id) = message.pending_call(pending) {
        let problem = format!("the reply exceeds a limit: {limit}");
        return Decoded::Reply(Inbound::Unreadable { id, problem });
    }
    match (message.method, message.request_id) {
        (Some(_), Some(id)) => reject_request(Some(id), RejectReason::TooLarge),
        (Some(method), None) => Decoded::Dropped(changed_lists(&method)),
        (None, _) => noise(&limit.to_string(), &excerpt(line), fits),
    }
}

/// A line that is not valid JSON. If its members identify a pending request, it is the reply: a
/// server that was cut off while writing a reply does not repeat it.
fn invalid_json(
    line: &[u8],
    problem: &dyn Display,
    message: &PartialMessage,
    pending: &impl PendingRequests,
    fits: impl Fn(usize) -> bool,
) -> Decoded {
    if let Some(id) = message.pending_call(pending) {
        let problem = format!("the reply is not valid JSON: {problem}");
        return Decoded::Reply(Inbound::Unreadable { id, problem });
    }
    noise("not JSON", &excerpt(line), fits)
}

fn reply(
    envelope: &Envelope<'_>,
    line: &str,
    pending: &impl PendingRequests,
    fits: impl Fn(usize) -> bool,
    decode: impl FnOnce(ReplyKind) -> serde_json::Result<Result<ServerResult, ErrorData>>,
) -> Decoded {
    let Some(id) = envelope.call_id() else {
        return noise("a reply without a valid id", line, fits);
    };
    let Some(kind) = pending.reply_kind(id) else {
        return noise("a reply to no pending request", line, fits);
    };
    Decoded::Reply(match decode(kind) {
        Ok(result) => Inbound::Response { id, result },
        Err(problem) => Inbound::Unreadable {
            id,
            problem: format!("the result cannot be read: {problem}"),
        },
    })
}

/// Input that belongs to no request.
pub(super) fn noise(what: &str, line: &str, fits: impl Fn(usize) -> bool) -> Decoded {
    // Only an excerpt is kept, so noise counts as no bytes.
    if fits(0) {
        Decoded::Unsolicited(stray(what, line), 0)
    } else {
        Decoded::DroppedNoise
    }
}

/// The start of a line, long enough for [`stray`] to see whether there is more.
fn excerpt(line: &[u8]) -> Cow<'_, str> {
    // A character has at most four bytes.
    String::from_utf8_lossy(&line[..line.len().min(4 * (MAX_EXCERPT_CHARS + 1))])
}

fn stray(what: &str, line: &str) -> Inbound {
    let shown: String = line
        .chars()
        .take(MAX_EXCERPT_CHARS)
        .flat_map(char::escape_debug)
        .collect();
    let more = if line.chars().nth(MAX_EXCERPT_CHARS).is_some() {
        "…"
    } else {
        ""
    };
    Inbound::Stray {
        problem: format!("{what}: {shown}{more}"),
    }
}

//! Reads one line as one message.

use std::borrow::Cow;
use std::fmt::Display;

use mcpvisor_core::ListKind;
use mcpvisor_core::settings::MessageSettings;
use rmcp::model::{
    CallToolResult, CancelledNotification, CompleteResult, EmptyResult, ErrorCode, ErrorData,
    GetPromptResult, InitializeResult, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, ProgressNotification, ReadResourceResult, RequestId,
    ResourceUpdatedNotification, ServerNotification, ServerRequest, ServerResult,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::batch::decode_batch;
use super::envelope::Envelope;
#[cfg(any(test, feature = "stdio"))]
use super::partial_message::Ends;
use super::partial_message::{Told, changed_lists};
use super::weigh::{LARGE, LimitCheck, memory};
use crate::link::{Inbound, PendingRequests, RejectReason, ReplyKind};

/// So much of a strange line is shown, in characters.
const SHOWN: usize = 120;

/// A request or notification of the server's may take so much memory, in bytes.
pub(crate) const MAX_UNSOLICITED_BYTES: usize = 1024 * 1024;

/// An id of the server's is repeated in an answer if it has at most so many bytes.
const MAX_ID: usize = 256;

/// What became of a line.
#[derive(Debug)]
pub(crate) enum Decoded {
    /// There was nothing in it.
    Empty,
    /// The answer to a pending request, readable or not.
    Reply(Inbound),
    /// A message that nobody asked for, or noise. There was room for so many bytes.
    Unsolicited(Inbound, usize),
    /// A message that nobody asked for and that there was no room for. It was not read, but the
    /// lists that it says have changed are told.
    Dropped(&'static [ListKind]),
    /// A request that was not read.
    RejectedRequest(RequestId, RejectReason),
    /// Noise that there was no room for.
    DroppedNoise,
    /// Several messages, none of them a batch.
    Batch(Vec<Decoded>),
}

impl Decoded {
    /// Whether it answers a pending request.
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

/// Reads a line, which may end in white space.
///
/// `limit_check` says whether it may be read, `room` whether there is room for one more message that
/// nobody asked for and that takes so many bytes of memory. Replies need no room.
pub(crate) fn decode(
    line: &[u8],
    limit_check: LimitCheck,
    pending: &impl PendingRequests,
    room: impl Fn(usize) -> bool,
) -> Decoded {
    let line = trimmed(line);
    if line.is_empty() {
        return Decoded::Empty;
    }
    let is_batch = line[0] == b'[';
    if line[0] != b'{' && !is_batch {
        return noise("no JSON-RPC message", &start(line), room);
    }
    if let LimitCheck::Exceeds(bound) = limit_check {
        return crosses(line, &bound, told(line), pending, room);
    }
    match std::str::from_utf8(line) {
        Ok(text) if is_batch => decode_batch(text, pending, room),
        Ok(text) => decode_text(text, pending, room),
        Err(problem) => broken(line, &problem, &Told::by_ends(line, line), pending, room),
    }
}

/// A line without the white space around it and without the mark of its encoding (U+FEFF), which some
/// runtimes write before their first line.
fn trimmed(line: &[u8]) -> &[u8] {
    let line = line.trim_ascii();
    match line.strip_prefix("\u{feff}".as_bytes()) {
        Some(marked) => marked.trim_ascii_start(),
        None => line,
    }
}

#[cfg(any(test, feature = "stdio"))]
/// What a line that was too long to be kept is known to be, or nothing if its ends do not tell.
pub(crate) fn decode_oversized(
    ends: &Ends,
    problem: &str,
    pending: &impl PendingRequests,
    room: impl Fn(usize) -> bool,
) -> Option<Decoded> {
    let told = Told::by_ends(&ends.head, &ends.tail);
    told.is_known()
        .then(|| crosses(&ends.head, &problem, told, pending, room))
}

/// The error of a message that need not be the answer to anything: a refused request is answered by
/// what comes back for it, whatever id that has.
#[cfg(feature = "http")]
pub(crate) fn decode_error_body(text: &[u8]) -> Option<ErrorData> {
    decode_error_of(text, |_| true)
}

/// Reads an error that names no request of ours.
#[cfg(feature = "http")]
pub(crate) fn decode_error_without_id(text: &[u8]) -> Option<ErrorData> {
    decode_error_of(text, |envelope| envelope.call_id().is_none())
}

fn decode_error_of(text: &[u8], fits: impl Fn(&Envelope<'_>) -> bool) -> Option<ErrorData> {
    let text = trimmed(text);
    let Some(LimitCheck::Within) = super::check_limits_inline(text, &MessageSettings::default())
    else {
        return None;
    };
    let text = std::str::from_utf8(text).ok()?;
    let mut envelope = Envelope::default();
    envelope.read(text).ok()?;
    let is_error = envelope.is_json_rpc() && envelope.method.is_none();
    let error = envelope.error().filter(|_| is_error && fits(&envelope))?;
    decode_error(error).ok()
}

/// Reads a text that begins as a message does.
pub(super) fn decode_text(
    line: &str,
    pending: &impl PendingRequests,
    room: impl Fn(usize) -> bool,
) -> Decoded {
    let mut envelope = Envelope::default();
    if let Err(problem) = envelope.read(line) {
        let mut told = Told::by_ends(line.as_bytes(), line.as_bytes());
        told.add(&envelope);
        return broken(line.as_bytes(), &problem, &told, pending, room);
    }
    if !envelope.is_json_rpc() {
        return noise("no JSON-RPC message", line, room);
    }
    match (envelope.method, envelope.result, envelope.error()) {
        (None, Some(result), None) => reply(&envelope, line, pending, room, |kind| {
            decode_result(kind, result.get()).map(Ok)
        }),
        (None, _, Some(error)) => reply(&envelope, line, pending, room, |_| {
            decode_error(error).map(Err)
        }),
        (Some(method), None, None) => unasked(&envelope, method.get(), line, room),
        _ => noise("neither a request nor a reply", line, room),
    }
}

/// A request or a notification, read only if there is room for it.
fn unasked(
    envelope: &Envelope<'_>,
    method: &str,
    line: &str,
    room: impl Fn(usize) -> bool,
) -> Decoded {
    let memory = memory(line.as_bytes());
    let refusal = match memory {
        ..=MAX_UNSOLICITED_BYTES if room(memory) => None,
        ..=MAX_UNSOLICITED_BYTES => Some(RejectReason::TooMany),
        _ => Some(RejectReason::TooLarge),
    };
    let inbound = if let Some(refusal) = refusal {
        return match envelope.id {
            Some(_) => refused_request(envelope.request_id(), refusal),
            None => Decoded::Dropped(changed_lists(&envelope.method().unwrap_or_default())),
        };
    } else if envelope.id.is_some() {
        decode_request(envelope, line)
    } else {
        decode_notification(method, line)
    };
    Decoded::Unsolicited(inbound, memory)
}

/// A request that was not read can be answered if its id is one.
fn refused_request(id: Option<RequestId>, refusal: RejectReason) -> Decoded {
    let is_short = |id: &RequestId| match id {
        RequestId::Number(_) => true,
        RequestId::String(text) => text.len() <= MAX_ID,
    };
    match id.filter(is_short) {
        Some(id) => Decoded::RejectedRequest(id, refusal),
        None => Decoded::Dropped(&[]),
    }
}

/// What a line that must not be read is.
fn told(line: &[u8]) -> Told {
    let mut told = Told::by_ends(line, line);
    if !told.is_known()
        && let Ok(text) = std::str::from_utf8(line)
    {
        let mut envelope = Envelope::default();
        let _ = envelope.read(text);
        told.add(&envelope);
    }
    told
}

/// A line that crosses a bound.
fn crosses(
    line: &[u8],
    bound: &dyn Display,
    told: Told,
    pending: &impl PendingRequests,
    room: impl Fn(usize) -> bool,
) -> Decoded {
    if let Some(id) = told.pending(pending) {
        let problem = format!("the reply is refused: {bound}");
        return Decoded::Reply(Inbound::Unreadable { id, problem });
    }
    match (told.method, told.request) {
        (Some(_), Some(id)) => refused_request(Some(id), RejectReason::TooLarge),
        (Some(method), None) => Decoded::Dropped(changed_lists(&method)),
        (None, _) => noise(&bound.to_string(), &start(line), room),
    }
}

/// A line that is no JSON, or not to its end. It answers a pending request if it tells so; a server
/// that is cut off in the middle of a reply will not repeat it.
fn broken(
    line: &[u8],
    problem: &dyn Display,
    told: &Told,
    pending: &impl PendingRequests,
    room: impl Fn(usize) -> bool,
) -> Decoded {
    if let Some(id) = told.pending(pending) {
        let problem = format!("the reply is broken: {problem}");
        return Decoded::Reply(Inbound::Unreadable { id, problem });
    }
    noise("no JSON", &start(line), room)
}

/// As much of a line as may be shown.
fn start(line: &[u8]) -> Cow<'_, str> {
    // A character has at most four bytes, and one more tells that there is more.
    String::from_utf8_lossy(&line[..line.len().min(4 * (SHOWN + 1))])
}

fn reply(
    envelope: &Envelope<'_>,
    line: &str,
    pending: &impl PendingRequests,
    room: impl Fn(usize) -> bool,
    read: impl FnOnce(ReplyKind) -> serde_json::Result<Result<ServerResult, ErrorData>>,
) -> Decoded {
    let Some(id) = envelope.call_id() else {
        return noise("a reply without an id of ours", line, room);
    };
    let Some(kind) = pending.reply_kind(id) else {
        return noise("a reply that nothing waits for", line, room);
    };
    Decoded::Reply(match read(kind) {
        Ok(result) => Inbound::Response { id, result },
        Err(problem) => Inbound::Unreadable {
            id,
            problem: format!("the result cannot be read: {problem}"),
        },
    })
}

/// Reads a result as what is expected, and as whatever rmcp makes of it where it is something else:
/// an input that is required, a task, a custom shape. Those are small; a large one would be held in
/// memory twice while rmcp tries what it is.
fn decode_result(kind: ReplyKind, text: &str) -> serde_json::Result<ServerResult> {
    let expected = match kind {
        ReplyKind::CallTool => typed::<CallToolResult>(text),
        ReplyKind::ListTools => typed::<ListToolsResult>(text),
        ReplyKind::ListPrompts => typed::<ListPromptsResult>(text),
        ReplyKind::GetPrompt => typed::<GetPromptResult>(text),
        ReplyKind::ListResources => typed::<ListResourcesResult>(text),
        ReplyKind::ListTemplates => typed::<ListResourceTemplatesResult>(text),
        ReplyKind::ReadResource => typed::<ReadResourceResult>(text),
        ReplyKind::Complete => typed::<CompleteResult>(text),
        ReplyKind::Initialize => typed::<InitializeResult>(text),
        // An acknowledgement has nothing in it that anyone reads.
        ReplyKind::Empty if text.starts_with('{') || text == "null" => Ok(EmptyResult {}.into()),
        ReplyKind::Discover | ReplyKind::Empty | ReplyKind::Any => {
            return serde_json::from_str(text);
        }
    };
    // The first problem is the one that names a field; the union only says that nothing matched.
    expected.or_else(|problem| match text.len() {
        ..=LARGE => serde_json::from_str(text).map_err(|_| problem),
        _ => Err(problem),
    })
}

fn typed<R: DeserializeOwned + Into<ServerResult>>(text: &str) -> serde_json::Result<ServerResult> {
    serde_json::from_str::<R>(text).map(Into::into)
}

/// Reads an error as far as it can be read: servers leave out the code or the message, write a code
/// in a string, or give a text for the whole error.
fn decode_error(text: &str) -> serde_json::Result<ErrorData> {
    #[derive(Deserialize)]
    struct Lenient {
        code: Option<Value>,
        message: Option<Value>,
        data: Option<Value>,
    }

    match serde_json::from_str::<ErrorData>(text) {
        Ok(error) => return Ok(error),
        Err(problem) if text.len() > LARGE => return Err(problem),
        Err(_) => {}
    }
    let Ok(error) = serde_json::from_str::<Lenient>(text) else {
        let message = as_text(serde_json::from_str(text)?);
        return Ok(ErrorData::internal_error(message, None));
    };
    let code = error.code.as_ref().and_then(as_code);
    Ok(ErrorData {
        code: code.unwrap_or(ErrorCode::INTERNAL_ERROR),
        message: error
            .message
            .map_or(Cow::Borrowed("the server gave no message"), |message| {
                Cow::Owned(as_text(message))
            }),
        data: error.data,
    })
}

fn as_code(value: &Value) -> Option<ErrorCode> {
    let number = match value {
        Value::Number(number) => number.as_i64().or_else(|| {
            // The cast saturates, and what saturates is no code.
            number.as_f64().map(|number| number as i64)
        }),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    i32::try_from(number?).ok().map(ErrorCode)
}

fn as_text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

fn decode_request(envelope: &Envelope<'_>, line: &str) -> Inbound {
    let Some(id) = envelope.request_id() else {
        return stray("a request whose id is neither a number nor a text", line);
    };
    // Its members beside `method` and `params` are ignored, so the whole line will do.
    match serde_json::from_str::<ServerRequest>(line) {
        Ok(request) => Inbound::Request { id, request },
        Err(_) => stray("a request that cannot be read", line),
    }
}

fn decode_notification(method: &str, line: &str) -> Inbound {
    let expected = match method {
        r#""notifications/progress""# => notification::<ProgressNotification>(line),
        r#""notifications/resources/updated""# => notification::<ResourceUpdatedNotification>(line),
        r#""notifications/cancelled""# => notification::<CancelledNotification>(line),
        _ => None,
    };
    match expected.map_or_else(|| serde_json::from_str(line), Ok) {
        Ok(notification) => Inbound::Notification(notification),
        Err(_) => stray("a notification that cannot be read", line),
    }
}

fn notification<N: DeserializeOwned + Into<ServerNotification>>(
    line: &str,
) -> Option<ServerNotification> {
    serde_json::from_str::<N>(line).ok().map(Into::into)
}

/// Something that belongs to nothing.
pub(super) fn noise(what: &str, line: &str, room: impl Fn(usize) -> bool) -> Decoded {
    // Little of it is kept.
    if room(0) {
        Decoded::Unsolicited(stray(what, line), 0)
    } else {
        Decoded::DroppedNoise
    }
}

fn stray(what: &str, line: &str) -> Inbound {
    let shown: String = line
        .chars()
        .take(SHOWN)
        .flat_map(char::escape_debug)
        .collect();
    let more = if line.chars().nth(SHOWN).is_some() {
        "…"
    } else {
        ""
    };
    Inbound::Stray {
        problem: format!("{what}: {shown}{more}"),
    }
}

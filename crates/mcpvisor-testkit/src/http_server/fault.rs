//! The HTTP faults: their names and the meaning of their number.

use std::str::FromStr;

/// Each fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    StallHeaders,
    StallBody,
    Accepted,
    HalfOpen,
    SlowDrip,
    Close,
    Drop,
    EmptyStream,
    Resume,
    NotFound,
    RunThenNotFound,
    RunThenSessionError,
    SessionError,
    SessionBadRequest,
    SessionGone,
    NullId,
    NoSuchMethod,
    HeaderMismatch,
    ForeignSession,
    Unauthorized,
    Busy,
    BusyAfter,
    Unavailable,
    UnavailableAfter,
    Status,
    Repeat,
    RepeatError,
    RepeatAnswer,
    RepeatSessionError,
    Redirect,
    RedirectHere,
    EndlessBody,
    EndlessEvent,
    Body,
    Values,
    Nesting,
    ContentType,
    BadJson,
    BadEvent,
    WrongId,
    Flood,
    FloodRequests,
    NoEndpoint,
    EndlessComments,
    EndpointElsewhere,
    EndpointJavascript,
    EndpointHuge,
    TwoEndpoints,
    EndlessAcceptance,
}

/// What a fault's number means, and its default.
type Number = (&'static str, u64);

/// All faults: kind, name, number, and description.
#[rustfmt::skip]
const FAULTS: &[(Kind, &str, Option<Number>, &str)] = {
    use Kind::*;
    &[
        (StallHeaders, "http-stall-headers", None, "sends nothing, and keeps the connection"),
        (StallBody, "http-stall-body", None, "stops in the middle of the body, and keeps the connection"),
        (Accepted, "http-202", None, "accepts the request and never answers it"),
        (HalfOpen, "http-half-open", None, "reads and answers nothing from then on, on any connection"),
        (SlowDrip, "http-slow-drip", Some(("MS", 100)), "answers one byte at a time, so far apart"),
        (Close, "http-close", None, "closes the connection instead of answering"),
        (Drop, "http-drop", None, "closes the connection in the middle of the body"),
        (EmptyStream, "http-empty-stream", None, "ends the stream of events without the answer"),
        (Resume, "http-resume", Some(("MS", 50)), "ends the stream, and answers the client that resumes it; asks for so long a pause"),
        (NotFound, "http-404", None, "answers 404, as for a session that is gone"),
        (RunThenNotFound, "http-run-then-404", None, "runs the tool, then answers 404"),
        (RunThenSessionError, "http-run-then-session-error", None, "runs the tool, then answers a JSON-RPC error of the tool's own: Session not found: browser-7"),
        (SessionError, "http-session-error", None, "answers a JSON-RPC error: Session not found"),
        (SessionBadRequest, "http-session-400", None, "answers 400: No valid session ID provided"),
        (SessionGone, "http-session-410", None, "answers 410: session expired"),
        (NullId, "http-400-null-id", None, "answers 400 with a JSON-RPC error whose id is null"),
        (NoSuchMethod, "http-404-method", None, "answers 404 with the JSON-RPC error that there is no such method"),
        (HeaderMismatch, "http-400-headers", None, "answers 400 with the JSON-RPC error that headers and body differ"),
        (ForeignSession, "http-400-new-session", None, "answers 400 with the header of a session that nobody opened"),
        (Unauthorized, "http-401", None, "answers 401 with a challenge"),
        (Busy, "http-429", None, "answers 429"),
        (BusyAfter, "http-429-after", Some(("S", 1)), "answers 429 with Retry-After"),
        (Unavailable, "http-503", None, "answers 503"),
        (UnavailableAfter, "http-503-after", Some(("S", 1)), "answers 503 with Retry-After"),
        (Status, "http-status", Some(("STATUS", 500)), "answers with this status and a text"),
        (Repeat, "http-repeat", Some(("STATUS", 500)), "answers with this status, and repeats all that it was sent"),
        (RepeatError, "http-repeat-error", Some(("STATUS", 400)), "the same, in a JSON-RPC error"),
        (RepeatAnswer, "http-repeat-answer", None, "answers with a JSON-RPC error that repeats all that it was sent, in its message and its data"),
        (RepeatSessionError, "http-repeat-session-error", None, "the same, but the message says that the session is not found, and repeats the authorization alone"),
        (Redirect, "http-redirect", None, "sends the client to another origin"),
        (RedirectHere, "http-redirect-here", None, "sends the client to another path of its own"),
        (EndlessBody, "http-endless-body", None, "answers with a JSON body without an end"),
        (EndlessEvent, "http-endless-event", None, "answers with an event without an end"),
        (Body, "http-body", Some(("BYTES", 17 * 1024 * 1024)), "answers with a text of so many bytes"),
        (Values, "http-values", Some(("N", 8_000_000)), "answers with an array of so many ones: 1,1,1,…"),
        (Nesting, "http-nesting", Some(("DEPTH", 200)), "answers with arrays nested so deep"),
        (ContentType, "http-content-type", None, "answers with a page of HTML"),
        (BadJson, "http-bad-json", None, "answers with half of a JSON body"),
        (BadEvent, "http-bad-event", None, "answers with an event that is no JSON"),
        (WrongId, "http-wrong-id", None, "answers under an id that nobody gave"),
        (Flood, "http-flood", Some(("N", 100_000)), "sends so many log messages, then answers"),
        (FloodRequests, "http-flood-requests", Some(("N", 100_000)), "sends so many requests, then answers"),
        (NoEndpoint, "sse-no-endpoint", None, "opens the stream and sends no endpoint"),
        (EndlessComments, "sse-comments", None, "sends comments on the stream without an end, and no endpoint"),
        (EndpointElsewhere, "sse-endpoint-elsewhere", None, "names an endpoint on another origin"),
        (EndpointJavascript, "sse-endpoint-javascript", None, "names javascript:alert(1) as its endpoint"),
        (EndpointHuge, "sse-endpoint-huge", Some(("BYTES", 1024 * 1024)), "names an endpoint of so many bytes"),
        (TwoEndpoints, "sse-two-endpoints", None, "names its endpoint, and then another one"),
        (EndlessAcceptance, "sse-endless-202", None, "answers on the stream; the response to the POST never ends"),
    ]
};

/// A fault to inject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpFault {
    pub(super) kind: Kind,
    /// The number, 0 if it takes none.
    pub(super) amount: u64,
}

/// Each fault in command-line syntax, with its description.
pub fn list_faults() -> Vec<(String, &'static str)> {
    let faults = FAULTS.iter();
    let usage = |name: &str, number: &Option<Number>| match number {
        Some((what, default)) => format!("{name}[={what}] ({default})"),
        None => name.to_owned(),
    };
    faults
        .map(|(_, name, number, line)| (usage(name, number), *line))
        .collect()
}

impl FromStr for HttpFault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, number) = match text.split_once('=') {
            Some((name, number)) => (name, Some(number)),
            None => (text, None),
        };
        let known = FAULTS.iter().find(|(_, known, ..)| *known == name);
        let (kind, _, takes, _) = known.ok_or_else(|| unknown(name))?;
        let amount = match (takes, number) {
            (None, None) => 0,
            (None, Some(_)) => return Err(format!("the fault {name} takes no number")),
            (Some((_, default)), None) => *default,
            (Some((what, _)), Some(number)) => number
                .parse()
                .map_err(|_| format!("{what} of the fault {name} cannot be {number:?}"))?,
        };
        Ok(Self {
            kind: *kind,
            amount,
        })
    }
}

fn unknown(name: &str) -> String {
    let names: Vec<&str> = FAULTS.iter().map(|(_, name, ..)| *name).collect();
    let names = names.join(", ");
    format!("no fault of HTTP is named {name:?}; there are: {names}")
}

//! What an exchange reports: the head, messages, and how it ended.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use mcpvisor_core::CredentialRevision;

use super::body::BodyMessage;
use super::proof::ProofRefusal;
use super::sse::EventCursor;
use crate::auth::Challenge;
use crate::link::codec::partial_message::OversizedLine;
use crate::link::http::net::conn::Conn;
use crate::link::http::net::connect_error::ConnectError;
use crate::link::http::redirect::RedirectRefusal;

/// Something that an exchange reports.
#[derive(Debug)]
pub(crate) enum ExchangeEvent {
    /// The head of a successful response, if it was requested; with the session id, if there is
    /// one.
    Head(Option<HeaderValue>),
    /// A message: the body, or an event in it.
    Message(BodyMessage),
    /// The address for messages to the server, on the stream of a session.
    Endpoint(Bytes),
    /// A message beyond the limit was skipped, on the stream of a session; why.
    Oversized(OversizedLine, String),
    /// No connection could be opened, and nothing was written. The exchange waits for its next
    /// attempt, or for a connection that becomes idle.
    ConnectFailed(ConnectError),
    /// The last event.
    Ended(Box<Ended>),
}

/// The end of an exchange.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) outcome: ExchangeOutcome,
    /// The connection, if it can be reused.
    pub(crate) conn: Option<Conn>,
    /// Where an event stream ended.
    pub(crate) resume: Option<ResumePoint>,
}

/// How an exchange ended.
#[derive(Debug)]
pub(crate) enum ExchangeOutcome {
    /// There was no connection, and nothing was sent.
    NotSent(ConnectError),
    /// The connection broke before the end of the response.
    Interrupted(String),
    /// The exchange took longer than its timeout.
    TimedOut,
    /// The response is complete.
    Complete,
    /// The server accepted the message without a reply (202).
    Accepted,
    /// The response cannot be read.
    Unreadable(String),
    /// An event of the response is too large.
    EventTooLarge(String),
    /// The status is not a success.
    Refused(HttpRefusal),
}

/// A response whose status is not a success.
#[derive(Debug)]
pub(crate) struct HttpRefusal {
    pub(crate) status: StatusCode,
    pub(crate) retry_after: Option<Duration>,
    /// Why it was not followed, if it is a redirect.
    pub(crate) redirect: Option<RedirectRefusal>,
    /// The credential that the request carried.
    pub(crate) credential: CredentialRevision,
    /// What authorization the server demands (401, 403).
    pub(crate) challenge: Option<Box<Challenge>>,
    /// Whether the proof of a signed request is the reason.
    pub(crate) proof: Option<ProofRefusal>,
    pub(crate) body: Vec<u8>,
}

/// Where an event stream ended, for the stream that resumes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResumePoint {
    pub(crate) cursor: EventCursor,
    /// An event came on the stream.
    pub(crate) progressed: bool,
}

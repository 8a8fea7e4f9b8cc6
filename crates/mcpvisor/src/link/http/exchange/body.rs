//! Reads the body of a response as messages.
//!
//! Memory is bounded while the body arrives: each message has a limit, and only one message per
//! link may grow large at a time.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hyper::body::Incoming;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

use super::event::{Ended, ExchangeEvent, ExchangeOutcome, HttpRefusal, ResumePoint};
use super::sse::{EventParser, SseEvent};
use crate::link::http::net::conn::Conn;
use crate::link::http::net::connect_error::error_chain;
use crate::link::limits::format_bytes;

/// Bytes of the body of a refusal; the rest is not read.
const MAX_REFUSAL: usize = 64 * 1024;

/// Time for the body of a refusal. The status alone is often enough.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Bytes of an ignored body that are read so that its connection can be reused.
const MAX_IGNORED: usize = 64 * 1024;

/// Time for an ignored body.
const IGNORED_TIMEOUT: Duration = Duration::from_secs(1);

/// Bytes per poll, if they contain no message.
const MAX_BYTES_PER_POLL: usize = 64 * 1024;

/// What a frame of a body counts for at least, in bytes.
const MIN_FRAME_COST: usize = 2 * 1024;

/// A message beyond this size waits until no other large one is in memory.
pub(super) const LARGE_MESSAGE: usize = 1024 * 1024;

/// A message as it was received.
#[derive(Debug)]
pub(crate) struct BodyMessage {
    pub(crate) text: Bytes,
    /// The message is the whole body, not an event.
    pub(crate) is_whole_body: bool,
    /// Held while a large message is in memory.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
    /// CPU time spent on receiving it; zero if it was not measured.
    pub(crate) cpu_time: Duration,
}

/// What a body contains, and what has been read of it.
#[derive(Debug)]
pub(super) enum BodyKind {
    /// One message: its first frame, or all frames once there are more. A single frame is not
    /// copied.
    Json(Bytes, Vec<u8>),
    /// A stream of messages.
    Events(EventParser),
    /// The explanation of an error.
    Refusal(HttpRefusal),
    /// Nothing that matters; the number of bytes read.
    Ignored(usize),
}

type PermitFuture = BoxFuture<'static, Result<OwnedSemaphorePermit, AcquireError>>;

/// A body being read.
pub(super) struct BodyReader {
    /// Until the end of the body.
    conn: Option<Conn>,
    /// After the end of a body that is one message.
    finished_conn: Option<Conn>,
    body: Incoming,
    kind: BodyKind,
    /// Received bytes of an event stream that are not parsed yet.
    unparsed: Bytes,
    /// Its single permit allows one large message per link.
    large: Arc<Semaphore>,
    /// Bytes of a body that is one message.
    max_bytes: usize,
    permit_wait: Option<PermitFuture>,
    permit: Option<OwnedSemaphorePermit>,
    timeout: Option<Pin<Box<Sleep>>>,
}

impl BodyReader {
    pub(super) fn new(
        conn: Conn,
        body: Incoming,
        kind: BodyKind,
        large: Arc<Semaphore>,
        max_bytes: usize,
    ) -> Self {
        let timeout = match kind {
            BodyKind::Refusal(_) => Some(REFUSAL_TIMEOUT),
            BodyKind::Ignored(_) => Some(IGNORED_TIMEOUT),
            BodyKind::Json(..) | BodyKind::Events(_) => None,
        };
        Self {
            timeout: timeout.map(|timeout| Box::pin(tokio::time::sleep(timeout))),
            conn: Some(conn),
            finished_conn: None,
            body,
            kind,
            unparsed: Bytes::new(),
            large,
            max_bytes,
            permit_wait: None,
            permit: None,
        }
    }

    /// Polls the next event. Must not be polled after [`ExchangeEvent::Ended`].
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ExchangeEvent> {
        let mut budget = MAX_BYTES_PER_POLL;
        while budget > 0 {
            if let Some(event) = self.next_parsed() {
                return Poll::Ready(event);
            }
            ready!(self.poll_large_permit(cx));
            let Some(conn) = &mut self.conn else {
                return Poll::Ready(self.end(ExchangeOutcome::Complete));
            };
            let Poll::Ready(frame) = conn.poll_body(cx, &mut self.body) else {
                let Some(timeout) = &mut self.timeout else {
                    return Poll::Pending;
                };
                ready!(timeout.as_mut().poll(cx));
                let outcome = self.take_refusal();
                return Poll::Ready(self.abort(outcome));
            };
            match frame {
                Some(Ok(frame)) => {
                    let data = frame.into_data().unwrap_or_default();
                    budget = budget.saturating_sub(data.len().max(MIN_FRAME_COST));
                    if let Some(outcome) = self.append(data) {
                        return Poll::Ready(self.abort(outcome));
                    }
                }
                Some(Err(problem)) => {
                    let outcome = match &self.kind {
                        BodyKind::Refusal(_) => self.take_refusal(),
                        _ => ExchangeOutcome::Interrupted(error_chain(&problem)),
                    };
                    return Poll::Ready(self.abort(outcome));
                }
                None => return Poll::Ready(self.finish()),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Sets the limit of the next events of a stream.
    pub(super) fn set_max_event_bytes(&mut self, max_bytes: usize) {
        if let BodyKind::Events(parser) = &mut self.kind {
            parser.limit = max_bytes;
        }
    }

    /// Bytes of the message that has begun.
    pub(super) fn unfinished_bytes(&self) -> usize {
        match &self.kind {
            BodyKind::Json(first, all) => first.len() + all.len(),
            BodyKind::Events(parser) => parser.unfinished(),
            BodyKind::Refusal(_) | BodyKind::Ignored(_) => 0,
        }
    }

    /// The next message in the bytes that were received already.
    fn next_parsed(&mut self) -> Option<ExchangeEvent> {
        let BodyKind::Events(parser) = &mut self.kind else {
            return None;
        };
        match parser.next(&mut self.unparsed) {
            Ok(None) => None,
            Ok(Some(SseEvent::Message(text))) => Some(self.message(text, false)),
            Ok(Some(SseEvent::Endpoint(address))) => Some(ExchangeEvent::Endpoint(address)),
            Ok(Some(SseEvent::Oversized(line))) => {
                let problem = too_large("an event", parser.limit);
                self.permit = None;
                Some(ExchangeEvent::Oversized(line, problem))
            }
            Err(_) => {
                let problem = too_large("an event", parser.limit);
                Some(self.abort(ExchangeOutcome::EventTooLarge(problem)))
            }
        }
    }

    fn message(&mut self, text: Bytes, is_whole_body: bool) -> ExchangeEvent {
        ExchangeEvent::Message(BodyMessage {
            text,
            is_whole_body,
            permit: self.permit.take(),
            cpu_time: Duration::ZERO,
        })
    }

    /// Waits until a large message may grow.
    fn poll_large_permit(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.unfinished_bytes() <= LARGE_MESSAGE || self.permit.is_some() {
            return Poll::Ready(());
        }
        let permit_wait = self
            .permit_wait
            .get_or_insert_with(|| Box::pin(Arc::clone(&self.large).acquire_owned()));
        self.permit = ready!(permit_wait.as_mut().poll(cx)).ok();
        self.permit_wait = None;
        Poll::Ready(())
    }

    /// Appends received bytes. Returns an outcome if the rest is not to be read.
    fn append(&mut self, data: Bytes) -> Option<ExchangeOutcome> {
        match &mut self.kind {
            BodyKind::Json(first, all) => {
                if first.is_empty() && all.is_empty() {
                    *first = data;
                } else {
                    all.extend_from_slice(&std::mem::take(first));
                    all.extend_from_slice(&data);
                }
                let length = first.len() + all.len();
                let max_bytes = self.max_bytes;
                (length > max_bytes)
                    .then(|| ExchangeOutcome::Unreadable(too_large("the body", max_bytes)))
            }
            BodyKind::Events(_) => {
                self.unparsed = data;
                None
            }
            BodyKind::Refusal(refusal) => {
                let free = MAX_REFUSAL - refusal.body.len();
                refusal
                    .body
                    .extend_from_slice(&data[..data.len().min(free)]);
                if data.len() <= free {
                    return None;
                }
                Some(self.take_refusal())
            }
            BodyKind::Ignored(bytes) => {
                *bytes += data.len();
                (*bytes > MAX_IGNORED).then_some(ExchangeOutcome::Accepted)
            }
        }
    }

    fn take_refusal(&mut self) -> ExchangeOutcome {
        match std::mem::replace(&mut self.kind, BodyKind::Ignored(0)) {
            BodyKind::Refusal(refusal) => ExchangeOutcome::Refused(refusal),
            BodyKind::Json(..) | BodyKind::Events(_) | BodyKind::Ignored(_) => {
                ExchangeOutcome::Accepted
            }
        }
    }

    /// Handles the end of the body.
    fn finish(&mut self) -> ExchangeEvent {
        match &mut self.kind {
            BodyKind::Json(first, all) => {
                let text = if first.is_empty() {
                    Bytes::from(std::mem::take(all))
                } else {
                    std::mem::take(first)
                };
                // The next poll reports the end.
                self.kind = BodyKind::Ignored(0);
                self.finished_conn = self.conn.take();
                self.message(text, true)
            }
            BodyKind::Events(_) => self.end(ExchangeOutcome::Complete),
            BodyKind::Refusal(_) | BodyKind::Ignored(_) => {
                let outcome = self.take_refusal();
                self.end(outcome)
            }
        }
    }

    fn end(&mut self, outcome: ExchangeOutcome) -> ExchangeEvent {
        let resume = match &self.kind {
            BodyKind::Events(parser) => Some(ResumePoint {
                cursor: parser.cursor.clone(),
                progressed: parser.has_events,
            }),
            BodyKind::Json(..) | BodyKind::Refusal(_) | BodyKind::Ignored(_) => None,
        };
        let conn = self.conn.take().or(self.finished_conn.take());
        ExchangeEvent::Ended(Box::new(Ended {
            outcome,
            conn,
            resume,
        }))
    }

    /// Ends without reading the rest of the body, so the connection cannot be reused.
    fn abort(&mut self, outcome: ExchangeOutcome) -> ExchangeEvent {
        self.conn = None;
        self.end(outcome)
    }
}

fn too_large(what: &str, limit: usize) -> String {
    format!("{what} is larger than {}", format_bytes(limit))
}

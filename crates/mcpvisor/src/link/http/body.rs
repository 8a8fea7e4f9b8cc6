//! The body of one answer, as the messages in it.
//!
//! What is kept of it is bounded while it arrives: each message by itself, and large ones together,
//! because only one of them per link may grow at a time.

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

use super::conn::Conn;
use super::exchange::{End, Out, Over, Refusal, Resume};
use super::sse::Sse;
use crate::link::limits::format_bytes;

/// So much of the body of a refusal is read.
const MAX_REFUSAL: usize = 64 * 1024;

/// The body of a refusal is waited for so long: its status has said the most of it.
const REFUSAL: Duration = Duration::from_secs(1);

/// So much is read of a body that does not matter, so that its connection can be used again.
const MAX_IGNORED: usize = 64 * 1024;

/// So much of a body is read in one poll, if there is no message in it.
const BYTES_IN_A_TURN: usize = 64 * 1024;

/// A part of a body counts as so many bytes at least.
const LEAST_PART: usize = 2 * 1024;

/// A message that grows beyond this waits until no other large one is on its way.
pub(super) const LARGE: usize = 1024 * 1024;

/// A message as it was received.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) text: Bytes,
    /// It is all of the body.
    pub(super) alone: bool,
    /// Held as long as a large one is in memory.
    pub(super) permit: Option<OwnedSemaphorePermit>,
    /// The CPU time that it took to read it.
    pub(super) work: Duration,
}

/// What a body is made of.
#[derive(Debug)]
pub(super) enum Kind {
    /// One message: its first part, and all of it if there are more parts.
    Whole(Bytes, Vec<u8>),
    /// Many messages.
    Events(Sse),
    /// Why there is no message.
    Refusal(Refusal),
    /// Nothing that matters; so many bytes of it have come.
    Nothing(usize),
}

type Permit = BoxFuture<'static, Result<OwnedSemaphorePermit, AcquireError>>;

/// A body on its way.
pub(super) struct Reading {
    /// Until its end.
    conn: Option<Conn>,
    /// After the end of a body that is one message.
    done: Option<Conn>,
    body: Incoming,
    kind: Kind,
    /// What has come of a stream of events and is not read yet.
    part: Bytes,
    large: Arc<Semaphore>,
    /// A body that is one message may have so many bytes.
    longest: usize,
    waiting: Option<Permit>,
    permit: Option<OwnedSemaphorePermit>,
    /// It is not read any longer than this.
    patience: Option<Pin<Box<Sleep>>>,
}

impl Reading {
    pub(super) fn new(
        conn: Conn,
        body: Incoming,
        kind: Kind,
        large: Arc<Semaphore>,
        longest: usize,
    ) -> Self {
        let is_refusal = matches!(kind, Kind::Refusal(_));
        Self {
            patience: is_refusal.then(|| Box::pin(tokio::time::sleep(REFUSAL))),
            conn: Some(conn),
            done: None,
            body,
            kind,
            part: Bytes::new(),
            large,
            longest,
            waiting: None,
            permit: None,
        }
    }

    /// What comes next of it. After [`Out::Over`] it must not be asked again.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Out> {
        let mut turn = BYTES_IN_A_TURN;
        while turn > 0 {
            if let Some(out) = self.take() {
                return Poll::Ready(out);
            }
            ready!(self.poll_room(cx));
            let Some(conn) = &mut self.conn else {
                return Poll::Ready(self.over(End::Whole));
            };
            let Poll::Ready(came) = conn.poll_body(cx, &mut self.body) else {
                ready!(self.poll_patience(cx));
                let end = self.refused();
                return Poll::Ready(self.cut_off(end));
            };
            match came {
                Some(Ok(frame)) => {
                    let data = frame.into_data().unwrap_or_default();
                    turn = turn.saturating_sub(data.len().max(LEAST_PART));
                    if let Some(end) = self.add(data) {
                        return Poll::Ready(self.cut_off(end));
                    }
                }
                Some(Err(problem)) => {
                    let end = match &self.kind {
                        Kind::Refusal(_) => self.refused(),
                        _ => End::Broken(super::in_words(&problem)),
                    };
                    return Poll::Ready(self.cut_off(end));
                }
                None => return Poll::Ready(self.end()),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Bytes of the message that has begun.
    pub(super) fn unfinished(&self) -> usize {
        match &self.kind {
            Kind::Whole(first, all) => first.len() + all.len(),
            Kind::Events(sse) => sse.buffered(),
            Kind::Refusal(_) | Kind::Nothing(_) => 0,
        }
    }

    /// Waits until it is not worth to wait any more, if that ever is.
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.patience {
            Some(patience) => patience.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }

    /// A message that is there already.
    fn take(&mut self) -> Option<Out> {
        let Kind::Events(sse) = &mut self.kind else {
            return None;
        };
        match sse.next(&mut self.part) {
            Ok(None) => None,
            Ok(Some(text)) => {
                let (alone, permit) = (false, self.permit.take());
                Some(Out::Message(Message {
                    text,
                    alone,
                    permit,
                    work: Duration::ZERO,
                }))
            }
            Err(_) => {
                let problem = too_large("an event", sse.limit());
                Some(self.cut_off(End::TooLarge(problem)))
            }
        }
    }

    /// Waits until a large message may grow.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let kept = match &self.kind {
            Kind::Whole(_, all) => all.len(),
            Kind::Events(sse) => sse.buffered(),
            Kind::Refusal(_) | Kind::Nothing(_) => 0,
        };
        if kept <= LARGE || self.permit.is_some() {
            return Poll::Ready(());
        }
        let waiting = self
            .waiting
            .get_or_insert_with(|| Box::pin(Arc::clone(&self.large).acquire_owned()));
        self.permit = ready!(waiting.as_mut().poll(cx)).ok();
        self.waiting = None;
        Poll::Ready(())
    }

    /// Adds a part; what it returns is the end.
    fn add(&mut self, data: Bytes) -> Option<End> {
        match &mut self.kind {
            Kind::Whole(first, all) => {
                if first.is_empty() && all.is_empty() {
                    *first = data;
                } else {
                    all.extend_from_slice(&std::mem::take(first));
                    all.extend_from_slice(&data);
                }
                let length = first.len() + all.len();
                let longest = self.longest;
                (length > longest).then(|| End::Unreadable(too_large("the body", longest)))
            }
            Kind::Events(_) => {
                self.part = data;
                None
            }
            Kind::Refusal(refusal) => {
                let room = MAX_REFUSAL - refusal.body.len();
                refusal
                    .body
                    .extend_from_slice(&data[..data.len().min(room)]);
                if data.len() <= room {
                    return None;
                }
                Some(self.refused())
            }
            Kind::Nothing(bytes) => {
                *bytes += data.len();
                (*bytes > MAX_IGNORED).then_some(End::Accepted)
            }
        }
    }

    fn refused(&mut self) -> End {
        match std::mem::replace(&mut self.kind, Kind::Nothing(0)) {
            Kind::Refusal(refusal) => End::Refused(refusal),
            Kind::Whole(..) | Kind::Events(_) | Kind::Nothing(_) => End::Accepted,
        }
    }

    /// The body is whole.
    fn end(&mut self) -> Out {
        match &mut self.kind {
            Kind::Whole(first, all) => {
                let text = if first.is_empty() {
                    Bytes::from(std::mem::take(all))
                } else {
                    std::mem::take(first)
                };
                let (alone, permit) = (true, self.permit.take());
                // It is over the next time.
                self.kind = Kind::Nothing(0);
                self.done = self.conn.take();
                Out::Message(Message {
                    text,
                    alone,
                    permit,
                    work: Duration::ZERO,
                })
            }
            Kind::Events(_) => self.over(End::Whole),
            Kind::Refusal(_) | Kind::Nothing(_) => {
                let end = self.refused();
                self.over(end)
            }
        }
    }

    fn over(&mut self, how: End) -> Out {
        let resume = match &self.kind {
            Kind::Events(sse) => Some(Resume {
                place: sse.place(),
                moved: sse.has_moved(),
            }),
            Kind::Whole(..) | Kind::Refusal(_) | Kind::Nothing(_) => None,
        };
        let conn = self.conn.take().or(self.done.take());
        Out::Over(Box::new(Over { how, conn, resume }))
    }

    /// The rest of the body is not read, so its connection is of no use.
    fn cut_off(&mut self, how: End) -> Out {
        self.conn = None;
        self.over(how)
    }
}

fn too_large(what: &str, limit: usize) -> String {
    format!("{what} is larger than {}", format_bytes(limit))
}

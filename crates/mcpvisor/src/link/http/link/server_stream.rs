//! The GET stream for messages that the server sends unprompted, and when it is reopened.

use std::time::Duration;

use http::StatusCode;
use mcpvisor_core::CallId;
use tokio::time::Instant;

use crate::link::PendingRequests;
use crate::link::http::exchange::event::ResumePoint;
use crate::link::http::exchange::sse::EventCursor;

/// Delay before a stream is reopened, unless the server requests another one. It doubles with every
/// short-lived stream.
const FIRST_DELAY: Duration = Duration::from_secs(1);

/// Longest delay, even if the server requests a longer one.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(30);

/// A stream that was open this long was stable, even if no message came on it.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// The state of the stream.
#[derive(Debug, Default)]
pub(super) struct ServerStream {
    /// The stream is open or being opened.
    pub(super) is_enabled: bool,
    /// Where the next stream resumes.
    pub(super) cursor: EventCursor,
    /// When the stream was opened, until it ends.
    opened: Option<Instant>,
    /// The server has opened the stream in this session.
    pub(super) was_open: bool,
    /// A message came on the stream since it was opened.
    pub(super) has_message: bool,
    /// Streams in a row that ended soon and without progress.
    short_lived: u32,
    /// When a stream was last reopened without delay.
    reopened_at_once: Option<Instant>,
    /// Requests that the server accepted (202); their replies may come on the stream.
    accepted: Vec<CallId>,
}

impl ServerStream {
    /// The server has no stream, or no longer. Returns the accepted requests, which can no longer
    /// be answered.
    pub(super) fn disable(&mut self) -> Vec<CallId> {
        self.is_enabled = false;
        self.take_accepted()
    }

    /// Records a request that the server accepted without a reply. Returns false if there is no
    /// stream to carry its reply.
    pub(super) fn accept(&mut self, id: CallId, pending: &impl PendingRequests) -> bool {
        if self.is_enabled {
            self.accepted.retain(|id| pending.reply_kind(*id).is_some());
            self.accepted.push(id);
        }
        self.is_enabled
    }

    /// Whether a pending request may be answered on the stream.
    pub(super) fn awaits_reply(&self, pending: &impl PendingRequests) -> bool {
        let mut accepted = self.accepted.iter();
        accepted.any(|id| pending.reply_kind(*id).is_some())
    }

    fn take_accepted(&mut self) -> Vec<CallId> {
        std::mem::take(&mut self.accepted)
    }

    /// Takes the accepted requests whose replies may have been lost with the stream, because it
    /// cannot be resumed.
    pub(super) fn take_unanswerable(&mut self) -> Vec<CallId> {
        match self.cursor.last_id {
            Some(_) => Vec::new(),
            None => self.take_accepted(),
        }
    }

    /// Whether a server that refuses the stream with this status may open it later. One that had it
    /// open may allow only one, and not have noticed yet that it broke.
    pub(super) fn may_open_later(&self, status: StatusCode) -> bool {
        let had_it = self.was_open && status != StatusCode::METHOD_NOT_ALLOWED;
        had_it || is_temporary(status)
    }

    /// The server opened the stream. Returns whether messages may have been missed since the last
    /// one ended.
    pub(super) fn opened(&mut self, now: Instant) -> bool {
        self.opened = Some(now);
        self.has_message = false;
        std::mem::replace(&mut self.was_open, true) && self.cursor.last_id.is_none()
    }

    /// The connection broke. Returns the delay before the stream is reopened. After a stable stream
    /// there is none, unless the server requests one: reopening shows whether the session is lost.
    pub(super) fn interrupted(&mut self, resume: Option<ResumePoint>, now: Instant) -> Duration {
        let was_opened = self.opened.is_some();
        let delay = self.ended(resume, now);
        let is_rested = self
            .reopened_at_once
            .is_none_or(|at| now - at >= STABLE_AFTER);
        if was_opened && self.cursor.retry.is_none() && self.short_lived == 1 && is_rested {
            self.reopened_at_once = Some(now);
            return Duration::ZERO;
        }
        delay
    }

    /// The stream ended. Returns the delay before it is reopened. A server that numbers its events
    /// may end a stream after each message; the next one resumes there.
    pub(super) fn ended(&mut self, resume: Option<ResumePoint>, now: Instant) -> Duration {
        let was_stable = self
            .opened
            .take()
            .is_some_and(|at| now - at >= STABLE_AFTER);
        if let Some(resume) = resume {
            self.cursor = resume.cursor;
        }
        let progressed = std::mem::take(&mut self.has_message) && self.cursor.last_id.is_some();
        if was_stable || progressed {
            self.short_lived = 0;
        }
        let delay = FIRST_DELAY * 2_u32.saturating_pow(self.short_lived.min(8));
        self.short_lived = self.short_lived.saturating_add(1);
        let requested = self.cursor.retry.unwrap_or_default();
        requested.max(delay).min(MAX_DELAY)
    }
}

/// Whether a server that refuses with this status may serve a stream later.
pub(super) fn is_temporary(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{PendingSnapshot, ReplyKind};

    fn resume(last_id: Option<&str>, retry: Option<u64>) -> Option<ResumePoint> {
        Some(ResumePoint {
            cursor: EventCursor {
                last_id: last_id.map(str::to_owned),
                retry: retry.map(Duration::from_secs),
            },
            progressed: true,
        })
    }

    fn ended(stream: &mut ServerStream, retry: Option<u64>) -> Duration {
        stream.ended(resume(Some("7"), retry), Instant::now())
    }

    #[test]
    fn a_stable_stream_that_breaks_is_reopened_at_once_but_not_repeatedly() {
        let mut stream = ServerStream::default();
        let now = Instant::now();
        let interrupted = |stream: &mut ServerStream, lived, retry| {
            stream.opened(now);
            stream.interrupted(resume(None, retry), now + lived)
        };
        let soon = Duration::ZERO;
        assert_eq!(interrupted(&mut stream, soon, None), Duration::ZERO);
        assert_eq!(interrupted(&mut stream, soon, None).as_secs(), 2);
        assert_eq!(interrupted(&mut stream, STABLE_AFTER, None), Duration::ZERO);
        assert_eq!(
            interrupted(&mut stream, 2 * STABLE_AFTER, Some(5)).as_secs(),
            5,
            "requested by the server"
        );
        let mut stream = ServerStream::default();
        assert_eq!(
            stream.interrupted(resume(None, None), now).as_secs(),
            1,
            "never opened"
        );
    }

    #[test]
    fn a_stream_that_breaks_after_each_message_is_reopened_with_growing_delays() {
        let mut stream = ServerStream::default();
        let now = Instant::now();
        let waits = |stream: &mut ServerStream, id: Option<&str>| -> Vec<u64> {
            let waits = (0..5).map(|_| {
                stream.opened(now);
                stream.has_message = true;
                stream.interrupted(resume(id, None), now).as_secs()
            });
            waits.collect()
        };
        assert_eq!(waits(&mut stream, None), [0, 2, 4, 8, 16]);
        let mut numbered = ServerStream::default();
        assert_eq!(waits(&mut numbered, Some("7")), [0, 1, 1, 1, 1]);
    }

    #[test]
    fn a_stream_without_messages_is_reopened_with_growing_delays() {
        let mut stream = ServerStream::default();
        let waits: Vec<u64> = (0..7).map(|_| ended(&mut stream, None).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
        stream.has_message = true;
        assert_eq!(ended(&mut stream, None).as_secs(), 1);
        assert_eq!(stream.cursor.last_id.as_deref(), Some("7"));
    }

    #[test]
    fn the_delay_that_the_server_requests_is_limited() {
        let mut stream = ServerStream::default();
        assert_eq!(ended(&mut stream, Some(5)).as_secs(), 5);
        stream.has_message = true;
        assert_eq!(ended(&mut stream, Some(3_600)), MAX_DELAY);
    }

    #[test]
    fn messages_may_be_missed_if_events_have_no_ids() {
        let mut stream = ServerStream::default();
        let now = Instant::now();
        assert!(!stream.opened(now), "the first one");
        stream.ended(resume(None, None), now);
        assert!(stream.opened(now));
        stream.ended(resume(Some("7"), None), now);
        assert!(!stream.opened(now), "it resumes after the last event");
    }

    #[test]
    fn accepted_requests_wait_for_a_stream_that_can_carry_their_replies() {
        let pending = PendingSnapshot(vec![(CallId(1), ReplyKind::Empty)]);
        let mut stream = ServerStream::default();
        assert!(!stream.accept(CallId(1), &pending), "there is no stream");
        stream.is_enabled = true;
        assert!(stream.accept(CallId(7), &pending) && stream.accept(CallId(1), &pending));
        assert!(stream.awaits_reply(&pending));
        stream.interrupted(resume(Some("7"), None), Instant::now());
        assert_eq!(stream.take_unanswerable(), [], "the stream resumes");
        assert_eq!(stream.disable(), [CallId(1)], "the other was answered");
        assert!(!stream.awaits_reply(&pending));
    }

    #[test]
    fn replies_are_lost_with_a_stream_that_cannot_resume() {
        let pending = PendingSnapshot(vec![(CallId(1), ReplyKind::Empty)]);
        let mut stream = ServerStream {
            is_enabled: true,
            ..ServerStream::default()
        };
        stream.accept(CallId(1), &pending);
        stream.interrupted(resume(None, None), Instant::now());
        assert_eq!(stream.take_unanswerable(), [CallId(1)]);
    }

    #[test]
    fn a_server_that_had_a_stream_or_is_busy_may_open_it_later() {
        let mut stream = ServerStream::default();
        let later = |stream: &ServerStream| {
            [405, 409, 429, 503]
                .map(|status| stream.may_open_later(StatusCode::from_u16(status).unwrap()))
        };
        assert_eq!(later(&stream), [false, false, true, true]);
        stream.opened(Instant::now());
        assert_eq!(later(&stream), [false, true, true, true]);
    }
}

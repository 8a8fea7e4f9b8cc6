//! What the end of an exchange means for its request and for the link.

use std::time::Duration;

use http::{HeaderValue, Method, StatusCode};
use mcpvisor_core::CallId;
use mcpvisor_core::retry::RequestFailure;
use tokio::time::Instant;

use super::HttpLink;
use super::server_stream::{MAX_DELAY, is_temporary};
use crate::link::http::exchange::event::{Ended, ExchangeOutcome, HttpRefusal, ResumePoint};
use crate::link::http::exchange::outgoing::Purpose;
use crate::link::http::exchange::sse::EventCursor;
use crate::link::http::parts::{note_refusal, server_fault};
use crate::link::http::{headers, refusal};
use crate::link::{FailedRequest, Inbound, PendingRequests};

/// Attempts to resume an interrupted reply without a new event.
const MAX_RESUMES: u8 = 5;

/// Delay before a further attempt to resume, unless the server requests another one.
const RESUME_DELAY: Duration = Duration::from_secs(1);

/// Shortest delay before a further attempt, even if the server requests a shorter one.
const MIN_RESUME_DELAY: Duration = Duration::from_millis(100);

impl HttpLink {
    pub(super) fn exchange_ended(
        &mut self,
        purpose: Purpose,
        ended: Ended,
        pending: &impl PendingRequests,
    ) -> Option<Inbound> {
        let Ended {
            outcome,
            conn,
            resume,
        } = ended;
        let unauthorized = match &outcome {
            ExchangeOutcome::Refused(refusal) => note_refusal(&self.auth, purpose, refusal),
            _ => None,
        };
        self.ready.extend(unauthorized);
        if let Some(conn) = conn {
            self.exchanges.release(conn, self.down.is_none());
        }
        let inbound = match purpose {
            Purpose::Request(id) => {
                let resume = resume.map(|resume| (resume, 0));
                self.request_ended(id, outcome, resume, pending)
            }
            Purpose::Resume(id, attempt) => {
                let (outcome, resume) = self.resume_ended(outcome, resume, pending);
                let resume = resume.map(|resume| (resume, attempt));
                self.request_ended(id, outcome, resume, pending)
            }
            Purpose::Initialized => {
                let inbound = self.message_ended(outcome, pending);
                // Requests follow even if the notification failed.
                self.handshake_ended(inbound.is_none());
                inbound
            }
            Purpose::Message => {
                self.messages.finished();
                self.send_messages();
                self.message_ended(outcome, pending)
            }
            Purpose::ServerStream => self.stream_ended(outcome, resume, pending),
            // This link has no exchanges of the other kinds.
            Purpose::DeleteSession | Purpose::Post(_) | Purpose::SessionStream => None,
        };
        if self.session.deferred_loss.is_some() && !self.is_in_flight(pending) {
            let loss = self.session.report_deferred_loss();
            self.ready.extend(loss);
        }
        inbound
    }

    /// The exchange of a request ended. Unless it was answered, that is its outcome.
    fn request_ended(
        &mut self,
        id: CallId,
        outcome: ExchangeOutcome,
        resume: Option<(ResumePoint, u8)>,
        pending: &impl PendingRequests,
    ) -> Option<Inbound> {
        self.exchanges.request_ended(id);
        // Its reply may be in the queue.
        if self.ready.iter().any(|ready| ready.answers() == Some(id)) {
            return None;
        }
        pending.reply_kind(id)?;
        match outcome {
            ExchangeOutcome::NotSent(error) => {
                self.connect_failed(&error, pending);
                if let Some(down) = &mut self.down {
                    down.unsent.push(id);
                    return None;
                }
                let failed = FailedRequest::new(RequestFailure::ConnectTimedOut, error.problem);
                Some(Inbound::Failed { id, failed })
            }
            ExchangeOutcome::Interrupted(problem) => self.resume_or_fail(
                id,
                resume,
                &format!("the connection was interrupted before the reply: {problem}"),
            ),
            ExchangeOutcome::TimedOut => Some(server_fault(id, "no reply in time")),
            ExchangeOutcome::Complete if resume.is_some() => {
                self.resume_or_fail(id, resume, "the stream ended without the reply")
            }
            ExchangeOutcome::Complete => Some(Inbound::Unreadable {
                id,
                problem: "the response is not a reply to this request".to_owned(),
            }),
            // The reply may come on the server stream, within the deadline of the request.
            ExchangeOutcome::Accepted if self.stream.accept(id, pending) => None,
            ExchangeOutcome::Accepted => {
                let problem =
                    "the server accepted the request, but there is no stream for its reply";
                let mut failed = FailedRequest::new(RequestFailure::ServerFault, problem);
                failed.status = Some(StatusCode::ACCEPTED.as_u16());
                Some(Inbound::Failed { id, failed })
            }
            ExchangeOutcome::Unreadable(problem) | ExchangeOutcome::EventTooLarge(problem) => {
                Some(Inbound::Unreadable { id, problem })
            }
            ExchangeOutcome::Refused(refusal) => {
                let is_lost = self.session.is_lost_by(&refusal);
                if is_lost {
                    self.session.end();
                }
                if !self.session.is_negotiated() {
                    self.refused_handshake = Some(refusal.status);
                }
                let modern = self.session.is_modern();
                Some(refusal::to_inbound(id, &refusal, is_lost, modern))
            }
        }
    }

    /// An attempt to resume a reply ended. A failed attempt says nothing about the request, which
    /// was accepted. A busy or failing server may allow another attempt later; one that responds
    /// with anything but a stream does not support it.
    fn resume_ended(
        &mut self,
        outcome: ExchangeOutcome,
        resume: Option<ResumePoint>,
        pending: &impl PendingRequests,
    ) -> (ExchangeOutcome, Option<ResumePoint>) {
        let refusal = match outcome {
            ExchangeOutcome::Refused(refusal) => refusal,
            ExchangeOutcome::NotSent(error) => {
                self.connect_failed(&error, pending);
                return (ExchangeOutcome::Interrupted(error.problem), None);
            }
            ExchangeOutcome::Unreadable(problem) => {
                return (ExchangeOutcome::Interrupted(problem), None);
            }
            ExchangeOutcome::Accepted => {
                let problem = "cannot resume the stream: the server has none".to_owned();
                return (ExchangeOutcome::Interrupted(problem), None);
            }
            other => return (other, resume),
        };
        let is_lost = self.session.is_lost_by(&refusal);
        if is_lost {
            let message = refusal::lost_session_message(&refusal);
            let loss = self.report_loss_when_idle(message, pending);
            self.ready.extend(loss);
        }
        let problem = format!("cannot resume the stream: HTTP {}", refusal.status);
        let resume = resume.filter(|_| !is_lost && is_temporary(refusal.status));
        let resume = resume.map(|mut resume| {
            resume.cursor.retry = resume.cursor.retry.max(refusal.retry_after);
            resume
        });
        (ExchangeOutcome::Interrupted(problem), resume)
    }

    /// Resumes an interrupted reply if the server numbers its events, or fails the request.
    fn resume_or_fail(
        &mut self,
        id: CallId,
        resume: Option<(ResumePoint, u8)>,
        problem: &str,
    ) -> Option<Inbound> {
        let resumable = resume.filter(|(resume, attempt)| {
            let may_retry = *attempt < MAX_RESUMES || resume.progressed;
            resume.cursor.last_id.is_some() && may_retry && !self.session.is_modern()
        });
        let Some((ResumePoint { cursor, progressed }, attempt)) = resumable else {
            return Some(server_fault(id, problem));
        };
        let delay = match attempt {
            0 => cursor.retry.unwrap_or_default(),
            _ => cursor.retry.unwrap_or(RESUME_DELAY).max(MIN_RESUME_DELAY),
        };
        let attempt = if progressed { 1 } else { attempt + 1 };
        self.open_stream(Purpose::Resume(id, attempt), cursor, delay.min(MAX_DELAY));
        None
    }

    /// Opens an event stream after a delay, behind the last event received. The connection is
    /// opened at once, so that an unreachable server is noticed without the delay.
    fn open_stream(&mut self, purpose: Purpose, cursor: EventCursor, delay: Duration) {
        let mut outgoing = self.outgoing(Method::GET, Vec::new());
        outgoing.not_before = Some(Instant::now() + delay);
        if let Some(value) = cursor
            .last_id
            .as_deref()
            .and_then(|id| HeaderValue::from_str(id).ok())
        {
            outgoing.extra_headers.push((headers::LAST_EVENT_ID, value));
        }
        outgoing.reports_head = purpose == Purpose::ServerStream;
        outgoing.resume_from = Some(cursor);
        self.exchanges.start(purpose, outgoing);
    }

    /// The server has received the `initialized` notification, or refused it. That may be known
    /// before its response is complete.
    pub(super) fn handshake_ended(&mut self, succeeded: bool) {
        let opens_stream = succeeded && !self.session.is_modern();
        if !self.hold.initialized(opens_stream) {
            return;
        }
        self.send_released();
        if opens_stream {
            self.stream.is_enabled = true;
            let start = EventCursor::default();
            self.open_stream(Purpose::ServerStream, start, Duration::ZERO);
        }
    }

    fn message_ended(
        &mut self,
        outcome: ExchangeOutcome,
        pending: &impl PendingRequests,
    ) -> Option<Inbound> {
        match outcome {
            ExchangeOutcome::NotSent(error) => {
                self.connect_failed(&error, pending);
                None
            }
            ExchangeOutcome::Refused(refusal) if self.session.is_lost_by(&refusal) => {
                let message = refusal::lost_session_message(&refusal);
                self.report_loss_when_idle(message, pending)
            }
            _ => None,
        }
    }

    fn stream_ended(
        &mut self,
        outcome: ExchangeOutcome,
        resume: Option<ResumePoint>,
        pending: &impl PendingRequests,
    ) -> Option<Inbound> {
        let now = Instant::now();
        let reopen_after = match outcome {
            ExchangeOutcome::NotSent(error) => {
                self.disable_stream();
                self.connect_failed(&error, pending);
                return None;
            }
            ExchangeOutcome::Refused(refusal) if self.is_session_lost_with_stream(&refusal) => {
                let message = refusal::lost_session_message(&refusal);
                if !self.is_in_flight(pending) {
                    self.disable_stream();
                    let loss = self.session.report_loss(message.clone());
                    self.ready.extend(self.hold.fail_all(&message));
                    return loss;
                }
                // The server may reopen the stream while requests are in flight.
                self.session.deferred_loss = Some(message);
                Some(self.stream.ended(resume, now))
            }
            ExchangeOutcome::Refused(refusal) if self.stream.may_open_later(refusal.status) => {
                let requested = refusal.retry_after.unwrap_or_default().min(MAX_DELAY);
                Some(self.stream.ended(resume, now).max(requested))
            }
            ExchangeOutcome::Refused(_)
            | ExchangeOutcome::Accepted
            | ExchangeOutcome::Unreadable(_) => {
                self.disable_stream();
                None
            }
            ExchangeOutcome::Interrupted(_) => {
                let delay = self.stream.interrupted(resume, now);
                let unanswerable = self.stream.take_unanswerable();
                self.fail_accepted(unanswerable);
                if delay.is_zero() {
                    self.reopen_stream(delay);
                    self.hold.pause_for_session_check();
                    return None;
                }
                Some(delay)
            }
            ExchangeOutcome::TimedOut
            | ExchangeOutcome::Complete
            | ExchangeOutcome::EventTooLarge(_) => Some(self.stream.ended(resume, now)),
        };
        if let Some(delay) = reopen_after {
            self.reopen_stream(delay);
        }
        self.resume_requests();
        None
    }

    fn disable_stream(&mut self) {
        let unanswerable = self.stream.disable();
        self.fail_accepted(unanswerable);
    }

    /// Fails accepted requests whose replies can no longer arrive.
    fn fail_accepted(&mut self, requests: Vec<CallId>) {
        let problem = "the server accepted the request, but the stream for its reply is gone";
        let failed = requests.into_iter().map(|id| server_fault(id, problem));
        self.ready.extend(failed);
    }

    fn reopen_stream(&mut self, delay: Duration) {
        let cursor = self.stream.cursor.clone();
        self.open_stream(Purpose::ServerStream, cursor, delay);
    }

    /// Whether a refusal of the server stream means that the session is lost. A 404 may also mean
    /// that the server has no stream at this address, unless it was open before.
    fn is_session_lost_with_stream(&self, refusal: &HttpRefusal) -> bool {
        let by_status = refusal.status != StatusCode::NOT_FOUND || self.stream.was_open;
        self.session.is_lost_by(refusal) && (by_status || refusal::names_lost_session(refusal))
    }

    /// Reports a lost session, or defers that until no request is in flight.
    fn report_loss_when_idle(
        &mut self,
        message: String,
        pending: &impl PendingRequests,
    ) -> Option<Inbound> {
        if self.is_in_flight(pending) {
            // Replacing the session now would cut off requests that the server may still answer,
            // and a new request finds the loss itself.
            self.session.deferred_loss = Some(message);
            return None;
        }
        self.session.report_loss(message)
    }
}

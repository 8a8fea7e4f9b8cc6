//! What the end of an exchange means for its request and for the link.

use mcpvisor_core::CallId;
use mcpvisor_core::retry::RequestFailure;

use super::SseLink;
use crate::link::http::exchange::event::{Ended, ExchangeOutcome, HttpRefusal};
use crate::link::http::exchange::outgoing::Purpose;
use crate::link::http::parts::{note_refusal, server_fault};
use crate::link::http::refusal;
use crate::link::{DownKind, FailedRequest, Inbound, PendingRequests};

impl SseLink {
    pub(super) fn exchange_ended(
        &mut self,
        purpose: Purpose,
        ended: Ended,
        pending: &impl PendingRequests,
    ) -> Option<Inbound> {
        let Ended { outcome, conn, .. } = ended;
        match &outcome {
            ExchangeOutcome::Refused(refusal) => {
                self.ready
                    .extend(note_refusal(&self.auth, purpose, refusal));
            }
            ExchangeOutcome::Accepted => self.authorization.mark_accepted(),
            _ => {}
        }
        if let Some(conn) = conn {
            self.exchanges.release(conn, self.down.is_none());
        }
        match purpose {
            Purpose::Post(id) => self.post_ended(id, outcome, pending),
            Purpose::SessionStream => {
                self.stream_ended(outcome);
                None
            }
            Purpose::Initialized => {
                self.hold.initialized(false);
                // Requests follow even if the notification failed.
                self.send_released();
                self.message_ended(outcome, pending)
            }
            Purpose::Message => {
                self.messages.finished();
                self.send_messages();
                self.message_ended(outcome, pending)
            }
            // This link has no exchanges of the other kinds.
            Purpose::Request(_)
            | Purpose::Resume(..)
            | Purpose::ServerStream
            | Purpose::DeleteSession => None,
        }
    }

    /// The POST of a request ended. The reply comes on the stream, unless the request was refused or
    /// may not have arrived.
    fn post_ended(
        &mut self,
        id: CallId,
        outcome: ExchangeOutcome,
        pending: &impl PendingRequests,
    ) -> Option<Inbound> {
        self.exchanges.request_ended(id);
        let is_lost = matches!(&outcome, ExchangeOutcome::Refused(it) if self.is_lost_by(it));
        if is_lost {
            self.session.end();
        }
        // The reply may have come before.
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
            ExchangeOutcome::Interrupted(problem) => Some(server_fault(
                id,
                &format!(
                    "the connection was interrupted before the request was accepted: {problem}"
                ),
            )),
            ExchangeOutcome::Refused(refusal) => {
                Some(refusal::to_inbound(id, &refusal, is_lost, false))
            }
            // The body of the response does not matter.
            ExchangeOutcome::Accepted
            | ExchangeOutcome::Complete
            | ExchangeOutcome::TimedOut
            | ExchangeOutcome::Unreadable(_)
            | ExchangeOutcome::EventTooLarge(_) => None,
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
            // Replacing the session would cut off requests that the server may still answer, and the
            // next request finds the loss itself.
            ExchangeOutcome::Refused(refusal)
                if self.is_lost_by(&refusal) && !self.is_in_flight(pending) =>
            {
                let message = refusal::lost_session_message(&refusal);
                self.session.report_loss(message)
            }
            _ => None,
        }
    }

    /// The stream ended, and with it the session.
    fn stream_ended(&mut self, outcome: ExchangeOutcome) {
        let (kind, problem) = match outcome {
            ExchangeOutcome::NotSent(error) => (DownKind::Unreachable, error.problem),
            ExchangeOutcome::Refused(refusal) => return self.stream_refused(&refusal),
            ExchangeOutcome::Unreadable(problem) => return self.no_stream(problem),
            ExchangeOutcome::Accepted => {
                return self.no_stream("the server has no event stream".to_owned());
            }
            ExchangeOutcome::EventTooLarge(problem) => (DownKind::Broken, problem),
            ExchangeOutcome::Interrupted(problem) => (
                DownKind::Closed,
                format!("the event stream was interrupted: {problem}"),
            ),
            ExchangeOutcome::Complete | ExchangeOutcome::TimedOut if !self.has_endpoint() => (
                DownKind::Closed,
                "the event stream ended before the endpoint of the server".to_owned(),
            ),
            ExchangeOutcome::Complete | ExchangeOutcome::TimedOut => {
                (DownKind::Closed, "the event stream ended".to_owned())
            }
        };
        self.end_link(kind, problem);
    }

    /// The server refused the stream. That is the answer to the requests that wait for it.
    fn stream_refused(&mut self, refusal: &HttpRefusal) {
        let waiting = std::mem::take(&mut self.hold.requests).into_iter();
        let refused = waiting.map(|it| refusal::to_inbound(it.id, refusal, false, false));
        self.ready.extend(refused);
        self.end_link(DownKind::Closed, refusal::describe(refusal));
    }

    /// The response is not a stream. That is the answer to the requests that wait for it.
    fn no_stream(&mut self, problem: String) {
        let waiting = std::mem::take(&mut self.hold.requests).into_iter();
        self.ready.extend(waiting.map(|it| Inbound::Unreadable {
            id: it.id,
            problem: problem.clone(),
        }));
        self.end_link(DownKind::Broken, problem);
    }

    /// Whether a refusal means that the session is lost.
    fn is_lost_by(&self, refusal: &HttpRefusal) -> bool {
        self.session.has_id() && refusal::is_endpoint_lost(refusal)
    }
}

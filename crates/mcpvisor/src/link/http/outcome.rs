//! What the end of an exchange comes to, for the request that it was for and for the link.

use std::time::Duration;

use http::{HeaderValue, Method, StatusCode};
use mcpvisor_core::CallId;
use mcpvisor_core::retry::RequestFailure;
use tokio::time::Instant;

use super::exchange::{End, Over, Purpose, Refusal, Resume};
use super::request_hold::{About, DOUBT, OPENING};
use super::sse::Place;
use super::undialled::Undialled;
use super::{HttpLink, Session, headers, refusal, server_stream};
use crate::link::{Inbound, PendingRequests};

/// An answer that broke off is taken up again so often without anything new.
const MAX_RESUMES: u8 = 5;

/// The wait before that, from the second time on, without a wish of the server's.
const RESUME: Duration = Duration::from_secs(1);

/// The least wait then, whatever the server wishes.
const BRIEF: Duration = Duration::from_millis(100);

impl HttpLink {
    pub(super) fn over(
        &mut self,
        purpose: Purpose,
        over: Over,
        pending: &impl PendingRequests,
    ) -> Option<Inbound> {
        if let Some(conn) = over.conn {
            self.free(conn);
        }
        let said = match purpose {
            Purpose::Request(id) => {
                let resume = over.resume.map(|resume| (resume, 0));
                self.request_over(id, over.how, resume, pending)
            }
            Purpose::Resume(id, attempt) => {
                let (how, resume) = self.resumed(over.how, over.resume, pending);
                let resume = resume.map(|resume| (resume, attempt));
                self.request_over(id, how, resume, pending)
            }
            Purpose::Initialized => self.greeting_over(over.how, pending),
            Purpose::Message => {
                self.messages_on_way = self.messages_on_way.saturating_sub(1);
                self.pump_messages();
                self.message_over(over.how, pending)
            }
            Purpose::Listen => self.listen_over(over.how, over.resume, pending),
            Purpose::Delete => None,
        };
        if self.gone_later.is_some()
            && !self.is_in_flight(pending)
            && let Some(message) = self.gone_later.take()
        {
            let gone = self.session_gone(message);
            self.ready.extend(gone);
        }
        said
    }

    /// An exchange has no connection yet, and waits for one.
    pub(super) fn stall(
        &mut self,
        purpose: Purpose,
        failure: &Undialled,
        pending: &impl PendingRequests,
    ) -> Option<Inbound> {
        let ended = self.undialled(failure, pending);
        self.stalled = true;
        if purpose == Purpose::Listen && !ended {
            // Requests need not wait for a stream that may take long.
            self.release();
        }
        None
    }

    /// The exchange of a request is over. If nobody answered it by then, that is its outcome.
    fn request_over(
        &mut self,
        id: CallId,
        how: End,
        resume: Option<(Resume, u8)>,
        pending: &impl PendingRequests,
    ) -> Option<Inbound> {
        self.lingering.retain(|lingering| *lingering != id);
        self.listening.take_if(|listening| *listening == id);
        // Its answer may be there, and not told yet.
        if self.ready.iter().any(|said| said.answers() == Some(id)) {
            return None;
        }
        pending.reply_kind(id)?;
        match how {
            End::Unsent(failure) => {
                if self.undialled(&failure, pending) {
                    self.unsent.push(id);
                    return None;
                }
                Some(Inbound::Failed {
                    id,
                    trouble: RequestFailure::ConnectTimedOut,
                    status: None,
                    error: None,
                    message: failure.problem,
                })
            }
            End::Broken(problem) => self.gone_on_with(
                id,
                resume,
                &format!("the connection broke off before the answer: {problem}"),
            ),
            End::TooLate => Some(fault(id, "there was no answer in time".to_owned())),
            End::Whole if resume.is_some() => {
                self.gone_on_with(id, resume, "the stream ended without the answer")
            }
            End::Whole => Some(Inbound::Unreadable {
                id,
                problem: "what came is no answer to this request".to_owned(),
            }),
            // The answer may come on the other stream; its deadline watches over that.
            End::Accepted if self.listen.is_on() => {
                self.accepted.retain(|id| pending.reply_kind(*id).is_some());
                self.accepted.push(id);
                None
            }
            End::Accepted => Some(Inbound::Failed {
                id,
                trouble: RequestFailure::ServerFault,
                status: Some(StatusCode::ACCEPTED.as_u16()),
                error: None,
                message: "the server accepted it without an answer, and there is no stream on which one could come".to_owned(),
            }),
            End::Unreadable(problem) | End::TooLarge(problem) => {
                Some(Inbound::Unreadable { id, problem })
            }
            End::Refused(refusal) => {
                let held = self.session != Session::None;
                let failed = refusal::failed(id, &refusal, held, self.modern);
                if is_session_gone(&failed) {
                    self.session = Session::Gone;
                }
                Some(failed)
            }
        }
    }

    /// A stream that could not be taken up again says nothing about the request: it was accepted. A
    /// server that is busy or broken may let it be taken up later; one that answers with something
    /// else than a stream has none.
    fn resumed(
        &mut self,
        how: End,
        resume: Option<Resume>,
        pending: &impl PendingRequests,
    ) -> (End, Option<Resume>) {
        let refusal = match how {
            End::Refused(refusal) => refusal,
            End::Unsent(failure) => {
                self.undialled(&failure, pending);
                return (End::Broken(failure.problem), None);
            }
            End::Unreadable(problem) => return (End::Broken(problem), None),
            End::Accepted => {
                let problem = "it cannot be taken up again: there is no stream".to_owned();
                return (End::Broken(problem), None);
            }
            other => return (other, resume),
        };
        let gone = self.is_gone(&refusal);
        if gone {
            let gone = self.session_gone_beside_requests(refusal::gone(&refusal), pending);
            self.ready.extend(gone);
        }
        let problem = format!("it cannot be taken up again: HTTP {}", refusal.status);
        let resume = resume.filter(|_| !gone && is_passing(refusal.status));
        let later = resume.map(|mut resume| {
            resume.place.retry = resume.place.retry.max(refusal.retry_after);
            resume
        });
        (End::Broken(problem), later)
    }

    /// Takes up an answer that broke off, where the server numbered its events.
    fn gone_on_with(
        &mut self,
        id: CallId,
        resume: Option<(Resume, u8)>,
        problem: &str,
    ) -> Option<Inbound> {
        let numbered = resume.filter(|(resume, attempt)| {
            let tries = *attempt < MAX_RESUMES || resume.moved;
            resume.place.last_id.is_some() && tries && !self.modern
        });
        let Some((Resume { place, moved }, attempt)) = numbered else {
            return Some(fault(id, problem.to_owned()));
        };
        let wait = match attempt {
            0 => place.retry.unwrap_or_default(),
            _ => place.retry.unwrap_or(RESUME).max(BRIEF),
        };
        let attempt = if moved { 1 } else { attempt + 1 };
        self.start_stream(
            Purpose::Resume(id, attempt),
            place,
            wait.min(server_stream::LONGEST),
        );
        None
    }

    /// Opens a stream, after a wait and behind an event. The connection for it is opened at once, so
    /// that a server which is gone is found out about without the wait.
    fn start_stream(&mut self, purpose: Purpose, after: Place, wait: Duration) {
        let mut outgoing = self.outgoing(Method::GET, Vec::new());
        outgoing.not_before = Some(Instant::now() + wait);
        if let Some(value) = after
            .last_id
            .as_deref()
            .and_then(|id| HeaderValue::from_str(id).ok())
        {
            outgoing.extra.push((headers::LAST_EVENT, value));
        }
        let mut exchange = self.exchange(purpose, outgoing).going_on(after);
        if purpose == Purpose::Listen {
            exchange = exchange.wanting_head();
        }
        self.exchanges.push(exchange);
    }

    /// The end of the handshake was answered, or not: requests follow all the same.
    fn greeting_over(&mut self, how: End, pending: &impl PendingRequests) -> Option<Inbound> {
        let said = self.message_over(how, pending);
        self.greeted(said.is_none());
        said
    }

    /// The server has taken the end of the handshake. That may be known before its answer is whole.
    pub(super) fn greeted(&mut self, well: bool) {
        if !std::mem::take(&mut self.greeting) {
            return;
        }
        let listens = !self.modern && well;
        if listens && self.answers {
            self.doubt(About::Stream, OPENING);
        }
        self.release_others();
        if listens {
            self.listen.begin();
            self.start_stream(Purpose::Listen, Place::default(), Duration::ZERO);
        }
    }

    fn message_over(&mut self, how: End, pending: &impl PendingRequests) -> Option<Inbound> {
        match how {
            End::Unsent(failure) => {
                self.undialled(&failure, pending);
                None
            }
            End::Refused(refusal) if self.is_gone(&refusal) => {
                self.session_gone_beside_requests(refusal::gone(&refusal), pending)
            }
            End::Refused(_)
            | End::Broken(_)
            | End::TooLate
            | End::Whole
            | End::Accepted
            | End::Unreadable(_)
            | End::TooLarge(_) => None,
        }
    }

    fn listen_over(
        &mut self,
        how: End,
        resume: Option<Resume>,
        pending: &impl PendingRequests,
    ) -> Option<Inbound> {
        match how {
            End::Unsent(failure) => {
                self.stop_listening();
                self.undialled(&failure, pending);
                None
            }
            // The stream may come back while requests are in flight.
            End::Refused(refusal)
                if self.is_gone_with_its_stream(&refusal) && self.is_in_flight(pending) =>
            {
                let wait = self.listen.ended(resume, Instant::now());
                self.listen_again(wait);
                self.release();
                self.session_gone_beside_requests(refusal::gone(&refusal), pending)
            }
            End::Refused(refusal) if self.is_gone_with_its_stream(&refusal) => {
                self.stop_listening();
                let gone = self.session_gone(refusal::gone(&refusal));
                self.give_back(&refusal::gone(&refusal));
                gone
            }
            End::Refused(refusal) if !self.may_listen_later(refusal.status) => {
                self.stop_listening();
                self.release();
                None
            }
            End::Accepted | End::Unreadable(_) => {
                self.stop_listening();
                self.release();
                None
            }
            End::Broken(_) => {
                let wait = self.listen.broke(resume, Instant::now());
                if self.listen.place().last_id.is_none() {
                    self.miss_accepted();
                }
                self.listen_again(wait);
                if wait.is_zero() {
                    self.doubt(About::Session, DOUBT);
                } else {
                    self.release();
                }
                None
            }
            End::Refused(refusal) => {
                let wait = self.listen.ended(resume, Instant::now());
                let wish = refusal.retry_after.unwrap_or_default();
                self.listen_again(wait.max(wish.min(server_stream::LONGEST)));
                self.release();
                None
            }
            End::TooLate | End::Whole | End::TooLarge(_) => {
                let wait = self.listen.ended(resume, Instant::now());
                self.listen_again(wait);
                self.release();
                None
            }
        }
    }

    /// There is no stream of the server's own, or none any more.
    fn stop_listening(&mut self) {
        self.listen.stop();
        self.miss_accepted();
    }

    /// What was accepted can have been answered on a stream that nobody can take up, or never will be.
    fn miss_accepted(&mut self) {
        for id in std::mem::take(&mut self.accepted) {
            let problem = "the server accepted it, and the stream for its answer is gone";
            self.ready.push_back(fault(id, problem.to_owned()));
        }
    }

    fn listen_again(&mut self, wait: Duration) {
        let after = self.listen.place().clone();
        self.start_stream(Purpose::Listen, after, wait);
    }

    fn is_gone(&self, refusal: &Refusal) -> bool {
        refusal::is_gone(refusal, self.session != Session::None)
    }

    /// Whether a refusal of the stream says that the session is gone. A server may answer 404 because
    /// there is nothing at this address to listen to; then it never was open.
    fn is_gone_with_its_stream(&self, refusal: &Refusal) -> bool {
        let says = refusal.status != StatusCode::NOT_FOUND || self.listen.was_open();
        self.is_gone(refusal) && (says || refusal::is_gone_in_words(refusal))
    }

    /// Whether a server that refuses the stream may have it later. One that had it before may not have
    /// noticed yet that it broke off, and allow only one.
    fn may_listen_later(&self, status: StatusCode) -> bool {
        let had_it = self.listen.was_open() && status != StatusCode::METHOD_NOT_ALLOWED;
        had_it || is_passing(status)
    }

    /// A refusal of something else than a request says that the session is gone. That is reported
    /// when no request is in flight: replacing the session would cut off what the server may still
    /// answer, and a new request finds out for itself.
    fn session_gone_beside_requests(
        &mut self,
        message: String,
        pending: &impl PendingRequests,
    ) -> Option<Inbound> {
        if self.is_in_flight(pending) {
            self.gone_later = Some(message);
            return None;
        }
        self.session_gone(message)
    }

    /// Says once that the session is gone.
    fn session_gone(&mut self, message: String) -> Option<Inbound> {
        let held = std::mem::replace(&mut self.session, Session::Gone) == Session::Held;
        held.then_some(Inbound::SessionGone { message })
    }

    /// Marks an error in a successful reply that may mean that the session is lost. The session
    /// stays held: a server that answers may still know it, and is told when it is given up.
    pub(super) fn with_doubt(&self, inbound: Inbound) -> Inbound {
        match inbound {
            Inbound::Response {
                id,
                result: Err(error),
            } if self.session != Session::None && refusal::is_doubtful(&error) => {
                Inbound::PossibleSessionLoss { id, error }
            }
            other => other,
        }
    }
}

/// A server that is busy or broken may have the stream later.
fn is_passing(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
}

fn is_session_gone(inbound: &Inbound) -> bool {
    let gone = RequestFailure::SessionLost;
    matches!(inbound, Inbound::Failed { trouble, .. } if *trouble == gone)
}

fn fault(id: CallId, message: String) -> Inbound {
    Inbound::Failed {
        id,
        trouble: RequestFailure::ServerFault,
        status: None,
        error: None,
        message,
    }
}

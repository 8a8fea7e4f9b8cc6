//! One HTTP request and its response, as a stream of events.
//!
//! An exchange handles HTTP only. The link decides what a response means and which call it answers.

pub(crate) mod body;
pub(crate) mod event;
pub(crate) mod outgoing;
pub(crate) mod proof;
mod response;
pub(crate) mod sse;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::Stream;
use http::header::{LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::response::Parts;
use http::uri::PathAndQuery;
use http::{Response, StatusCode};
use hyper::body::Incoming;
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep};

use self::body::{BodyKind, BodyReader, LARGE_MESSAGE};
use self::event::{Ended, ExchangeEvent, ExchangeOutcome, HttpRefusal, ResumePoint};
use self::outgoing::{Outgoing, Purpose};
use self::proof::{NonceRetry, ProofRefusal};
use self::response::{ResponseKind, classify};
use self::sse::EventParser;
use super::headers::{self, LinkHeaders};
use super::net::conn::{Conn, SendFailure};
use super::net::connect_error::ConnectError;
use super::net::dial::dial;
use super::net::redial::Redial;
use super::redirect::{RedirectRefusal, resolve_redirect};
use super::refusal::parse_retry_after;
use super::target::Target;
use crate::auth::Challenge;
use crate::link::cpu_quota::CpuMeter;
use crate::link::limits::MessageLimits;

/// Redirects that are followed.
const MAX_REDIRECTS: u8 = 3;

/// Polls of a request's exchange before its CPU time is measured. An ordinary reply takes fewer.
const UNMEASURED_POLLS: u32 = 8;

/// One request and its response.
pub(crate) struct Exchange {
    pub(crate) purpose: Purpose,
    target: Arc<Target>,
    path: PathAndQuery,
    outgoing: Outgoing,
    redirects: u8,
    nonce_retry: NonceRetry,
    /// The connection was opened for this exchange.
    is_new_conn: bool,
    /// A new connection was closed before anything was sent on it.
    new_conn_closed: bool,
    /// Its single permit allows one large message per link.
    large: Arc<Semaphore>,
    limits: MessageLimits,
    step: Step,
    redial: Redial,
    timeout: Option<Pin<Box<Sleep>>>,
    cpu: CpuMeter,
    polls: u32,
    /// The polling task, woken when the link changes the exchange.
    waker: Option<Waker>,
}

enum Step {
    Dialling(BoxFuture<'static, Result<Conn, ConnectError>>),
    /// No connection could be opened; the next attempt follows.
    WaitingToRedial(Pin<Box<Sleep>>),
    /// Waits for the earliest time to send.
    Delayed(Pin<Box<Sleep>>, Option<Box<Conn>>),
    Sending(BoxFuture<'static, Result<(Conn, Response<Incoming>), SendFailure>>),
    Reading(Box<BodyReader>),
    Done,
}

impl Exchange {
    /// Starts an exchange on this connection, or opens one.
    pub(crate) fn start(
        purpose: Purpose,
        target: Arc<Target>,
        outgoing: Outgoing,
        conn: Option<Conn>,
        large: Arc<Semaphore>,
        limits: MessageLimits,
        cpu: CpuMeter,
    ) -> Self {
        let timeout = outgoing
            .timeout
            .map(|timeout| Box::pin(tokio::time::sleep(timeout)));
        let redial = Redial::new(outgoing.redial);
        let mut exchange = Self {
            purpose,
            path: target.path.clone(),
            target,
            outgoing,
            redirects: 0,
            nonce_retry: NonceRetry::default(),
            is_new_conn: false,
            new_conn_closed: false,
            large,
            limits,
            step: Step::Done,
            redial,
            timeout,
            cpu,
            polls: 0,
            waker: None,
        };
        match conn {
            Some(conn) => exchange.send_on(conn),
            None => exchange.dial(),
        }
        exchange
    }

    /// Whether any of the request may have reached the server.
    pub(crate) fn is_written(&self) -> bool {
        match &self.step {
            // A request whose reply is being resumed was sent long ago.
            Step::Dialling(_) | Step::WaitingToRedial(_) | Step::Delayed(..) => {
                matches!(self.purpose, Purpose::Resume(..))
            }
            Step::Sending(_) | Step::Reading(_) | Step::Done => true,
        }
    }

    /// Whether a response may still come.
    pub(crate) fn awaits_response(&self) -> bool {
        matches!(self.step, Step::Sending(_) | Step::Reading(_))
    }

    /// Since when the exchange has lacked a connection, if opening one failed.
    pub(crate) fn stalled_since(&self) -> Option<Instant> {
        match &self.step {
            Step::WaitingToRedial(_) => self.redial.since,
            _ => None,
        }
    }

    /// Continues a stalled exchange on a connection that became idle.
    pub(crate) fn use_connection(&mut self, conn: Conn) {
        self.is_new_conn = false;
        self.send_on(conn);
        self.wake();
    }

    /// Closes the connection; nothing more is reported.
    pub(crate) fn abort(&mut self) {
        self.step = Step::Done;
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn dial(&mut self) {
        self.is_new_conn = true;
        self.redial.begin_attempt(Instant::now());
        self.step = Step::Dialling(Box::pin(dial(Arc::clone(&self.target))));
    }

    /// Schedules the next attempt to connect, or gives up.
    fn connect_failed(&mut self, error: ConnectError) -> ExchangeEvent {
        match self.redial.next_delay(Instant::now()) {
            Some(delay) => {
                self.step = Step::WaitingToRedial(Box::pin(tokio::time::sleep(delay)));
                ExchangeEvent::ConnectFailed(error)
            }
            None => self.end(ExchangeOutcome::NotSent(error)),
        }
    }

    fn send_on(&mut self, conn: Conn) {
        self.redial.connected();
        match self.outgoing.not_before.take_if(|at| Instant::now() < *at) {
            Some(at) => {
                let delay = Box::pin(tokio::time::sleep_until(at));
                self.step = Step::Delayed(delay, Some(Box::new(conn)));
            }
            None => {
                let nonce = self.nonce_retry.nonce();
                let request = self.outgoing.to_request(&self.target, &self.path, nonce);
                self.step = Step::Sending(Box::pin(conn.send(request)));
            }
        }
    }

    /// Sends the request again, on the connection that it was refused on if possible.
    fn send_again(&mut self, conn: Option<Conn>) {
        let usable = conn.and_then(|mut conn| conn.probe_usable().then_some(conn));
        match usable {
            Some(conn) => {
                self.is_new_conn = false;
                self.send_on(conn);
            }
            None => self.dial(),
        }
    }

    /// Ends the exchange before its response began.
    fn end(&mut self, outcome: ExchangeOutcome) -> ExchangeEvent {
        self.step = Step::Done;
        let (conn, resume) = (None, self.take_resume_point());
        ExchangeEvent::Ended(Box::new(Ended {
            outcome,
            conn,
            resume,
        }))
    }

    /// The resume point of the stream that this one failed to resume.
    fn take_resume_point(&mut self) -> Option<ResumePoint> {
        self.outgoing.resume_from.take().map(|cursor| ResumePoint {
            cursor,
            progressed: false,
        })
    }

    /// A connection was closed before anything was written. Pooled connections are replaced without
    /// limit, but only one new connection is: otherwise the server could cause an endless loop.
    fn conn_closed(&mut self) -> Option<ExchangeEvent> {
        if self.is_new_conn && std::mem::replace(&mut self.new_conn_closed, true) {
            let problem = "the server closes connections before anything is sent";
            return Some(self.connect_failed(ConnectError::remote(problem.to_owned())));
        }
        self.dial();
        None
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<ExchangeEvent>> {
        loop {
            match &mut self.step {
                Step::Dialling(dial) => match ready!(dial.as_mut().poll(cx)) {
                    Ok(conn) => self.send_on(conn),
                    Err(error) => return Poll::Ready(Some(self.connect_failed(error))),
                },
                Step::WaitingToRedial(delay) => {
                    ready!(delay.as_mut().poll(cx));
                    self.dial();
                }
                Step::Delayed(delay, conn) => {
                    ready!(delay.as_mut().poll(cx));
                    match conn.take() {
                        Some(conn) => self.send_on(*conn),
                        None => self.dial(),
                    }
                }
                Step::Sending(send) => {
                    let event = match ready!(send.as_mut().poll(cx)) {
                        Ok((conn, response)) => self.response_began(conn, response),
                        Err(SendFailure::NotSent) => self.conn_closed(),
                        Err(SendFailure::Interrupted(problem)) => {
                            Some(self.end(ExchangeOutcome::Interrupted(problem)))
                        }
                    };
                    if event.is_some() {
                        return Poll::Ready(event);
                    }
                }
                Step::Reading(reader) => {
                    // This stream outlives a reload, which may change the limit.
                    if self.purpose == Purpose::SessionStream {
                        reader.set_max_event_bytes(self.limits.get().max_bytes);
                    }
                    let mut event = ready!(reader.poll(cx));
                    if let ExchangeEvent::Ended(ended) = &mut event {
                        if self.nonce_retry.begin() {
                            self.send_again(ended.conn.take());
                            continue;
                        }
                        self.step = Step::Done;
                        ended.resume = ended.resume.take().or_else(|| self.take_resume_point());
                    }
                    return Poll::Ready(Some(event));
                }
                Step::Done => return Poll::Ready(None),
            }
        }
    }

    /// Polls the next event, unless the exchange is paused because of the CPU time that it cost.
    fn poll_metered(&mut self, cx: &mut Context<'_>) -> Poll<Option<ExchangeEvent>> {
        if matches!(self.step, Step::Done) {
            return Poll::Ready(None);
        }
        ready!(self.cpu.poll_resume(cx));
        self.polls = self.polls.saturating_add(1);
        if self.purpose.request().is_some() && self.polls <= UNMEASURED_POLLS {
            return self.poll_event(cx);
        }
        let mut cpu = std::mem::take(&mut self.cpu);
        let mut event = cpu.measure(|| self.poll_event(cx));
        match &mut event {
            Poll::Pending => {
                let unfinished = match &self.step {
                    Step::Reading(reader) => reader.unfinished_bytes(),
                    _ => 0,
                };
                cpu.charge_excess(unfinished);
            }
            Poll::Ready(Some(ExchangeEvent::Message(message))) => message.cpu_time = cpu.take(),
            // Other events are bounded by the flood gate and the number of requests.
            Poll::Ready(_) => {}
        }
        self.cpu = cpu;
        event
    }

    /// The path of a redirect that is to be followed.
    fn redirect_path(&self, head: &Parts) -> Result<PathAndQuery, RedirectRefusal> {
        if !matches!(
            head.status,
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
        ) {
            return Err(RedirectRefusal::Status);
        }
        let location = head.headers.get(LOCATION);
        let location = location.and_then(|value| value.to_str().ok());
        let path =
            location.and_then(|location| resolve_redirect(&self.target, &self.path, location));
        match path {
            None => Err(RedirectRefusal::OtherOrigin),
            Some(_) if self.redirects >= MAX_REDIRECTS => Err(RedirectRefusal::TooMany),
            Some(path) => Ok(path),
        }
    }

    /// Handles the head of the response.
    fn response_began(
        &mut self,
        mut conn: Conn,
        response: Response<Incoming>,
    ) -> Option<ExchangeEvent> {
        let (head, body) = response.into_parts();
        conn.note_keep_alive(&head.headers);
        let sent = &self.outgoing.headers;
        let challenge = challenge_in(&head, sent);
        let proof = ProofRefusal::of(sent.signer.as_ref(), challenge.as_deref());
        if let Some(signer) = &sent.signer {
            self.nonce_retry.note(signer, &head.headers, proof);
        }
        let status = head.status;
        let redirect = match status.is_redirection().then(|| self.redirect_path(&head)) {
            Some(Ok(path)) => {
                self.redirects += 1;
                self.path = path;
                // The body of a redirect is not read, so its connection cannot be reused.
                self.dial();
                return None;
            }
            Some(Err(refusal)) => Some(refusal),
            None => None,
        };
        let kind = match classify(self.purpose, status, &head.headers) {
            Ok(ResponseKind::Json) => BodyKind::Json(Bytes::new(), Vec::new()),
            Ok(ResponseKind::Ignored) => BodyKind::Ignored(0),
            Ok(ResponseKind::Events) if self.purpose == Purpose::SessionStream => {
                BodyKind::Events(EventParser::of_session(self.limits.get().max_bytes))
            }
            Ok(ResponseKind::Events) => {
                let cursor = self.outgoing.resume_from.take().unwrap_or_default();
                BodyKind::Events(EventParser::new(cursor, self.max_event_bytes()))
            }
            Ok(ResponseKind::Refusal) => BodyKind::Refusal(HttpRefusal {
                status,
                retry_after: head.headers.get(RETRY_AFTER).and_then(parse_retry_after),
                redirect,
                credential: self.outgoing.headers.credential,
                challenge,
                proof,
                body: Vec::new(),
            }),
            Err(problem) => return Some(self.end(ExchangeOutcome::Unreadable(problem))),
        };
        // The `initialized` notification counts as received when its response is complete, so that
        // its connection is free for the next request. An event stream may stay open, so there the
        // head counts.
        let head_counts =
            self.purpose != Purpose::Initialized || matches!(kind, BodyKind::Events(_));
        let large = Arc::clone(&self.large);
        let reader = BodyReader::new(conn, body, kind, large, self.limits.get().max_bytes);
        self.step = Step::Reading(Box::new(reader));
        let is_head = status.is_success() && head_counts;
        // A refused request may be sent again, so this stays set.
        let reports_head = is_head && std::mem::take(&mut self.outgoing.reports_head);
        reports_head.then(|| ExchangeEvent::Head(head.headers.get(headers::SESSION_ID).cloned()))
    }

    /// Messages on the server stream are small, and no caller waits for them: they must not delay
    /// large replies, which share one permit.
    fn max_event_bytes(&self) -> usize {
        match self.purpose {
            Purpose::ServerStream => LARGE_MESSAGE,
            _ => self.limits.get().max_bytes,
        }
    }
}

/// What authorization a refusal demands. A server may repeat the token or the proof as a scope,
/// which is shown.
fn challenge_in(head: &Parts, sent: &LinkHeaders) -> Option<Box<Challenge>> {
    let demands = matches!(
        head.status,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
    );
    let values = head.headers.get_all(WWW_AUTHENTICATE).iter();
    let values = values.filter_map(|value| value.to_str().ok());
    let mut challenge = demands.then(|| Box::new(Challenge::parse(values)))?;
    let secrets = sent.values().filter(|value| value.is_sensitive());
    let secrets = secrets.filter_map(|value| value.to_str().ok()?.split(' ').next_back());
    let proof = sent.signer.as_ref().map(|signer| signer.proof_prefix());
    let secrets = secrets.chain(proof).filter(|secret| !secret.is_empty());
    let secrets: Vec<&str> = secrets.collect();
    if let Some(scopes) = &mut challenge.scopes {
        scopes.retain(|scope| !secrets.iter().any(|secret| scope.contains(secret)));
    }
    Some(challenge)
}

impl Stream for Exchange {
    type Item = (Purpose, ExchangeEvent);

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let purpose = self.purpose;
        if let Poll::Ready(event) = self.poll_metered(cx) {
            return Poll::Ready(event.map(|event| (purpose, event)));
        }
        if let Some(timeout) = &mut self.timeout {
            ready!(timeout.as_mut().poll(cx));
            let event = self.end(ExchangeOutcome::TimedOut);
            return Poll::Ready(Some((purpose, event)));
        }
        match &mut self.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => self.waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange")
            .field("purpose", &self.purpose)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::link::http::HttpEndpoint;
    use crate::link::http::net::redial::RedialPolicy;

    #[test]
    fn only_one_new_connection_may_be_closed_before_anything_is_sent() {
        let endpoint = HttpEndpoint::new("http://127.0.0.1/mcp");
        let target = Arc::new(Target::new(&endpoint, |_| None).unwrap());
        let mut outgoing = Outgoing::new(Method::POST, &Arc::default(), Vec::new());
        outgoing.redial = RedialPolicy::Once;
        let large = Arc::new(Semaphore::new(1));
        let (limits, cpu) = (MessageLimits::default(), CpuMeter::default());
        let mut exchange =
            Exchange::start(Purpose::Message, target, outgoing, None, large, limits, cpu);
        assert!(exchange.conn_closed().is_none(), "another one is opened");
        let Some(ExchangeEvent::Ended(ended)) = exchange.conn_closed() else {
            panic!("the server could cause an endless loop");
        };
        let outcome = &ended.outcome;
        assert!(
            matches!(outcome, ExchangeOutcome::NotSent(_)),
            "{outcome:?}"
        );
    }
}

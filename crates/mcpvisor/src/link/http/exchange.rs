//! One request and its answer, from the first byte to the last, as a stream of what comes of it.
//!
//! An exchange knows HTTP and nothing of the protocol above it: what an answer means, and which call
//! waits for it, is the link's business.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::Stream;
use http::header::{
    CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER,
};
use http::response::Parts;
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use mcpvisor_core::CallId;
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep};

use super::body::{Kind, LARGE, Reading};
use super::conn::{Conn, SendFailure};
use super::dial::dial;
use super::redial::{Patience, Redial};
use super::refusal::retry_after;
use super::sse::{Place, Sse};
use super::target::Target;
use super::undialled::Undialled;
use crate::link::cpu_quota::CpuMeter;

/// So many redirects on the same origin are followed.
const MAX_REDIRECTS: u8 = 3;

/// Polls of a request's exchange whose CPU time is not measured. An answer takes fewer.
const UNMEASURED_POLLS: u32 = 8;

/// What an exchange is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A request of ours, which is answered in it.
    Request(CallId),
    /// The rest of an answer that broke off, tried so often without anything new.
    Resume(CallId, u8),
    /// The notification that the handshake is done; requests wait for it.
    Initialized,
    /// Another notification, or an answer of ours.
    Message,
    /// The stream of what the server says of its own accord.
    Listen,
    /// The end of the session.
    Delete,
}

impl Purpose {
    /// The request that is answered in it.
    pub(super) fn request(self) -> Option<CallId> {
        match self {
            Self::Request(id) | Self::Resume(id, _) => Some(id),
            Self::Initialized | Self::Message | Self::Listen | Self::Delete => None,
        }
    }
}

/// What is sent.
#[derive(Debug, Clone)]
pub(super) struct Outgoing {
    pub(super) method: Method,
    /// What is sent with every request of the session.
    pub(super) headers: Arc<HeaderMap>,
    /// What is sent with this one beside it.
    pub(super) extra: Vec<(HeaderName, HeaderValue)>,
    pub(super) body: Bytes,
    /// Not to be sent before that, though the connection is opened at once.
    pub(super) not_before: Option<Instant>,
    /// Given up without an answer after that.
    pub(super) limit: Option<Duration>,
    /// How long a connection for it is tried for.
    pub(super) patience: Patience,
}

impl Outgoing {
    fn request(&self, target: &Target, path: &PathAndQuery) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = target.request_uri(path);
        let mut headers = HeaderMap::clone(&self.headers);
        headers.reserve(self.extra.len());
        for (name, value) in &self.extra {
            headers.insert(name.clone(), value.clone());
        }
        if self.method != Method::POST {
            headers.remove(CONTENT_TYPE);
        }
        *request.headers_mut() = headers;
        request
    }
}

/// Something that comes of an exchange.
#[derive(Debug)]
pub(super) enum Out {
    /// The head of a good answer, for who wanted it; with the id of a session, if there is one.
    Head(Option<HeaderValue>),
    /// A message, in the body or in an event of it.
    Message(super::body::Message),
    /// No connection could be opened. The exchange waits for one that becomes idle, or for its next
    /// try; nothing was written.
    Undialled(Undialled),
    /// Nothing more comes.
    Over(Box<Over>),
}

/// How an exchange ended.
#[derive(Debug)]
pub(super) struct Over {
    pub(super) how: End,
    /// The connection, if it can be used again.
    pub(super) conn: Option<Conn>,
    /// How a stream that ended may be gone on with.
    pub(super) resume: Option<Resume>,
}

/// How an exchange ended.
#[derive(Debug)]
pub(super) enum End {
    /// There is no connection; nothing was sent.
    Unsent(Undialled),
    /// It broke off before the end of its answer.
    Broken(String),
    /// There was no answer within its limit.
    TooLate,
    /// The answer is whole.
    Whole,
    /// It was taken without an answer (202).
    Accepted,
    /// The answer cannot be read.
    Unreadable(String),
    /// An event of it is too large.
    TooLarge(String),
    /// Another status than success.
    Refused(Refusal),
}

/// An answer that is no success.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) retry_after: Option<Duration>,
    /// It is a redirect, and why it was not followed.
    pub(super) unfollowed: Option<Unfollowed>,
    pub(super) body: Vec<u8>,
}

/// Why a redirect was not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unfollowed {
    /// It leads to another origin, or nowhere.
    Elsewhere,
    /// There were so many already.
    TooOften,
    /// Its status does not say that the request stays the same.
    Kind,
}

/// How a stream ended, for the one that goes on with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resume {
    pub(super) place: Place,
    /// Something new came on it.
    pub(super) moved: bool,
}

/// One request and its answer.
pub(super) struct Exchange {
    pub(super) purpose: Purpose,
    target: Arc<Target>,
    path: PathAndQuery,
    outgoing: Outgoing,
    redirects: u8,
    /// The head of a good answer is news by itself.
    wants_head: bool,
    /// Its connection was opened for it, and another one before that was closed without a word.
    closed_at_once: bool,
    is_new: bool,
    /// A stream goes on from there.
    after: Option<Place>,
    large: Arc<Semaphore>,
    /// A message may have so many bytes.
    longest: usize,
    step: Step,
    /// When a connection for it is tried again.
    redial: Redial,
    limit: Option<Pin<Box<Sleep>>>,
    /// What it costs.
    pub(super) work: CpuMeter,
    polls: u32,
    /// Whoever polls it, so that giving it up is noticed.
    waker: Option<Waker>,
}

enum Step {
    Dial(BoxFuture<'static, Result<Conn, Undialled>>),
    /// No connection could be opened; the next try follows.
    Stalled(Pin<Box<Sleep>>),
    Rest(Pin<Box<Sleep>>, Option<Box<Conn>>),
    Send(BoxFuture<'static, Result<(Conn, Response<Incoming>), SendFailure>>),
    Read(Box<Reading>),
    Over,
}

impl Exchange {
    /// Starts an exchange on a connection, or on a new one.
    pub(super) fn start(
        purpose: Purpose,
        target: Arc<Target>,
        outgoing: Outgoing,
        conn: Option<Conn>,
        large: Arc<Semaphore>,
        longest: usize,
    ) -> Self {
        let limit = outgoing
            .limit
            .map(|limit| Box::pin(tokio::time::sleep(limit)));
        let redial = Redial::new(outgoing.patience);
        let mut exchange = Self {
            purpose,
            path: target.path.clone(),
            target,
            outgoing,
            redirects: 0,
            wants_head: false,
            closed_at_once: false,
            is_new: false,
            after: None,
            large,
            longest,
            step: Step::Over,
            redial,
            limit,
            work: CpuMeter::default(),
            polls: 0,
            waker: None,
        };
        match conn {
            Some(conn) => exchange.connected(conn),
            None => exchange.dial(),
        }
        exchange
    }

    /// Says when the head of a good answer is there.
    pub(super) fn wanting_head(mut self) -> Self {
        self.wants_head = true;
        self
    }

    /// The answer is a stream that goes on from there.
    pub(super) fn going_on(mut self, after: Place) -> Self {
        self.after = Some(after);
        self
    }

    /// Whether any of the request that it is for may have reached the server.
    pub(super) fn is_written(&self) -> bool {
        match &self.step {
            // A request whose answer is taken up again was sent long ago.
            Step::Dial(_) | Step::Stalled(_) | Step::Rest(..) => {
                matches!(self.purpose, Purpose::Resume(..))
            }
            Step::Send(_) | Step::Read(_) | Step::Over => true,
        }
    }

    /// Whether its answer may still come.
    pub(super) fn is_awaited(&self) -> bool {
        matches!(self.step, Step::Send(_) | Step::Read(_))
    }

    /// Since when it has waited for a connection that could not be opened.
    pub(super) fn stalled_since(&self) -> Option<Instant> {
        match &self.step {
            Step::Stalled(_) => self.redial.since(),
            Step::Dial(_) | Step::Rest(..) | Step::Send(_) | Step::Read(_) | Step::Over => None,
        }
    }

    /// Goes on with a connection that became idle.
    pub(super) fn hand(&mut self, conn: Conn) {
        self.is_new = false;
        self.connected(conn);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Gives it up: its connection is closed, and nothing more comes of it.
    pub(super) fn give_up(&mut self) {
        self.step = Step::Over;
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// What the server says of its own accord is small, and nobody waits for its end: it must not
    /// keep large answers waiting.
    fn longest_event(&self) -> usize {
        match self.purpose {
            Purpose::Listen => LARGE,
            _ => self.longest,
        }
    }

    fn dial(&mut self) {
        self.is_new = true;
        self.redial.begins(Instant::now());
        self.step = Step::Dial(Box::pin(dial(Arc::clone(&self.target))));
    }

    /// There is no connection: it is tried again later, or not any more.
    fn undialled(&mut self, failure: Undialled) -> Out {
        match self.redial.failed(Instant::now()) {
            Some(wait) => {
                self.step = Step::Stalled(Box::pin(tokio::time::sleep(wait)));
                Out::Undialled(failure)
            }
            None => self.over(End::Unsent(failure)),
        }
    }

    fn connected(&mut self, conn: Conn) {
        self.redial.done();
        match self.outgoing.not_before.take_if(|at| Instant::now() < *at) {
            Some(at) => {
                let rest = Box::pin(tokio::time::sleep_until(at));
                self.step = Step::Rest(rest, Some(Box::new(conn)));
            }
            None => {
                let request = self.outgoing.request(&self.target, &self.path);
                self.step = Step::Send(Box::pin(conn.send(request)));
            }
        }
    }

    /// It is over before its answer began. Whoever wanted to go on with a stream still can.
    fn over(&mut self, how: End) -> Out {
        self.step = Step::Over;
        let (conn, resume) = (None, self.unmoved());
        Out::Over(Box::new(Over { how, conn, resume }))
    }

    /// Where a stream stands that was to be gone on with and was not.
    fn unmoved(&mut self) -> Option<Resume> {
        let moved = false;
        self.after.take().map(|place| Resume { place, moved })
    }

    /// A connection was closed before anything was written. One that waited may be; of new ones only
    /// one, or there would be no end of them.
    fn closed(&mut self) -> Option<Out> {
        if self.is_new && std::mem::replace(&mut self.closed_at_once, true) {
            let problem = "the server closes connections before anything is sent";
            return Some(self.undialled(Undialled::remote(problem.to_owned())));
        }
        self.dial();
        None
    }

    fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<Option<Out>> {
        loop {
            match &mut self.step {
                Step::Dial(dial) => match ready!(dial.as_mut().poll(cx)) {
                    Ok(conn) => self.connected(conn),
                    Err(failure) => return Poll::Ready(Some(self.undialled(failure))),
                },
                Step::Stalled(wait) => {
                    ready!(wait.as_mut().poll(cx));
                    self.dial();
                }
                Step::Rest(rest, conn) => {
                    ready!(rest.as_mut().poll(cx));
                    match conn.take() {
                        Some(conn) => self.connected(*conn),
                        None => self.dial(),
                    }
                }
                Step::Send(send) => match ready!(send.as_mut().poll(cx)) {
                    Ok((conn, answer)) => {
                        if let Some(out) = self.answered(conn, answer) {
                            return Poll::Ready(Some(out));
                        }
                    }
                    Err(SendFailure::Unsent) => {
                        if let Some(out) = self.closed() {
                            return Poll::Ready(Some(out));
                        }
                    }
                    Err(SendFailure::Broken(problem)) => {
                        return Poll::Ready(Some(self.over(End::Broken(problem))));
                    }
                },
                Step::Read(reading) => {
                    let mut out = ready!(reading.poll(cx));
                    if let Out::Over(over) = &mut out {
                        self.step = Step::Over;
                        over.resume = over.resume.take().or_else(|| self.unmoved());
                    }
                    return Poll::Ready(Some(out));
                }
                Step::Over => return Poll::Ready(None),
            }
        }
    }

    /// The same, unless it has to rest because of what it cost.
    fn poll_paced(&mut self, cx: &mut Context<'_>) -> Poll<Option<Out>> {
        if matches!(self.step, Step::Over) {
            return Poll::Ready(None);
        }
        ready!(self.work.poll_resume(cx));
        self.polls = self.polls.saturating_add(1);
        let answers = self.purpose.request().is_some();
        if answers && self.polls <= UNMEASURED_POLLS {
            return self.poll_out(cx);
        }
        let mut work = std::mem::take(&mut self.work);
        let mut out = work.measure(|| self.poll_out(cx));
        match &mut out {
            Poll::Pending => {
                let unfinished = match &self.step {
                    Step::Read(reading) => reading.unfinished(),
                    Step::Dial(_)
                    | Step::Stalled(_)
                    | Step::Rest(..)
                    | Step::Send(_)
                    | Step::Over => 0,
                };
                work.charge_excess(unfinished);
            }
            Poll::Ready(Some(Out::Message(message))) => message.work = work.take(),
            // The gate bounds what is answered, and callers what is asked.
            Poll::Ready(_) => {}
        }
        self.work = work;
        out
    }

    /// Where a redirect leads, if it is to be followed.
    fn redirected(&self, head: &Parts) -> Result<PathAndQuery, Unfollowed> {
        if !matches!(
            head.status,
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
        ) {
            return Err(Unfollowed::Kind);
        }
        let location = head.headers.get(LOCATION);
        let location = location.and_then(|value| value.to_str().ok());
        let path = location.and_then(|location| self.target.redirected(&self.path, location));
        match path {
            None => Err(Unfollowed::Elsewhere),
            Some(_) if self.redirects >= MAX_REDIRECTS => Err(Unfollowed::TooOften),
            Some(path) => Ok(path),
        }
    }

    /// The head of the answer is there.
    fn answered(&mut self, mut conn: Conn, answer: Response<Incoming>) -> Option<Out> {
        let (head, body) = answer.into_parts();
        conn.note_keep_alive(&head.headers);
        let status = head.status;
        let unfollowed = match status.is_redirection().then(|| self.redirected(&head)) {
            Some(Ok(path)) => {
                self.redirects += 1;
                self.path = path;
                // The body of a redirect is not read, so its connection is not used again.
                self.dial();
                return None;
            }
            Some(Err(why)) => Some(why),
            None => None,
        };
        let kind = kind_of(self.purpose, status, &head.headers, self.longest);
        let kind = match kind {
            Ok(Kind::Events(_)) => {
                let place = self.after.take().unwrap_or_default();
                Kind::Events(Sse::after(place, self.longest_event()))
            }
            Ok(Kind::Refusal(_)) => Kind::Refusal(Refusal {
                status,
                retry_after: head.headers.get(RETRY_AFTER).and_then(retry_after),
                unfollowed,
                body: Vec::new(),
            }),
            Ok(kind) => kind,
            Err(problem) => return Some(self.over(End::Unreadable(problem))),
        };
        // The end of the handshake is taken for good when its answer is whole, so that its connection
        // is free for what follows; a stream may stay open.
        let lasts = self.purpose != Purpose::Initialized || matches!(kind, Kind::Events(_));
        let large = Arc::clone(&self.large);
        let reading = Reading::new(conn, body, kind, large, self.longest);
        self.step = Step::Read(Box::new(reading));
        let wants_head = std::mem::take(&mut self.wants_head) && status.is_success() && lasts;
        wants_head.then(|| Out::Head(head.headers.get("mcp-session-id").cloned()))
    }
}

/// What an answer is made of.
fn kind_of(
    purpose: Purpose,
    status: StatusCode,
    headers: &HeaderMap,
    longest: usize,
) -> Result<Kind, String> {
    if !status.is_success() {
        return Ok(Kind::Refusal(Refusal {
            status,
            retry_after: None,
            unfollowed: None,
            body: Vec::new(),
        }));
    }
    if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
        return Ok(Kind::Nothing(0));
    }
    let is_read = !matches!(
        purpose,
        Purpose::Initialized | Purpose::Message | Purpose::Delete
    );
    if let Some(coding) = headers.get(CONTENT_ENCODING)
        && is_read
        && !coding.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        return Err(format!(
            "HTTP {status} with the content encoding {coding:?}, which was not asked for"
        ));
    }
    let content_type = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("text/event-stream") {
        return Ok(Kind::Events(Sse::new(longest)));
    }
    match purpose {
        Purpose::Initialized | Purpose::Message | Purpose::Delete => Ok(Kind::Nothing(0)),
        Purpose::Request(_) if essence.eq_ignore_ascii_case("application/json") => {
            Ok(Kind::Whole(Bytes::new(), Vec::new()))
        }
        Purpose::Request(_) | Purpose::Resume(..) | Purpose::Listen => Err(format!(
            "HTTP {status} with the content type {content_type:?}, which is neither JSON nor a stream of events"
        )),
    }
}

impl Stream for Exchange {
    type Item = (Purpose, Out);

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Poll::Ready(out) = self.poll_paced(cx) {
            let purpose = self.purpose;
            return Poll::Ready(out.map(|out| (purpose, out)));
        }
        if let Some(limit) = &mut self.limit {
            ready!(limit.as_mut().poll(cx));
            let purpose = self.purpose;
            let out = self.over(End::TooLate);
            return Poll::Ready(Some((purpose, out)));
        }
        if self
            .waker
            .as_ref()
            .is_none_or(|waker| !waker.will_wake(cx.waker()))
        {
            self.waker = Some(cx.waker().clone());
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
    use super::*;
    use crate::link::http::HttpEndpoint;

    #[test]
    fn of_new_connections_only_one_may_be_closed_before_anything_is_sent() {
        let endpoint = HttpEndpoint::new("http://127.0.0.1/mcp");
        let target = Arc::new(Target::check(&endpoint, |_| None).unwrap());
        let outgoing = Outgoing {
            method: Method::POST,
            headers: Arc::default(),
            extra: Vec::new(),
            body: Bytes::new(),
            not_before: None,
            limit: None,
            patience: Patience::None,
        };
        let large = Arc::new(Semaphore::new(1));
        let mut exchange = Exchange::start(Purpose::Message, target, outgoing, None, large, 1024);
        assert!(exchange.closed().is_none(), "another one is opened");
        let Some(Out::Over(over)) = exchange.closed() else {
            panic!("there would be no end of them");
        };
        assert!(matches!(over.how, End::Unsent(_)), "{:?}", over.how);
    }
}

//! The link to a server that is reached over Streamable HTTP.
//!
//! Every message is a request of its own, and the answer to each a body or a stream. All of them are
//! polled by the task that owns the link, on connections that belong to it, so nothing outlives it.
//! Whether a session is replaced or a request repeated is the machine's business: here it is only
//! said what happened to it.

mod body;
mod closing;
mod conn;
mod dial;
mod endpoint;
mod exchange;
#[cfg(test)]
mod fuzz;
mod headers;
mod idle;
mod inbound;
mod keep_alive;
mod link;
mod listed;
mod lookup;
mod no_proxy;
mod outcome;
mod redial;
mod refusal;
mod request_hold;
mod server_stream;
mod shared;
mod socket;
mod sse;
mod target;
#[cfg(test)]
mod tests;
mod trickle;
mod undialled;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{SelectAll, StreamExt as _};
use http::Method;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use mcpvisor_core::CallId;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use self::conn::Conn;
pub use self::endpoint::HttpEndpoint;
#[cfg(feature = "config-files")]
pub(crate) use self::endpoint::parts::EndpointParts;
use self::exchange::{Exchange, Outgoing, Purpose};
use self::idle::Idle;
use self::keep_alive::Lessons;
use self::redial::Patience;
use self::request_hold::{Doubt, Held};
use self::server_stream::Listen;
pub(crate) use self::shared::HttpShared;
use self::target::Target;
use self::undialled::Undialled;
use super::codec::Decoded;
use super::cpu_quota::{CpuMeter, CpuQuota};
use super::flood_gate::FloodGate;
use super::limits::MessageLimits;
use super::{DownKind, Inbound, LinkDown, OpenFailure, PendingRequests};

/// Notifications and answers of ours that are on their way at once.
const MESSAGES_AT_ONCE: usize = 8;

/// So many more wait; beyond that they are lost, like everything that a server does not take.
const MAX_MESSAGES: usize = 256;

/// A notification or an answer that was not taken after so long is given up.
const MESSAGE: Duration = Duration::from_secs(10);

/// After so many messages for nobody the thread is left to others for a moment.
const MESSAGES_IN_A_TURN: usize = 256;

/// A request of the server takes so many more places in the gate than a notification, because its
/// answer is a request of ours: 125 are let in in a second.
const REQUEST_TOKENS: u32 = 7;

/// An open link.
#[derive(Debug)]
pub(crate) struct HttpLink {
    target: Arc<Target>,
    /// Sent with every request.
    headers: Arc<HeaderMap>,
    session: Session,
    /// The session was said to be gone while requests are in flight: reported when they ended.
    gone_later: Option<String>,
    /// There are no sessions in this version of the protocol.
    modern: bool,
    /// The handshake is done.
    agreed: bool,
    exchanges: SelectAll<Exchange>,
    idle: Idle,
    /// Some exchange may be waiting for a connection that could not be opened.
    stalled: bool,
    /// The server has not taken the end of the handshake yet; requests wait for that.
    greeting: bool,
    /// The client said that it answers questions of the server's.
    answers: bool,
    /// Requests wait until it is resolved, but not for long.
    doubt: Option<Doubt>,
    held: VecDeque<Held>,
    messages: VecDeque<Outgoing>,
    messages_on_way: usize,
    listen: Listen,
    /// Requests that were answered, and whose streams are still open, oldest first.
    lingering: VecDeque<CallId>,
    /// The most exchanges that were unanswered at the same time.
    peak: usize,
    /// The request of the newer protocol that listens.
    listening: Option<CallId>,
    /// Requests that were taken without an answer, which may come on the server's own stream.
    accepted: Vec<CallId>,
    /// Requests that never left.
    unsent: Vec<CallId>,
    large: Arc<Semaphore>,
    bounds: MessageLimits,
    /// A message that is read elsewhere. Nothing else is read meanwhile, so that the order of
    /// messages stays and memory is bounded.
    heavy: Option<(Purpose, JoinHandle<(Decoded, Duration)>)>,
    gate: FloodGate,
    /// What input costs that answers nothing.
    pace: CpuQuota,
    /// What is to be said next.
    ready: VecDeque<Inbound>,
    end: Ending,
    deleting: Option<Exchange>,
}

/// Whether there is a session.
#[derive(Debug, PartialEq, Eq)]
enum Session {
    None,
    Held,
    Gone,
}

/// How far the end of the link has come.
#[derive(Debug)]
enum Ending {
    Open,
    Down(LinkDown),
}

impl HttpLink {
    /// Checks the address and prepares the way. Nothing is sent before the first message.
    pub(crate) async fn open(
        endpoint: &HttpEndpoint,
        shared: &HttpShared,
        bounds: MessageLimits,
    ) -> Result<Self, OpenFailure> {
        let mut target = Target::check(endpoint, |name| std::env::var_os(name))?;
        shared.equip(&mut target, endpoint).await?;
        let headers = target.with_proxy_authorization(target.headers.clone());
        let idle = Idle::new(Lessons::about(&target, &shared.keep_alive));
        Ok(Self {
            target: Arc::new(target),
            headers: Arc::new(headers),
            session: Session::None,
            gone_later: None,
            modern: false,
            agreed: false,
            exchanges: SelectAll::new(),
            idle,
            stalled: false,
            greeting: false,
            answers: false,
            doubt: None,
            held: VecDeque::new(),
            messages: VecDeque::new(),
            messages_on_way: 0,
            listen: Listen::default(),
            lingering: VecDeque::new(),
            peak: 0,
            listening: None,
            accepted: Vec::new(),
            unsent: Vec::new(),
            large: Arc::new(Semaphore::new(1)),
            bounds,
            heavy: None,
            gate: FloodGate::with_request_tokens(REQUEST_TOKENS),
            pace: CpuQuota::default(),
            ready: VecDeque::new(),
            end: Ending::Open,
            deleting: None,
        })
    }

    fn outgoing(&self, method: Method, body: Vec<u8>) -> Outgoing {
        Outgoing {
            method,
            headers: Arc::clone(&self.headers),
            extra: Vec::new(),
            body: Bytes::from(body),
            not_before: None,
            limit: None,
            patience: Patience::Request,
        }
    }

    fn exchange(&mut self, purpose: Purpose, mut outgoing: Outgoing) -> Exchange {
        outgoing.patience = match purpose {
            Purpose::Request(_) => outgoing.patience,
            Purpose::Resume(..) | Purpose::Initialized | Purpose::Message => Patience::Forever,
            Purpose::Listen => Patience::Listening,
            Purpose::Delete => Patience::None,
        };
        // The server's own stream takes its connection for long. Some servers serve one at a time:
        // what they answer on stays free for requests.
        let conn = match purpose {
            Purpose::Listen => None,
            _ => self.idle.take(),
        };
        let target = Arc::clone(&self.target);
        let longest = self.bounds.get().max_bytes;
        let large = Arc::clone(&self.large);
        let mut exchange = Exchange::start(purpose, target, outgoing, conn, large, longest);
        exchange.work = CpuMeter::new(&self.pace);
        exchange
    }

    fn start_request(&mut self, id: CallId, outgoing: Outgoing, wants_session: bool) {
        if !matches!(self.end, Ending::Open) {
            // The link is ending; whoever holds the request takes it back with the others.
            self.unsent.push(id);
            return;
        }
        let mut exchange = self.exchange(Purpose::Request(id), outgoing);
        if wants_session {
            exchange = exchange.wanting_head();
        }
        self.exchanges.push(exchange);
        let unanswered = self.exchanges.len().saturating_sub(self.lingering.len());
        self.peak = self.peak.max(unanswered);
    }

    /// Sends what waits, as far as it may.
    fn pump_messages(&mut self) {
        while self.messages_on_way < MESSAGES_AT_ONCE
            && let Some(outgoing) = self.messages.pop_front()
        {
            self.messages_on_way += 1;
            let exchange = self.exchange(Purpose::Message, outgoing);
            self.exchanges.push(exchange);
        }
    }

    fn set_header(&mut self, name: HeaderName, value: HeaderValue) {
        Arc::make_mut(&mut self.headers).insert(name, value);
    }

    /// There are no sessions in this version. One that a server of both has opened is ended.
    fn without_session(&mut self) {
        if std::mem::replace(&mut self.session, Session::None) == Session::Held {
            let mut outgoing = self.outgoing(Method::DELETE, Vec::new());
            outgoing.limit = Some(MESSAGE);
            let exchange = self.exchange(Purpose::Delete, outgoing);
            self.exchanges.push(exchange);
        }
        Arc::make_mut(&mut self.headers).remove(headers::SESSION);
    }

    /// From the next request on these headers of the endpoint are sent, and what the session added.
    fn renew_headers(&mut self, endpoint: &HttpEndpoint) {
        let Ok(fresh) = Target::check(endpoint, |name| std::env::var_os(name)) else {
            // Whoever wanted it has checked; the next connection says what is wrong.
            return;
        };
        let mut fresh = self.target.with_proxy_authorization(fresh.headers);
        for name in [headers::SESSION, headers::VERSION] {
            if let Some(value) = self.headers.get(&name) {
                fresh.insert(name, value.clone());
            }
        }
        self.headers = Arc::new(fresh);
        let held = self.held.iter_mut().map(|held| &mut held.outgoing);
        for outgoing in held.chain(&mut self.messages) {
            outgoing.headers = Arc::clone(&self.headers);
        }
    }

    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        pending: &impl PendingRequests,
    ) -> Poll<Result<Inbound, LinkDown>> {
        if let Poll::Ready(report) = self.gate.poll_report(cx) {
            return Poll::Ready(Ok(report));
        }
        self.poll_doubt(cx);
        let mut turn = MESSAGES_IN_A_TURN;
        if let Poll::Ready(Some(inbound)) = self.poll_exchanges(cx, pending, &mut turn) {
            return Poll::Ready(Ok(inbound));
        }
        if turn == 0 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        // What came just now may have raised a doubt, whose time is not watched yet.
        if self.poll_doubt(cx) {
            cx.waker().wake_by_ref();
        }
        self.idle.poll(cx);
        // What was refused just now is told in time, though nothing else may come.
        if let Poll::Ready(report) = self.gate.poll_report(cx) {
            return Poll::Ready(Ok(report));
        }
        let Ending::Down(down) = &self.end else {
            return Poll::Pending;
        };
        let down = down.clone();
        Poll::Ready(self.gate.take_report().ok_or(down))
    }

    /// The next message of what has come. `Ready(None)`: nothing is on its way.
    ///
    /// After an answer, what came with it is looked at before it is told: most often that is the end
    /// of its stream, and the connection is free for whatever is asked next. Meanwhile the answer
    /// stands first among what is to be said.
    fn poll_exchanges(
        &mut self,
        cx: &mut Context<'_>,
        pending: &impl PendingRequests,
        turn: &mut usize,
    ) -> Poll<Option<Inbound>> {
        let mut answered = false;
        while *turn > 0 {
            *turn -= 1;
            if !answered && let Some(inbound) = self.ready.pop_front() {
                return Poll::Ready(Some(inbound));
            }
            let came = match self.poll_exchange(cx, pending) {
                Poll::Ready(Some(came)) => came,
                Poll::Ready(None) if !answered => return Poll::Ready(None),
                Poll::Pending if !answered => return Poll::Pending,
                Poll::Ready(None) | Poll::Pending => break,
            };
            match came {
                Some(inbound @ Inbound::Response { .. }) if !answered => {
                    self.ready.push_front(inbound);
                    answered = true;
                }
                Some(inbound) if !answered => return Poll::Ready(Some(inbound)),
                Some(inbound) => {
                    self.ready.push_back(inbound);
                    break;
                }
                None => {}
            }
        }
        if answered {
            return Poll::Ready(self.ready.pop_front());
        }
        Poll::Pending
    }

    /// One thing that came of what is on its way; inside, a message if it is one.
    fn poll_exchange(
        &mut self,
        cx: &mut Context<'_>,
        pending: &impl PendingRequests,
    ) -> Poll<Option<Option<Inbound>>> {
        if let Some((purpose, reader)) = &mut self.heavy {
            let purpose = *purpose;
            let read = ready!(Pin::new(reader).poll(cx));
            self.heavy = None;
            // A reader that panicked leaves the request to the end of its exchange.
            let decoded = read.ok();
            return Poll::Ready(Some(decoded.and_then(|(decoded, work)| {
                if !decoded.is_reply() {
                    self.pace.charge(work);
                }
                self.admit(purpose, decoded)
            })));
        }
        let came = ready!(self.exchanges.poll_next_unpin(cx));
        Poll::Ready(came.map(|(purpose, out)| self.take(purpose, out, pending)))
    }

    /// Gives up whatever is on its way for a request; whether any of it had been written.
    fn cut_off(&mut self, id: CallId) -> Option<bool> {
        let mut exchanges = self.exchanges.iter_mut();
        let exchange = exchanges.find(|exchange| exchange.purpose.request() == Some(id))?;
        let written = exchange.is_written();
        exchange.give_up();
        Some(written)
    }

    /// Sends what is held back, once its time is up. Says whether it is.
    fn poll_doubt(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(doubt) = &mut self.doubt else {
            return false;
        };
        let over = doubt.patience.as_mut().poll(cx).is_ready();
        if over {
            self.release();
        }
        over
    }

    /// Whether a request that was written may still be answered on its connection.
    fn is_in_flight(&self, pending: &impl PendingRequests) -> bool {
        let awaited = || self.exchanges.iter().filter(|it| it.is_awaited());
        let requests = awaited().filter_map(|it| it.purpose.request());
        let mut requests = requests.filter(|id| self.listening != Some(*id));
        if requests.any(|id| pending.reply_kind(id).is_some()) {
            return true;
        }
        // What was accepted without an answer is answered on the listening stream.
        let listens = awaited().any(|it| it.purpose == Purpose::Listen);
        let mut accepted = self.accepted.iter();
        listens && accepted.any(|id| pending.reply_kind(*id).is_some())
    }

    /// A connection could not be opened. That ends the link only where no request in flight would
    /// be cut off, and where the cause is not in this process. Says whether it ended.
    fn undialled(&mut self, failure: &Undialled, pending: &impl PendingRequests) -> bool {
        let is_about_server = !failure.local || !self.agreed;
        if is_about_server && matches!(self.end, Ending::Open) && !self.is_in_flight(pending) {
            let down = LinkDown::new(DownKind::Unreachable, failure.problem.clone());
            self.end = Ending::Down(down);
        }
        matches!(self.end, Ending::Down(_))
    }

    /// A connection is free: for the request that has waited for one the longest, or the next one.
    fn free(&mut self, mut conn: Conn) {
        if !conn.seems_usable() {
            return;
        }
        if self.stalled && matches!(self.end, Ending::Open) {
            let stalled = self.exchanges.iter_mut().filter_map(|it| {
                let since = it.stalled_since().filter(|_| it.purpose != Purpose::Listen);
                since.map(|since| (since, it))
            });
            match stalled.min_by_key(|(since, _)| *since) {
                Some((_, exchange)) => return exchange.hand(conn),
                None => self.stalled = false,
            }
        }
        self.idle.put(conn, self.peak);
    }
}

/// An error with what caused it.
fn in_words(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_words = cause.to_string();
        if !words.contains(&cause_words) {
            words = format!("{words}: {cause_words}");
        }
        source = cause.source();
    }
    words
}

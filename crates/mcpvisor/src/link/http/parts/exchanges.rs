//! The exchanges of a link and their connections.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::stream::SelectAll;
use mcpvisor_core::CallId;
use tokio::sync::Semaphore;

use crate::link::PendingRequests;
use crate::link::cpu_quota::{CpuMeter, CpuQuota};
use crate::link::http::exchange::Exchange;
use crate::link::http::exchange::outgoing::{Outgoing, Purpose};
use crate::link::http::net::conn::Conn;
use crate::link::http::net::pool::ConnectionPool;
use crate::link::http::net::redial::RedialPolicy;
use crate::link::http::target::Target;
use crate::link::limits::MessageLimits;

/// Answered requests whose streams may stay open, so that their connections can be reused; more if
/// more requests were in flight at once, up to twice as many as there ever were.
const MIN_ANSWERED: usize = 16;

/// The exchanges in progress and the pool of idle connections.
#[derive(Debug)]
pub(crate) struct Exchanges {
    pub(crate) target: Arc<Target>,
    pub(crate) active: SelectAll<Exchange>,
    pub(crate) pool: ConnectionPool,
    /// An exchange may be waiting for a connection that could not be opened.
    pub(crate) may_have_stalled: bool,
    /// Answered requests whose streams are still open, oldest first.
    answered: VecDeque<CallId>,
    /// The most unanswered exchanges at any time.
    peak: usize,
    /// The modern request that listens for notifications. It never completes by itself.
    pub(crate) subscription: Option<CallId>,
    /// Its single permit allows one large message per link.
    large: Arc<Semaphore>,
    limits: MessageLimits,
    quota: CpuQuota,
}

impl Exchanges {
    pub(crate) fn new(
        target: Target,
        pool: ConnectionPool,
        limits: MessageLimits,
        quota: CpuQuota,
    ) -> Self {
        Self {
            target: Arc::new(target),
            active: SelectAll::new(),
            pool,
            may_have_stalled: false,
            answered: VecDeque::new(),
            peak: 0,
            subscription: None,
            large: Arc::new(Semaphore::new(1)),
            limits,
            quota,
        }
    }

    /// Creates an exchange, on an idle connection if there is one.
    pub(crate) fn create(&mut self, purpose: Purpose, mut outgoing: Outgoing) -> Exchange {
        outgoing.redial = match purpose {
            Purpose::Request(_) | Purpose::Post(_) => outgoing.redial,
            Purpose::Resume(..) | Purpose::Initialized | Purpose::Message => {
                RedialPolicy::UntilCancelled
            }
            Purpose::ServerStream => RedialPolicy::ServerStream,
            Purpose::SessionStream | Purpose::DeleteSession => RedialPolicy::Once,
        };
        // The server stream occupies its connection for long, and some servers serve one connection
        // at a time. A connection that they answer on stays free for requests.
        let conn = match purpose {
            Purpose::ServerStream | Purpose::SessionStream => None,
            _ => self.pool.take(),
        };
        let target = Arc::clone(&self.target);
        let (large, limits) = (Arc::clone(&self.large), self.limits.clone());
        let cpu = CpuMeter::new(&self.quota);
        Exchange::start(purpose, target, outgoing, conn, large, limits, cpu)
    }

    pub(crate) fn start(&mut self, purpose: Purpose, outgoing: Outgoing) {
        let exchange = self.create(purpose, outgoing);
        self.active.push(exchange);
    }

    /// Starts the exchange of a request.
    pub(crate) fn start_request(&mut self, purpose: Purpose, outgoing: Outgoing) {
        self.start(purpose, outgoing);
        let unanswered = self.active.len().saturating_sub(self.answered.len());
        self.peak = self.peak.max(unanswered);
    }

    /// A request was answered. Its stream usually ends by itself; the number of open ones is
    /// limited.
    pub(crate) fn request_answered(&mut self, id: CallId) {
        self.answered.push_back(id);
        if self.answered.len() > MIN_ANSWERED.max(2 * self.peak)
            && let Some(oldest) = self.answered.pop_front()
        {
            self.abort(oldest);
        }
    }

    /// The exchange of a request ended.
    pub(crate) fn request_ended(&mut self, id: CallId) {
        self.answered.retain(|answered| *answered != id);
        self.subscription
            .take_if(|subscription| *subscription == id);
    }

    /// Aborts the exchange of a request. Returns whether any of it may have been written, or `None`
    /// if there is no exchange.
    pub(crate) fn abort(&mut self, id: CallId) -> Option<bool> {
        let mut exchanges = self.active.iter_mut();
        let exchange = exchanges.find(|exchange| exchange.purpose.request() == Some(id))?;
        let written = exchange.is_written();
        exchange.abort();
        Some(written)
    }

    /// Whether any of a request may have been written, or `None` if there is no exchange for it.
    pub(crate) fn is_written(&self, id: CallId) -> Option<bool> {
        let mut exchanges = self.active.iter();
        let exchange = exchanges.find(|exchange| exchange.purpose.request() == Some(id))?;
        Some(exchange.is_written())
    }

    /// Whether a pending request that was written may still be answered on its connection.
    pub(crate) fn await_reply(&self, pending: &impl PendingRequests) -> bool {
        let awaiting = self.active.iter().filter(|it| it.awaits_response());
        let requests = awaiting.filter_map(|it| it.purpose.request());
        let mut requests = requests.filter(|id| self.subscription != Some(*id));
        requests.any(|id| pending.reply_kind(id).is_some())
    }

    /// Whether the server stream is open or being opened.
    pub(crate) fn await_server_stream(&self) -> bool {
        let mut awaiting = self.active.iter().filter(|it| it.awaits_response());
        awaiting.any(|it| it.purpose == Purpose::ServerStream)
    }

    /// Gives a free connection to the exchange that has been stalled the longest, or to the pool.
    pub(crate) fn release(&mut self, mut conn: Conn, serve_stalled: bool) {
        if !conn.is_usable() {
            return;
        }
        if self.may_have_stalled && serve_stalled {
            let stalled = self.active.iter_mut().filter_map(|it| {
                let since = it.stalled_since();
                let since = since.filter(|_| it.purpose != Purpose::ServerStream);
                since.map(|since| (since, it))
            });
            match stalled.min_by_key(|(since, _)| *since) {
                Some((_, exchange)) => return exchange.use_connection(conn),
                None => self.may_have_stalled = false,
            }
        }
        self.pool.put(conn, self.peak);
    }

    /// Aborts the stream of a session that ended, and the requests of which nothing was written.
    /// Returns these.
    pub(crate) fn end_session(&mut self) -> Vec<CallId> {
        let mut unsent = Vec::new();
        for exchange in self.active.iter_mut() {
            match exchange.purpose {
                Purpose::Post(id) if !exchange.is_written() => unsent.push(id),
                Purpose::SessionStream => {}
                _ => continue,
            }
            exchange.abort();
        }
        unsent
    }

    /// Drops all exchanges except those that send messages to the server, and the session that they
    /// belong to.
    pub(crate) fn keep_messages(&mut self) {
        let all = std::mem::take(&mut self.active);
        let is_kept = |it: &Exchange| {
            matches!(
                it.purpose,
                Purpose::Message | Purpose::SessionStream | Purpose::DeleteSession
            )
        };
        self.active.extend(all.into_iter().filter(is_kept));
    }
}

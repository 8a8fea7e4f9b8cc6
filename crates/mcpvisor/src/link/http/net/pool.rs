//! The pool of idle connections, and how long each may be reused.
//!
//! Idle connections are polled, so that a close by the server is seen when it happens. When a
//! server closes one early, the others are reused for a shorter time.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use mcpvisor_core::KeepAlive;
use mcpvisor_core::keep_alive::MAX_REUSE;
use tokio::time::{Instant, Sleep};

use super::conn::Conn;
use crate::link::http::target::Target;

/// Idle connections that a pool may always hold; more if as many requests were in flight at once.
const MIN_CAPACITY: usize = 64;

/// The idle connections, most recently used last.
#[derive(Debug)]
pub(crate) struct ConnectionPool {
    idle: Vec<IdleConnection>,
    keep_alive: ServerKeepAlive,
    /// Set when an idle connection changes.
    changed: Arc<ChangeFlag>,
    /// When the first idle connection expires.
    expiry: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug)]
struct IdleConnection {
    conn: Conn,
    since: Instant,
    expires: Instant,
}

/// A waker that remembers that it was called, and wakes the task that polls the pool.
#[derive(Debug, Default)]
struct ChangeFlag {
    is_set: AtomicBool,
    task: AtomicWaker,
}

impl Wake for ChangeFlag {
    fn wake(self: Arc<Self>) {
        self.is_set.store(true, Ordering::Release);
        self.task.wake();
    }
}

impl ConnectionPool {
    pub(crate) fn new(target: &Target, table: &Arc<KeepAliveTable>) -> Self {
        Self {
            idle: Vec::new(),
            keep_alive: ServerKeepAlive::new(target, table),
            changed: Arc::default(),
            expiry: None,
        }
    }

    /// Adds a connection for a later request. `peak` is how many were ever in use at once.
    pub(crate) fn put(&mut self, mut conn: Conn, peak: usize) {
        let since = Instant::now();
        let reuse = self.keep_alive.reuse_for(&conn, since);
        if reuse.is_zero() || self.idle.len() >= MIN_CAPACITY.max(peak) {
            return;
        }
        let waker = Waker::from(Arc::clone(&self.changed));
        if conn.poll_usable(&mut Context::from_waker(&waker)) {
            let expires = since + reuse;
            self.idle.push(IdleConnection {
                conn,
                since,
                expires,
            });
        }
    }

    /// Takes the most recently used connection that is safe to write to.
    pub(crate) fn take(&mut self) -> Option<Conn> {
        let now = Instant::now();
        while let Some(mut idle) = self.idle.pop() {
            if !idle.conn.probe_usable() {
                self.keep_alive.record_close(now - idle.since, now);
            } else if now
                < idle
                    .expires
                    .min(idle.since + self.keep_alive.max_reuse(now))
            {
                return Some(idle.conn);
            }
        }
        None
    }

    /// Drops closed and expired connections, and registers the task for the next change or expiry.
    pub(crate) fn poll_evict(&mut self, cx: &mut Context<'_>) {
        self.changed.task.register(cx.waker());
        if self.changed.is_set.swap(false, Ordering::Acquire) {
            self.evict_closed();
        }
        let Some(first) = self.first_expiry() else {
            self.expiry = None;
            return;
        };
        let mut expiry = self
            .expiry
            .take()
            .unwrap_or_else(|| Box::pin(tokio::time::sleep_until(first)));
        while let Poll::Ready(()) = expiry.as_mut().poll(cx) {
            let now = Instant::now();
            self.idle.retain(|idle| now < idle.expires);
            let Some(first) = self.first_expiry() else {
                return;
            };
            expiry.as_mut().reset(first);
        }
        self.expiry = Some(expiry);
    }

    fn first_expiry(&self) -> Option<Instant> {
        self.idle.iter().map(|idle| idle.expires).min()
    }

    fn evict_closed(&mut self) {
        let waker = Waker::from(Arc::clone(&self.changed));
        let mut cx = Context::from_waker(&waker);
        let now = Instant::now();
        let keep_alive = &mut self.keep_alive;
        self.idle.retain_mut(|idle| {
            let is_open = idle.conn.poll_usable(&mut cx);
            if !is_open {
                keep_alive.record_close(now - idle.since, now);
            }
            is_open
        });
    }

    pub(crate) fn clear(&mut self) {
        self.idle.clear();
    }
}

/// What was learned, by origin. It is shared by the runtime and outlives the links of a server.
#[derive(Debug, Default)]
pub(crate) struct KeepAliveTable(Mutex<HashMap<String, KeepAlive>>);

impl KeepAliveTable {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, KeepAlive>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one link knows about its server.
#[derive(Debug)]
struct ServerKeepAlive {
    origin: String,
    known: KeepAlive,
    table: Arc<KeepAliveTable>,
}

impl ServerKeepAlive {
    fn new(target: &Target, table: &Arc<KeepAliveTable>) -> Self {
        let origin = target.destination();
        let known = table.lock().get(&origin).copied().unwrap_or_default();
        Self {
            origin,
            known,
            table: Arc::clone(table),
        }
    }

    /// How long this connection may be idle and still be reused.
    fn reuse_for(&self, conn: &Conn, now: Instant) -> Duration {
        let (announced, round_trip) = (conn.keep_alive_timeout, conn.round_trip);
        self.known.reuse_for(announced, round_trip, now.into_std())
    }

    /// The upper bound for every connection, whatever the server announced on it.
    fn max_reuse(&self, now: Instant) -> Duration {
        let now = now.into_std();
        self.known.reuse_for(Some(MAX_REUSE), Duration::ZERO, now)
    }

    /// The server closed a connection that was idle for this long.
    fn record_close(&mut self, idle: Duration, now: Instant) {
        let now = now.into_std();
        self.known.closed_after(idle, now);
        let mut table = self.table.lock();
        table.retain(|_, known| known.is_learned(now));
        let known = table.entry(self.origin.clone()).or_default();
        known.closed_after(idle, now);
    }
}

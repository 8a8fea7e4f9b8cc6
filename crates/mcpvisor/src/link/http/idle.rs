//! The pool of idle connections, and how long each may be reused.
//!
//! Idle connections are watched, so that a close by the server is seen when it happens. When a
//! server closes one early, the others are reused for a shorter time.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;
use tokio::time::{Instant, Sleep};

use super::conn::Conn;
use super::keep_alive::Lessons;

/// Idle connections that are kept at least; a link with more requests in flight keeps as many.
const MIN_IDLE: usize = 64;

/// The idle connections, the one used last on top.
#[derive(Debug)]
pub(super) struct Idle {
    waiting: Vec<Waiting>,
    lessons: Lessons,
    /// Something happened to one of them.
    stir: Arc<Stir>,
    /// When the first of them is too old.
    oldest: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug)]
struct Waiting {
    conn: Conn,
    since: Instant,
    /// Not reused any more then.
    until: Instant,
}

/// Wakes the task that polls the pool, and remembers that it did.
#[derive(Debug, Default)]
struct Stir {
    happened: AtomicBool,
    task: AtomicWaker,
}

impl Wake for Stir {
    fn wake(self: Arc<Self>) {
        self.happened.store(true, Ordering::Release);
        self.task.wake();
    }
}

impl Idle {
    pub(super) fn new(lessons: Lessons) -> Self {
        Self {
            waiting: Vec::new(),
            lessons,
            stir: Arc::default(),
            oldest: None,
        }
    }

    /// Keeps a connection for the next request. `peak` is how many were ever in use at once.
    pub(super) fn put(&mut self, mut conn: Conn, peak: usize) {
        let since = Instant::now();
        let reuse = self.lessons.reuse_for(&conn, since);
        if reuse.is_zero() || self.waiting.len() >= MIN_IDLE.max(peak) {
            return;
        }
        let waker = Waker::from(Arc::clone(&self.stir));
        if conn.poll_usable(&mut Context::from_waker(&waker)) {
            let until = since + reuse;
            self.waiting.push(Waiting { conn, since, until });
        }
    }

    /// The connection that was used last, if it is safe to write on it.
    pub(super) fn take(&mut self) -> Option<Conn> {
        let now = Instant::now();
        while let Some(mut waiting) = self.waiting.pop() {
            if !waiting.conn.is_usable() {
                self.lessons.closed(now - waiting.since, now);
            } else if now < waiting.until.min(waiting.since + self.lessons.longest(now)) {
                return Some(waiting.conn);
            }
        }
        None
    }

    /// Drops those that the server closed and those that are too old, and is woken for the next.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) {
        self.stir.task.register(cx.waker());
        if self.stir.happened.swap(false, Ordering::Acquire) {
            self.look();
        }
        let Some(first) = self.waiting.iter().map(|it| it.until).min() else {
            self.oldest = None;
            return;
        };
        let oldest = self
            .oldest
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(first)));
        while let Poll::Ready(()) = oldest.as_mut().poll(cx) {
            let now = Instant::now();
            self.waiting.retain(|it| now < it.until);
            let Some(first) = self.waiting.iter().map(|it| it.until).min() else {
                self.oldest = None;
                return;
            };
            oldest.as_mut().reset(first);
        }
    }

    /// Drops those that the server closed.
    fn look(&mut self) {
        let waker = Waker::from(Arc::clone(&self.stir));
        let mut cx = Context::from_waker(&waker);
        let now = Instant::now();
        let lessons = &mut self.lessons;
        self.waiting.retain_mut(|it| {
            let open = it.conn.poll_usable(&mut cx);
            if !open {
                lessons.closed(now - it.since, now);
            }
            open
        });
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }
}

//! One connection to the server, and those that wait for the next request.
//!
//! Each is driven by whoever holds it: the exchange that runs on it, or nobody while it waits. So no
//! task of its own outlives the link, and no lock is between a call and its socket.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use hyper::body::{Body as _, Frame, Incoming};
use hyper::client::conn::http1::{Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use super::socket::{Fresh, Wire};

/// So many connections wait for the next request.
const MAX_IDLE: usize = 64;

/// A connection that was not used for so long is closed.
const IDLE: Duration = Duration::from_secs(60);

/// A server that says how long it keeps a connection is believed to end it that much sooner.
const EARLIER: Duration = Duration::from_secs(1);

/// Reads and writes for a connection.
type Driver = Connection<TokioIo<Wire>, Full<Bytes>>;

/// A connection and its driver.
pub(super) struct Conn {
    sender: SendRequest<Full<Bytes>>,
    /// Until it is done. What it still holds then is answered by dropping it, and by nothing else.
    driver: Option<Pin<Box<Driver>>>,
    /// Has the driver ask the system what has come.
    fresh: Fresh,
    /// Not to be used any more then.
    stale_at: Option<Instant>,
}

/// Why an exchange has no answer.
#[derive(Debug)]
pub(super) enum SendFailure {
    /// The connection was gone before anything was written.
    Unsent,
    /// It broke off before the answer.
    Broken(String),
}

impl Conn {
    pub(super) fn new(sender: SendRequest<Full<Bytes>>, driver: Driver, fresh: Fresh) -> Self {
        Self {
            sender,
            driver: Some(Box::pin(driver)),
            fresh,
            stale_at: None,
        }
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn send(
        mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<(Self, Response<Incoming>), SendFailure> {
        let mut answer = pin!(self.sender.try_send_request(request));
        let answer = poll_fn(|cx| {
            if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
                return Poll::Ready(answer);
            }
            drive(&mut self.driver, cx);
            answer.as_mut().poll(cx)
        })
        .await;
        match answer {
            Ok(response) => Ok((self, response)),
            Err(mut failure) => Err(match failure.take_message() {
                Some(_) => SendFailure::Unsent,
                None => SendFailure::Broken(super::in_words(&failure.into_error())),
            }),
        }
    }

    /// The next part of a body.
    pub(super) fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut Incoming,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        drive(&mut self.driver, cx);
        Pin::new(body).poll_frame(cx)
    }

    /// Takes note of how long the server keeps a connection.
    pub(super) fn note_keep_alive(&mut self, headers: &HeaderMap) {
        let said = headers
            .get("keep-alive")
            .and_then(|value| value.to_str().ok());
        let timeout = said.and_then(|said| {
            said.split(',')
                .find_map(|part| part.trim().strip_prefix("timeout="))
        });
        let timeout = timeout.and_then(|secs| secs.trim().parse().ok());
        let kept = timeout.map_or(IDLE, Duration::from_secs).min(IDLE);
        self.stale_at = Some(Instant::now() + kept.saturating_sub(EARLIER));
    }

    /// Whether it can take another request now. The server may have closed it a moment ago, or said
    /// something that nobody asked for, so the system is asked.
    fn is_usable(&mut self) -> bool {
        self.fresh.set(true);
        let usable = self.seems_usable();
        self.fresh.set(false);
        usable
    }

    /// Whether it can take another request, as far as is known.
    fn seems_usable(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        drive(&mut self.driver, &mut cx);
        let stale = self.stale_at.is_some_and(|at| at <= Instant::now());
        self.driver.is_some() && !stale && self.sender.is_ready()
    }
}

/// Lets a connection read and write. How it ends shows in the answers that it does not give.
fn drive(driver: &mut Option<Pin<Box<Driver>>>, cx: &mut Context<'_>) {
    if let Some(driving) = driver
        && driving.as_mut().poll(cx).is_ready()
    {
        *driver = None;
    }
}

impl std::fmt::Debug for Conn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conn").finish_non_exhaustive()
    }
}

/// Connections that wait for the next request, the one used last on top.
#[derive(Debug, Default)]
pub(super) struct Idle(Vec<Conn>);

impl Idle {
    pub(super) fn put(&mut self, mut conn: Conn) {
        if self.0.len() < MAX_IDLE && conn.seems_usable() {
            self.0.push(conn);
        }
    }

    pub(super) fn take(&mut self) -> Option<Conn> {
        while let Some(mut conn) = self.0.pop() {
            if conn.is_usable() {
                return Some(conn);
            }
        }
        None
    }

    /// Closes those that the server has closed, or that nobody needs.
    pub(super) fn sweep(&mut self) {
        self.0.retain_mut(Conn::is_usable);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

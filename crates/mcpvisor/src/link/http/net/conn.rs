//! One HTTP/1.1 connection to the server.
//!
//! Its owner drives it: the exchange that runs on it, or the pool while it is idle. So no
//! background task outlives the link, and no lock sits between a call and its socket.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use hyper::body::{Body as _, Frame, Incoming};
use hyper::client::conn::http1::{Connection, SendRequest};
use hyper_util::rt::TokioIo;

use super::connect_error::error_chain;
use super::socket::{DirectReads, MaybeTls};

/// Reads and writes for a connection.
type Driver = Connection<TokioIo<MaybeTls>, Full<Bytes>>;

/// A connection and its driver.
pub(crate) struct Conn {
    sender: SendRequest<Full<Bytes>>,
    /// `None` once it has finished. Dropping it is what fails the requests that it still holds.
    driver: Option<Pin<Box<Driver>>>,
    direct_reads: DirectReads,
    /// How long the TCP connect took.
    pub(super) round_trip: Duration,
    /// The idle timeout that the server announced in `Keep-Alive`.
    pub(super) keep_alive_timeout: Option<Duration>,
}

/// Why a request got no response.
#[derive(Debug)]
pub(crate) enum SendFailure {
    /// The connection was closed before anything was written.
    NotSent,
    /// The connection broke before the response.
    Interrupted(String),
}

impl Conn {
    pub(super) fn new(
        sender: SendRequest<Full<Bytes>>,
        driver: Driver,
        direct_reads: DirectReads,
        round_trip: Duration,
    ) -> Self {
        Self {
            sender,
            driver: Some(Box::pin(driver)),
            direct_reads,
            round_trip,
            keep_alive_timeout: None,
        }
    }

    /// Sends a request and waits for the head of its response.
    pub(crate) async fn send(
        mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<(Self, Response<Incoming>), SendFailure> {
        let mut response = pin!(self.sender.try_send_request(request));
        let response = poll_fn(|cx| {
            if let Poll::Ready(response) = response.as_mut().poll(cx) {
                return Poll::Ready(response);
            }
            drive(&mut self.driver, cx);
            response.as_mut().poll(cx)
        })
        .await;
        match response {
            Ok(response) => Ok((self, response)),
            Err(mut failure) => Err(match failure.take_message() {
                Some(_) => SendFailure::NotSent,
                None => SendFailure::Interrupted(error_chain(&failure.into_error())),
            }),
        }
    }

    /// Polls the next frame of a response body.
    pub(crate) fn poll_body(
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

    /// Records the idle timeout that the server announces, if any.
    pub(crate) fn note_keep_alive(&mut self, headers: &HeaderMap) {
        let value = headers
            .get("keep-alive")
            .and_then(|value| value.to_str().ok());
        let timeout = value.and_then(|value| {
            value
                .split(',')
                .find_map(|part| part.trim().strip_prefix("timeout="))
        });
        let timeout = timeout.and_then(|secs| secs.trim().parse().ok());
        self.keep_alive_timeout = timeout.map(Duration::from_secs).or(self.keep_alive_timeout);
    }

    /// Whether the connection can take another request, as the operating system sees it now. The
    /// server may have just closed it or sent unsolicited bytes, which tokio has not seen yet.
    pub(crate) fn probe_usable(&mut self) -> bool {
        self.direct_reads.store(true, Ordering::Relaxed);
        let usable = self.is_usable();
        self.direct_reads.store(false, Ordering::Relaxed);
        usable
    }

    /// Whether the connection can take another request, as far as tokio knows.
    pub(crate) fn is_usable(&mut self) -> bool {
        self.poll_usable(&mut Context::from_waker(Waker::noop()))
    }

    /// Like [`Self::is_usable`], and wakes the task when the connection changes.
    pub(super) fn poll_usable(&mut self, cx: &mut Context<'_>) -> bool {
        drive(&mut self.driver, cx);
        self.driver.is_some() && self.sender.is_ready()
    }
}

/// Lets a connection read and write. Its errors surface in the requests on it.
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

//! One connection to the server.
//!
//! It is driven by its holder: the exchange that runs on it, or the pool while it is idle. So no task
//! of its own outlives the link, and no lock is between a call and its socket.

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

use super::socket::{Fresh, Wire};

/// Reads and writes for a connection.
type Driver = Connection<TokioIo<Wire>, Full<Bytes>>;

/// A connection and its driver.
pub(super) struct Conn {
    sender: SendRequest<Full<Bytes>>,
    /// Until it is done. What it still holds then is answered by dropping it, and by nothing else.
    driver: Option<Pin<Box<Driver>>>,
    /// Has the driver ask the system what has come.
    fresh: Fresh,
    /// How long it took to reach the other side.
    pub(super) round_trip: Duration,
    /// How long the server says that it keeps it.
    pub(super) announced: Option<Duration>,
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
    pub(super) fn new(
        sender: SendRequest<Full<Bytes>>,
        driver: Driver,
        fresh: Fresh,
        round_trip: Duration,
    ) -> Self {
        Self {
            sender,
            driver: Some(Box::pin(driver)),
            fresh,
            round_trip,
            announced: None,
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
        self.announced = timeout.map(Duration::from_secs).or(self.announced);
    }

    /// Whether it can take another request now. The server may have closed it a moment ago, or said
    /// something that nobody asked for, so the system is asked.
    pub(super) fn is_usable(&mut self) -> bool {
        self.fresh.set(true);
        let usable = self.seems_usable();
        self.fresh.set(false);
        usable
    }

    /// Whether it can take another request, as far as is known.
    pub(super) fn seems_usable(&mut self) -> bool {
        self.poll_usable(&mut Context::from_waker(Waker::noop()))
    }

    /// The same; the task is woken when something happens to it.
    pub(super) fn poll_usable(&mut self, cx: &mut Context<'_>) -> bool {
        drive(&mut self.driver, cx);
        self.driver.is_some() && self.sender.is_ready()
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

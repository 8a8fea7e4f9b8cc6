//! Requests that are held back until it is known whether they would arrive.
//!
//! They wait for the end of the handshake, and for a short time while the server stream is opened
//! or the session is in doubt. Over HTTP+SSE they first wait for the address to send them to.

use std::collections::VecDeque;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use mcpvisor_core::CallId;
use mcpvisor_core::retry::RequestFailure;
use tokio::time::Sleep;

use crate::link::http::exchange::outgoing::Outgoing;
use crate::link::http::headers::LinkHeaders;
use crate::link::{FailedRequest, Inbound};

/// How long requests wait while it is unclear whether the session still exists.
const SESSION_CHECK_TIMEOUT: Duration = Duration::from_millis(100);

/// How long requests that may lead to callbacks wait for the server stream. Many servers send
/// callbacks on that stream, and drop them if it is not open yet.
const STREAM_OPEN_TIMEOUT: Duration = Duration::from_millis(500);

/// The held requests, and why they are held.
#[derive(Debug, Default)]
pub(crate) struct RequestHold {
    /// The server has not sent the endpoint of the session yet (HTTP+SSE). Holds all requests.
    pub(crate) awaits_endpoint: bool,
    /// The server has not received the `initialized` notification yet. Holds all requests.
    pub(crate) awaits_initialized: bool,
    /// The client offers callbacks to the server.
    pub(crate) offers_callbacks: bool,
    pub(crate) pause: Option<Pause>,
    pub(crate) requests: VecDeque<HeldRequest>,
}

#[derive(Debug)]
pub(crate) struct Pause {
    reason: PauseReason,
    timeout: Pin<Box<Sleep>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PauseReason {
    /// The server stream broke. Whether it can be reopened shows whether the session exists.
    SessionCheck,
    /// The server stream is opened for the first time. Holds only requests that may lead to
    /// callbacks.
    StreamOpening,
}

/// A request that waits.
#[derive(Debug)]
pub(crate) struct HeldRequest {
    pub(crate) id: CallId,
    pub(crate) outgoing: Outgoing,
    /// The server may send a request to the client before it replies.
    pub(crate) may_call_back: bool,
}

impl RequestHold {
    /// The server has received the `initialized` notification. Returns false if it was not awaited.
    pub(crate) fn initialized(&mut self, opens_stream: bool) -> bool {
        if !std::mem::take(&mut self.awaits_initialized) {
            return false;
        }
        if opens_stream && self.offers_callbacks {
            self.pause(PauseReason::StreamOpening, STREAM_OPEN_TIMEOUT);
        }
        true
    }

    /// Holds all requests for a short time.
    pub(crate) fn pause_for_session_check(&mut self) {
        self.pause(PauseReason::SessionCheck, SESSION_CHECK_TIMEOUT);
    }

    fn pause(&mut self, reason: PauseReason, timeout: Duration) {
        let timeout = Box::pin(tokio::time::sleep(timeout));
        self.pause = Some(Pause { reason, timeout });
    }

    /// Ends the pause when its time is up. Returns whether it is.
    pub(crate) fn poll_pause_timeout(&mut self, cx: &mut Context<'_>) -> bool {
        let is_over = match &mut self.pause {
            Some(pause) => pause.timeout.as_mut().poll(cx) == Poll::Ready(()),
            None => false,
        };
        if is_over {
            self.pause = None;
        }
        is_over
    }

    /// Whether a request has to wait.
    pub(crate) fn applies_to(&self, may_call_back: bool) -> bool {
        let is_paused = match &self.pause {
            Some(pause) => pause.reason == PauseReason::SessionCheck || may_call_back,
            None => false,
        };
        self.awaits_endpoint || self.awaits_initialized || is_paused
    }

    pub(crate) fn contains(&self, id: CallId) -> bool {
        self.requests.iter().any(|request| request.id == id)
    }

    /// Removes a request. Returns false if it is not held.
    pub(crate) fn remove(&mut self, id: CallId) -> bool {
        let at = self.requests.iter().position(|request| request.id == id);
        at.and_then(|at| self.requests.remove(at)).is_some()
    }

    /// Takes the requests that need not wait any longer.
    pub(crate) fn take_released(&mut self) -> VecDeque<HeldRequest> {
        let requests = std::mem::take(&mut self.requests);
        let (held, released) = requests
            .into_iter()
            .partition(|request| self.applies_to(request.may_call_back));
        self.requests = held;
        released
    }

    /// Ends the pause and fails the held requests: the session is lost, and they were not sent.
    pub(crate) fn fail_all(&mut self, message: &str) -> impl Iterator<Item = Inbound> {
        self.pause = None;
        self.requests.drain(..).map(move |request| Inbound::Failed {
            id: request.id,
            failed: FailedRequest::new(RequestFailure::NotWritten, message),
        })
    }

    pub(crate) fn update_headers(&mut self, headers: &Arc<LinkHeaders>) {
        for request in &mut self.requests {
            request.outgoing.headers = Arc::clone(headers);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use http::Method;

    use super::*;

    fn hold(hold: &mut RequestHold, id: u64, may_call_back: bool) {
        hold.requests.push_back(HeldRequest {
            id: CallId(id),
            outgoing: Outgoing::new(Method::POST, &Arc::default(), Vec::new()),
            may_call_back,
        });
    }

    fn released(hold: &mut RequestHold) -> Vec<u64> {
        let released = hold.take_released().into_iter();
        released.map(|request| request.id.0).collect()
    }

    #[test]
    fn all_requests_wait_for_the_end_of_the_handshake() {
        let mut requests = RequestHold::default();
        assert!(
            !requests.applies_to(true),
            "initialize itself does not wait"
        );
        requests.awaits_initialized = true;
        assert!(requests.applies_to(false));
        hold(&mut requests, 1, true);
        hold(&mut requests, 2, false);
        assert_eq!(released(&mut requests), [0; 0]);
        assert!(requests.initialized(true));
        assert_eq!(released(&mut requests), [1, 2]);
        assert!(!requests.initialized(true), "once");
    }

    #[tokio::test]
    async fn only_requests_with_callbacks_wait_for_the_stream() {
        let mut requests = RequestHold {
            offers_callbacks: true,
            awaits_initialized: true,
            ..RequestHold::default()
        };
        hold(&mut requests, 1, true);
        hold(&mut requests, 2, false);
        requests.initialized(true);
        assert_eq!(released(&mut requests), [2]);
        requests.pause = None;
        assert_eq!(released(&mut requests), [1]);
    }

    #[tokio::test]
    async fn without_a_stream_nothing_waits_for_it() {
        let mut requests = RequestHold {
            offers_callbacks: true,
            awaits_initialized: true,
            ..RequestHold::default()
        };
        requests.initialized(false);
        assert!(!requests.applies_to(true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_check_holds_all_requests_for_a_short_time() {
        let mut requests = RequestHold::default();
        requests.pause_for_session_check();
        assert!(requests.applies_to(false));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(!requests.poll_pause_timeout(&mut cx));
        tokio::time::advance(SESSION_CHECK_TIMEOUT).await;
        assert!(requests.poll_pause_timeout(&mut cx));
        assert!(!requests.applies_to(true));
    }

    #[tokio::test]
    async fn requests_of_a_lost_session_fail_as_not_written() {
        let mut requests = RequestHold::default();
        requests.pause_for_session_check();
        for id in 1..=3 {
            hold(&mut requests, id, false);
        }
        assert!(requests.contains(CallId(2)) && requests.remove(CallId(2)));
        assert!(!requests.remove(CallId(2)), "removed once");
        let failed: Vec<Inbound> = requests.fail_all("lost").collect();
        assert_eq!(failed.len(), 2);
        assert!(failed.iter().all(|failed| matches!(
            failed,
            Inbound::Failed { failed, .. } if failed.failure == RequestFailure::NotWritten
        )));
        assert!(!requests.applies_to(true) && !requests.contains(CallId(1)));
    }
}

//! What the requests of one client share: its quota, its callbacks, and their cancellation.

use std::fmt;
use std::sync::Arc;

use mcpvisor_core::ClientId;
use tokio::sync::watch;

use crate::api::callbacks::BoundCallbacks;
use crate::api::quota::Quota;

/// The shared part of one client. Every request of the client refers to it.
pub(crate) struct Agent {
    pub(crate) id: ClientId,
    pub(crate) name: Arc<str>,
    pub(crate) quota: Quota,
    /// Answers what its requests cause; the runtime's callbacks if there are none.
    pub(crate) callbacks: Option<BoundCallbacks>,
    cancellation: watch::Sender<Cancellation>,
}

/// Which requests of a client are cancelled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Cancellation {
    /// Requests that began before this many cancellations are cancelled.
    count: u64,
    /// All further ones too.
    closed: bool,
}

impl Agent {
    pub(crate) fn new(
        id: ClientId,
        name: Arc<str>,
        quota: Quota,
        callbacks: Option<BoundCallbacks>,
    ) -> Self {
        Self {
            id,
            name,
            quota,
            callbacks,
            cancellation: watch::Sender::default(),
        }
    }

    /// Cancels the requests that are running.
    pub(crate) fn cancel_all(&self) {
        self.cancellation.send_modify(|it| it.count += 1);
    }

    /// Cancels all requests, also future ones.
    pub(crate) fn close(&self) {
        self.cancellation.send_modify(|it| {
            it.count += 1;
            it.closed = true;
        });
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.cancellation.borrow().closed
    }

    /// Runs the work of a request. `None` if the client cancels it.
    pub(crate) async fn unless_cancelled<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut cancellation = self.cancellation.subscribe();
        let before = *cancellation.borrow_and_update();
        if before.closed {
            return None;
        }
        let cancelled = cancellation.wait_for(|now| now.count != before.count);
        tokio::select! {
            // First, so that a cancelled request is not sent when its turn comes.
            biased;
            // The sender lives in `self`, so this ends only with a cancellation.
            _ = cancelled => None,
            done = work => Some(done),
        }
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent")
            .field("id", &self.id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

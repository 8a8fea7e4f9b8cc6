//! What the requests of one client share: its quota, its callbacks, and their cancellation.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::Poll;

use mcpvisor_core::ClientId;
use tokio::sync::watch;

use crate::api::callbacks::BoundCallbacks;
use crate::api::events::EventBus;
use crate::api::notifications::Notifications;
use crate::api::quota::Quota;
use crate::catalog::ClientView;
use crate::mutex::lock;
use crate::server::slot::ServerSlot;

/// The shared part of one client. Every request of the client refers to it.
pub(crate) struct Agent {
    pub(crate) id: ClientId,
    pub(crate) name: Arc<str>,
    pub(crate) quota: Quota,
    /// Answers what its requests cause; the runtime's callbacks if there are none.
    pub(crate) callbacks: Option<BoundCallbacks>,
    cancellation: watch::Sender<Cancellations>,
    /// The servers that it has subscriptions or a log level at.
    settings_at: Mutex<Vec<Weak<ServerSlot>>>,
    /// Where its notifications are read, once they are.
    notified_by: OnceLock<Arc<EventBus>>,
}

/// The cancellations of a client so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cancellations {
    count: u64,
    /// Further requests are cancelled too.
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
            settings_at: Mutex::default(),
            notified_by: OnceLock::new(),
        }
    }

    /// The client is about to subscribe to something of this server, or to set its log level.
    pub(crate) fn note_settings_at(&self, slot: &Arc<ServerSlot>) {
        let mut slots = lock(&self.settings_at);
        if !slots.iter().any(|it| it.as_ptr() == Arc::as_ptr(slot)) {
            slots.push(Arc::downgrade(slot));
        }
    }

    /// Ends its subscriptions, and its log levels no longer count.
    pub(crate) fn release_settings(&self) {
        for slot in std::mem::take(&mut *lock(&self.settings_at)) {
            if let Some(slot) = slot.upgrade() {
                slot.release_client(self.id);
            }
        }
    }

    /// Reads the notifications of the client, until it ends.
    pub(crate) fn notifications(
        &self,
        events: &Arc<EventBus>,
        view: Option<Arc<ClientView>>,
    ) -> Notifications {
        self.notified_by.get_or_init(|| Arc::clone(events));
        let notifications = Notifications::new(events, self.id, view);
        if self.is_closed() {
            self.close_notifications();
        }
        notifications
    }

    /// Ends the readers of its notifications.
    pub(crate) fn close_notifications(&self) {
        if let Some(events) = self.notified_by.get() {
            events.inboxes.close_client(self.id);
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

    /// A mark to compare: it differs after every cancellation.
    pub(crate) fn cancellations(&self) -> Cancellations {
        *self.cancellation.borrow()
    }

    /// Runs the work of a request that began at this mark. `None` if the client cancels it.
    pub(crate) async fn unless_cancelled_since<T>(
        &self,
        begun: Cancellations,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let mut work = std::pin::pin!(work);
        if begun.closed {
            return None;
        }
        // Most requests need not wait here.
        if let Poll::Ready(done) = futures_util::poll!(&mut work) {
            return Some(done);
        }
        let mut cancellation = self.cancellation.subscribe();
        tokio::select! {
            // First, so that a cancelled request is not sent when its turn comes.
            biased;
            // The sender lives in `self`, so this ends only with a cancellation.
            _ = cancellation.wait_for(|now| *now != begun) => None,
            done = work => Some(done),
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.release_settings();
        self.close_notifications();
    }
}

/// The default client: no limits, and the callbacks of the runtime.
impl Default for Agent {
    fn default() -> Self {
        Self::new(ClientId::DEFAULT, Arc::default(), Quota::default(), None)
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

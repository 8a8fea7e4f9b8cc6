//! What the requests of one client share: its quota, its callbacks, and their cancellation.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::Poll;

use mcpvisor_core::{ClientId, ServerInstance};
use ractor::ActorRef;
use tokio::sync::Notify;

use crate::api::callbacks::BoundCallbacks;
use crate::api::events::EventBus;
use crate::api::notifications::Notifications;
use crate::api::quota::Quota;
use crate::catalog::ClientView;
use crate::fleet::SupervisorMessage;
use crate::mutex::lock;
use crate::server::slot::ServerSlot;

/// The shared part of one client. Every request of the client refers to it.
pub(crate) struct Agent {
    pub(crate) id: ClientId,
    pub(crate) name: Arc<str>,
    pub(crate) quota: Quota,
    /// Answers what its requests cause; the runtime's callbacks if there are none.
    pub(crate) callbacks: Option<BoundCallbacks>,
    /// What it sees of the fleet; none for the default client.
    pub(crate) view: Option<Arc<ClientView>>,
    cancellation: Mutex<Cancellations>,
    cancelled: Notify,
    /// The servers that it has subscriptions or a log level at.
    settings_at: Mutex<Vec<Weak<ServerSlot>>>,
    /// Where its notifications are read, once they are.
    notified_by: OnceLock<Arc<EventBus>>,
    /// Its own connections, by the main slot of their server.
    own_slots: Mutex<Vec<(ServerInstance, OwnSlot)>>,
    /// The instances of pools with affinity that it uses, by the main slot.
    instances: Mutex<Vec<(ServerInstance, u32)>>,
}

/// A connection of the client alone. It is removed with this.
#[derive(Debug)]
pub(crate) struct OwnSlot {
    pub(crate) slot: Arc<ServerSlot>,
    pub(crate) supervisor: ActorRef<SupervisorMessage>,
}

impl Drop for OwnSlot {
    fn drop(&mut self) {
        self.slot.note_leaving();
        let message = SupervisorMessage::RemoveSlot(self.slot.id.clone());
        // If the supervisor is gone, so is the slot.
        let _ = self.supervisor.send_message(message);
    }
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
        view: Option<Arc<ClientView>>,
    ) -> Self {
        Self {
            id,
            name,
            quota,
            callbacks,
            view,
            own_slots: Mutex::default(),
            cancellation: Mutex::default(),
            cancelled: Notify::new(),
            instances: Mutex::default(),
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
            // A connection of its own ends with it.
            for instance in slot.upgrade().iter().flat_map(ServerSlot::instances) {
                instance.release_client(self.id);
            }
        }
    }

    /// Reads the notifications of the client, until it ends.
    pub(crate) fn notifications(&self, events: &Arc<EventBus>) -> Notifications {
        self.notified_by.get_or_init(|| Arc::clone(events));
        let notifications = Notifications::new(events, self.id, self.view.clone());
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

    /// Its own connection to a server, which `add` adds if there is none. `None` if it is closed.
    pub(crate) fn own_slot(
        &self,
        main: &ServerInstance,
        add: impl FnOnce() -> Option<OwnSlot>,
    ) -> Option<Arc<ServerSlot>> {
        let mut own = lock(&self.own_slots);
        own.retain(|(_, it)| !it.slot.is_removed());
        if let Some((_, it)) = own.iter().find(|(it, _)| it == main) {
            return Some(Arc::clone(&it.slot));
        }
        // `close` sets this before the slots are taken.
        if self.is_closed() {
            return None;
        }
        let added = add()?;
        let slot = Arc::clone(&added.slot);
        own.push((main.clone(), added));
        Some(slot)
    }

    /// Its own connection to a server, if there is one.
    pub(crate) fn present_slot(&self, main: &ServerInstance) -> Option<Arc<ServerSlot>> {
        let own = lock(&self.own_slots);
        let mut own = own.iter().filter(|(_, it)| !it.slot.is_removed());
        own.find_map(|(it, own)| (it == main).then(|| Arc::clone(&own.slot)))
    }

    /// The instance of a pool that it used last.
    pub(crate) fn instance_of(&self, pool: &ServerInstance) -> Option<u32> {
        let instances = lock(&self.instances);
        let mut known = instances.iter();
        known.find_map(|(it, instance)| (it == pool).then_some(*instance))
    }

    /// Stays on this instance of a pool from now on.
    pub(crate) fn prefer_instance(&self, pool: &ServerInstance, instance: u32) {
        let mut instances = lock(&self.instances);
        match instances.iter_mut().find(|(it, _)| it == pool) {
            Some((_, known)) => *known = instance,
            None => instances.push((pool.clone(), instance)),
        }
    }

    /// Cancels the requests that are running.
    pub(crate) fn cancel_all(&self) {
        lock(&self.cancellation).count += 1;
        self.cancelled.notify_waiters();
    }

    /// Cancels all requests, also future ones.
    pub(crate) fn close(&self) {
        {
            let mut cancellation = lock(&self.cancellation);
            cancellation.count += 1;
            cancellation.closed = true;
        }
        self.cancelled.notify_waiters();
    }

    /// Ends its own connections. Called after `close`, so that it gets no further ones.
    pub(crate) fn release_slots(&self) {
        let own = std::mem::take(&mut *lock(&self.own_slots));
        drop(own);
    }

    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.cancellation).closed
    }

    /// A mark to compare: it differs after every cancellation.
    pub(crate) fn cancellations(&self) -> Cancellations {
        *lock(&self.cancellation)
    }

    async fn cancelled_since(&self, begun: Cancellations) {
        let mut notified = std::pin::pin!(self.cancelled.notified());
        // Before the check, so that no cancellation after it is missed.
        notified.as_mut().enable();
        if self.cancellations() == begun {
            notified.await;
        }
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
        tokio::select! {
            // First, so that a cancelled request is not sent when its turn comes.
            biased;
            () = self.cancelled_since(begun) => None,
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
        let quota = Quota::default();
        Self::new(ClientId::DEFAULT, Arc::default(), quota, None, None)
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

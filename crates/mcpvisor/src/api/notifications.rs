//! What servers send to one client: log messages, updates, progress, custom notifications, changed
//! lists.
//!
//! Each reader has a bounded buffer of its own. A slow reader loses the oldest and learns how many; it
//! slows no server and no other reader. A client without a reader costs nothing.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use futures_util::Stream;
use mcpvisor_core::{ClientId, Filter, Generation, ListKind, ServerName, exposed_name};
use rmcp::model::{
    CustomNotification, LoggingMessageNotificationParam, ProgressNotificationParam,
    ResourceUpdatedNotificationParam,
};

use crate::api::events::EventBus;
use crate::api::request::RequestKey;
use crate::catalog::{ClientView, ListDiff};
use crate::mutex::lock;

/// Notifications that a reader may be behind; the oldest are dropped.
pub const NOTIFICATION_BUFFER: usize = 256;

/// A notification of a server for one client.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Notification {
    /// The server that sent it.
    pub server: ServerName,
    /// The connection that it came on.
    pub generation: Generation,
    /// The request of the client that it belongs to, if that is known:
    /// [`Request::key`](crate::Request::key). Always known for progress.
    pub cause: Option<RequestKey>,
    /// What it says.
    pub kind: NotificationKind,
}

/// The kinds of notifications. All of it is unmodified server text, with its `_meta`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum NotificationKind {
    /// A log message at the client's level or above.
    Log(LoggingMessageNotificationParam),
    /// A resource that the client subscribed to changed, or a part of it.
    ResourceUpdated(ResourceUpdatedNotificationParam),
    /// Progress of a request of the client. The token is the runtime's own.
    Progress(ProgressNotificationParam),
    /// A notification that the protocol does not define.
    Custom(CustomNotification),
    /// A list changed, and the client's catalog has the new one.
    ListChanged(ListKind),
}

/// What a reader of notifications gets.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Received {
    /// A notification. Readers share it.
    Notification(Arc<Notification>),
    /// The reader was too slow: this many notifications before the next one were dropped.
    Missed(u64),
}

/// A reader of the notifications of one client: [`Client::notifications`](crate::Client::notifications).
///
/// A `Stream`, and [`recv`](Self::recv). It ends when the client or the runtime ends, after what is
/// buffered.
pub struct Notifications {
    inbox: Arc<Inbox>,
    client: ClientId,
    events: Arc<EventBus>,
}

impl Notifications {
    pub(crate) fn new(
        events: &Arc<EventBus>,
        client: ClientId,
        view: Option<Arc<ClientView>>,
    ) -> Self {
        let inbox = Arc::new(Inbox {
            view,
            buffer: Mutex::default(),
        });
        events.inboxes.add(client, &inbox);
        Self {
            inbox,
            client,
            events: Arc::clone(events),
        }
    }

    /// Waits for the next notification. `None` at the end. Cancel-safe.
    pub async fn recv(&mut self) -> Option<Received> {
        poll_fn(|cx| self.inbox.poll(cx)).await
    }

    /// How many notifications this reader has missed in total.
    pub fn missed(&self) -> u64 {
        lock(&self.inbox.buffer).missed
    }
}

impl Stream for Notifications {
    type Item = Received;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Received>> {
        self.inbox.poll(cx)
    }
}

impl Drop for Notifications {
    fn drop(&mut self) {
        self.events.inboxes.remove(self.client, &self.inbox);
    }
}

impl fmt::Debug for Notifications {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifications")
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

/// The buffer of one reader.
struct Inbox {
    /// What the client sees, if it has a filter.
    view: Option<Arc<ClientView>>,
    buffer: Mutex<Buffer>,
}

#[derive(Default)]
struct Buffer {
    queue: VecDeque<Arc<Notification>>,
    /// Dropped since the reader last learned of it.
    unreported: u64,
    /// Dropped in total.
    missed: u64,
    reader: Option<Waker>,
    closed: bool,
}

impl Inbox {
    fn push(&self, notification: &Arc<Notification>) {
        let mut buffer = lock(&self.buffer);
        if buffer.queue.len() >= NOTIFICATION_BUFFER {
            buffer.queue.pop_front();
            buffer.unreported += 1;
            buffer.missed += 1;
        }
        buffer.queue.push_back(Arc::clone(notification));
        let reader = buffer.reader.take();
        drop(buffer);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    fn close(&self) {
        let mut buffer = lock(&self.buffer);
        buffer.closed = true;
        let reader = buffer.reader.take();
        drop(buffer);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Received>> {
        let mut buffer = lock(&self.buffer);
        if buffer.unreported > 0 {
            let missed = std::mem::take(&mut buffer.unreported);
            return Poll::Ready(Some(Received::Missed(missed)));
        }
        if let Some(next) = buffer.queue.pop_front() {
            return Poll::Ready(Some(Received::Notification(next)));
        }
        if buffer.closed {
            return Poll::Ready(None);
        }
        buffer.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// The readers of all clients of a runtime.
#[derive(Default)]
pub(crate) struct Inboxes {
    by_client: Mutex<Registry>,
    /// Readers, so that a runtime without any takes no lock.
    count: AtomicUsize,
}

#[derive(Default)]
struct Registry {
    readers: BTreeMap<ClientId, Vec<Arc<Inbox>>>,
    /// The runtime has ended.
    closed: bool,
}

impl Inboxes {
    /// Whether there are no readers.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    fn add(&self, client: ClientId, inbox: &Arc<Inbox>) {
        let mut registry = lock(&self.by_client);
        if registry.closed {
            return inbox.close();
        }
        let readers = registry.readers.entry(client).or_default();
        readers.push(Arc::clone(inbox));
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    fn remove(&self, client: ClientId, inbox: &Arc<Inbox>) {
        let mut registry = lock(&self.by_client);
        let Some(readers) = registry.readers.get_mut(&client) else {
            return;
        };
        let before = readers.len();
        readers.retain(|it| !Arc::ptr_eq(it, inbox));
        self.count
            .fetch_sub(before - readers.len(), Ordering::Relaxed);
        if readers.is_empty() {
            registry.readers.remove(&client);
        }
    }

    /// Ends the readers of a client.
    pub(crate) fn close_client(&self, client: ClientId) {
        let readers = lock(&self.by_client).readers.remove(&client);
        let readers = readers.unwrap_or_default();
        self.count.fetch_sub(readers.len(), Ordering::Relaxed);
        for inbox in readers {
            inbox.close();
        }
    }

    /// Ends all readers, present and future ones.
    pub(crate) fn close(&self) {
        let mut registry = lock(&self.by_client);
        registry.closed = true;
        let readers = std::mem::take(&mut registry.readers);
        self.count.store(0, Ordering::Relaxed);
        drop(registry);
        for inbox in readers.into_values().flatten() {
            inbox.close();
        }
    }

    /// Delivers a notification to the readers of some clients.
    pub(crate) fn deliver(&self, notification: Notification, is_for: impl Fn(ClientId) -> bool) {
        let notification = Arc::new(notification);
        let registry = lock(&self.by_client);
        let readers = registry
            .readers
            .iter()
            .filter(|(client, _)| is_for(**client));
        for inbox in readers.flat_map(|(_, readers)| readers) {
            inbox.push(&notification);
        }
    }

    /// Delivers a notification to the readers of one client.
    pub(crate) fn deliver_to(&self, client: ClientId, notification: Notification) {
        let registry = lock(&self.by_client);
        if let Some(readers) = registry.readers.get(&client) {
            let notification = Arc::new(notification);
            for inbox in readers {
                inbox.push(&notification);
            }
        }
    }

    /// Delivers the change of a list to the readers whose clients see some of it. `owner`: the list is
    /// that of a connection of this client alone.
    pub(crate) fn deliver_list_change(
        &self,
        server: &ServerName,
        owner: Option<ClientId>,
        (generation, list, diff): (Generation, ListKind, &ListDiff),
    ) {
        let notification = Arc::new(Notification {
            server: server.clone(),
            generation,
            cause: None,
            kind: NotificationKind::ListChanged(list),
        });
        let registry = lock(&self.by_client);
        let readers = registry.readers.iter();
        let readers = readers.filter(|(client, _)| owner.is_none_or(|owner| owner == **client));
        for inbox in readers.flat_map(|(_, readers)| readers) {
            let filter = inbox.view.as_ref().map(|view| &view.filter);
            if list != ListKind::Tools || filter.is_none_or(|it| sees(it, server, diff)) {
                inbox.push(&notification);
            }
        }
    }
}

/// Whether a filter lets any of the changed tools through.
fn sees(filter: &Filter, server: &ServerName, diff: &ListDiff) -> bool {
    let mut changed = diff.added.iter().chain(&diff.removed).chain(&diff.changed);
    changed.any(|tool| filter.check(&exposed_name(server, tool)).is_ok())
}

impl fmt::Debug for Inboxes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.count.load(Ordering::Relaxed);
        f.debug_struct("Inboxes").field("count", &count).finish()
    }
}

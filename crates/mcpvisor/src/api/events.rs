//! The events of a fleet, as a numbered stream.
//!
//! A slow reader learns how many events it missed; it never slows the runtime down.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mcpvisor_core::machine::Fault;
use mcpvisor_core::{Generation, ListKind, ServerInstance, ServerName, StateName};
use rmcp::model::{CustomNotification, LoggingMessageNotificationParam, ProgressNotificationParam};
use tokio::sync::broadcast;

use crate::api::status::UnsavedLogin;
use crate::catalog::ListDiff;
use crate::fleet::ServerChange;
use crate::mutex::lock;

/// Buffered events per reader; a reader that is further behind misses some.
pub const EVENT_BUFFER: usize = 1_024;

/// An event.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Event {
    /// The sequence number of the event in its runtime. A gap means that some were missed.
    pub version: u64,
    /// The server; `None` for an event of the fleet.
    pub server: Option<ServerName>,
    /// The instance of the server: [`ServerStatus::instance`](crate::ServerStatus::instance).
    pub instance: u32,
    /// The client whose connection it is: [`ServerStatus::client`](crate::ServerStatus::client).
    pub client: Option<Arc<str>>,
    /// The connection that caused it, or the latest one.
    pub generation: Generation,
    /// What happened.
    pub kind: EventKind,
}

/// The kinds of events.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum EventKind {
    /// The server's state changed.
    ///
    /// The changes of one instance of a server form a chain without gaps, also across a restart of
    /// its actor: `from` is the `to` of the change before it. The chain begins with the state that
    /// the status shows when the runtime has started: connecting, sleeping or disabled. A server
    /// that is added at run time begins a new chain with [`EventKind::Added`];
    /// [`EventKind::Removed`] ends one. Further instances begin and end theirs with
    /// [`EventKind::InstanceAdded`] and [`EventKind::InstanceRemoved`].
    StateChanged {
        /// The previous state.
        from: StateName,
        /// The new state.
        to: StateName,
        /// What caused the change, if something went wrong.
        fault: Option<Fault>,
    },
    /// An attempt to connect failed. A server that exits during protocol detection has not failed:
    /// the attempt continues with `initialize`.
    AttemptFailed {
        /// The number of this attempt since the last proven connection.
        attempt: u32,
        /// The cause.
        fault: Fault,
        /// Time until the next attempt; `None` if a person has to act first.
        retry_in: Option<Duration>,
    },
    /// A list of the server changed.
    CatalogChanged {
        /// The list.
        list: ListKind,
        /// The changes.
        diff: ListDiff,
        /// The first catalog revision with the change.
        revision: u64,
    },
    /// The server wrote a log message.
    Log(LoggingMessageNotificationParam),
    /// The server reported progress of a request.
    Progress(ProgressNotificationParam),
    /// A subscribed resource changed.
    ResourceUpdated {
        /// The resource's address.
        uri: String,
    },
    /// The server sent a notification that the protocol does not define.
    Custom(CustomNotification),
    /// The server's actor crashed and was restarted.
    ActorRestarted {
        /// The panic message.
        problem: String,
    },
    /// The server was added at run time.
    Added,
    /// The server was removed.
    Removed,
    /// An instance was added to a pool, or a client got a connection of its own.
    InstanceAdded,
    /// An instance of a pool, or the connection of a client, was removed.
    InstanceRemoved,
    /// Tools are held back until a person approves them.
    ToolsHeld {
        /// Tools that were not held back before, or whose held definition changed.
        tools: Vec<String>,
    },
    /// Approvals cannot be read, so the server's tools are held back; or they cannot be saved, so
    /// they last for this run only. Emitted once while the problem lasts.
    ApprovalsUnavailable {
        /// Which file, what is wrong with it, and what to do.
        problem: String,
    },
    /// A person has to log in: `permanently_failed` with the class `authorization`. Follows that
    /// change of state once the server's metadata was read, or could not be.
    AuthorizationNeeded {
        /// The issuer to log in to, if it could be found.
        authorization_server: Option<String>,
        /// The scopes that a login requests.
        scopes: Vec<String>,
    },
    /// A renewed login could not be saved, and exists only in memory: the status says why.
    LoginUnsaved(UnsavedLogin),
    /// The login no longer exists only in memory: it was saved, or another one replaced it.
    LoginSaved,
    /// A reload changed the server's settings.
    Reconfigured(ServerChange),
    /// A watched config file changed and was rejected; the fleet is unchanged.
    ConfigRejected {
        /// The cause.
        problem: String,
    },
}

/// Why no event was returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EventsError {
    /// The reader was too slow and missed this many events. It can continue.
    #[error("{0} events were missed")]
    Lagged(u64),
    /// The runtime has ended.
    #[error("the runtime has ended")]
    Closed,
}

/// A reader of events. An idle reader keeps up to [`EVENT_BUFFER`] events in memory, including log
/// messages: read it, or drop it.
#[derive(Debug)]
pub struct Events(broadcast::Receiver<Arc<Event>>);

impl Events {
    /// Waits for the next event.
    pub async fn recv(&mut self) -> Result<Arc<Event>, EventsError> {
        match self.0.recv().await {
            Ok(event) => Ok(event),
            Err(broadcast::error::RecvError::Lagged(missed)) => Err(EventsError::Lagged(missed)),
            Err(broadcast::error::RecvError::Closed) => Err(EventsError::Closed),
        }
    }

    /// The next event, if one is available.
    pub fn try_recv(&mut self) -> Result<Option<Arc<Event>>, EventsError> {
        match self.0.try_recv() {
            Ok(event) => Ok(Some(event)),
            Err(broadcast::error::TryRecvError::Empty) => Ok(None),
            Err(broadcast::error::TryRecvError::Lagged(missed)) => Err(EventsError::Lagged(missed)),
            Err(broadcast::error::TryRecvError::Closed) => Err(EventsError::Closed),
        }
    }
}

/// Where an event comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventSource<'s> {
    pub(crate) id: &'s ServerInstance,
    pub(crate) client: Option<&'s Arc<str>>,
}

/// The sending half, shared by all servers of a runtime.
#[derive(Debug)]
pub(crate) struct EventBus(Mutex<Outlet>);

/// The sequence number and the sender, locked together, so that events are sent in order.
#[derive(Debug)]
struct Outlet {
    /// `None` once the runtime has ended.
    sender: Option<broadcast::Sender<Arc<Event>>>,
    version: u64,
}

impl Default for EventBus {
    fn default() -> Self {
        Self(Mutex::new(Outlet {
            sender: Some(broadcast::channel(EVENT_BUFFER).0),
            version: 0,
        }))
    }
}

impl EventBus {
    pub(crate) fn subscribe(&self) -> Events {
        Events(match &lock(&self.0).sender {
            Some(sender) => sender.subscribe(),
            // The sender is dropped at once, so the reader gets the end of the stream.
            None => broadcast::channel(1).1,
        })
    }

    pub(crate) fn emit(&self, source: EventSource<'_>, generation: Generation, kind: EventKind) {
        self.send(Some(source), generation, kind);
    }

    /// Emits an event of the fleet.
    #[cfg(feature = "config-files")]
    pub(crate) fn emit_of_fleet(&self, kind: EventKind) {
        self.send(None, Generation::NONE, kind);
    }

    fn send(&self, source: Option<EventSource<'_>>, generation: Generation, kind: EventKind) {
        let mut outlet = lock(&self.0);
        outlet.version += 1;
        let version = outlet.version;
        if let Some(sender) = &outlet.sender
            && sender.receiver_count() > 0
        {
            // Sending fails only if there are no readers.
            let _ = sender.send(Arc::new(Event {
                version,
                server: source.map(|it| it.id.server.clone()),
                instance: source.map_or(0, |it| it.id.instance),
                client: source.and_then(|it| it.client.cloned()),
                generation,
                kind,
            }));
        }
    }

    /// Ends the stream. Readers get their buffered events first.
    pub(crate) fn close(&self) {
        lock(&self.0).sender = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn emit(bus: &EventBus, kind: EventKind) {
        let id = ServerInstance::first(ServerName::new("a").unwrap());
        let source = EventSource {
            id: &id,
            client: None,
        };
        bus.emit(source, Generation::NONE, kind);
    }

    #[tokio::test]
    async fn a_slow_reader_is_told_how_many_events_it_missed() {
        let bus = EventBus::default();
        let mut events = bus.subscribe();
        for _ in 0..EVENT_BUFFER + 3 {
            emit(&bus, EventKind::Added);
        }
        assert_eq!(events.recv().await.unwrap_err(), EventsError::Lagged(3));
        assert_eq!(events.recv().await.unwrap().version, 4);
    }

    #[tokio::test]
    async fn readers_get_what_is_left_and_then_the_end() {
        let bus = EventBus::default();
        let mut events = bus.subscribe();
        emit(&bus, EventKind::Added);
        bus.close();
        emit(&bus, EventKind::Removed);
        assert_eq!(events.recv().await.unwrap().version, 1);
        assert_eq!(events.recv().await.unwrap_err(), EventsError::Closed);
        let mut late = bus.subscribe();
        assert_eq!(late.recv().await.unwrap_err(), EventsError::Closed);
    }

    #[test]
    fn versions_rise_one_by_one_whoever_emits() {
        let bus = EventBus::default();
        let mut events = bus.subscribe();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        emit(&bus, EventKind::Added);
                    }
                });
            }
        });
        for version in 1..=800 {
            assert_eq!(events.try_recv().unwrap().unwrap().version, version);
        }
    }
}

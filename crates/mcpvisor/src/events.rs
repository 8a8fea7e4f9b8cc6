//! What happens in a fleet, as a stream of numbered events.
//!
//! A reader that is too slow is told how many it missed; it never slows the runtime down.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mcpvisor_core::machine::Fault;
use mcpvisor_core::{Generation, ListKind, ServerName, StateName};
use rmcp::model::{CustomNotification, LoggingMessageNotificationParam, ProgressNotificationParam};
use tokio::sync::broadcast;

use crate::catalog::ListDiff;

/// Events that a slow reader may be behind before it misses some.
pub const EVENT_BUFFER: usize = 1_024;

/// One thing that happened.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Event {
    /// The number of the event in its runtime, rising by one. A gap means that some were missed.
    pub version: u64,
    /// The server that it is about.
    pub server: ServerName,
    /// The connection that it came from, or the newest one.
    pub generation: Generation,
    /// What happened.
    pub kind: EventKind,
}

/// The kinds of events.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum EventKind {
    /// The server's state changed.
    StateChanged {
        /// What it was.
        from: StateName,
        /// What it is.
        to: StateName,
        /// What went wrong, if something did.
        fault: Option<Fault>,
    },
    /// A list of the server's changed.
    CatalogChanged {
        /// Which list.
        list: ListKind,
        /// How.
        diff: ListDiff,
        /// The revision that has it.
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
    /// The server sent a notification of its own.
    Custom(CustomNotification),
    /// The server's actor crashed and was restarted.
    ActorRestarted {
        /// What the panic said.
        problem: String,
    },
    /// The server was added at run time.
    Added,
    /// The server was removed.
    Removed,
}

/// Why there is no next event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EventsError {
    /// The reader was too slow; this many events are gone. Read on.
    #[error("{0} events were missed")]
    Lagged(u64),
    /// The runtime has ended.
    #[error("the runtime has ended")]
    Closed,
}

/// A reader of events.
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

    /// The next event, if one is there already.
    pub fn try_recv(&mut self) -> Result<Option<Arc<Event>>, EventsError> {
        match self.0.try_recv() {
            Ok(event) => Ok(Some(event)),
            Err(broadcast::error::TryRecvError::Empty) => Ok(None),
            Err(broadcast::error::TryRecvError::Lagged(missed)) => Err(EventsError::Lagged(missed)),
            Err(broadcast::error::TryRecvError::Closed) => Err(EventsError::Closed),
        }
    }
}

/// The sender's end, shared by all servers of a runtime.
#[derive(Debug)]
pub(crate) struct EventBus {
    sender: broadcast::Sender<Arc<Event>>,
    version: AtomicU64,
}

impl EventBus {
    pub(crate) fn new() -> Self {
        Self {
            sender: broadcast::channel(EVENT_BUFFER).0,
            version: AtomicU64::new(0),
        }
    }

    pub(crate) fn subscribe(&self) -> Events {
        Events(self.sender.subscribe())
    }

    pub(crate) fn emit(&self, server: &ServerName, generation: Generation, kind: EventKind) {
        let version = self.version.fetch_add(1, Ordering::Relaxed) + 1;
        if self.sender.receiver_count() > 0 {
            // Nobody left to hear it is no failure.
            let _ = self.sender.send(Arc::new(Event {
                version,
                server: server.clone(),
                generation,
                kind,
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slow_reader_is_told_how_many_events_it_missed() {
        let bus = EventBus::new();
        let mut events = bus.subscribe();
        let server = ServerName::new("a").unwrap();
        for _ in 0..EVENT_BUFFER + 3 {
            bus.emit(&server, Generation::NONE, EventKind::Added);
        }
        assert_eq!(events.recv().await.unwrap_err(), EventsError::Lagged(3));
        assert_eq!(events.recv().await.unwrap().version, 4);
    }
}

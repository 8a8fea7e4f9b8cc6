//! Reads the whole event stream on its own thread, so that a busy runtime cannot starve it.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use mcpvisor::{Event, EventKind, Events, EventsError, StateName};

use crate::checker::last_change;
use crate::history::{Seen, What};

/// The reader and the events read so far.
#[derive(Debug)]
pub(crate) struct Watcher {
    seen: Arc<Mutex<Vec<Seen>>>,
    thread: JoinHandle<()>,
}

impl Watcher {
    pub(crate) fn start(events: Events) -> Self {
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let written = Arc::clone(&seen);
        let thread = std::thread::spawn(move || read(events, &written));
        Self { seen, thread }
    }

    /// The version of the last event, and the last state change of a server.
    pub(crate) fn last(&self, server: &str) -> (u64, Option<(StateName, u64)>) {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let version = seen.last().map_or(0, |event| event.version);
        let change = last_change(&seen, server);
        (version, change)
    }

    /// All events, once the runtime has ended.
    pub(crate) fn end(self) -> Vec<Seen> {
        self.thread.join().unwrap();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut seen)
    }
}

fn read(mut events: Events, seen: &Mutex<Vec<Seen>>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(async {
        loop {
            match events.recv().await {
                Ok(event) => {
                    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    seen.push(judged(&event));
                }
                Err(EventsError::Closed) => return,
                Err(error) => panic!("the harness cannot keep up with the events: {error}"),
            }
        }
    });
}

fn judged(event: &Event) -> Seen {
    let server = event.server.as_ref().map(ToString::to_string);
    Seen {
        version: event.version,
        server: server.unwrap_or_default(),
        generation: event.generation.get(),
        what: match event.kind {
            EventKind::StateChanged { from, to, .. } => What::State { from, to },
            EventKind::AttemptFailed { .. } => What::AttemptFailed,
            EventKind::Added => What::Added,
            EventKind::Removed => What::Removed,
            EventKind::ActorRestarted { .. } => What::ActorRestarted,
            _ => What::Other,
        },
    }
}

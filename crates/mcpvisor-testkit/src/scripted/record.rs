//! Everything that a scripted server received, over all generations, in order.
//!
//! Tests assert on it as whole values ("ran exactly once, on generation 2") and wait for entries
//! without polling. The session writes it.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{ErrorData, RequestId};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::eventually::{Probe, eventually_in};

/// One request or notification, as it arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct Incoming {
    /// The generation of the connection.
    pub generation: u64,
    /// Its id; notifications have none.
    pub id: Option<RequestId>,
    /// Its method.
    pub method: String,
    /// Its parameters as on the wire, including `_meta`; null without any.
    pub params: Value,
    /// Its number among the messages of its method (for a call: of its tool), over all generations,
    /// from 1.
    pub nth: usize,
}

impl Incoming {
    /// The tool that a `tools/call` names.
    pub fn tool(&self) -> Option<&str> {
        (self.method == "tools/call").then(|| self.params["name"].as_str())?
    }

    /// The key for behaviours and counts: the tool of a call, or the method of any other message.
    pub fn key(&self) -> &str {
        self.tool().unwrap_or(&self.method)
    }
}

/// One entry.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The generation of the connection.
    pub generation: u64,
    /// When, on tokio's clock.
    pub at: Instant,
    /// What happened.
    pub what: EntryKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum EntryKind {
    /// The connection was opened.
    Opened,
    /// A request or notification arrived.
    Received(Incoming),
    /// A request from the server was answered.
    Answered {
        /// The server's id.
        id: RequestId,
        /// The result as on the wire.
        result: Value,
    },
    /// A request from the server was answered with an error.
    Refused {
        /// The server's id.
        id: Option<RequestId>,
        /// The error.
        error: ErrorData,
    },
    /// The connection ended.
    Ended(Ending),
}

/// How a connection ended, from the server's point of view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The client closed its side.
    ByClient,
    /// By the script.
    ByScript,
    /// By the control.
    ByControl,
    /// The client dropped the server's future.
    Dropped,
}

/// One call of a tool, without fields that vary between runs.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// The generation of the connection.
    pub generation: u64,
    /// The arguments, null without any.
    pub arguments: Value,
}

/// The record of one scripted server. Clones share the same record.
#[derive(Debug, Clone, Default)]
pub struct Record {
    kept: Arc<Mutex<Kept>>,
    /// The number of entries, to wake waiters.
    length: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Kept {
    entries: Vec<Entry>,
    counts: HashMap<String, usize>,
}

impl Record {
    pub(super) fn write(&self, generation: u64, what: EntryKind) {
        let at = Instant::now();
        let mut kept = self.kept();
        kept.entries.push(Entry {
            generation,
            at,
            what,
        });
        let length = kept.entries.len();
        drop(kept);
        self.length.send_modify(|known| *known = length.max(*known));
    }

    /// Records a message and numbers it.
    pub(super) fn receive(
        &self,
        generation: u64,
        id: Option<RequestId>,
        method: String,
        params: Value,
    ) -> Incoming {
        let mut incoming = Incoming {
            generation,
            id,
            method,
            params,
            nth: 0,
        };
        {
            let mut kept = self.kept();
            let count = kept.counts.entry(incoming.key().to_owned()).or_default();
            *count += 1;
            incoming.nth = *count;
        }
        self.write(generation, EntryKind::Received(incoming.clone()));
        incoming
    }

    /// Everything so far.
    pub fn entries(&self) -> Vec<Entry> {
        self.kept().entries.clone()
    }

    /// The generations that were opened, in order.
    pub fn opened(&self) -> Vec<u64> {
        self.pick(|entry| (entry.what == EntryKind::Opened).then_some(entry.generation))
    }

    /// When each connection was opened, in order.
    pub fn openings(&self) -> Vec<Instant> {
        self.pick(|entry| (entry.what == EntryKind::Opened).then_some(entry.at))
    }

    /// How each connection ended, in order.
    pub fn ended(&self) -> Vec<(u64, Ending)> {
        self.pick(|entry| match entry.what {
            EntryKind::Ended(ending) => Some((entry.generation, ending)),
            _ => None,
        })
    }

    /// The maximum number of connections that were open at the same time.
    pub fn most_open_at_once(&self) -> usize {
        let (mut open, mut most) = (0_usize, 0);
        for entry in &self.kept().entries {
            match entry.what {
                EntryKind::Opened => open += 1,
                EntryKind::Ended(_) => open -= 1,
                _ => {}
            }
            most = most.max(open);
        }
        most
    }

    /// The requests and notifications of a method, in order.
    pub fn received(&self, method: &str) -> Vec<Incoming> {
        self.pick(|entry| match &entry.what {
            EntryKind::Received(incoming) if incoming.method == method => Some(incoming.clone()),
            _ => None,
        })
    }

    /// The methods of all requests and notifications of a generation, in order.
    pub fn methods(&self, generation: u64) -> Vec<String> {
        self.pick(|entry| match &entry.what {
            EntryKind::Received(incoming) if entry.generation == generation => {
                Some(incoming.method.clone())
            }
            _ => None,
        })
    }

    /// The calls of a tool, in order.
    pub fn calls(&self, tool: &str) -> Vec<ToolCall> {
        self.pick(|entry| match &entry.what {
            EntryKind::Received(incoming) if incoming.tool() == Some(tool) => Some(ToolCall {
                generation: incoming.generation,
                arguments: incoming.params["arguments"].clone(),
            }),
            _ => None,
        })
    }

    /// The ids of the requests that were cancelled, in order, as JSON.
    pub fn cancelled(&self) -> Vec<Value> {
        self.received("notifications/cancelled")
            .into_iter()
            .map(|incoming| incoming.params["requestId"].clone())
            .collect()
    }

    /// Waits, woken by each entry, until `look` finds a value in the record.
    ///
    /// # Panics
    ///
    /// After `deadline`, with `what` and the record so far.
    pub async fn until<L: Probe>(
        &self,
        deadline: Duration,
        what: impl Display,
        mut look: impl FnMut(&Self) -> L,
    ) -> L::Found {
        let mut length = self.length.subscribe();
        let look = |_: &usize| {
            look(self)
                .found()
                .map_err(|seen| format!("{seen} in {:#?}", self.entries()))
        };
        eventually_in(deadline, what, &mut length, look).await
    }

    fn pick<T>(&self, choice: impl FnMut(&Entry) -> Option<T>) -> Vec<T> {
        self.kept().entries.iter().filter_map(choice).collect()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

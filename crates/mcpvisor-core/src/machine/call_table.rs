//! One call and where it stands, and the book of all of them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::ids::{CallId, CallMap, ClientId, Generation};
use crate::policy::retry::{Known, RetryPolicy, Safety};

#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) client: ClientId,
    pub(super) safety: Safety,
    pub(super) wish: RetryPolicy,
    pub(super) is_tool: bool,
    pub(super) deadline: Instant,
    pub(super) idle: Duration,
    /// Retries used so far; there is one in total.
    pub(super) retries: u8,
    /// What is known of it from when it was sent before, on this connection or an earlier one.
    pub(super) known: Known,
    /// Its session was lost before. A fresh session that is lost too is not replaced for it again.
    pub(super) session_lost: bool,
    pub(super) place: Place,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    /// In the waiting line, until the wait for a connection is over.
    Line { until: Option<Instant> },
    /// A tool call that will be retried once the tool is known to be the same.
    Held { until: Instant },
    /// It will be sent again then, because the server asked for a pause on this connection.
    Paused {
        until: Instant,
        generation: Generation,
    },
    /// With the connection.
    Flight {
        generation: Generation,
        started: Instant,
        idle_until: Instant,
    },
}

impl Call {
    pub(super) fn due(&self) -> Instant {
        match self.place {
            Place::Line { until: None } => self.deadline,
            Place::Line { until: Some(until) }
            | Place::Held { until }
            | Place::Paused { until, .. }
            | Place::Flight {
                idle_until: until, ..
            } => self.deadline.min(until),
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        match self.place {
            Place::Line { .. } | Place::Held { .. } | Place::Paused { .. } => true,
            Place::Flight { .. } => false,
        }
    }

    /// Some of it may have reached a server before.
    pub(super) fn sent(&self) -> bool {
        self.known != Known::NotSent
    }

    /// It was sent, and this is known of it. Nothing later makes an unknown outcome known.
    pub(super) fn learn(&mut self, known: Known) {
        if self.known != Known::Unknown {
            self.known = known;
        }
        self.retries = self.retries.saturating_add(1);
    }

    pub(super) fn flies_on(&self, wanted: Generation) -> bool {
        matches!(self.place, Place::Flight { generation, .. } if generation == wanted)
    }
}

/// All calls, and the order in which their deadlines pass.
#[derive(Debug, Clone, Default)]
pub(super) struct Calls {
    by_id: CallMap<Call>,
    due: BTreeSet<(Instant, CallId)>,
}

impl Calls {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    pub(super) fn insert(&mut self, id: CallId, call: Call) {
        self.due.insert((call.due(), id));
        self.by_id.insert(id, call);
    }

    pub(super) fn remove(&mut self, id: CallId) -> Option<Call> {
        let call = self.by_id.remove(&id)?;
        self.due.remove(&(call.due(), id));
        Some(call)
    }

    pub(super) fn get(&self, id: CallId) -> Option<&Call> {
        self.by_id.get(&id)
    }

    pub(super) fn move_to(&mut self, id: CallId, place: Place) {
        if let Some(call) = self.by_id.get_mut(&id) {
            self.due.remove(&(call.due(), id));
            call.place = place;
            self.due.insert((call.due(), id));
        }
    }

    pub(super) fn get_mut(&mut self, id: CallId) -> Option<&mut Call> {
        self.by_id.get_mut(&id)
    }

    pub(super) fn overdue(&self, now: Instant) -> Option<CallId> {
        self.due
            .first()
            .and_then(|(due, id)| (*due <= now).then_some(*id))
    }

    /// The calls that satisfy a condition, oldest first.
    pub(super) fn select(&self, wanted: impl Fn(&Call) -> bool) -> Vec<CallId> {
        let mut ids: Vec<CallId> = self
            .by_id
            .iter()
            .filter(|(_, call)| wanted(call))
            .map(|(id, _)| *id)
            .collect();
        ids.sort_unstable();
        ids
    }
}

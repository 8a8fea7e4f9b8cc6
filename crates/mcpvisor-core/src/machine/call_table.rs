//! The table of all calls of a server: where each one is and when it times out.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::io::NewCall;
use super::later;
use crate::ids::{CallId, CallMap, ClientId, Generation};
use crate::policy::retry::{self, Known, RequestFailure, RetryDecision};
use crate::settings::ServerSettings;

#[derive(Debug, Clone)]
pub(super) struct TrackedCall {
    pub(super) request: NewCall,
    /// Retries used so far; one is allowed in total.
    pub(super) retries: u8,
    /// What is known from sending it before, on this connection or an earlier one.
    pub(super) known: Known,
    /// Its session was lost before. A second loss does not replace the session again.
    pub(super) session_lost: bool,
    pub(super) place: CallPlace,
}

/// Where a call is.
#[derive(Debug, Clone, Copy)]
pub(super) enum CallPlace {
    /// In the queue. `until` limits the wait for a reconnect.
    Queued { until: Option<Instant> },
    /// A tool call that is retried once the tool is known to be unchanged.
    AwaitingTools { until: Instant },
    /// The server asked for a pause on this connection before the retry.
    Paused {
        until: Instant,
        generation: Generation,
    },
    /// Refused with 401 on this connection; it is retried once the credential is renewed.
    AwaitingCredential { generation: Generation },
    /// Sent on a connection.
    InFlight {
        generation: Generation,
        started: Instant,
        idle_until: Instant,
    },
}

impl CallPlace {
    /// A call that is sent now.
    pub(super) fn in_flight(generation: Generation, now: Instant, idle: Duration) -> Self {
        Self::InFlight {
            generation,
            started: now,
            idle_until: later(now, idle),
        }
    }
}

impl TrackedCall {
    /// Where it waits for the next connection. A tool that was called before may have changed, so its
    /// retry waits for the list too.
    pub(super) fn place_until(&self, until: Instant) -> CallPlace {
        match self.request.is_tool && self.was_sent() {
            true => CallPlace::AwaitingTools { until },
            false => CallPlace::Queued { until: Some(until) },
        }
    }

    pub(super) fn decide_retry(
        &self,
        failure: RequestFailure,
        settings: &ServerSettings,
    ) -> RetryDecision {
        let (safety, policy) = (self.request.safety, self.request.retry_policy);
        retry::decide(failure, safety, policy, self.retries, settings)
    }

    fn times_out_at(&self) -> Instant {
        match self.place {
            CallPlace::Queued { until: None } | CallPlace::AwaitingCredential { .. } => {
                self.request.deadline
            }
            CallPlace::Queued { until: Some(until) }
            | CallPlace::AwaitingTools { until }
            | CallPlace::Paused { until, .. }
            | CallPlace::InFlight {
                idle_until: until, ..
            } => self.request.deadline.min(until),
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        match self.place {
            CallPlace::Queued { .. }
            | CallPlace::AwaitingTools { .. }
            | CallPlace::AwaitingCredential { .. }
            | CallPlace::Paused { .. } => true,
            CallPlace::InFlight { .. } => false,
        }
    }

    pub(super) fn is_queued(&self) -> bool {
        matches!(self.place, CallPlace::Queued { .. })
    }

    pub(super) fn awaits_tools(&self) -> bool {
        matches!(self.place, CallPlace::AwaitingTools { .. })
    }

    pub(super) fn awaits_credential(&self) -> bool {
        matches!(self.place, CallPlace::AwaitingCredential { .. })
    }

    pub(super) fn is_in_flight_on(&self, wanted: Generation) -> bool {
        matches!(self.place, CallPlace::InFlight { generation, .. } if generation == wanted)
    }

    /// Whether any of it may have reached the server before.
    pub(super) fn was_sent(&self) -> bool {
        self.known != Known::NotSent
    }

    /// Counts a send that failed, and what is known of it. An unknown outcome stays unknown.
    pub(super) fn record_failed_send(&mut self, known: Known) {
        if self.known != Known::Unknown {
            self.known = known;
        }
        self.retries = self.retries.saturating_add(1);
    }
}

/// All calls, also ordered by when they time out.
#[derive(Debug, Clone, Default)]
pub(super) struct CallTable {
    by_id: CallMap<TrackedCall>,
    timeouts: BTreeSet<(Instant, CallId)>,
}

impl CallTable {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.timeouts.first().map(|(at, _)| *at)
    }

    pub(super) fn insert(&mut self, id: CallId, call: TrackedCall) {
        self.timeouts.insert((call.times_out_at(), id));
        self.by_id.insert(id, call);
    }

    pub(super) fn remove(&mut self, id: CallId) -> Option<TrackedCall> {
        let call = self.by_id.remove(&id)?;
        self.timeouts.remove(&(call.times_out_at(), id));
        Some(call)
    }

    pub(super) fn get(&self, id: CallId) -> Option<&TrackedCall> {
        self.by_id.get(&id)
    }

    /// The call, if it is in flight on this connection.
    pub(super) fn in_flight_on(&self, id: CallId, generation: Generation) -> Option<&TrackedCall> {
        self.get(id).filter(|call| call.is_in_flight_on(generation))
    }

    pub(super) fn get_mut(&mut self, id: CallId) -> Option<&mut TrackedCall> {
        self.by_id.get_mut(&id)
    }

    pub(super) fn move_to(&mut self, id: CallId, place: CallPlace) {
        if let Some(call) = self.by_id.get_mut(&id) {
            self.timeouts.remove(&(call.times_out_at(), id));
            call.place = place;
            self.timeouts.insert((call.times_out_at(), id));
        }
    }

    pub(super) fn first_timed_out(&self, now: Instant) -> Option<CallId> {
        let (at, id) = self.timeouts.first()?;
        (*at <= now).then_some(*id)
    }

    /// The calls that satisfy a condition, oldest first.
    /// The calls of a client, those in flight last: ending one of them starts a queued one.
    pub(super) fn of_client(&self, client: ClientId) -> Vec<CallId> {
        let mut ids = self.select(|call| call.request.client == client);
        let in_flight = |id: &CallId| {
            let place = self.get(*id).map(|call| call.place);
            matches!(place, Some(CallPlace::InFlight { .. }))
        };
        ids.sort_by_key(in_flight);
        ids
    }

    pub(super) fn select(&self, wanted: impl Fn(&TrackedCall) -> bool) -> Vec<CallId> {
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

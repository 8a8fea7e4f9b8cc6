//! Sleep: a server that nobody calls needs no connection. The next call wakes it.
//!
//! Going to sleep is no failure: it costs nothing of the budget and gives nothing back. A server with
//! calls in flight or waiting never sleeps, and neither does one that somebody listens to.

use std::time::Instant;

use super::io::{ConnectionEnd, Effect};
use super::state::{Attempt, LiveConnection, SleepPhase, State};
use super::{Machine, Now, later};
use crate::ids::Generation;

impl Machine {
    /// Whether a server that is asleep would be so by these settings. One that was never met sleeps
    /// because it was lazy; where it is so no longer, it is met and its lists are fetched first.
    pub(super) fn may_sleep(&self) -> bool {
        let rest = &self.settings.rest;
        rest.lazy || (rest.sleep_after.is_some() && self.durable.met)
    }

    /// When a live connection is closed for want of calls, if nothing happens before.
    pub(super) fn sleeps_at(&self, live: &LiveConnection) -> Option<Instant> {
        let after = self.settings.rest.sleep_after?;
        let wanted = self.watched || self.calls.len() > 0;
        (!wanted).then(|| later(live.last_call, after))
    }

    /// A call came or ended: the connection was needed.
    pub(super) fn note_call(&mut self, now: Instant) {
        if let State::Connected(live) = &mut self.state {
            live.last_call = now;
        }
    }

    /// Closes the connection, politely: nothing is in flight.
    pub(super) fn fall_asleep(&mut self, generation: Generation) {
        self.discovery.disconnected();
        self.durable.proven = false;
        self.durable.asleep = true;
        self.state = State::Sleeping(SleepPhase::Closing { generation });
        self.remember();
        self.emit(Effect::Close {
            generation,
            grace: self.settings.close,
        });
    }

    /// Asleep from the start: connects at the first call.
    pub(super) fn stay_asleep(&mut self) {
        self.durable.asleep = true;
        self.state = State::Sleeping(SleepPhase::Asleep);
    }

    /// Somebody wants the server: it connects, once the old connection is closed. Connections that
    /// never prove themselves run out of the budget here as everywhere.
    pub(super) fn rouse(&mut self, now: Now) {
        let State::Sleeping(nap) = &self.state else {
            return;
        };
        let nap = *nap;
        self.durable.asleep = false;
        let at = self.wakes_at(now);
        self.durable.tried = self.durable.budget.is_parked();
        self.remember();
        match nap {
            SleepPhase::Asleep => self.wait(now, at),
            SleepPhase::Closing { generation } => self.enter(Attempt::Closing {
                generation,
                retry_at: at,
            }),
        }
        if matches!(self.state, State::Disconnected(_)) {
            self.limit_waiting(now);
        }
    }

    fn wakes_at(&mut self, now: Now) -> Instant {
        let budget = &self.durable.budget;
        if budget.is_parked() {
            let last = budget.last().unwrap_or(now.at);
            later(last, self.settings.budget.wake_every).max(now.at)
        } else if budget.is_spent(now.at) {
            self.pace(now, false, None)
        } else {
            now.at
        }
    }

    /// The connection that is closed on the way to sleep.
    pub(super) fn dozing(&self) -> Option<Generation> {
        match &self.state {
            State::Sleeping(SleepPhase::Closing { generation }) => Some(*generation),
            State::Sleeping(SleepPhase::Asleep)
            | State::Connecting(_)
            | State::Connected(_)
            | State::Reconnecting(_)
            | State::Disconnected(_)
            | State::Disabling(_)
            | State::Disabled
            | State::PermanentlyFailed(_) => None,
        }
    }

    /// The connection is closed.
    pub(super) fn asleep(&mut self, end: ConnectionEnd) {
        self.note_close(end);
        self.state = State::Sleeping(SleepPhase::Asleep);
    }
}

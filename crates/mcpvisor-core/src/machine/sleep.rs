//! Sleep: a server without calls needs no connection. The next call wakes it.
//!
//! Sleeping is not a failure: it neither uses the budget nor restores it. A server with calls in flight
//! or queued never sleeps, and neither does one with subscriptions.

use std::time::Instant;

use super::io::{ConnectionEnd, Effect};
use super::state::{Attempt, LiveConnection, SleepPhase, State};
use super::{Machine, Now, later};

impl Machine {
    /// Whether the settings let the server stay asleep. One that was never connected sleeps only
    /// because it is lazy; when it no longer is, it connects to fetch its lists first.
    pub(super) fn may_sleep(&self) -> bool {
        let rest = &self.settings.rest;
        rest.lazy || (rest.sleep_after.is_some() && self.durable.was_connected)
    }

    /// When a live connection is closed because it has no calls.
    pub(super) fn sleeps_at(&self, live: &LiveConnection) -> Option<Instant> {
        let after = self.settings.rest.sleep_after?;
        (!self.is_in_use()).then(|| later(live.last_call, after))
    }

    fn is_in_use(&self) -> bool {
        self.has_subscriptions || self.calls.len() > 0
    }

    /// Whether [`Input::GiveWay`](super::io::Input::GiveWay) would close the connection.
    pub fn can_give_way(&self) -> bool {
        matches!(self.state, State::Connected(_)) && self.may_sleep() && !self.is_in_use()
    }

    /// Sleeps before its time, if nothing uses the connection.
    pub(super) fn give_way(&mut self) {
        if self.can_give_way() {
            self.fall_asleep();
        }
    }

    /// Restarts the sleep timer: a call arrived or ended.
    pub(super) fn note_call_activity(&mut self, now: Instant) {
        if let State::Connected(live) = &mut self.state {
            live.last_call = now;
        }
    }

    /// Closes the connection. Nothing is in flight.
    pub(super) fn fall_asleep(&mut self) {
        let State::Connected(live) = &self.state else {
            return;
        };
        let generation = live.generation;
        self.lists.disconnected();
        self.durable.proven = false;
        self.durable.asleep = true;
        self.state = State::Sleeping(SleepPhase::Closing { generation });
        self.save_durable();
        self.emit(Effect::Close {
            generation,
            grace: self.settings.close,
        });
    }

    /// Sleeps without having connected.
    pub(super) fn start_asleep(&mut self) {
        self.durable.asleep = true;
        self.state = State::Sleeping(SleepPhase::Asleep);
    }

    /// Connects a sleeping server once its old connection is closed. Connections that never prove
    /// themselves use up the budget here as everywhere.
    pub(super) fn wake(&mut self, now: Now) {
        let State::Sleeping(phase) = self.state else {
            return;
        };
        self.durable.asleep = false;
        let at = self.wakes_at(now);
        self.durable.first_attempt_over = self.durable.budget.is_parked();
        self.save_durable();
        match phase {
            SleepPhase::Asleep => self.back_off_until(now, at),
            SleepPhase::Closing { generation } => self.enter_attempt(Attempt::Closing {
                generation,
                retry_at: at,
            }),
        }
        if matches!(self.state, State::Disconnected(_)) {
            self.limit_reconnect_wait(now);
        }
    }

    fn wakes_at(&mut self, now: Now) -> Instant {
        let budget = &self.durable.budget;
        if budget.is_parked() {
            let last = budget.last().unwrap_or(now.at);
            later(last, self.settings.budget.wake_every).max(now.at)
        } else if budget.is_spent(now.at) {
            self.schedule_connect(now, false, None)
        } else {
            now.at
        }
    }

    /// The connection of a server that goes to sleep is closed.
    pub(super) fn finish_falling_asleep(&mut self, end: ConnectionEnd) {
        self.note_close_problem(end);
        self.state = State::Sleeping(SleepPhase::Asleep);
    }
}

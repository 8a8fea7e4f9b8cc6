//! Everything that the machine does at a point in time rather than on an input.

use std::time::Instant;

use super::lifecycle::Machine;
use super::state::{Attempt, State, TeardownPhase};
use super::{Now, later};

/// The timers of one server, in the order in which they fire when several are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    /// When the first call times out, wherever it is, or ends its pause before a retry.
    Call,
    /// When a connection that is being replaced is closed although calls are still in flight.
    ReplaceDrain,
    /// When the backoff, or the wait before a probe, is over.
    Connect,
    /// When an attempt to connect has taken too long.
    ConnectTimeout,
    /// When a connection that stayed up counts as proven.
    Proof,
    /// When a connection without calls is closed until the next call.
    Sleep,
    /// When a check of the connection should have been answered.
    CheckTimeout,
    /// When a silent connection without calls in flight is checked.
    KeepAlive,
    /// When a server that is being disabled is closed although calls are still in flight.
    DisableDrain,
    /// When the next list should be fetched.
    ListFetch,
}

impl Timer {
    const ALL: [Self; 10] = [
        Self::Call,
        Self::ReplaceDrain,
        Self::Connect,
        Self::ConnectTimeout,
        Self::Proof,
        Self::Sleep,
        Self::CheckTimeout,
        Self::KeepAlive,
        Self::DisableDrain,
        Self::ListFetch,
    ];
}

impl Machine {
    /// Visits every timer that runs, with its deadline.
    fn visit_timers(&self, mut visit: impl FnMut(Timer, Instant)) {
        match &self.state {
            State::Connecting(attempt)
            | State::Reconnecting(attempt)
            | State::Disconnected(attempt) => match attempt {
                Attempt::Draining { until, .. } => visit(Timer::ReplaceDrain, *until),
                Attempt::BackingOff { retry_at } => visit(Timer::Connect, *retry_at),
                Attempt::Opening { deadline, .. } => visit(Timer::ConnectTimeout, *deadline),
                Attempt::Closing { .. } | Attempt::AwaitingPermit => {}
            },
            State::Connected(live) => {
                if !self.durable.proven {
                    let proven_after = self.settings.budget.proven_after;
                    visit(Timer::Proof, later(live.since, proven_after));
                }
                if let Some(at) = self.sleeps_at(live) {
                    visit(Timer::Sleep, at);
                }
                if let Some(check) = live.check {
                    visit(Timer::CheckTimeout, check.deadline);
                } else if self.admission.in_flight() == 0 {
                    // Calls in flight have idle timeouts, so a check would only compete with them.
                    let keepalive = self.settings.health.keepalive;
                    visit(Timer::KeepAlive, later(live.last_received, keepalive));
                }
            }
            State::Disabling(teardown) => match teardown.phase {
                TeardownPhase::Draining { until, .. } => visit(Timer::DisableDrain, until),
                TeardownPhase::Closing { .. } => {}
            },
            State::Sleeping(_) | State::Disabled | State::PermanentlyFailed { .. } => {}
        }
        if let Some(at) = self.calls.next_deadline() {
            visit(Timer::Call, at);
        }
        if let Some(at) = self.lists.next_deadline() {
            visit(Timer::ListFetch, at);
        }
    }

    /// The earliest moment at which [`Input::Tick`](super::Input::Tick) would do something.
    pub fn next_deadline(&self) -> Option<Instant> {
        let mut first: Option<Instant> = None;
        self.visit_timers(|_, at| first = Some(first.map_or(at, |first| first.min(at))));
        first
    }

    fn deadline(&self, timer: Timer) -> Option<Instant> {
        let mut deadline = None;
        self.visit_timers(|running, at| {
            if running == timer {
                deadline = Some(at);
            }
        });
        deadline
    }

    /// Fires every timer that is due. One that an earlier timer stopped does not fire.
    pub(super) fn tick(&mut self, now: Now) {
        for timer in Timer::ALL {
            if self.deadline(timer).is_some_and(|at| at <= now.at) {
                self.fire(now, timer);
            }
        }
    }

    fn fire(&mut self, now: Now, timer: Timer) {
        match timer {
            Timer::Call => self.expire_calls(now),
            Timer::ReplaceDrain => self.finish_replace_drain(now),
            Timer::Connect => self.request_permit(),
            Timer::ConnectTimeout => self.connect_timed_out(now),
            Timer::Proof => self.prove(),
            Timer::Sleep => self.fall_asleep(),
            Timer::CheckTimeout => self.check_timed_out(now),
            Timer::KeepAlive => self.check_idle_connection(now),
            Timer::DisableDrain => self.finish_teardown_drain(now),
            Timer::ListFetch => self.fetch_due_lists(now),
        }
    }
}

//! Switching a server off: detach, drain, close, and only then say so.
//!
//! A close is never rolled back. Whatever it returns, the server ends disabled.

use std::time::{Duration, Instant};

use super::call_requeue::GiveUp;
use super::io::{Effect, NotSent};
use super::state::{
    AfterTeardown, Attempt, CloseDeadline, SleepPhase, State, Teardown, TeardownPhase,
};
use super::{DesiredState, Machine, Now};
use crate::ids::Generation;

impl Machine {
    /// A wish to switch it off within a limit, for now or for good. A second wish is merged with the
    /// first.
    pub(super) fn tear_down(&mut self, now: Now, then: AfterTeardown, limit: Duration) {
        let patience = CloseDeadline::new(self.settings.close, limit, now);
        if then == AfterTeardown::Stay {
            self.durable.wanted = DesiredState::Disabled;
            self.remember();
        }
        self.discovery.disconnected();
        let reason = match then {
            AfterTeardown::Stop => NotSent::Stopping,
            AfterTeardown::Stay | AfterTeardown::Enable => NotSent::Disabled,
        };
        self.give_up_waiting(&GiveUp(reason));
        match self.state.clone() {
            State::Connected(live) => {
                let until = patience.drain_until(now);
                self.begin_teardown(now, live.generation, until, then, patience);
            }
            State::Connecting(attempt)
            | State::Reconnecting(attempt)
            | State::Disconnected(attempt) => self.tear_down_attempt(now, &attempt, then, patience),
            State::Disabling(teardown) => self.merge_teardown(now, teardown, then, patience),
            State::Sleeping(SleepPhase::Closing { generation }) => {
                self.close_for_good(now, generation, then, patience);
            }
            State::Sleeping(SleepPhase::Asleep) | State::Disabled | State::PermanentlyFailed(_) => {
                self.finish_teardown(then);
            }
        }
    }

    fn begin_teardown(
        &mut self,
        now: Now,
        generation: Generation,
        until: Instant,
        then: AfterTeardown,
        patience: CloseDeadline,
    ) {
        let phase = TeardownPhase::Draining { generation, until };
        self.state = State::Disabling(Teardown {
            phase,
            then,
            patience,
        });
        if self.admission.in_flight() == 0 || until <= now.at {
            self.close_teardown(now, generation);
        }
    }

    fn tear_down_attempt(
        &mut self,
        now: Now,
        attempt: &Attempt,
        then: AfterTeardown,
        patience: CloseDeadline,
    ) {
        match *attempt {
            Attempt::Draining {
                generation, until, ..
            } => {
                let until = until.min(patience.drain_until(now));
                self.begin_teardown(now, generation, until, then, patience);
            }
            Attempt::Opening { generation, .. } => {
                self.emit(Effect::ReleasePermit);
                self.close_for_good(now, generation, then, patience);
            }
            Attempt::Closing { generation, .. } => {
                self.close_for_good(now, generation, then, patience)
            }
            Attempt::AwaitingPermit => {
                self.emit(Effect::ReleasePermit);
                self.finish_teardown(then);
            }
            Attempt::BackingOff { .. } => self.finish_teardown(then),
        }
    }

    fn close_for_good(
        &mut self,
        now: Now,
        generation: Generation,
        then: AfterTeardown,
        patience: CloseDeadline,
    ) {
        let phase = TeardownPhase::Closing { generation };
        self.state = State::Disabling(Teardown {
            phase,
            then,
            patience,
        });
        let grace = patience.close(now);
        self.emit(Effect::Close { generation, grace });
    }

    /// The later wish decides what follows, except that an end stays an end.
    fn merge_teardown(
        &mut self,
        now: Now,
        teardown: Teardown,
        then: AfterTeardown,
        patience: CloseDeadline,
    ) {
        let then = match teardown.then {
            AfterTeardown::Stop => AfterTeardown::Stop,
            AfterTeardown::Stay | AfterTeardown::Enable => then,
        };
        let patience = teardown.patience.least(patience);
        let phase = match teardown.phase {
            TeardownPhase::Draining { generation, until } => TeardownPhase::Draining {
                generation,
                until: until.min(patience.drain_until(now)),
            },
            TeardownPhase::Closing { generation } => {
                if then == AfterTeardown::Stop {
                    let grace = patience.close(now);
                    self.emit(Effect::Close { generation, grace });
                }
                TeardownPhase::Closing { generation }
            }
        };
        self.state = State::Disabling(Teardown {
            phase,
            then,
            patience,
        });
    }

    pub(super) fn close_teardown(&mut self, now: Now, generation: Generation) {
        if let State::Disabling(teardown) = &mut self.state {
            teardown.phase = TeardownPhase::Closing { generation };
            let grace = teardown.patience.close(now);
            self.emit(Effect::Close { generation, grace });
        }
    }

    pub(super) fn tick_teardown(&mut self, now: Now) {
        if let State::Disabling(teardown) = &self.state
            && let TeardownPhase::Draining { generation, until } = teardown.phase
            && until <= now.at
        {
            self.close_teardown(now, generation);
        }
    }

    /// The connection whose close a teardown waits for.
    pub(super) fn tearing_down(&self) -> Option<Generation> {
        match &self.state {
            State::Disabling(teardown) => match teardown.phase {
                TeardownPhase::Closing { generation } => Some(generation),
                TeardownPhase::Draining { .. } => None,
            },
            State::Connecting(_)
            | State::Connected(_)
            | State::Reconnecting(_)
            | State::Disconnected(_)
            | State::Sleeping(_)
            | State::Disabled
            | State::PermanentlyFailed(_) => None,
        }
    }

    pub(super) fn torn_down(&mut self) {
        if let State::Disabling(teardown) = &self.state {
            let then = teardown.then;
            self.finish_teardown(then);
        }
    }

    fn finish_teardown(&mut self, then: AfterTeardown) {
        self.state = State::Disabled;
        match then {
            AfterTeardown::Stay => {}
            AfterTeardown::Enable => self.begin_again(),
            AfterTeardown::Stop => self.emit(Effect::Stop),
        }
    }

    pub(super) fn enable_after_teardown(&mut self) {
        if let State::Disabling(teardown) = &mut self.state
            && teardown.then == AfterTeardown::Stay
        {
            teardown.then = AfterTeardown::Enable;
            self.durable.wanted = DesiredState::Enabled;
            self.remember();
        }
    }
}

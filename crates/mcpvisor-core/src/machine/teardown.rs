//! Disabling a server or shutting it down: detach, drain, close, and only then report it.
//!
//! A close is never rolled back. Whatever it returns, the server ends disabled.

use std::time::{Duration, Instant};

use super::io::{ConnectionEnd, Effect, NotSent};
use super::state::{
    AfterTeardown, Attempt, CloseDeadline, SleepPhase, State, Teardown, TeardownPhase,
};
use super::{DesiredState, Machine, Now};
use crate::ids::Generation;

impl Machine {
    /// Disables the server, or shuts it down, within a limit. A second request is merged with the first.
    pub(super) fn tear_down(&mut self, now: Now, then: AfterTeardown, limit: Duration) {
        let close_by = CloseDeadline::new(self.settings.close, limit, now);
        if then == AfterTeardown::StayDisabled {
            self.durable.desired = DesiredState::Disabled;
            self.save_durable();
        }
        self.lists.disconnected();
        self.fail_waiting_calls(&match then {
            AfterTeardown::Stop => NotSent::Stopping,
            AfterTeardown::StayDisabled | AfterTeardown::Enable => NotSent::Disabled,
        });
        match self.state.clone() {
            State::Connected(live) => {
                let until = close_by.drain_until(now);
                self.drain_for_teardown(now, live.generation, until, then, close_by);
            }
            State::Connecting(attempt)
            | State::Reconnecting(attempt)
            | State::Disconnected(attempt) => self.tear_down_attempt(now, &attempt, then, close_by),
            State::Disabling(teardown) => self.merge_teardown(now, teardown, then, close_by),
            State::Sleeping(SleepPhase::Closing { generation })
            | State::PermanentlyFailed {
                closing: Some(generation),
                ..
            } => self.close_for_teardown(now, generation, then, close_by),
            State::Sleeping(SleepPhase::Asleep)
            | State::Disabled
            | State::PermanentlyFailed { closing: None, .. } => self.finish_teardown(now, then),
        }
    }

    fn drain_for_teardown(
        &mut self,
        now: Now,
        generation: Generation,
        until: Instant,
        then: AfterTeardown,
        close_by: CloseDeadline,
    ) {
        let phase = TeardownPhase::Draining { generation, until };
        self.state = State::Disabling(Teardown {
            phase,
            then,
            close_by,
        });
        if self.admission.in_flight() == 0 || until <= now.at {
            self.finish_teardown_drain(now);
        }
    }

    fn tear_down_attempt(
        &mut self,
        now: Now,
        attempt: &Attempt,
        then: AfterTeardown,
        close_by: CloseDeadline,
    ) {
        match *attempt {
            Attempt::Draining {
                generation, until, ..
            } => {
                let until = until.min(close_by.drain_until(now));
                self.drain_for_teardown(now, generation, until, then, close_by);
            }
            Attempt::Opening { generation, .. } => {
                self.emit(Effect::ReleasePermit);
                self.close_for_teardown(now, generation, then, close_by);
            }
            Attempt::Closing { generation, .. } => {
                self.close_for_teardown(now, generation, then, close_by)
            }
            Attempt::AwaitingPermit => {
                self.emit(Effect::ReleasePermit);
                self.finish_teardown(now, then);
            }
            Attempt::BackingOff { .. } => self.finish_teardown(now, then),
        }
    }

    fn close_for_teardown(
        &mut self,
        now: Now,
        generation: Generation,
        then: AfterTeardown,
        close_by: CloseDeadline,
    ) {
        let phase = TeardownPhase::Closing { generation };
        self.state = State::Disabling(Teardown {
            phase,
            then,
            close_by,
        });
        let grace = close_by.close(now);
        self.emit(Effect::Close { generation, grace });
    }

    /// The later request decides what follows, except that a shutdown stays one.
    fn merge_teardown(
        &mut self,
        now: Now,
        teardown: Teardown,
        then: AfterTeardown,
        close_by: CloseDeadline,
    ) {
        let then = match teardown.then {
            AfterTeardown::Stop => AfterTeardown::Stop,
            AfterTeardown::StayDisabled | AfterTeardown::Enable => then,
        };
        let close_by = teardown.close_by.earlier(close_by);
        let phase = match teardown.phase {
            TeardownPhase::Draining { generation, until } => TeardownPhase::Draining {
                generation,
                until: until.min(close_by.drain_until(now)),
            },
            TeardownPhase::Closing { generation } => {
                if then == AfterTeardown::Stop {
                    let grace = close_by.close(now);
                    self.emit(Effect::Close { generation, grace });
                }
                TeardownPhase::Closing { generation }
            }
        };
        self.state = State::Disabling(Teardown {
            phase,
            then,
            close_by,
        });
    }

    /// Closes the connection, drained or not.
    pub(super) fn finish_teardown_drain(&mut self, now: Now) {
        if let State::Disabling(teardown) = &mut self.state
            && let TeardownPhase::Draining { generation, .. } = teardown.phase
        {
            teardown.phase = TeardownPhase::Closing { generation };
            let grace = teardown.close_by.close(now);
            self.emit(Effect::Close { generation, grace });
        }
    }

    /// The connection of a server that is being torn down is closed.
    pub(super) fn torn_down(
        &mut self,
        now: Now,
        generation: Generation,
        then: AfterTeardown,
        end: ConnectionEnd,
    ) {
        self.forget_in_flight(generation);
        self.note_final_close(end);
        self.finish_teardown(now, then);
    }

    fn finish_teardown(&mut self, now: Now, then: AfterTeardown) {
        self.state = State::Disabled;
        match then {
            AfterTeardown::StayDisabled => {}
            AfterTeardown::Enable => self.start_over(now),
            AfterTeardown::Stop => self.emit(Effect::Stop),
        }
    }

    pub(super) fn enable_after_teardown(&mut self) {
        if let State::Disabling(teardown) = &mut self.state
            && teardown.then == AfterTeardown::StayDisabled
        {
            teardown.then = AfterTeardown::Enable;
            self.durable.desired = DesiredState::Enabled;
            self.save_durable();
        }
    }
}

//! Disabling a server or shutting it down: detach, drain, close, and only then report it.
//!
//! A close is never rolled back. Whatever it returns, the server ends disabled.

use std::time::{Duration, Instant};

use super::io::{Effect, NotSent};
use super::state::{
    AfterTeardown, Attempt, CloseDeadline, SleepPhase, State, Teardown, TeardownPhase,
};
use super::{DesiredState, Machine, Now};

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
        if let State::Disabling(teardown) = self.state.clone() {
            self.merge_teardown(now, teardown, then, close_by);
            return;
        }
        let Some(phase) = self.first_teardown_phase(close_by.drain_until(now)) else {
            self.finish_teardown(then);
            return;
        };
        self.state = State::Disabling(Teardown {
            phase,
            then,
            close_by,
        });
        match phase {
            TeardownPhase::Draining { until, .. } => {
                if self.admission.in_flight() == 0 || until <= now.at {
                    self.finish_teardown_drain(now);
                }
            }
            TeardownPhase::Closing { generation } => {
                let grace = close_by.close(now);
                self.emit(Effect::Close { generation, grace });
            }
        }
    }

    /// How the teardown of this state begins; `None` without a connection.
    fn first_teardown_phase(&mut self, drain_until: Instant) -> Option<TeardownPhase> {
        match &self.state {
            State::Connected(live) => Some(TeardownPhase::Draining {
                generation: live.generation,
                until: drain_until,
            }),
            State::Connecting(attempt)
            | State::Reconnecting(attempt)
            | State::Disconnected(attempt) => match *attempt {
                Attempt::Draining {
                    generation, until, ..
                } => Some(TeardownPhase::Draining {
                    generation,
                    until: until.min(drain_until),
                }),
                Attempt::Opening { generation, .. } => {
                    self.emit(Effect::ReleasePermit);
                    Some(TeardownPhase::Closing { generation })
                }
                Attempt::Closing { generation, .. } => Some(TeardownPhase::Closing { generation }),
                Attempt::AwaitingPermit => {
                    self.emit(Effect::ReleasePermit);
                    None
                }
                Attempt::BackingOff { .. } => None,
            },
            State::Disabling(teardown) => Some(teardown.phase),
            State::Sleeping(SleepPhase::Closing { generation }) => Some(TeardownPhase::Closing {
                generation: *generation,
            }),
            State::Sleeping(SleepPhase::Asleep) | State::Disabled | State::PermanentlyFailed(_) => {
                None
            }
        }
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

    /// The connection, if there was one, is closed.
    pub(super) fn finish_teardown(&mut self, then: AfterTeardown) {
        self.state = State::Disabled;
        match then {
            AfterTeardown::StayDisabled => {}
            AfterTeardown::Enable => self.start_over(),
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

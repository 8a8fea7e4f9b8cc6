//! The end of a connection: lost, replaced or closed.

use std::time::Instant;

use super::fault::{Fault, FaultClass};
use super::io::{ConnectionEnd, Effect, ReturnedCall};
use super::state::{Attempt, ReconnectTiming, SleepPhase, State, TeardownPhase};
use super::{Machine, Now, later};
use crate::ids::Generation;

impl Machine {
    /// A connection broke or is closing, and gives back its unanswered calls.
    pub(super) fn connection_lost(
        &mut self,
        now: Now,
        generation: Generation,
        fault: Fault,
        returned: &[ReturnedCall],
    ) {
        if self.current_generation() != Some(generation) {
            self.drop_late();
            self.drop_untracked(returned);
            return;
        }
        match &self.state {
            State::Connected(_) => self.lose_connection(now, generation, fault.clone()),
            State::Disabling(_) => self.finish_teardown_drain(now),
            State::Connecting(_) | State::Reconnecting(_) | State::Disconnected(_) => {
                self.finish_replace_drain(now);
            }
            State::Sleeping(_) | State::Disabled | State::PermanentlyFailed(_) => {}
        }
        self.recover_calls(now, generation, &fault, returned);
    }

    /// The connection task of a generation has ended.
    pub(super) fn connection_ended(
        &mut self,
        now: Now,
        generation: Generation,
        end: ConnectionEnd,
    ) {
        if self.is_up(generation) {
            // The task reports a loss before it ends, so it panicked.
            let fault = Fault::new(FaultClass::ConnectionLost, "the connection task ended");
            self.connection_lost(now, generation, fault, &[]);
        }
        if self.current_generation() != Some(generation) {
            self.drop_late();
            return;
        }
        match &self.state {
            State::Connecting(attempt)
            | State::Reconnecting(attempt)
            | State::Disconnected(attempt) => match *attempt {
                Attempt::Opening { .. } => {
                    self.emit(Effect::ReleasePermit);
                    self.open_failed(now, end);
                }
                Attempt::Closing { retry_at, .. } => {
                    self.forget_in_flight(generation);
                    self.note_close_problem(end);
                    self.back_off_until(now, retry_at);
                }
                Attempt::Draining { .. } | Attempt::BackingOff { .. } | Attempt::AwaitingPermit => {
                }
            },
            State::Disabling(teardown) => match teardown.phase {
                TeardownPhase::Closing { .. } => {
                    let then = teardown.then;
                    self.forget_in_flight(generation);
                    self.note_final_close(end);
                    self.finish_teardown(then);
                }
                TeardownPhase::Draining { .. } => {}
            },
            State::Sleeping(SleepPhase::Closing { .. }) => self.finish_falling_asleep(end),
            State::Sleeping(SleepPhase::Asleep)
            | State::Connected(_)
            | State::Disabled
            | State::PermanentlyFailed(_) => {}
        }
    }

    /// The live connection is lost. Its task is closing it; the next connect is scheduled from now.
    fn lose_connection(&mut self, now: Now, generation: Generation, fault: Fault) {
        self.last_fault = Some(fault);
        let proven = std::mem::take(&mut self.durable.proven);
        self.lists.disconnected();
        let retry_at = self.schedule_connect(now, proven, None);
        self.limit_reconnect_wait(now);
        self.enter_attempt(Attempt::Closing {
            generation,
            retry_at,
        });
    }

    /// Replaces the live connection: drains it if requested, closes it, connects again.
    pub(super) fn replace_connection(
        &mut self,
        now: Now,
        generation: Generation,
        drain: bool,
        timing: ReconnectTiming,
    ) {
        self.lists.disconnected();
        self.limit_reconnect_wait(now);
        let until = later(now.at, self.settings.close.drain);
        if drain && self.admission.in_flight() > 0 && until > now.at {
            self.enter_attempt(Attempt::Draining {
                generation,
                until,
                timing,
            });
        } else {
            self.close_replaced(now, generation, timing);
        }
    }

    /// Closes a connection that is being replaced, drained or not.
    pub(super) fn finish_replace_drain(&mut self, now: Now) {
        if let Some(Attempt::Draining {
            generation, timing, ..
        }) = self.state.attempt()
        {
            self.close_replaced(now, *generation, *timing);
        }
    }

    fn close_replaced(&mut self, now: Now, generation: Generation, timing: ReconnectTiming) {
        let proven = std::mem::take(&mut self.durable.proven);
        let retry_at = match timing {
            ReconnectTiming::Now => now.at,
            ReconnectTiming::Paced => self.schedule_connect(now, proven, None),
        };
        self.close_then_connect(generation, retry_at);
    }

    /// Closes a connection; the next connect comes no sooner than `retry_at`.
    pub(super) fn close_then_connect(&mut self, generation: Generation, retry_at: Instant) {
        self.emit(Effect::Close {
            generation,
            grace: self.settings.close,
        });
        self.enter_attempt(Attempt::Closing {
            generation,
            retry_at,
        });
    }

    /// Shows a failed close unless there is a worse fault. It costs no attempt.
    pub(super) fn note_close_problem(&mut self, end: ConnectionEnd) {
        if self.last_fault.is_none() {
            self.last_fault = close_fault(end);
        }
    }

    /// Shows how the last close went, since a disabled server has nothing more important to show. A
    /// clean close clears only an earlier close fault.
    pub(super) fn note_final_close(&mut self, end: ConnectionEnd) {
        let fault = close_fault(end);
        let is_close_fault = |last: &Fault| last.class == FaultClass::Close;
        if fault.is_some() || self.last_fault.as_ref().is_some_and(is_close_fault) {
            self.last_fault = fault;
        }
    }
}

fn close_fault(end: ConnectionEnd) -> Option<Fault> {
    match end {
        ConnectionEnd::Closed { problem } => {
            problem.map(|problem| Fault::new(FaultClass::Close, problem))
        }
        ConnectionEnd::Failed { .. }
        | ConnectionEnd::Permanent(_)
        | ConnectionEnd::TryOtherEra(_) => None,
    }
}

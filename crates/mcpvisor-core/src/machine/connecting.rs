//! The way to a connection: backing off, waiting for a permit, opening and closing, paced by the budget.
//!
//! Every path to another connect goes through [`Machine::schedule_connect`], so nothing retries outside
//! the budget.

use std::time::{Duration, Instant};

use super::fault::{Fault, FaultClass};
use super::io::{ConnectionEnd, Effect, NotSent};
use super::state::{
    Attempt, LiveConnection, PermanentFailure, ReconnectTiming, SleepPhase, State, StateName,
    TeardownPhase,
};
use super::{DesiredState, Machine, Now, later};
use crate::ids::Generation;
use crate::policy::budget::ConnectTiming;
use crate::policy::listing::{FetchOutcome, ListKind};

impl Machine {
    /// The actor runs, for the first time or again after a crash, which the budget counts. A machine
    /// that has started already ignores it: a second start would open a second connection.
    pub(super) fn start(&mut self, now: Now) {
        if self.state != State::Disabled {
            return;
        }
        let restarted = std::mem::replace(&mut self.durable.started, true);
        if restarted {
            self.durable.budget.record(now.at);
        }
        match self.durable.desired.clone() {
            DesiredState::Disabled => self.state = State::Disabled,
            DesiredState::Failed(failure) => self.state = State::PermanentlyFailed(failure),
            DesiredState::Enabled if restarted && self.durable.asleep && self.may_sleep() => {
                self.start_asleep();
            }
            DesiredState::Enabled if restarted => self.resume_after_crash(now),
            // A server that became lazy after its state was reported as connecting still connects.
            DesiredState::Enabled if self.announced == StateName::Sleeping && self.may_sleep() => {
                self.start_asleep();
            }
            DesiredState::Enabled => self.request_permit(),
        }
        self.save_durable();
    }

    /// Continues after a crash of the actor as after a lost connection.
    fn resume_after_crash(&mut self, now: Now) {
        self.durable.asleep = false;
        // The crash ended the attempt that was in progress.
        self.durable.first_attempt_over = true;
        let proven = std::mem::take(&mut self.durable.proven);
        self.last_fault = Some(Fault::new(
            FaultClass::ActorCrashed,
            "the server's actor crashed and was restarted",
        ));
        let retry_at = self.schedule_connect(now, proven, None);
        self.back_off_until(now, retry_at);
    }

    /// When the next connect may come. A spent budget parks the server and fails the calls that wait
    /// for a connection; a later call wakes it.
    pub(super) fn schedule_connect(
        &mut self,
        now: Now,
        proven: bool,
        retry_after: Option<Duration>,
    ) -> Instant {
        let timing = self
            .durable
            .budget
            .next(now.at, now.random, proven, retry_after);
        self.save_durable();
        match timing {
            ConnectTiming::RetryAt(at) => at,
            ConnectTiming::Spent { probe_at } => {
                let reason = NotSent::Parked(self.last_fault.clone());
                self.fail_waiting_calls(&reason);
                probe_at
            }
        }
    }

    /// Enters the state of this attempt. Its name depends on the budget and on earlier attempts.
    pub(super) fn enter_attempt(&mut self, attempt: Attempt) {
        self.state = if self.durable.budget.is_parked() {
            State::Disconnected(attempt)
        } else if self.durable.first_attempt_over {
            State::Reconnecting(attempt)
        } else {
            State::Connecting(attempt)
        };
    }

    pub(super) fn back_off_until(&mut self, now: Now, retry_at: Instant) {
        if retry_at <= now.at {
            self.request_permit();
        } else {
            self.enter_attempt(Attempt::BackingOff { retry_at });
        }
    }

    pub(super) fn request_permit(&mut self) {
        self.enter_attempt(Attempt::AwaitingPermit);
        self.emit(Effect::RequestPermit {
            reconnect: self.durable.generation != Generation::NONE,
        });
    }

    pub(super) fn permit_granted(&mut self, now: Now) {
        if !matches!(self.state.attempt(), Some(Attempt::AwaitingPermit)) {
            self.emit(Effect::ReleasePermit);
            return;
        }
        let generation = self.durable.generation.next();
        self.durable.generation = generation;
        if !std::mem::take(&mut self.next_connect_is_free) {
            self.durable.budget.record(now.at);
            self.attempts = self.attempts.saturating_add(1);
        }
        let deadline = later(now.at, self.settings.timeouts.connect);
        self.enter_attempt(Attempt::Opening {
            generation,
            deadline,
        });
        self.save_durable();
        self.emit(Effect::Open { generation });
    }

    pub(super) fn first_byte(&mut self, generation: Generation) {
        if self.opening() == Some(generation) {
            self.emit(Effect::ReleasePermit);
        } else {
            self.drop_late();
        }
    }

    /// The generation of the connection that is being opened.
    fn opening(&self) -> Option<Generation> {
        match self.state.attempt()? {
            Attempt::Opening { generation, .. } => Some(*generation),
            Attempt::Draining { .. }
            | Attempt::Closing { .. }
            | Attempt::BackingOff { .. }
            | Attempt::AwaitingPermit => None,
        }
    }

    pub(super) fn connection_up(&mut self, now: Now, generation: Generation, lists: &[ListKind]) {
        if self.opening() != Some(generation) {
            self.drop_late();
            return;
        }
        self.state = State::Connected(LiveConnection {
            generation,
            since: now.at,
            last_received: now.at,
            check: None,
            is_ending: false,
            awaits_tools: self.settings.listing.before_calls && lists.contains(&ListKind::Tools),
            last_call: now.at,
        });
        self.durable.was_connected = true;
        self.durable.first_attempt_over = true;
        self.durable.proven = false;
        self.other_era_tried = false;
        self.health.reset();
        self.save_durable();
        self.emit(Effect::ReleasePermit);
        self.emit(Effect::Restore { generation });
        self.lists.connected(now.at, lists);
        self.fetch_due_lists(now);
        if !lists.contains(&ListKind::Tools) {
            self.release_tool_retries(now, generation, FetchOutcome::Refused);
        }
        self.lift_reconnect_wait(now);
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
                TeardownPhase::Closing { .. } => self.torn_down(generation, teardown.then, end),
                TeardownPhase::Draining { .. } => {}
            },
            State::Sleeping(SleepPhase::Closing { .. }) => self.finish_falling_asleep(end),
            State::Sleeping(SleepPhase::Asleep)
            | State::Connected(_)
            | State::Disabled
            | State::PermanentlyFailed(_) => {}
        }
    }

    fn open_failed(&mut self, now: Now, end: ConnectionEnd) {
        match end {
            ConnectionEnd::Permanent(failure) => self.fail_permanently(failure),
            // This is the answer to a probe, not a failure: the attempt continues in the other era.
            ConnectionEnd::TryOtherEra(_) if !self.other_era_tried => {
                self.other_era_tried = true;
                self.next_connect_is_free = true;
                self.request_permit();
            }
            ConnectionEnd::TryOtherEra(fault) => self.retry_connect(now, fault, None),
            ConnectionEnd::Failed { fault, retry_after } => {
                self.retry_connect(now, fault, retry_after);
            }
            ConnectionEnd::Closed { problem } => {
                let message = problem.unwrap_or_else(|| "the connection closed".to_owned());
                self.retry_connect(now, Fault::new(FaultClass::ConnectFailed, message), None);
            }
        }
    }

    fn retry_connect(&mut self, now: Now, fault: Fault, retry_after: Option<Duration>) {
        let retry_at = self.attempt_failed(now, fault, retry_after);
        self.back_off_until(now, retry_at);
    }

    /// Records a failed attempt and returns when the next one may come. Calls that waited for the first
    /// attempt wait for a reconnect from now on.
    fn attempt_failed(&mut self, now: Now, fault: Fault, retry_after: Option<Duration>) -> Instant {
        self.last_fault = Some(fault.clone());
        if !std::mem::replace(&mut self.durable.first_attempt_over, true) {
            self.limit_reconnect_wait(now);
        }
        let retry_at = self.schedule_connect(now, false, retry_after);
        self.emit(Effect::AttemptFailed {
            attempt: self.attempts,
            fault,
            retry_at: Some(retry_at),
        });
        retry_at
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

    fn fail_permanently(&mut self, failure: PermanentFailure) {
        self.last_fault = Some(failure.fault.clone());
        self.emit(Effect::AttemptFailed {
            attempt: self.attempts,
            fault: failure.fault.clone(),
            retry_at: None,
        });
        self.durable.first_attempt_over = true;
        self.durable.desired = DesiredState::Failed(failure.clone());
        self.state = State::PermanentlyFailed(failure.clone());
        self.save_durable();
        self.fail_waiting_calls(&NotSent::Failed(failure));
    }

    /// The live connection is lost. Its task is closing it; the next connect is scheduled from now.
    pub(super) fn lose_connection(&mut self, now: Now, generation: Generation, fault: Fault) {
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

    pub(super) fn connect_timed_out(&mut self, now: Now) {
        let Some(generation) = self.opening() else {
            return;
        };
        let fault = Fault::new(
            FaultClass::Timeout,
            format!(
                "did not finish the handshake within {:?}",
                self.settings.timeouts.connect
            ),
        );
        self.emit(Effect::ReleasePermit);
        let retry_at = self.attempt_failed(now, fault, None);
        self.close_then_connect(generation, retry_at);
    }

    /// A call wakes a sleeping server, and a parked one no more often than `wake_every`.
    pub(super) fn wake_for_call(&mut self, now: Now) {
        let soonest = self
            .durable
            .budget
            .last()
            .map_or(now.at, |at| later(at, self.settings.budget.wake_every));
        match &mut self.state {
            State::Disconnected(Attempt::BackingOff { .. }) if soonest <= now.at => {
                self.request_permit();
            }
            State::Disconnected(
                Attempt::BackingOff { retry_at } | Attempt::Closing { retry_at, .. },
            ) => *retry_at = (*retry_at).min(soonest),
            State::Disconnected(Attempt::Draining { timing, .. }) if soonest <= now.at => {
                *timing = ReconnectTiming::Now;
            }
            State::Disconnected(
                Attempt::AwaitingPermit | Attempt::Opening { .. } | Attempt::Draining { .. },
            )
            | State::Connecting(_)
            | State::Connected(_)
            | State::Reconnecting(_)
            | State::Disabling(_)
            | State::Disabled
            | State::PermanentlyFailed(_) => {}
            State::Sleeping(_) => self.wake(now),
        }
    }

    /// The user asked for a new connection.
    pub(super) fn reconnect(&mut self, now: Now) {
        match self.state.clone() {
            State::Connected(live) => {
                // The reconnect is requested, so an earlier fault is not its cause.
                self.last_fault = None;
                self.reset_budget();
                self.replace_connection(now, live.generation, true, ReconnectTiming::Now);
            }
            State::Connecting(attempt)
            | State::Reconnecting(attempt)
            | State::Disconnected(attempt) => self.connect_soon(now, attempt),
            State::PermanentlyFailed(_) => self.start_over(),
            State::Sleeping(_) => {
                self.reset_budget();
                self.wake(now);
            }
            // The actor refuses it with the reason.
            State::Disabling(_) | State::Disabled => {}
        }
    }

    /// The server is reached in another way. What was learned about the old way does not apply, and a
    /// connection that is being opened the old way is closed.
    pub(super) fn transport_changed(&mut self, now: Now) {
        self.other_era_tried = false;
        self.next_connect_is_free = false;
        match self.opening() {
            Some(generation) => {
                self.reset_budget();
                self.emit(Effect::ReleasePermit);
                self.close_then_connect(generation, now.at);
            }
            None => self.reconnect(now),
        }
    }

    /// Closes a connection; the next connect comes no sooner than `retry_at`.
    fn close_then_connect(&mut self, generation: Generation, retry_at: Instant) {
        self.emit(Effect::Close {
            generation,
            grace: self.settings.close,
        });
        self.enter_attempt(Attempt::Closing {
            generation,
            retry_at,
        });
    }

    /// A request of the user resets the budget.
    fn reset_budget(&mut self) {
        self.durable.budget.reset();
        self.attempts = 0;
        self.save_durable();
    }

    /// Connects at once, or as soon as the old connection is closed.
    fn connect_soon(&mut self, now: Now, attempt: Attempt) {
        self.reset_budget();
        match attempt {
            Attempt::BackingOff { .. } => self.request_permit(),
            Attempt::Closing { generation, .. } => self.enter_attempt(Attempt::Closing {
                generation,
                retry_at: now.at,
            }),
            Attempt::Draining {
                generation, until, ..
            } => self.enter_attempt(Attempt::Draining {
                generation,
                until,
                timing: ReconnectTiming::Now,
            }),
            // The connect in progress serves this request too.
            attempt @ (Attempt::AwaitingPermit | Attempt::Opening { .. }) => {
                self.enter_attempt(attempt);
            }
        }
    }

    /// The user enabled the server.
    pub(super) fn enable(&mut self, now: Now) {
        match self.state.clone() {
            State::Disabled | State::PermanentlyFailed(_) => self.start_over(),
            State::Disabling(_) => self.enable_after_teardown(),
            State::Disconnected(attempt) => self.connect_soon(now, attempt),
            State::Sleeping(_) => {
                self.reset_budget();
                self.wake(now);
            }
            State::Connecting(_) | State::Connected(_) | State::Reconnecting(_) => {}
        }
    }

    /// Connects as if the server had just been configured.
    pub(super) fn start_over(&mut self) {
        self.durable.desired = DesiredState::Enabled;
        self.durable.asleep = false;
        self.durable.was_connected = false;
        self.durable.first_attempt_over = false;
        self.durable.proven = false;
        self.next_connect_is_free = false;
        self.other_era_tried = false;
        self.last_fault = None;
        self.reset_budget();
        self.request_permit();
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

//! The way to a connection: backing off, waiting for a permit, opening and closing, paced by the budget.
//!
//! Retries by themselves go through [`Machine::schedule_connect`], which asks the budget. Connects that
//! a person or a call requests, and the one repeat in the other era, do not.

use std::time::{Duration, Instant};

use super::authorization::is_authorization;
use super::fault::{Fault, FaultClass};
use super::io::{ConnectionEnd, Effect, NotSent};
use super::state::{Attempt, LiveConnection, PermanentFailure, ReconnectTiming, State, StateName};
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
            DesiredState::Failed(failure) => {
                self.state = State::PermanentlyFailed {
                    failure,
                    closing: None,
                };
            }
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
        // A free connect may be the first.
        self.attempts = self.attempts.max(1);
        self.authorization.note_connect();
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
    pub(super) fn opening(&self) -> Option<Generation> {
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
        self.resume_queued_calls(now);
    }

    pub(super) fn open_failed(&mut self, now: Now, end: ConnectionEnd) {
        match end {
            // It may have been opened with the old credential.
            ConnectionEnd::Permanent(failure)
                if is_authorization(&failure.fault)
                    && self.authorization.has_changed_since_connect() =>
            {
                self.next_connect_is_free = true;
                self.request_permit();
            }
            ConnectionEnd::Permanent(failure) => {
                self.emit(Effect::AttemptFailed {
                    attempt: self.attempts,
                    fault: failure.fault.clone(),
                    retry_at: None,
                });
                self.fail_permanently(failure, None);
            }
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

    /// Retrying cannot help. `closing` is a connection that is not closed yet.
    pub(super) fn fail_permanently(
        &mut self,
        failure: PermanentFailure,
        closing: Option<Generation>,
    ) {
        self.last_fault = Some(failure.fault.clone());
        self.durable.first_attempt_over = true;
        self.durable.desired = DesiredState::Failed(failure.clone());
        self.state = State::PermanentlyFailed {
            failure: failure.clone(),
            closing,
        };
        self.save_durable();
        self.fail_waiting_calls(&NotSent::Failed(failure));
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
            | State::PermanentlyFailed { .. } => {}
            State::Sleeping(_) => self.wake(now),
        }
    }
}

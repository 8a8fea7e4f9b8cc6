//! The way to a connection: waiting, asking, opening, closing, and the budget that paces it.
//!
//! Every path that leads to another connect goes through [`Machine::pace`], so nothing retries
//! outside the budget.

use std::time::{Duration, Instant};

use super::call_requeue::GiveUp;
use super::fault::{Fault, FaultClass};
use super::io::{ConnectionEnd, Effect, NotSent};
use super::state::{Attempt, LiveConnection, PermanentFailure, ReconnectTiming, State, StateName};
use super::{DesiredState, Machine, Now, later};
use crate::ids::Generation;
use crate::policy::budget::ConnectTiming;
use crate::policy::listing::{FetchOutcome, ListKind};

impl Machine {
    /// The actor runs, for the first time or again after a crash, which the budget counts. Anything
    /// but a machine at rest has started already: a second start would connect beside the first.
    pub(super) fn start(&mut self, now: Now) {
        if self.state != State::Disabled {
            return;
        }
        let again = std::mem::replace(&mut self.durable.started, true);
        if again {
            self.durable.budget.record(now.at);
        }
        match self.durable.wanted.clone() {
            DesiredState::Disabled => self.state = State::Disabled,
            DesiredState::Failed(failure) => self.state = State::PermanentlyFailed(failure),
            DesiredState::Enabled if again && self.durable.asleep && self.may_sleep() => {
                self.stay_asleep();
            }
            DesiredState::Enabled if again => self.resume(now),
            // One that became lazy while it was shown as connecting connects all the same.
            DesiredState::Enabled if self.announced == StateName::Sleeping && self.may_sleep() => {
                self.stay_asleep();
            }
            DesiredState::Enabled => self.ask(),
        }
        self.remember();
    }

    /// Goes on after a crash, as after a lost connection.
    fn resume(&mut self, now: Now) {
        self.durable.asleep = false;
        // A crash ends the attempt that was under way.
        self.durable.tried = true;
        let proven = std::mem::take(&mut self.durable.proven);
        self.last_fault = Some(Fault::new(
            FaultClass::ActorCrashed,
            "the server's actor crashed and was restarted",
        ));
        let retry_at = self.pace(now, proven, None);
        self.wait(now, retry_at);
    }

    /// When the next connect may come; parks the server when the budget is spent, and tells those
    /// who waited for the connection that failed. Who calls later wakes the server and waits anew.
    pub(super) fn pace(
        &mut self,
        now: Now,
        proven: bool,
        retry_after: Option<Duration>,
    ) -> Instant {
        let verdict = self
            .durable
            .budget
            .next(now.at, now.chance, proven, retry_after);
        self.remember();
        match verdict {
            ConnectTiming::RetryAt(at) => at,
            ConnectTiming::Spent { probe_at } => {
                let fault = self.last_fault.clone();
                self.give_up_waiting(&GiveUp(NotSent::Parked(fault)));
                probe_at
            }
        }
    }

    /// Whether the budget is spent decides the name of the state, the attempt its data.
    pub(super) fn enter(&mut self, attempt: Attempt) {
        self.state = if self.durable.budget.is_parked() {
            State::Disconnected(attempt)
        } else if self.durable.tried {
            State::Reconnecting(attempt)
        } else {
            State::Connecting(attempt)
        };
    }

    pub(super) fn wait(&mut self, now: Now, retry_at: Instant) {
        if retry_at <= now.at {
            self.ask();
        } else {
            self.enter(Attempt::BackingOff { retry_at });
        }
    }

    /// Asks the governor for a connect.
    pub(super) fn ask(&mut self) {
        self.enter(Attempt::AwaitingPermit);
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
        if !std::mem::take(&mut self.free) {
            self.durable.budget.record(now.at);
            self.attempts = self.attempts.saturating_add(1);
        }
        let deadline = later(now.at, self.settings.timeouts.connect);
        self.enter(Attempt::Opening {
            generation,
            deadline,
        });
        self.remember();
        self.emit(Effect::Open { generation });
    }

    pub(super) fn first_byte(&mut self, generation: Generation) {
        if self.opening() == Some(generation) {
            self.emit(Effect::ReleasePermit);
        } else {
            self.drop_late();
        }
    }

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
            proven: false,
            last_heard: now.at,
            check: None,
            deaf: false,
            unlisted: self.settings.listing.before_calls && lists.contains(&ListKind::Tools),
            last_call: now.at,
        });
        self.durable.met = true;
        self.durable.tried = true;
        self.durable.proven = false;
        self.other_era_tried = false;
        self.health.reset();
        self.remember();
        self.emit(Effect::ReleasePermit);
        self.emit(Effect::Restore { generation });
        self.discovery.connected(now.at, lists);
        self.poll_discovery(now);
        if !lists.contains(&ListKind::Tools) {
            self.release_held(now, generation, FetchOutcome::Refused);
        }
        self.release_waiting(now);
    }

    /// The connection task of a generation is done, whatever it was doing.
    pub(super) fn connection_ended(
        &mut self,
        now: Now,
        generation: Generation,
        end: ConnectionEnd,
    ) {
        match self.state.attempt() {
            Some(Attempt::Opening {
                generation: ours, ..
            }) if *ours == generation => {
                self.emit(Effect::ReleasePermit);
                self.failed_to_open(now, end);
            }
            Some(Attempt::Closing {
                generation: ours,
                retry_at,
            }) if *ours == generation => {
                let retry_at = *retry_at;
                self.lose_flight(generation);
                self.note_close(end);
                self.wait(now, retry_at);
            }
            Some(
                Attempt::Opening { .. }
                | Attempt::Closing { .. }
                | Attempt::Draining { .. }
                | Attempt::BackingOff { .. }
                | Attempt::AwaitingPermit,
            )
            | None => self.ended_elsewhere(now, generation, end),
        }
    }

    /// A connection ended that was up, or that is being torn down.
    fn ended_elsewhere(&mut self, now: Now, generation: Generation, end: ConnectionEnd) {
        if self.holds(generation) {
            // Its loss was never reported, so its task died.
            let fault = Fault::new(FaultClass::ConnectionLost, "the connection task ended");
            self.connection_lost(now, generation, fault, &[]);
            self.connection_ended(now, generation, end);
        } else if self.tearing_down() == Some(generation) {
            self.lose_flight(generation);
            self.note_last_close(end);
            self.torn_down();
        } else if self.dozing() == Some(generation) {
            self.asleep(end);
        } else {
            self.drop_late();
        }
    }

    fn failed_to_open(&mut self, now: Now, end: ConnectionEnd) {
        match end {
            ConnectionEnd::Permanent(failure) => self.fail_permanently(failure),
            // The answer to a question, not a failure: the attempt goes on in the other era.
            ConnectionEnd::TryOtherEra(_) if !self.other_era_tried => {
                self.other_era_tried = true;
                self.free = true;
                self.ask();
            }
            ConnectionEnd::TryOtherEra(fault) => self.try_again(now, fault, None),
            ConnectionEnd::Failed { fault, retry_after } => self.try_again(now, fault, retry_after),
            ConnectionEnd::Closed { problem } => {
                let message = problem.unwrap_or_else(|| "the connection closed".to_owned());
                self.try_again(now, Fault::new(FaultClass::ConnectFailed, message), None);
            }
        }
    }

    fn try_again(&mut self, now: Now, fault: Fault, retry_after: Option<Duration>) {
        let retry_at = self.attempt_failed(now, fault, retry_after);
        self.wait(now, retry_at);
    }

    /// An attempt failed. Calls that waited for the first one wait for a reconnect from now on. Returns
    /// when the next attempt may come.
    fn attempt_failed(&mut self, now: Now, fault: Fault, retry_after: Option<Duration>) -> Instant {
        self.last_fault = Some(fault.clone());
        if !std::mem::replace(&mut self.durable.tried, true) {
            self.limit_waiting(now);
        }
        let retry_at = self.pace(now, false, retry_after);
        self.emit(Effect::AttemptFailed {
            attempt: self.attempts,
            fault,
            retry_at: Some(retry_at),
        });
        retry_at
    }

    /// A failing close costs no attempt; it is only shown, where nothing worse happened.
    pub(super) fn note_close(&mut self, end: ConnectionEnd) {
        if self.last_fault.is_none() {
            self.last_fault = close_fault(end);
        }
    }

    /// How a server was closed is what its owner wants to know of it then, whatever was before.
    fn note_last_close(&mut self, end: ConnectionEnd) {
        let fault = close_fault(end);
        let outdated = |last: &Fault| last.class == FaultClass::Close;
        if fault.is_some() || self.last_fault.as_ref().is_some_and(outdated) {
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
        self.durable.tried = true;
        self.durable.wanted = DesiredState::Failed(failure.clone());
        self.state = State::PermanentlyFailed(failure.clone());
        self.remember();
        self.give_up_waiting(&GiveUp(NotSent::Failed(failure)));
    }

    /// The connection is gone. It goes on closing; the next connect is paced from now.
    pub(super) fn lose(&mut self, now: Now, live: &LiveConnection, fault: Fault) {
        self.last_fault = Some(fault);
        self.durable.proven = false;
        self.discovery.disconnected();
        let retry_at = self.pace(now, live.proven, None);
        self.limit_waiting(now);
        self.enter(Attempt::Closing {
            generation: live.generation,
            retry_at,
        });
    }

    /// Gives up a connection of its own accord: drains it, closes it, connects again.
    pub(super) fn replace(
        &mut self,
        now: Now,
        live: &LiveConnection,
        drain: bool,
        next: ReconnectTiming,
    ) {
        let generation = live.generation;
        self.durable.proven = live.proven;
        self.discovery.disconnected();
        self.limit_waiting(now);
        let until = later(now.at, self.settings.close.drain);
        if drain && self.admission.in_flight() > 0 && until > now.at {
            self.enter(Attempt::Draining {
                generation,
                until,
                next,
            });
        } else {
            self.close_drained(now, generation, next);
        }
    }

    pub(super) fn close_drained(
        &mut self,
        now: Now,
        generation: Generation,
        next: ReconnectTiming,
    ) {
        let proven = std::mem::take(&mut self.durable.proven);
        let retry_at = match next {
            ReconnectTiming::Now => now.at,
            ReconnectTiming::Paced => self.pace(now, proven, None),
        };
        self.close_until(generation, retry_at);
    }

    /// The deadline of an attempt.
    pub(super) fn attempt_deadline(&self, attempt: &Attempt) -> Option<Instant> {
        match attempt {
            Attempt::Draining { until, .. } => Some(*until),
            Attempt::BackingOff { retry_at } => Some(*retry_at),
            Attempt::Opening { deadline, .. } => Some(*deadline),
            Attempt::Closing { .. } | Attempt::AwaitingPermit => None,
        }
    }

    pub(super) fn tick_attempt(&mut self, now: Now) {
        let Some(attempt) = self.state.attempt() else {
            return;
        };
        match *attempt {
            Attempt::Draining {
                generation,
                until,
                next,
            } if until <= now.at => self.close_drained(now, generation, next),
            Attempt::BackingOff { retry_at } if retry_at <= now.at => self.ask(),
            Attempt::Opening {
                generation,
                deadline,
            } if deadline <= now.at => self.open_timed_out(now, generation),
            Attempt::Draining { .. }
            | Attempt::BackingOff { .. }
            | Attempt::Opening { .. }
            | Attempt::Closing { .. }
            | Attempt::AwaitingPermit => {}
        }
    }

    fn open_timed_out(&mut self, now: Now, generation: Generation) {
        let fault = Fault::new(
            FaultClass::Timeout,
            format!(
                "did not finish the handshake within {:?}",
                self.settings.timeouts.connect
            ),
        );
        self.emit(Effect::ReleasePermit);
        let retry_at = self.attempt_failed(now, fault, None);
        self.close_until(generation, retry_at);
    }

    /// A call wakes a parked server, but no faster than `wake_every`.
    pub(super) fn wake(&mut self, now: Now) {
        let soonest = self
            .durable
            .budget
            .last()
            .map_or(now.at, |at| later(at, self.settings.budget.wake_every));
        match &mut self.state {
            State::Disconnected(Attempt::BackingOff { .. }) if soonest <= now.at => self.ask(),
            State::Disconnected(
                Attempt::BackingOff { retry_at } | Attempt::Closing { retry_at, .. },
            ) => *retry_at = (*retry_at).min(soonest),
            State::Disconnected(Attempt::Draining { next, .. }) if soonest <= now.at => {
                *next = ReconnectTiming::Now;
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
            State::Sleeping(_) => self.rouse(now),
        }
    }

    /// A person wants a new connection.
    pub(super) fn reconnect(&mut self, now: Now) {
        match self.state.clone() {
            State::Connected(live) => {
                // Wanted, not caused by what went wrong before.
                self.last_fault = None;
                self.forgive();
                self.replace(now, &live, true, ReconnectTiming::Now);
            }
            State::Connecting(attempt)
            | State::Reconnecting(attempt)
            | State::Disconnected(attempt) => self.hurry(now, attempt),
            State::PermanentlyFailed(_) => self.begin_again(),
            State::Sleeping(_) => {
                self.forgive();
                self.rouse(now);
            }
            // Refused by the shell with the reason; the machine stays as it is.
            State::Disabling(_) | State::Disabled => {}
        }
    }

    /// The server is reached in another way. What was found out about the old one is no longer of
    /// use, and neither is a connection that is being opened to it.
    pub(super) fn renew(&mut self, now: Now) {
        self.other_era_tried = false;
        self.free = false;
        match self.opening() {
            Some(generation) => {
                self.forgive();
                self.emit(Effect::ReleasePermit);
                self.close_until(generation, now.at);
            }
            None => self.reconnect(now),
        }
    }

    /// Closes a connection; the next connect comes no sooner than `retry_at`.
    fn close_until(&mut self, generation: Generation, retry_at: Instant) {
        self.emit(Effect::Close {
            generation,
            grace: self.settings.close,
        });
        self.enter(Attempt::Closing {
            generation,
            retry_at,
        });
    }

    /// A person asked: the budget starts afresh.
    fn forgive(&mut self) {
        self.durable.budget.forgive();
        self.attempts = 0;
        self.remember();
    }

    /// Connects at once where nothing else has to end first.
    fn hurry(&mut self, now: Now, attempt: Attempt) {
        self.forgive();
        match attempt {
            Attempt::BackingOff { .. } => self.ask(),
            Attempt::Closing { generation, .. } => self.enter(Attempt::Closing {
                generation,
                retry_at: now.at,
            }),
            Attempt::Draining {
                generation, until, ..
            } => self.enter(Attempt::Draining {
                generation,
                until,
                next: ReconnectTiming::Now,
            }),
            // Merged with the connect that is under way.
            attempt @ (Attempt::AwaitingPermit | Attempt::Opening { .. }) => self.enter(attempt),
        }
    }

    /// A person wants it on.
    pub(super) fn enable(&mut self, now: Now) {
        match self.state.clone() {
            State::Disabled | State::PermanentlyFailed(_) => self.begin_again(),
            State::Disabling(_) => self.enable_after_teardown(),
            State::Disconnected(attempt) => self.hurry(now, attempt),
            State::Sleeping(_) => {
                self.forgive();
                self.rouse(now);
            }
            State::Connecting(_) | State::Connected(_) | State::Reconnecting(_) => {}
        }
    }

    pub(super) fn begin_again(&mut self) {
        self.durable.wanted = DesiredState::Enabled;
        self.durable.asleep = false;
        self.durable.met = false;
        self.durable.tried = false;
        self.durable.proven = false;
        self.free = false;
        self.other_era_tried = false;
        self.last_fault = None;
        self.forgive();
        self.ask();
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

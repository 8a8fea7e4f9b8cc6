//! A connection that is up: proof, checks, health and listings.
//!
//! Only facts of the current generation get past [`Machine::live`].

use std::time::{Duration, Instant};

use super::fault::{Fault, FaultClass};
use super::io::{CallEnd, Effect, ReturnedCall};
use super::state::{
    Attempt, Check, CheckReason, LiveConnection, ReconnectTiming, SleepPhase, State, TeardownPhase,
};
use super::{Machine, Now, later};
use crate::ids::Generation;
use crate::policy::listing::{FetchOutcome, ListKind};

impl Machine {
    /// The live connection, if it is of this generation.
    pub(super) fn live(&mut self, generation: Generation) -> Option<&mut LiveConnection> {
        match &mut self.state {
            State::Connected(live) if live.generation == generation => Some(live),
            State::Connected(_)
            | State::Connecting(_)
            | State::Reconnecting(_)
            | State::Disconnected(_)
            | State::Disabling(_)
            | State::Sleeping(_)
            | State::Disabled
            | State::PermanentlyFailed(_) => None,
        }
    }

    /// The connection that the state is about, from its opening to its end: also while it drains and
    /// closes.
    pub fn current(&self) -> Option<Generation> {
        match &self.state {
            State::Connected(live) => Some(live.generation),
            State::Connecting(attempt)
            | State::Reconnecting(attempt)
            | State::Disconnected(attempt) => match attempt {
                Attempt::Draining { generation, .. }
                | Attempt::Closing { generation, .. }
                | Attempt::Opening { generation, .. } => Some(*generation),
                Attempt::BackingOff { .. } | Attempt::AwaitingPermit => None,
            },
            State::Disabling(teardown) => match teardown.phase {
                TeardownPhase::Draining { generation, .. }
                | TeardownPhase::Closing { generation } => Some(generation),
            },
            State::Sleeping(SleepPhase::Closing { generation }) => Some(*generation),
            State::Sleeping(SleepPhase::Asleep) | State::Disabled | State::PermanentlyFailed(_) => {
                None
            }
        }
    }

    /// Whether calls of this generation may still be in flight.
    pub(super) fn holds(&self, generation: Generation) -> bool {
        match &self.state {
            State::Connected(live) => live.generation == generation,
            State::Connecting(attempt)
            | State::Reconnecting(attempt)
            | State::Disconnected(attempt) => {
                matches!(attempt, Attempt::Draining { generation: ours, .. } if *ours == generation)
            }
            State::Disabling(teardown) => {
                matches!(teardown.phase, TeardownPhase::Draining { generation: ours, .. } if ours == generation)
            }
            State::Sleeping(_) | State::Disabled | State::PermanentlyFailed(_) => false,
        }
    }

    pub(super) fn heard(&mut self, now: Now, generation: Generation) {
        if let Some(live) = self.live(generation) {
            live.last_heard = now.at;
        } else if !self.holds(generation) {
            // A connection that is being drained may still speak; it is not late, only leaving.
            self.drop_late();
        }
    }

    /// A call ended. An answer of the server's proves the connection and says that it is healthy.
    pub(super) fn answered(&mut self, now: Now, generation: Generation, end: CallEnd) {
        let Some(live) = self.live(generation) else {
            return;
        };
        if end != CallEnd::Local {
            live.last_heard = now.at;
        }
        match end {
            CallEnd::Answered => {
                let first = !std::mem::replace(&mut live.proven, true);
                self.health.call_answered();
                if first {
                    self.prove();
                }
            }
            CallEnd::Unreadable => {
                if self.health.call_failed() {
                    self.suspect(now, generation);
                }
            }
            CallEnd::Local => {}
        }
    }

    fn prove(&mut self) {
        self.durable.budget.prove();
        self.durable.proven = true;
        self.attempts = 0;
        self.last_fault = None;
        self.remember();
    }

    /// A call in flight was silent too long, and nothing else arrived meanwhile.
    pub(super) fn call_timed_out(&mut self, now: Now, generation: Generation, started: Instant) {
        let Some(live) = self.live(generation) else {
            return;
        };
        if live.last_heard <= started && self.health.call_failed() {
            self.suspect(now, generation);
        }
    }

    /// One ping decides whether soft failures mean a sick connection.
    pub(super) fn suspect(&mut self, now: Now, generation: Generation) {
        self.check(now, generation, CheckReason::Suspicion);
    }

    fn check(&mut self, now: Now, generation: Generation, reason: CheckReason) {
        let deadline = later(now.at, self.settings.health.keepalive_timeout);
        let Some(live) = self.live(generation) else {
            return;
        };
        if live.check.is_none() {
            live.check = Some(Check { deadline, reason });
            self.emit(Effect::Check { generation });
        }
    }

    pub(super) fn check_ended(&mut self, now: Now, generation: Generation, failure: Option<Fault>) {
        let Some(live) = self.live(generation) else {
            self.drop_late();
            return;
        };
        let Some(check) = live.check.take() else {
            return;
        };
        match failure {
            Some(fault) => self.check_failed(now, generation, check.reason, fault),
            None => {
                live.last_heard = now.at;
                if check.reason == CheckReason::Suspicion {
                    self.health.reset();
                }
            }
        }
    }

    fn check_failed(
        &mut self,
        now: Now,
        generation: Generation,
        reason: CheckReason,
        fault: Fault,
    ) {
        if reason == CheckReason::Idle && self.admission.in_flight() > 0 {
            // Calls that started meanwhile watch the connection themselves, and the next check
            // follows when the last of them ended.
            return;
        }
        let Some(live) = self.live(generation).cloned() else {
            return;
        };
        self.last_fault = Some(fault);
        let drain = match reason {
            CheckReason::Idle => false,
            CheckReason::Suspicion => true,
        };
        self.replace(now, &live, drain, ReconnectTiming::Paced);
    }

    pub(super) fn report_broken(&mut self, now: Now, generation: Generation) {
        match self.live(generation).cloned() {
            Some(live) => {
                self.last_fault = Some(Fault::new(
                    FaultClass::Protocol,
                    "a caller reported the connection as broken",
                ));
                self.replace(now, &live, true, ReconnectTiming::Paced);
            }
            None => self.drop_late(),
        }
    }

    /// The next thing to do for a live connection: prove it, check it, or give up a check.
    ///
    /// A check never competes with calls in flight: their idle timeouts watch the connection, and
    /// the step that ends the last of them asks for this deadline anew.
    pub(super) fn live_deadline(&self, live: &LiveConnection) -> Option<Instant> {
        let check = match live.check {
            Some(check) => Some(check.deadline),
            None if self.admission.in_flight() > 0 => None,
            None => Some(later(live.last_heard, self.settings.health.keepalive)),
        };
        let proof = (!live.proven).then(|| later(live.since, self.settings.budget.proven_after));
        let sleep = self.sleeps_at(live);
        check.into_iter().chain(proof).chain(sleep).min()
    }

    pub(super) fn tick_live(&mut self, now: Now) {
        let State::Connected(live) = &mut self.state else {
            return;
        };
        if !live.proven && later(live.since, self.settings.budget.proven_after) <= now.at {
            live.proven = true;
            self.prove();
        }
        if let State::Connected(live) = &self.state
            && self.sleeps_at(live).is_some_and(|at| at <= now.at)
        {
            let generation = live.generation;
            self.fall_asleep(generation);
            return;
        }
        self.tick_check(now);
    }

    /// Ends a check that was not answered in time, or begins one after a silence.
    fn tick_check(&mut self, now: Now) {
        let health = &self.settings.health;
        let State::Connected(live) = &mut self.state else {
            return;
        };
        let generation = live.generation;
        if let Some(check) = live.check.take_if(|check| check.deadline <= now.at)
            && !overtaken(&check, live.last_heard, health.keepalive_timeout)
        {
            let fault = unanswered_ping(health.keepalive_timeout);
            self.check_failed(now, generation, check.reason, fault);
        } else if live.check.is_none()
            && later(live.last_heard, health.keepalive) <= now.at
            && self.admission.in_flight() == 0
        {
            self.check(now, generation, CheckReason::Idle);
        }
    }

    pub(super) fn connection_lost(
        &mut self,
        now: Now,
        generation: Generation,
        fault: Fault,
        returned: &[ReturnedCall],
    ) {
        if self.current() != Some(generation) {
            self.drop_late();
            self.let_go(returned);
            return;
        }
        match self.state.clone() {
            State::Connected(live) => self.lose(now, &live, fault.clone()),
            State::Disabling(teardown) => match teardown.phase {
                TeardownPhase::Draining { .. } => self.close_teardown(now, generation),
                TeardownPhase::Closing { .. } => {}
            },
            State::Connecting(attempt)
            | State::Reconnecting(attempt)
            | State::Disconnected(attempt) => {
                if let Attempt::Draining { next, .. } = attempt {
                    self.close_drained(now, generation, next);
                }
            }
            State::Sleeping(_) | State::Disabled | State::PermanentlyFailed(_) => {}
        }
        self.take_back(now, generation, &fault, returned);
    }

    pub(super) fn list_changed(&mut self, now: Now, generation: Generation, list: ListKind) {
        match self.live(generation) {
            Some(live) => {
                live.last_heard = now.at;
                self.discovery.changed(now.at, list);
                self.poll_discovery(now);
            }
            None => self.drop_late(),
        }
    }

    pub(super) fn list_fetched(
        &mut self,
        now: Now,
        generation: Generation,
        list: ListKind,
        outcome: FetchOutcome,
    ) {
        if self.live(generation).is_none() {
            self.drop_late();
            return;
        }
        self.discovery.ended(now.at, list, outcome);
        let answered = match outcome {
            FetchOutcome::Fetched | FetchOutcome::Refused => true,
            FetchOutcome::Failed => false,
        };
        if answered {
            self.heard(now, generation);
            self.health.discovery_answered();
        } else if self.health.discovery_failed() {
            self.suspect(now, generation);
        }
        if list == ListKind::Tools {
            if let Some(live) = self.live(generation) {
                live.unlisted = false;
            }
            self.release_held(now, generation, outcome);
        }
        self.poll_discovery(now);
    }

    pub(super) fn list_expires(
        &mut self,
        now: Now,
        generation: Generation,
        list: ListKind,
        after: Duration,
    ) {
        if self.live(generation).is_some() {
            self.discovery.expires(list, later(now.at, after));
        } else {
            self.drop_late();
        }
    }

    /// What is no longer good is fetched again, because somebody wants it.
    pub(super) fn lists_used(&mut self, now: Now) {
        if self.discovery.next_expiry().is_some_and(|at| at <= now.at) {
            self.discovery.used(now.at);
            self.poll_discovery(now);
        }
    }

    pub(super) fn poll_discovery(&mut self, now: Now) {
        let State::Connected(live) = &self.state else {
            return;
        };
        let generation = live.generation;
        while let Some(list) = self.discovery.poll(now.at) {
            self.emit(Effect::FetchList { generation, list });
        }
    }
}

fn unanswered_ping(timeout: Duration) -> Fault {
    let message = format!("did not answer a ping within {timeout:?}");
    Fault::new(FaultClass::Timeout, message)
}

/// Whether a check of an idle connection was overtaken by traffic: it is not idle any more, and what
/// answers calls needs no check. A suspicion is decided by the ping alone.
fn overtaken(check: &Check, last_heard: Instant, timeout: Duration) -> bool {
    match check.reason {
        CheckReason::Idle => later(last_heard, timeout) > check.deadline,
        CheckReason::Suspicion => false,
    }
}

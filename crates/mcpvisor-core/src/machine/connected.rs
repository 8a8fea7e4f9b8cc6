//! A connection that is up: proof, health checks and listings.
//!
//! Only facts of the current generation get past [`Machine::live`].

use std::time::{Duration, Instant};

use super::fault::{Fault, FaultClass};
use super::io::{CallEnd, Effect};
use super::state::{
    Attempt, Check, CheckReason, LiveConnection, ReconnectTiming, SleepPhase, State, TeardownPhase,
};
use super::{Machine, Now, later};
use crate::ids::Generation;
use crate::policy::listing::{FetchOutcome, ListKind};

impl Machine {
    /// The live connection, if it has this generation.
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

    /// The generation of the connection that exists now, from its opening until it is closed.
    pub fn current_generation(&self) -> Option<Generation> {
        self.connection().map(|(generation, _)| generation)
    }

    /// Whether this connection is up or draining, so that calls may be in flight on it.
    pub(super) fn is_up(&self, generation: Generation) -> bool {
        self.connection() == Some((generation, true))
    }

    /// The generation of the current connection, and whether it is up.
    fn connection(&self) -> Option<(Generation, bool)> {
        match &self.state {
            State::Connected(live) => Some((live.generation, true)),
            State::Connecting(attempt)
            | State::Reconnecting(attempt)
            | State::Disconnected(attempt) => match *attempt {
                Attempt::Draining { generation, .. } => Some((generation, true)),
                Attempt::Closing { generation, .. } | Attempt::Opening { generation, .. } => {
                    Some((generation, false))
                }
                Attempt::BackingOff { .. } | Attempt::AwaitingPermit => None,
            },
            State::Disabling(teardown) => match teardown.phase {
                TeardownPhase::Draining { generation, .. } => Some((generation, true)),
                TeardownPhase::Closing { generation } => Some((generation, false)),
            },
            State::Sleeping(SleepPhase::Closing { generation }) => Some((*generation, false)),
            State::Sleeping(SleepPhase::Asleep) | State::Disabled | State::PermanentlyFailed(_) => {
                None
            }
        }
    }

    pub(super) fn note_received(&mut self, now: Now, generation: Generation) {
        if let Some(live) = self.live(generation) {
            live.last_received = now.at;
        } else if !self.is_up(generation) {
            // A draining connection may still send; its messages are not late.
            self.drop_late();
        }
    }

    /// Records the end of a call. An answer of the server proves the connection and its health.
    pub(super) fn note_call_end(&mut self, now: Now, generation: Generation, end: CallEnd) {
        let Some(live) = self.live(generation) else {
            return;
        };
        if end != CallEnd::Local {
            live.last_received = now.at;
        }
        match end {
            CallEnd::Answered => {
                self.health.call_answered();
                if !self.durable.proven {
                    self.prove();
                }
            }
            CallEnd::Unreadable => {
                if self.health.call_failed() {
                    self.check_health(now, generation);
                }
            }
            CallEnd::Local => {}
        }
    }

    /// The connection has proven itself: restores the budget.
    pub(super) fn prove(&mut self) {
        self.durable.budget.prove();
        self.durable.proven = true;
        self.attempts = 0;
        self.last_fault = None;
        self.save_durable();
    }

    /// A call in flight got nothing in time. That counts only if nothing else arrived meanwhile.
    pub(super) fn call_timed_out(&mut self, now: Now, generation: Generation, started: Instant) {
        let Some(live) = self.live(generation) else {
            return;
        };
        if live.last_received <= started && self.health.call_failed() {
            self.check_health(now, generation);
        }
    }

    /// Sends one ping that decides whether the soft failures mean a broken connection.
    pub(super) fn check_health(&mut self, now: Now, generation: Generation) {
        self.start_check(now, generation, CheckReason::SoftFailures);
    }

    pub(super) fn check_idle_connection(&mut self, now: Now) {
        if let State::Connected(live) = &self.state {
            self.start_check(now, live.generation, CheckReason::Idle);
        }
    }

    fn start_check(&mut self, now: Now, generation: Generation, reason: CheckReason) {
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
                live.last_received = now.at;
                if check.reason == CheckReason::SoftFailures {
                    self.health.reset();
                }
            }
        }
    }

    pub(super) fn check_timed_out(&mut self, now: Now) {
        let timeout = self.settings.health.keepalive_timeout;
        let State::Connected(live) = &mut self.state else {
            return;
        };
        let Some(check) = live.check.take() else {
            return;
        };
        // Traffic after the ping shows that an idle connection works. Soft failures are decided by
        // the ping alone.
        let overtaken = match check.reason {
            CheckReason::Idle => later(live.last_received, timeout) > check.deadline,
            CheckReason::SoftFailures => false,
        };
        if !overtaken {
            let generation = live.generation;
            let message = format!("did not answer a ping within {timeout:?}");
            let fault = Fault::new(FaultClass::Timeout, message);
            self.check_failed(now, generation, check.reason, fault);
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
            // Calls that started meanwhile have idle timeouts of their own. The next check follows
            // when the last of them ends.
            return;
        }
        self.last_fault = Some(fault);
        let drain = match reason {
            CheckReason::Idle => false,
            CheckReason::SoftFailures => true,
        };
        self.replace_connection(now, generation, drain, ReconnectTiming::Paced);
    }

    pub(super) fn report_broken(&mut self, now: Now, generation: Generation) {
        if self.live(generation).is_none() {
            self.drop_late();
            return;
        }
        self.last_fault = Some(Fault::new(
            FaultClass::Protocol,
            "a caller reported the connection as broken",
        ));
        self.replace_connection(now, generation, true, ReconnectTiming::Paced);
    }

    pub(super) fn list_changed(&mut self, now: Now, generation: Generation, list: ListKind) {
        match self.live(generation) {
            Some(live) => {
                live.last_received = now.at;
                self.lists.changed(now.at, list);
                self.fetch_due_lists(now);
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
        self.lists.fetch_ended(now.at, list, outcome);
        let answered = match outcome {
            FetchOutcome::Fetched | FetchOutcome::Refused => true,
            FetchOutcome::Failed => false,
        };
        if answered {
            self.note_received(now, generation);
            self.health.listing_answered();
        } else if self.health.listing_failed() {
            self.check_health(now, generation);
        }
        if list == ListKind::Tools {
            if let Some(live) = self.live(generation) {
                live.awaits_tools = false;
            }
            self.release_tool_retries(now, generation, outcome);
        }
        self.fetch_due_lists(now);
    }

    pub(super) fn list_expires(
        &mut self,
        now: Now,
        generation: Generation,
        list: ListKind,
        after: Duration,
    ) {
        if self.live(generation).is_some() {
            self.lists.set_expiry(list, later(now.at, after));
        } else {
            self.drop_late();
        }
    }

    /// Fetches expired lists again, because they are in use.
    pub(super) fn lists_used(&mut self, now: Now) {
        if self.lists.next_expiry().is_some_and(|at| at <= now.at) {
            self.lists.refresh_expired(now.at);
            self.fetch_due_lists(now);
        }
    }

    pub(super) fn fetch_due_lists(&mut self, now: Now) {
        let State::Connected(live) = &self.state else {
            return;
        };
        let generation = live.generation;
        while let Some(list) = self.lists.poll(now.at) {
            self.emit(Effect::FetchList { generation, list });
        }
    }
}

//! Invariants after every step: the machine agrees with the model, and it never gets stuck.

use std::time::Instant;

use mcpvisor_core::machine::{Attempt, SleepPhase, TeardownPhase};
use mcpvisor_core::{Generation, Input, Machine, State, StateName};

use super::model::{Call, Model, Place};

impl Model {
    /// Checks the machine against the model.
    pub fn check_invariants(&self, now: Instant, input: &Input, machine: &Machine) {
        assert_eq!(machine.state().name(), self.state);
        assert!(
            !self.failed || self.state != StateName::Connecting,
            "a failed server looks like a slow one"
        );
        assert_eq!(machine.durable().generation, self.newest);
        self.counts_agree(machine);
        self.connection_agrees(machine);
        self.is_not_stuck(now, machine);
        self.nothing_is_overdue(now, input, machine);
    }

    fn counts_agree(&self, machine: &Machine) {
        let limits = &self.settings.admission;
        let (in_flight, waiting) = (self.in_flight(), self.waiting().count());
        assert_eq!(machine.in_flight(), in_flight);
        assert_eq!(machine.waiting(), waiting);
        assert!(in_flight <= limits.in_flight, "{in_flight} in flight");
        let returned = self.waiting().filter(|(_, call)| call.was_returned).count();
        assert!(waiting <= limits.waiting + returned, "{waiting} queued");
    }

    /// The state refers to the connection that exists.
    fn connection_agrees(&self, machine: &Machine) {
        let (about, open) = about(machine.state());
        let existing = self
            .connection
            .as_ref()
            .map(|connection| connection.generation);
        assert_eq!(about, existing, "in {:?}", machine.state());
        if let State::Connected(live) = machine.state() {
            let current = live.generation > self.outdated;
            assert!(current, "{} uses the old transport", live.generation);
        }
        if let Some(connection) = &self.connection {
            let closing = is_closing(machine.state());
            assert!(!closing || connection.closing, "no close was requested");
            assert_eq!(
                open,
                connection.is_open() && self.state == StateName::Connected
            );
        }
    }

    /// A machine that is not at rest waits for a deadline, the governor or a connection.
    fn is_not_stuck(&self, now: Instant, machine: &Machine) {
        match machine.state() {
            State::Connecting(attempt)
            | State::Reconnecting(attempt)
            | State::Disconnected(attempt) => match attempt {
                Attempt::AwaitingPermit => {
                    assert!(self.permit_requested, "no permit was requested")
                }
                Attempt::BackingOff { retry_at } => {
                    assert!(machine.next_deadline().is_some_and(|due| due <= *retry_at));
                }
                Attempt::Draining { .. } | Attempt::Closing { .. } | Attempt::Opening { .. } => {}
            },
            State::Connected(_) => self.limit_is_used(now),
            State::Disabling(_) => assert_eq!(self.waiting().count(), 0),
            State::PermanentlyFailed {
                closing: Some(_), ..
            } => assert_eq!(self.waiting().count(), 0),
            State::Sleeping(_)
            | State::Disabled
            | State::PermanentlyFailed { closing: None, .. } => assert_eq!(self.open.len(), 0),
        }
        if self.permit_requested {
            let queued = machine.state();
            let queued = matches!(
                queued,
                State::Connecting(Attempt::AwaitingPermit)
                    | State::Reconnecting(Attempt::AwaitingPermit)
                    | State::Disconnected(Attempt::AwaitingPermit)
            );
            assert!(queued, "a permit was requested in another state");
        }
    }

    /// No call is queued below the limit of calls in flight, unless it waits for the list of tools or
    /// a credential.
    fn limit_is_used(&self, now: Instant) {
        let connection = self.connection.as_ref().expect("connected");
        let unlisted = self.settings.listing.before_calls && !connection.listed;
        if unlisted
            || self.credentials.holds_calls()
            || !connection.is_open()
            || self.in_flight() == self.settings.admission.in_flight
        {
            return;
        }
        let held = |call: &Call| {
            let same = call.failed_on == Some(connection.generation);
            call.new.is_tool && call.lost > 0 && !connection.tools_known && !same
        };
        let paused = |call: &Call| call.paused_until.is_some_and(|until| now < until);
        let idle = self
            .waiting()
            .find(|(_, call)| !held(call) && !paused(call) && !call.awaits_credential);
        assert!(idle.is_none(), "{idle:?} is queued below the limit");
    }

    /// After a tick no timer is due, and the next deadline is no later than that of the next call.
    fn nothing_is_overdue(&self, now: Instant, input: &Input, machine: &Machine) {
        let next = machine.next_deadline();
        let first = self.open.values().map(|call| call.new.deadline).min();
        if let Some(first) = first {
            assert!(
                next.is_some_and(|next| next <= first),
                "a call has no timer"
            );
        }
        if *input != Input::Tick {
            return;
        }
        let state = machine.state();
        assert!(next.is_none_or(|next| next > now), "still due in {state:?}");
        let limit = self.settings.timeouts.reconnect_wait;
        for (id, call) in &self.open {
            assert!(call.new.deadline > now, "{id} is overdue");
            match call.place {
                Place::InFlight { active, .. } => {
                    assert!(active + call.new.idle > now, "{id} is idle");
                }
                Place::Waiting { since } => {
                    let away = matches!(
                        self.state,
                        StateName::Reconnecting | StateName::Disconnected
                    );
                    let since = call.paused_until.map_or(since, |until| until.max(since));
                    let until = since.max(self.down_since) + limit;
                    let limited = away && !call.awaits_credential;
                    assert!(!limited || until > now, "{id} waits too long");
                }
            }
        }
    }
}

fn is_closing(state: &State) -> bool {
    match state {
        State::Connecting(attempt)
        | State::Reconnecting(attempt)
        | State::Disconnected(attempt) => matches!(attempt, Attempt::Closing { .. }),
        State::Disabling(teardown) => matches!(teardown.phase, TeardownPhase::Closing { .. }),
        State::Sleeping(nap) => matches!(nap, SleepPhase::Closing { .. }),
        State::PermanentlyFailed { closing, .. } => closing.is_some(),
        State::Connected(_) | State::Disabled => false,
    }
}

/// The connection of a state, and whether it accepts calls.
fn about(state: &State) -> (Option<Generation>, bool) {
    match state {
        State::Connected(live) => (Some(live.generation), !live.is_ending),
        State::Connecting(attempt)
        | State::Reconnecting(attempt)
        | State::Disconnected(attempt) => match attempt {
            Attempt::Draining { generation, .. }
            | Attempt::Closing { generation, .. }
            | Attempt::Opening { generation, .. } => (Some(*generation), false),
            Attempt::BackingOff { .. } | Attempt::AwaitingPermit => (None, false),
        },
        State::Disabling(teardown) => match teardown.phase {
            TeardownPhase::Draining { generation, .. } | TeardownPhase::Closing { generation } => {
                (Some(generation), false)
            }
        },
        State::Sleeping(SleepPhase::Closing { generation }) => (Some(*generation), false),
        State::PermanentlyFailed { closing, .. } => (*closing, false),
        State::Sleeping(SleepPhase::Asleep) | State::Disabled => (None, false),
    }
}

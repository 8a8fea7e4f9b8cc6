//! The lifecycle of one server as a pure machine: `handle(now, chance, input)` in, effects out.
//!
//! It decides when to connect, what becomes of each call and when to give up. It reads no clock and
//! performs nothing: the actor in the `mcpvisor` crate feeds it and does what it says. A new state
//! or input is a compile error in every `match` here, never a surprise.

use std::time::{Duration, Instant};

use super::call_table::Calls;
use super::durable::Durable;
use super::fault::Fault;
use super::io::{Effect, Input};
use super::state::{AfterTeardown, Attempt, State, StateName, TeardownPhase};
use crate::policy::admission::Admission;
use crate::policy::backoff::LONGEST_DELAY;
use crate::policy::health::Health;
use crate::policy::listing::{ListKind, ListSchedule};
use crate::random::Random;
use crate::settings::ServerSettings;

/// The lifecycle machine of one server.
#[derive(Debug, Clone)]
pub struct Machine {
    pub(super) settings: ServerSettings,
    pub(super) state: State,
    /// The state as last announced: the `from` of the next change.
    pub(super) announced: StateName,
    pub(super) durable: Durable,
    /// Connects since the last proven connection.
    pub(super) attempts: u32,
    /// The attempts of a state before this one failed for this reason.
    pub(super) last_fault: Option<Fault>,
    pub(super) since: Instant,
    pub(super) health: Health,
    pub(super) admission: Admission,
    pub(super) discovery: ListSchedule,
    pub(super) calls: Calls,
    /// Somebody listens to the server.
    pub(super) watched: bool,
    /// The next connect costs nothing: it asks for the other era of the protocol.
    pub(super) free: bool,
    /// That was tried since a connection was last up.
    pub(super) other_era_tried: bool,
    pub(super) dropped_late: u64,
    pub(super) out: Vec<Effect>,
}

/// The moment of one step: the time, and the dice rolled for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    pub(super) at: Instant,
    pub(super) chance: Random,
}

/// A moment after another. Settings and callers may name any duration; the clock holds only so much.
pub(super) fn later(at: Instant, duration: Duration) -> Instant {
    at + duration.min(LONGEST_DELAY)
}

impl Machine {
    /// A machine at rest, from what is remembered. [`Input::Start`] sets it going.
    pub fn new(settings: ServerSettings, durable: Durable, now: Instant) -> Self {
        Self {
            health: Health::new(settings.health.threshold),
            admission: Admission::new(&settings.admission),
            discovery: ListSchedule::new(&settings.listing),
            calls: Calls::default(),
            state: State::Disabled,
            announced: durable.first_state(&settings),
            attempts: 0,
            last_fault: None,
            since: now,
            watched: false,
            free: false,
            other_era_tried: false,
            dropped_late: 0,
            out: Vec::new(),
            durable,
            settings,
        }
    }

    /// A machine that follows one whose actor crashed: changes are announced from the state that was
    /// last shown.
    #[must_use]
    pub fn resuming_from(mut self, shown: StateName) -> Self {
        self.announced = shown;
        self
    }

    /// Takes one step. The effects are appended to `effects`, to be performed in order.
    pub fn handle(
        &mut self,
        now: Instant,
        chance: Random,
        input: Input,
        effects: &mut Vec<Effect>,
    ) {
        std::mem::swap(&mut self.out, effects);
        let calls = self.calls.len();
        let called = matches!(input, Input::Call(_));
        self.step(Now { at: now, chance }, input);
        if called || calls != self.calls.len() {
            self.note_call(now);
        }
        let after = self.state.name();
        let from = std::mem::replace(&mut self.announced, after);
        if from != after {
            self.since = now;
            self.emit(Effect::StateChanged { from, to: after });
        }
        std::mem::swap(&mut self.out, effects);
    }

    fn step(&mut self, now: Now, input: Input) {
        match input {
            Input::Start => self.start(now),
            Input::Call(call) => {
                self.lists_used(now);
                self.call(now, call);
            }
            Input::CallCancelled { call } => self.call_left(now, call),
            Input::CallEnded {
                generation,
                call,
                end,
            } => self.call_ended(now, generation, call, end),
            Input::CallFailed {
                generation,
                call,
                trouble,
                fault,
            } => self.call_failed(now, generation, call, trouble, fault),
            Input::SessionLost { generation, fault } => self.session_gone(now, generation, fault),
            Input::CallUndelivered { generation, call } => {
                self.call_undelivered(now, generation, call);
            }
            Input::CallProgressed { generation, call } => self.progressed(now, generation, call),
            Input::MessageReceived { generation } => self.heard(now, generation),
            Input::PermitGranted => self.permit_granted(now),
            Input::FirstByte { generation } => self.first_byte(generation),
            Input::ConnectionUp { generation, lists } => {
                self.connection_up(now, generation, &lists);
            }
            Input::ConnectionLost {
                generation,
                fault,
                returned,
            } => self.connection_lost(now, generation, fault, &returned),
            Input::ConnectionEnded { generation, end } => {
                self.connection_ended(now, generation, end);
            }
            Input::CheckEnded {
                generation,
                failure,
            } => self.check_ended(now, generation, failure),
            Input::ListChanged { generation, list } => self.list_changed(now, generation, list),
            Input::ListFetched {
                generation,
                list,
                outcome,
            } => self.list_fetched(now, generation, list, outcome),
            Input::ListExpires {
                generation,
                list,
                after,
            } => self.list_expires(now, generation, list, after),
            Input::ListsUsed => self.lists_used(now),
            Input::ReportBroken { generation } => self.report_broken(now, generation),
            Input::Enable => self.enable(now),
            Input::Disable => self.tear_down(now, AfterTeardown::Stay, Duration::MAX),
            Input::Reconnect => self.reconnect(now),
            Input::TransportChanged => self.renew(now),
            Input::Shutdown { limit } => self.tear_down(now, AfterTeardown::Stop, limit),
            Input::Reconfigure { settings } => self.reconfigure(now, *settings),
            Input::SubscriptionsChanged { active } => self.watched = active,
            Input::Tick => self.tick(now),
        }
    }

    /// Other settings from now on. What was used of the budget, who is in flight and who waits stays;
    /// where there are more places, those that wait start.
    fn reconfigure(&mut self, now: Now, settings: ServerSettings) {
        let budget = &mut self.durable.budget;
        budget.reconfigure(&settings.backoff, &settings.budget);
        self.health.reconfigure(settings.health.threshold);
        self.admission.reconfigure(&settings.admission);
        self.discovery.reconfigure(&settings.listing);
        self.settings = settings;
        self.remember();
        self.admit(now);
        if !self.may_sleep() {
            self.rouse(now);
        }
    }

    /// The earliest moment at which [`Input::Tick`] would do something.
    pub fn next_deadline(&self) -> Option<Instant> {
        let own = match &self.state {
            State::Connecting(attempt)
            | State::Reconnecting(attempt)
            | State::Disconnected(attempt) => self.attempt_deadline(attempt),
            State::Connected(live) => self.live_deadline(live),
            State::Disabling(teardown) => match teardown.phase {
                TeardownPhase::Draining { until, .. } => Some(until),
                TeardownPhase::Closing { .. } => None,
            },
            State::Sleeping(_) | State::Disabled | State::PermanentlyFailed(_) => None,
        };
        [
            own,
            self.calls.next_deadline(),
            self.discovery.next_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn tick(&mut self, now: Now) {
        let calls = self.calls.len();
        self.expire_calls(now);
        if calls != self.calls.len() {
            self.note_call(now.at);
        }
        match &self.state {
            State::Connecting(_) | State::Reconnecting(_) | State::Disconnected(_) => {
                self.tick_attempt(now);
            }
            State::Connected(_) => self.tick_live(now),
            State::Disabling(_) => self.tick_teardown(now),
            State::Sleeping(_) | State::Disabled | State::PermanentlyFailed(_) => {}
        }
        self.poll_discovery(now);
    }

    /// The state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Since when the state has its name.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// What survives a crash of the actor.
    pub fn durable(&self) -> &Durable {
        &self.durable
    }

    /// The settings.
    pub fn settings(&self) -> &ServerSettings {
        &self.settings
    }

    /// Connects since the last proven connection.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// What last went wrong, until a connection proves itself.
    pub fn last_fault(&self) -> Option<&Fault> {
        self.last_fault.as_ref()
    }

    /// When the next connect comes, if it waits for one.
    pub fn retry_at(&self) -> Option<Instant> {
        match self.state.attempt()? {
            Attempt::BackingOff { retry_at } | Attempt::Closing { retry_at, .. } => Some(*retry_at),
            Attempt::Draining { .. } | Attempt::AwaitingPermit | Attempt::Opening { .. } => None,
        }
    }

    /// Calls in flight.
    pub fn in_flight(&self) -> usize {
        self.admission.in_flight()
    }

    /// Calls that wait for a place, a connection or the check of their tool.
    pub fn waiting(&self) -> usize {
        self.calls.len().saturating_sub(self.admission.in_flight())
    }

    /// Facts of older generations that were dropped.
    pub fn dropped_late(&self) -> u64 {
        self.dropped_late
    }

    /// Every list was fetched on this connection, and none is out of date.
    pub fn is_fresh(&self) -> bool {
        matches!(self.state, State::Connected(_)) && self.discovery.is_fresh()
    }

    /// Whether one list was fetched on this connection and is not out of date; nothing if the server
    /// has no such list, or is not connected.
    pub fn is_list_fresh(&self, list: ListKind) -> Option<bool> {
        match self.state {
            State::Connected(_) => self.discovery.is_list_fresh(list),
            _ => None,
        }
    }

    /// When the first list that was fetched is no longer good, unless it is fetched before.
    pub fn lists_expire_at(&self) -> Option<Instant> {
        self.discovery.next_expiry()
    }

    /// Consecutive failures of calls and of listings.
    pub fn failures(&self) -> (u32, u32) {
        (
            self.health.call_failures(),
            self.health.discovery_failures(),
        )
    }

    pub(super) fn emit(&mut self, effect: Effect) {
        self.out.push(effect);
    }

    /// A fact of a connection that is no longer current changes nothing, and is counted.
    pub(super) fn drop_late(&mut self) {
        self.dropped_late += 1;
    }

    pub(super) fn remember(&mut self) {
        self.emit(Effect::SaveDurable);
    }
}

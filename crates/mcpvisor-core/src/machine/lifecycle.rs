//! The machine: `handle(now, random, input)` in, effects out.
//!
//! It decides when to connect, what happens to each call and when to give up. It reads no clock and
//! performs nothing: the actor in the `mcpvisor` crate passes inputs in and performs the effects. Every
//! `match` names all states and inputs, so that a new one is a compile error.

use std::time::{Duration, Instant};

use super::authorization::Authorization;
use super::call_table::CallTable;
use super::durable::Durable;
use super::fault::Fault;
use super::io::{Effect, Input};
use super::state::{AfterTeardown, Attempt, State, StateName};
use crate::ids::{CallId, ClientId};
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
    /// The last reported state: the `from` of the next change.
    pub(super) announced: StateName,
    pub(super) durable: Durable,
    /// Connects since the last proven connection.
    pub(super) attempts: u32,
    /// The last fault, until a connection proves itself.
    pub(super) last_fault: Option<Fault>,
    pub(super) since: Instant,
    pub(super) health: Health,
    pub(super) admission: Admission,
    pub(super) lists: ListSchedule,
    pub(super) calls: CallTable,
    pub(super) authorization: Authorization,
    /// Callers have subscriptions at the server, so it does not sleep.
    pub(super) has_subscriptions: bool,
    /// The next connect does not count against the budget: it tries the other era of the protocol, or
    /// another credential.
    pub(super) next_connect_is_free: bool,
    /// The other era was tried since a connection was last up.
    pub(super) other_era_tried: bool,
    pub(super) dropped_late: u64,
    pub(super) out: Vec<Effect>,
}

/// The time of one step and its random number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    pub(super) at: Instant,
    pub(super) random: Random,
}

/// Adds a duration to a moment. The duration is limited, because settings and callers may pass any and
/// the clock would overflow.
pub(super) fn later(at: Instant, duration: Duration) -> Instant {
    at + duration.min(LONGEST_DELAY)
}

impl Machine {
    /// A machine that has not started; [`Input::Start`] starts it.
    pub fn new(settings: ServerSettings, durable: Durable, now: Instant) -> Self {
        Self {
            health: Health::new(settings.health.threshold),
            admission: Admission::new(&settings.admission),
            lists: ListSchedule::new(&settings.listing),
            calls: CallTable::default(),
            authorization: Authorization::default(),
            state: State::Disabled,
            announced: durable.first_state(&settings),
            attempts: 0,
            last_fault: None,
            since: now,
            has_subscriptions: false,
            next_connect_is_free: false,
            other_era_tried: false,
            dropped_late: 0,
            out: Vec::new(),
            durable,
            settings,
        }
    }

    /// Continues after a machine whose actor crashed: the next state change is reported from the state
    /// that was last shown.
    #[must_use]
    pub fn resuming_from(mut self, shown: StateName) -> Self {
        self.announced = shown;
        self
    }

    /// Handles one input. The effects are appended to `effects`, to be performed in order.
    pub fn handle(
        &mut self,
        now: Instant,
        random: Random,
        input: Input,
        effects: &mut Vec<Effect>,
    ) {
        std::mem::swap(&mut self.out, effects);
        let calls = self.calls.len();
        let is_call = matches!(input, Input::Call(_));
        self.dispatch(Now { at: now, random }, input);
        if is_call || calls != self.calls.len() {
            self.note_call_activity(now);
        }
        let after = self.state.name();
        let from = std::mem::replace(&mut self.announced, after);
        if from != after {
            self.since = now;
            self.emit(Effect::StateChanged { from, to: after });
        }
        std::mem::swap(&mut self.out, effects);
    }

    fn dispatch(&mut self, now: Now, input: Input) {
        match input {
            Input::Start => self.start(now),
            Input::Call(call) => {
                self.lists_used(now);
                self.admit_call(now, call);
            }
            Input::CallCancelled { call } => self.call_cancelled(now, call),
            Input::CallEnded {
                generation,
                call,
                end,
            } => self.call_ended(now, generation, call, end),
            Input::CallFailed {
                generation,
                call,
                failure,
                fault,
            } => self.call_failed(now, generation, call, failure, fault),
            Input::SessionLost { generation, fault } => self.session_lost(now, generation, fault),
            Input::Unauthorized {
                generation,
                credential,
                fault: _,
            } => self.unauthorized(now, generation, credential),
            Input::CredentialRenewed { credential } => self.credential_renewed(now, credential),
            Input::RenewalFailed { failure } => self.renewal_failed(now, failure),
            Input::CredentialChanged { credential } => self.credential_changed(now, credential),
            Input::CallUndelivered { generation, call } => {
                self.call_undelivered(now, generation, call);
            }
            Input::CallProgressed { generation, call } => {
                self.call_progressed(now, generation, call);
            }
            Input::MessageReceived { generation } => self.note_received(now, generation),
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
            Input::GiveWay => self.give_way(),
            Input::ReportBroken { generation } => self.report_broken(now, generation),
            Input::Enable => self.enable(now),
            Input::Disable => self.tear_down(now, AfterTeardown::StayDisabled, Duration::MAX),
            Input::Reconnect => self.reconnect(now),
            Input::TransportChanged => self.transport_changed(now),
            Input::Shutdown { limit } => self.tear_down(now, AfterTeardown::Stop, limit),
            Input::Reconfigure { settings } => self.reconfigure(now, *settings),
            Input::SubscriptionsChanged { active } => self.has_subscriptions = active,
            Input::Tick => self.tick(now),
        }
    }

    /// Applies new settings. The used budget, calls in flight and the queue stay; a higher limit lets
    /// queued calls start.
    fn reconfigure(&mut self, now: Now, settings: ServerSettings) {
        let budget = &mut self.durable.budget;
        budget.reconfigure(&settings.backoff, &settings.budget);
        self.health.reconfigure(settings.health.threshold);
        self.admission.reconfigure(&settings.admission);
        self.lists.reconfigure(&settings.listing);
        self.settings = settings;
        self.save_durable();
        self.start_queued_calls(now);
        if !self.may_sleep() {
            self.wake(now);
        }
    }

    /// The state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// When the state was entered.
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

    /// The last fault, until a connection proves itself.
    pub fn last_fault(&self) -> Option<&Fault> {
        self.last_fault.as_ref()
    }

    /// When the next connect comes, if one is scheduled.
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

    /// Calls that wait: queued, paused, for the list of tools, or for a renewed credential.
    pub fn waiting(&self) -> usize {
        self.calls.len().saturating_sub(self.admission.in_flight())
    }

    /// The calls of a client, in an order in which they can be cancelled without starting one of them.
    pub fn calls_of(&self, client: ClientId) -> Vec<CallId> {
        self.calls.of_client(client)
    }

    /// How many facts of older generations were dropped.
    pub fn dropped_late(&self) -> u64 {
        self.dropped_late
    }

    /// Whether every list was fetched on this connection and none is out of date.
    pub fn is_fresh(&self) -> bool {
        matches!(self.state, State::Connected(_)) && self.lists.is_fresh()
    }

    /// Whether a list was fetched on this connection and is not out of date; `None` if the server has no
    /// such list or is not connected.
    pub fn is_list_fresh(&self, list: ListKind) -> Option<bool> {
        match self.state {
            State::Connected(_) => self.lists.is_list_fresh(list),
            _ => None,
        }
    }

    /// When the first fetched list expires.
    pub fn lists_expire_at(&self) -> Option<Instant> {
        self.lists.next_expiry()
    }

    /// Consecutive soft failures of calls and of listings.
    #[cfg(test)]
    pub(crate) fn failures(&self) -> (u32, u32) {
        (self.health.call_failures(), self.health.listing_failures())
    }

    pub(super) fn emit(&mut self, effect: Effect) {
        self.out.push(effect);
    }

    /// Counts a fact of a connection that is no longer current. It changes nothing else.
    pub(super) fn drop_late(&mut self) {
        self.dropped_late += 1;
    }

    pub(super) fn save_durable(&mut self) {
        self.emit(Effect::SaveDurable);
    }
}

//! A simple model of one server, built only from the inputs and effects of the machine. A broken
//! invariant panics.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use mcpvisor_core::machine::{Attempt, CallEnd, ConnectionEnd, Durable, NewCall, ReturnedCall};
use mcpvisor_core::retry::{BUSY_PAUSE, Known, RequestFailure};
use mcpvisor_core::{
    CallId, Effect, FetchOutcome, Generation, Input, ListKind, Machine, ServerSettings, State,
    StateName,
};

use super::authorization::{Credentials, is_authorization};
use super::effects::{known_of, may_repeat, may_repeat_after};

/// What inputs and effects show about one server.
#[derive(Debug, Clone)]
pub struct Model {
    pub settings: ServerSettings,
    /// The calls without an outcome.
    pub open: BTreeMap<CallId, Call>,
    /// The calls with an outcome.
    pub over: BTreeSet<CallId>,
    /// The connection whose task has not ended.
    pub connection: Option<Connection>,
    pub newest: Generation,
    /// A permit is requested and not granted.
    pub permit_requested: bool,
    pub state: StateName,
    /// A shutdown is requested.
    pub stopping: bool,
    pub stopped: bool,
    /// Connects and restarts since the budget was last restored.
    pub budget: Vec<Instant>,
    pub last_connect: Option<Instant>,
    /// Connections up to this one use an old transport.
    pub outdated: Generation,
    /// The user requested a connection since the last connect.
    pub user_requested: bool,
    pub has_subscriptions: bool,
    /// When the connection came up, or a call last arrived or ended.
    pub last_call: Instant,
    /// The next connect does not count against the budget.
    pub free: bool,
    /// The free connect was used since a connection was last up.
    pub other_era_tried: bool,
    /// An attempt failed since it was configured, enabled or woken.
    pub failed: bool,
    /// When a connection was last lost or replaced, or a first attempt failed.
    pub down_since: Instant,
    pub dropped_late: u64,
    pub credentials: Credentials,
    /// It failed permanently because of its authorization.
    pub needs_login: bool,
    /// It backs off or closes before the next connect, because of its authorization.
    pub waits_for_credential: bool,
}

/// One call without an outcome.
#[derive(Debug, Clone)]
pub struct Call {
    pub new: NewCall,
    pub place: Place,
    /// How many times it was returned after it was written.
    pub lost: u8,
    /// It was returned to the front of the queue, beyond its limit.
    pub was_returned: bool,
    /// What is known from sending it.
    pub known: Known,
    /// Whether it may be sent again.
    pub may_repeat: bool,
    /// It failed on this connection, which stayed up.
    pub failed_on: Option<Generation>,
    /// The server asked for a pause until then.
    pub paused_until: Option<Instant>,
    /// It was refused with 401, and the renewal has not ended.
    pub awaits_credential: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// With the actor.
    Waiting { since: Instant },
    /// With the connection. `active` is when it was sent or last progressed.
    InFlight { on: Generation, active: Instant },
}

/// One connection whose task has not ended.
#[derive(Debug, Clone)]
pub struct Connection {
    pub generation: Generation,
    pub up: Option<Instant>,
    /// It was lost or is being closed.
    pub closing: bool,
    /// It rejected a call, so its loss will be reported.
    pub is_ending: bool,
    pub has_tools: bool,
    pub tools_known: bool,
    /// The first fetch of the tools has ended.
    pub listed: bool,
    pub fetching: BTreeSet<ListKind>,
}

impl Connection {
    /// Whether it accepts calls.
    pub fn is_open(&self) -> bool {
        self.up.is_some() && !self.closing && !self.is_ending
    }
}

/// One step of the machine.
pub struct Step<'a> {
    pub now: Instant,
    pub input: &'a Input,
    /// Calls that were returned after their outcome: the actor must drop them.
    pub returned_late: BTreeSet<CallId>,
    /// The durable state was saved.
    pub saved: bool,
    /// It only ends the close of a connection: no attempt failed.
    pub ends_a_close: bool,
    /// It ends a connection that was being opened.
    pub ends_an_attempt: bool,
    /// The state after it.
    pub becomes: StateName,
    /// The server refused a credential.
    pub is_unauthorized: bool,
    /// A credential takes the server out of its permanent failure.
    pub heals: bool,
    /// A renewal failed, so the calls that waited for it are refused.
    pub refuses: bool,
    /// A renewal failed for good, and so does the server.
    pub fails: bool,
}

impl Model {
    pub fn new(settings: ServerSettings, enabled: bool, now: Instant) -> Self {
        let state = Durable::new(&settings, enabled).first_state(&settings);
        Self {
            settings,
            open: BTreeMap::new(),
            over: BTreeSet::new(),
            connection: None,
            newest: Generation::NONE,
            permit_requested: false,
            state,
            stopping: false,
            stopped: false,
            budget: Vec::new(),
            last_connect: None,
            outdated: Generation::NONE,
            user_requested: false,
            has_subscriptions: false,
            last_call: now,
            free: false,
            other_era_tried: false,
            failed: false,
            down_since: now,
            dropped_late: 0,
            credentials: Credentials::default(),
            needs_login: false,
            waits_for_credential: false,
        }
    }

    /// The actor crashed: the calls it held were dropped, which answered them.
    pub fn crash(&mut self, now: Instant) {
        self.free = false;
        self.other_era_tried = false;
        self.over.extend(self.open.keys().copied());
        self.open.clear();
        self.connection = None;
        self.permit_requested = false;
        self.budget.push(now);
        self.down_since = now;
        self.dropped_late = 0;
        self.credentials = Credentials::default();
        self.has_subscriptions = false;
    }

    pub fn waiting(&self) -> impl Iterator<Item = (&CallId, &Call)> {
        let waits = |call: &Call| matches!(call.place, Place::Waiting { .. });
        self.open.iter().filter(move |(_, call)| waits(call))
    }

    pub fn in_flight(&self) -> usize {
        self.open.len() - self.waiting().count()
    }

    /// Whether a fact comes from a connection that does not exist.
    pub fn is_late(&self, input: &Input) -> bool {
        let current = self
            .connection
            .as_ref()
            .map(|connection| connection.generation);
        fact_of(input).is_some_and(|generation| current != Some(generation))
    }

    fn ends_an_attempt(&self, input: &Input) -> bool {
        let Input::ConnectionEnded { generation, .. } = input else {
            return false;
        };
        self.connection
            .as_ref()
            .is_some_and(|it| it.generation == *generation && it.up.is_none() && !it.closing)
    }

    /// Applies one step of the machine, and checks it.
    pub fn observe(&mut self, now: Instant, input: &Input, effects: &[Effect], machine: &Machine) {
        assert!(!self.stopped, "{input:?} after the end");
        let late = self.is_late(input);
        let before = self.open.len();
        let mut step = Step {
            now,
            input,
            returned_late: BTreeSet::new(),
            saved: false,
            ends_a_close: matches!(input, Input::ConnectionEnded { .. })
                && self.connection.as_ref().is_some_and(|it| it.closing),
            ends_an_attempt: self.ends_an_attempt(input),
            becomes: machine.state().name(),
            is_unauthorized: false,
            heals: false,
            refuses: false,
            fails: false,
        };
        let rejected = self.rejects();
        self.apply_input(&mut step);
        for effect in effects {
            self.apply_effect(&mut step, effect, machine);
        }
        if step.ends_an_attempt && !self.free {
            assert!(self.failed, "a failed attempt is not reported");
        }
        assert_eq!(step.returned_late, BTreeSet::new(), "these are not dropped");
        if let Input::CallCancelled { call } = input {
            assert!(
                !self.open.contains_key(call),
                "{call} was cancelled and continues"
            );
        }
        let dropped = machine.dropped_late() - self.dropped_late;
        self.dropped_late = machine.dropped_late();
        if late {
            let others = |effect: &&Effect| !matches!(effect, Effect::DropCall { .. });
            assert_eq!(effects.iter().find(others), None, "a late fact has effects");
            assert_eq!(dropped, 1, "a late fact is dropped and counted");
        }
        if self.open.len() < before {
            self.last_call = now;
        }
        self.check_invariants(now, input, machine);
        self.check_credentials(&step, rejected);
        self.note_authorization(machine);
        if let Some(generation) = session_lost(input) {
            let state = machine.state();
            let stays = matches!(state, State::Connected(live) if live.generation == generation);
            assert!(!stays, "a connection continues without its session");
        }
    }

    /// Notes whether another credential would cause a connect.
    fn note_authorization(&mut self, machine: &Machine) {
        let faulty = machine.last_fault().is_some_and(is_authorization);
        (self.needs_login, self.waits_for_credential) = match machine.state() {
            State::PermanentlyFailed { failure, .. } => (is_authorization(&failure.fault), false),
            State::Connecting(attempt)
            | State::Reconnecting(attempt)
            | State::Disconnected(attempt) => match attempt {
                Attempt::BackingOff { .. } | Attempt::Closing { .. } => (false, faulty),
                Attempt::Draining { .. } | Attempt::AwaitingPermit | Attempt::Opening { .. } => {
                    (false, false)
                }
            },
            State::Connected(_) | State::Disabling(_) | State::Sleeping(_) | State::Disabled => {
                (false, false)
            }
        };
    }

    /// Applies an input.
    fn apply_input(&mut self, step: &mut Step<'_>) {
        let now = step.now;
        match step.input {
            Input::Call(new) => {
                let call = Call {
                    new: new.clone(),
                    place: Place::Waiting { since: now },
                    lost: 0,
                    was_returned: false,
                    known: Known::NotSent,
                    may_repeat: false,
                    failed_on: None,
                    paused_until: None,
                    awaits_credential: false,
                };
                let known = self.over.contains(&new.call) || self.open.contains_key(&new.call);
                assert!(!known, "a call id is reused");
                self.open.insert(new.call, call);
                self.last_call = now;
            }
            Input::CallEnded {
                generation,
                call,
                end,
            } => self.call_ended(*generation, *call, *end),
            Input::CallFailed {
                generation,
                call,
                failure,
                ..
            } => self.call_failed(step, *generation, *call, *failure),
            Input::Unauthorized {
                generation,
                credential,
                ..
            } => self.unauthorized(step, *generation, *credential),
            Input::CredentialRenewed { credential } => self.credential_renewed(step, *credential),
            Input::CredentialChanged { credential } => self.credential_changed(step, *credential),
            Input::RenewalFailed { failure } => self.renewal_failed(step, failure),
            Input::CallUndelivered { generation, call } => {
                if self.is_in_flight_on(*call, *generation) {
                    self.call_returned(now, *call, false);
                    if let Some(connection) = &mut self.connection {
                        connection.is_ending = true;
                    }
                }
            }
            Input::CallProgressed { generation, call } => {
                if self.is_in_flight_on(*call, *generation) {
                    let on = *generation;
                    self.move_to(*call, Place::InFlight { on, active: now });
                }
            }
            Input::ConnectionUp { generation, lists } => {
                self.connection_up(now, *generation, lists);
            }
            Input::ConnectionLost {
                generation,
                returned,
                ..
            } => self.connection_lost(step, *generation, returned),
            Input::ConnectionEnded { generation, end } => {
                self.repeats_with_credential(end, step.ends_an_attempt);
                self.other_era(*generation, end);
                self.connection_ended(*generation);
            }
            Input::ListFetched {
                generation,
                list,
                outcome,
            } => self.list_fetched(*generation, *list, *outcome),
            Input::Enable | Input::Reconnect => self.user_request(step.input),
            Input::TransportChanged => {
                self.user_request(step.input);
                self.outdated = self.newest;
                self.free = false;
                self.other_era_tried = false;
                self.credentials.forget();
            }
            Input::Shutdown { .. } => self.stopping = true,
            Input::Tick => {
                let up = self
                    .connection
                    .as_ref()
                    .filter(|connection| !connection.closing);
                let since = up.and_then(|connection| connection.up);
                if since.is_some_and(|since| now - since >= self.settings.budget.proven_after) {
                    self.budget.clear();
                }
            }
            Input::Reconfigure { settings } => self.settings = ServerSettings::clone(settings),
            Input::SubscriptionsChanged { active } => self.has_subscriptions = *active,
            Input::Start
            | Input::CallCancelled { .. }
            | Input::SessionLost { .. }
            | Input::MessageReceived { .. }
            | Input::PermitGranted
            | Input::FirstByte { .. }
            | Input::CheckEnded { .. }
            | Input::ListChanged { .. }
            | Input::ListExpires { .. }
            | Input::ListsUsed
            | Input::GiveWay
            | Input::ReportBroken { .. }
            | Input::Disable => {}
        }
    }

    pub fn is_in_flight_on(&self, call: CallId, generation: Generation) -> bool {
        let place = self.open.get(&call).map(|call| call.place);
        matches!(place, Some(Place::InFlight { on, .. }) if on == generation)
    }

    fn move_to(&mut self, call: CallId, place: Place) {
        self.open.get_mut(&call).expect("the call is open").place = place;
    }

    fn call_returned(&mut self, now: Instant, id: CallId, written: bool) {
        let call = self.open.get_mut(&id).expect("the call is open");
        call.place = Place::Waiting { since: now };
        call.was_returned = true;
        if written {
            call.lost += 1;
            call.known = Known::Unknown;
            call.may_repeat = may_repeat(&call.new);
            call.failed_on = None;
        }
    }

    /// A call failed on a live connection.
    fn call_failed(
        &mut self,
        step: &mut Step<'_>,
        on: Generation,
        id: CallId,
        failure: RequestFailure,
    ) {
        if !self.is_in_flight_on(id, on) {
            if self.over.contains(&id) {
                step.returned_late.insert(id);
            }
            return;
        }
        let known = known_of(failure);
        if known == Known::NotSent {
            self.call_returned(step.now, id, false);
            if let Some(connection) = &mut self.connection {
                connection.is_ending = true;
            }
            return;
        }
        self.call_unauthorized(step, on, failure);
        let usable = self.credentials.is_usable();
        let settings = self.settings.retry.clone();
        let call = self.open.get_mut(&id).expect("the call is in flight");
        call.place = Place::Waiting { since: step.now };
        call.was_returned = true;
        call.lost += 1;
        if call.known != Known::Unknown {
            call.known = known;
        }
        call.may_repeat = may_repeat_after(failure, &call.new, settings.retry_expired_calls);
        call.failed_on = Some(on);
        let refused = matches!(failure, RequestFailure::Unauthorized { .. });
        call.awaits_credential = refused && !usable;
        call.paused_until = match failure {
            RequestFailure::Busy { retry_after } => {
                let most = self.settings.backoff.max_retry_after;
                let pause = retry_after.map_or(BUSY_PAUSE, |pause| pause.min(most));
                Some(step.now + pause)
            }
            _ => None,
        };
    }

    pub fn end(&mut self, id: CallId) -> Call {
        assert!(self.over.insert(id), "{id} has two outcomes");
        self.open
            .remove(&id)
            .unwrap_or_else(|| panic!("{id} does not exist"))
    }

    fn call_ended(&mut self, generation: Generation, call: CallId, end: CallEnd) {
        if !self.is_in_flight_on(call, generation) {
            return;
        }
        self.end(call);
        let current = self.connection.as_ref();
        if end == CallEnd::Answered && current.is_some_and(|connection| !connection.closing) {
            self.budget.clear();
        }
    }

    fn connection_up(&mut self, now: Instant, generation: Generation, lists: &[ListKind]) {
        let current = self.connection.as_mut();
        if let Some(connection) = current.filter(|connection| connection.generation == generation)
            && !connection.closing
        {
            connection.up = Some(now);
            self.other_era_tried = false;
            connection.has_tools = lists.contains(&ListKind::Tools);
            connection.listed = !connection.has_tools;
            self.last_call = now;
        }
    }

    fn connection_lost(
        &mut self,
        step: &mut Step<'_>,
        generation: Generation,
        returned: &[ReturnedCall],
    ) {
        for back in returned {
            if self.is_in_flight_on(back.call, generation) {
                self.call_returned(step.now, back.call, back.written);
            } else if self.over.contains(&back.call) {
                step.returned_late.insert(back.call);
            }
        }
        self.drop_in_flight(generation);
        if let Some(connection) = &mut self.connection
            && connection.generation == generation
        {
            // A connection that never came up cannot be lost; its end is on the way.
            connection.closing |= connection.up.is_some();
        }
    }

    /// The calls of a connection were answered when it dropped them.
    fn drop_in_flight(&mut self, generation: Generation) {
        let flying: Vec<_> = self.open.keys().copied().collect();
        for call in flying {
            if self.is_in_flight_on(call, generation) {
                self.end(call);
            }
        }
    }

    /// A server that closes on the probe gets one free connect.
    fn other_era(&mut self, generation: Generation, end: &ConnectionEnd) {
        let opening = self.connection.as_ref().is_some_and(|connection| {
            connection.generation == generation && connection.up.is_none() && !connection.closing
        });
        if opening && matches!(end, ConnectionEnd::TryOtherEra(_)) {
            self.free = !std::mem::replace(&mut self.other_era_tried, true);
        }
    }

    fn connection_ended(&mut self, generation: Generation) {
        self.drop_in_flight(generation);
        self.connection
            .take_if(|connection| connection.generation == generation);
    }

    fn list_fetched(&mut self, generation: Generation, list: ListKind, outcome: FetchOutcome) {
        let current = self.connection.as_mut();
        if let Some(connection) = current.filter(|connection| connection.generation == generation) {
            connection.fetching.remove(&list);
            connection.listed |= list == ListKind::Tools;
            connection.tools_known |= list == ListKind::Tools && outcome == FetchOutcome::Fetched;
        }
    }

    fn user_request(&mut self, request: &Input) {
        use StateName::{Connected, Connecting, Disabled, Disabling, Disconnected};
        use StateName::{PermanentlyFailed, Reconnecting, Sleeping};
        self.user_requested = true;
        let reconnects = matches!(request, Input::Reconnect | Input::TransportChanged);
        let forgives = match self.state {
            Disconnected | PermanentlyFailed | Sleeping => true,
            Connecting | Connected | Reconnecting => reconnects,
            Disabled => !reconnects,
            Disabling => false,
        };
        if forgives && !self.stopping {
            self.budget.clear();
        }
    }
}

/// The connection whose session is lost.
fn session_lost(input: &Input) -> Option<Generation> {
    match input {
        Input::SessionLost { generation, .. } => Some(*generation),
        _ => None,
    }
}

/// The generation of a fact.
pub fn fact_of(input: &Input) -> Option<Generation> {
    match input {
        Input::CallEnded { generation, .. }
        | Input::CallFailed { generation, .. }
        | Input::SessionLost { generation, .. }
        | Input::Unauthorized { generation, .. }
        | Input::CallProgressed { generation, .. }
        | Input::MessageReceived { generation }
        | Input::FirstByte { generation }
        | Input::ConnectionUp { generation, .. }
        | Input::ConnectionLost { generation, .. }
        | Input::ConnectionEnded { generation, .. }
        | Input::CheckEnded { generation, .. }
        | Input::ListChanged { generation, .. }
        | Input::ListFetched { generation, .. }
        | Input::ListExpires { generation, .. }
        | Input::ReportBroken { generation } => Some(*generation),
        // The actor reports these about itself, so they are never late.
        Input::CallUndelivered { .. } => None,
        Input::Start
        | Input::Call(_)
        | Input::CallCancelled { .. }
        | Input::CredentialRenewed { .. }
        | Input::RenewalFailed { .. }
        | Input::CredentialChanged { .. }
        | Input::ListsUsed
        | Input::GiveWay
        | Input::PermitGranted
        | Input::Enable
        | Input::Disable
        | Input::Reconnect
        | Input::TransportChanged
        | Input::Shutdown { .. }
        | Input::Reconfigure { .. }
        | Input::SubscriptionsChanged { .. }
        | Input::Tick => None,
    }
}

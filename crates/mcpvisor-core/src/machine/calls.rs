//! The calls of one server: where each stands, its deadlines, and its one outcome.
//!
//! Every call that enters leaves exactly once: answered by its connection, resolved here, or
//! forgotten because its caller left. The order in the waiting line is [`crate::admission`]'s.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::io::{CallEnd, Effect, NewCall, NotSent, Outcome, Returned};
use super::state::{AfterTeardown, Attempt, Fault, FaultClass, State, TeardownPhase};
use super::{Machine, Now, later};
use crate::admission::Entry;
use crate::discovery::FetchOutcome;
use crate::ids::{CallId, CallMap, ClientId, Generation};
use crate::retry::{self, Decision, Known, RetryWish, Safety, Trouble};

/// Why calls that wait are given up; those that were sent before get *outcome unknown* instead.
pub(super) struct GiveUp(pub(super) NotSent);

#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) client: ClientId,
    pub(super) safety: Safety,
    pub(super) wish: RetryWish,
    pub(super) is_tool: bool,
    pub(super) deadline: Instant,
    idle: Duration,
    /// Retries used so far; there is one in total.
    pub(super) retries: u8,
    /// What is known of it from when it was sent before, on this connection or an earlier one.
    pub(super) known: Known,
    place: Place,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    /// In the waiting line, until the wait for a connection is over.
    Line { until: Option<Instant> },
    /// A tool call that will be retried once the tool is known to be the same.
    Held { until: Instant },
    /// It will be sent again then, because the server asked for a pause on this connection.
    Paused {
        until: Instant,
        generation: Generation,
    },
    /// With the connection.
    Flight {
        generation: Generation,
        started: Instant,
        idle_until: Instant,
    },
}

impl Call {
    fn due(&self) -> Instant {
        match self.place {
            Place::Line { until: None } => self.deadline,
            Place::Line { until: Some(until) }
            | Place::Held { until }
            | Place::Paused { until, .. }
            | Place::Flight {
                idle_until: until, ..
            } => self.deadline.min(until),
        }
    }

    fn is_waiting(&self) -> bool {
        match self.place {
            Place::Line { .. } | Place::Held { .. } | Place::Paused { .. } => true,
            Place::Flight { .. } => false,
        }
    }

    /// Some of it may have reached a server before.
    pub(super) fn sent(&self) -> bool {
        self.known != Known::NotSent
    }

    /// It was sent, and this is known of it. Nothing later makes an unknown outcome known.
    pub(super) fn learn(&mut self, known: Known) {
        if self.known != Known::Unknown {
            self.known = known;
        }
        self.retries = self.retries.saturating_add(1);
    }

    pub(super) fn flies_on(&self, wanted: Generation) -> bool {
        matches!(self.place, Place::Flight { generation, .. } if generation == wanted)
    }
}

/// All calls, and the order in which their deadlines pass.
#[derive(Debug, Clone, Default)]
pub(super) struct Calls {
    by_id: CallMap<Call>,
    due: BTreeSet<(Instant, CallId)>,
}

impl Calls {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    fn insert(&mut self, id: CallId, call: Call) {
        self.due.insert((call.due(), id));
        self.by_id.insert(id, call);
    }

    pub(super) fn remove(&mut self, id: CallId) -> Option<Call> {
        let call = self.by_id.remove(&id)?;
        self.due.remove(&(call.due(), id));
        Some(call)
    }

    pub(super) fn get(&self, id: CallId) -> Option<&Call> {
        self.by_id.get(&id)
    }

    pub(super) fn move_to(&mut self, id: CallId, place: Place) {
        if let Some(call) = self.by_id.get_mut(&id) {
            self.due.remove(&(call.due(), id));
            call.place = place;
            self.due.insert((call.due(), id));
        }
    }

    pub(super) fn get_mut(&mut self, id: CallId) -> Option<&mut Call> {
        self.by_id.get_mut(&id)
    }

    fn overdue(&self, now: Instant) -> Option<CallId> {
        self.due
            .first()
            .and_then(|(due, id)| (*due <= now).then_some(*id))
    }

    /// The calls that satisfy a condition, oldest first.
    fn select(&self, wanted: impl Fn(&Call) -> bool) -> Vec<CallId> {
        let mut ids: Vec<CallId> = self
            .by_id
            .iter()
            .filter(|(_, call)| wanted(call))
            .map(|(id, _)| *id)
            .collect();
        ids.sort_unstable();
        ids
    }
}

impl Machine {
    pub(super) fn call(&mut self, now: Now, new: NewCall) {
        let until = later(now.at, self.settings.timeouts.reconnect_wait);
        let (open, until) = match &self.state {
            State::Connected(live) => (live.is_open(), None),
            State::Connecting(_) => (false, None),
            State::Reconnecting(_) => (false, Some(until)),
            State::Sleeping(_) => (false, self.durable.met.then_some(until)),
            State::Disconnected(_) if self.settings.budget.wake_on_call => (false, Some(until)),
            State::Disconnected(_)
            | State::Disabling(_)
            | State::Disabled
            | State::PermanentlyFailed(_) => {
                let reason = self.closed_reason();
                self.resolve(new.call, Outcome::NotSent(reason));
                return;
            }
        };
        if new.deadline <= now.at {
            let outcome = Outcome::Deadline {
                sent: false,
                idle: false,
            };
            self.resolve(new.call, outcome);
            return;
        }
        match self
            .admission
            .enter(new.client, new.call, new.priority, open)
        {
            Entry::Start => self.start_new(now, new),
            Entry::Wait => {
                self.keep(new, Place::Line { until });
                self.wake(now);
            }
            Entry::Full => {
                self.resolve(new.call, Outcome::Busy);
                // There may be no line at all: it wakes for the next one.
                self.rouse(now);
            }
        }
    }

    /// Why nothing can be sent in this state.
    fn closed_reason(&self) -> NotSent {
        match &self.state {
            State::Disabling(teardown) if teardown.then == AfterTeardown::Stop => NotSent::Stopping,
            State::Disabling(_) | State::Disabled => NotSent::Disabled,
            State::PermanentlyFailed(failure) => NotSent::Failed(failure.clone()),
            State::Disconnected(_) => NotSent::Parked(self.last_fault.clone()),
            State::Connecting(_)
            | State::Connected(_)
            | State::Reconnecting(_)
            | State::Sleeping(_) => NotSent::NoConnection(self.last_fault.clone()),
        }
    }

    /// Why nothing can come of waiting, in a state where that is so.
    pub(super) fn closed(&self) -> Option<NotSent> {
        match &self.state {
            State::Connected(_)
            | State::Connecting(_)
            | State::Reconnecting(_)
            | State::Sleeping(_) => None,
            State::Disconnected(_)
            | State::Disabling(_)
            | State::Disabled
            | State::PermanentlyFailed(_) => Some(self.closed_reason()),
        }
    }

    fn keep(&mut self, new: NewCall, place: Place) {
        let call = Call {
            client: new.client,
            safety: new.safety,
            wish: new.wish,
            is_tool: new.is_tool,
            deadline: new.deadline,
            idle: new.idle,
            retries: 0,
            known: Known::NotSent,
            place,
        };
        self.calls.insert(new.call, call);
    }

    fn start_new(&mut self, now: Now, new: NewCall) {
        let Some(generation) = self.open_generation() else {
            return;
        };
        let call = new.call;
        let place = Place::Flight {
            generation,
            started: now.at,
            idle_until: later(now.at, new.idle),
        };
        self.keep(new, place);
        self.emit(Effect::StartCall {
            call,
            generation,
            retried: false,
        });
    }

    /// The connection that takes calls now.
    pub(super) fn open_generation(&self) -> Option<Generation> {
        match &self.state {
            State::Connected(live) if live.is_open() => Some(live.generation),
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

    /// Starts waiting calls while there is room; not those whose time was up while a tick was late.
    pub(super) fn admit(&mut self, now: Now) {
        let Some(generation) = self.open_generation() else {
            return;
        };
        while let Some(id) = self.admission.next() {
            let Some(call) = self.calls.get(id) else {
                self.admission.finish();
                continue;
            };
            if call.deadline <= now.at {
                self.admission.finish();
                self.expire_one(now, id);
                continue;
            }
            let retried = call.sent();
            let idle_until = later(now.at, call.idle);
            self.calls.move_to(
                id,
                Place::Flight {
                    generation,
                    started: now.at,
                    idle_until,
                },
            );
            self.emit(Effect::StartCall {
                call: id,
                generation,
                retried,
            });
        }
    }

    pub(super) fn call_ended(
        &mut self,
        now: Now,
        generation: Generation,
        id: CallId,
        end: CallEnd,
    ) {
        if !self.calls.get(id).is_some_and(|c| c.flies_on(generation)) {
            // Answered after it was given up, or by a connection that is no longer current.
            self.heard(now, generation);
            return;
        }
        self.calls.remove(id);
        self.admission.finish();
        self.answered(now, generation, end);
        self.after_flight(now);
    }

    /// A place became free: the next call starts, or a drained connection is closed.
    pub(super) fn after_flight(&mut self, now: Now) {
        let empty = self.admission.in_flight() == 0;
        match &self.state {
            State::Connected(_) => self.admit(now),
            State::Connecting(attempt)
            | State::Reconnecting(attempt)
            | State::Disconnected(attempt) => {
                if let Attempt::Draining {
                    generation, next, ..
                } = *attempt
                    && empty
                {
                    self.close_drained(now, generation, next);
                }
            }
            State::Disabling(teardown) => {
                if let TeardownPhase::Draining { generation, .. } = teardown.phase
                    && empty
                {
                    self.close_teardown(generation);
                }
            }
            State::Sleeping(_) | State::Disabled | State::PermanentlyFailed(_) => {}
        }
    }

    pub(super) fn call_left(&mut self, now: Now, id: CallId) {
        let Some(call) = self.calls.remove(id) else {
            return;
        };
        match call.place {
            Place::Line { .. } => {
                self.admission.remove(call.client, id);
                self.emit(Effect::Forget { call: id });
            }
            Place::Held { .. } | Place::Paused { .. } => self.emit(Effect::Forget { call: id }),
            Place::Flight { generation, .. } => {
                self.abandon(now, id, generation, Outcome::Cancelled);
            }
        }
    }

    fn abandon(&mut self, now: Now, call: CallId, generation: Generation, outcome: Outcome) {
        self.emit(Effect::Abandon {
            call,
            generation,
            outcome,
        });
        self.admission.finish();
        self.after_flight(now);
    }

    pub(super) fn call_undelivered(&mut self, now: Now, generation: Generation, id: CallId) {
        let Some(call) = self.calls.get(id).filter(|c| c.flies_on(generation)) else {
            return;
        };
        let (client, sent) = (call.client, call.sent());
        self.admission.finish();
        if let Some(live) = self.live(generation) {
            live.deaf = true;
        }
        self.requeue(now, id, client, sent);
    }

    /// Puts a call back into the line, or gives it up where nothing can come of waiting.
    pub(super) fn requeue(&mut self, now: Now, id: CallId, client: ClientId, sent: bool) {
        let until = later(now.at, self.settings.timeouts.reconnect_wait);
        if let Some(reason) = self.closed() {
            self.give_up(id, &GiveUp(reason));
            return;
        }
        let is_tool = self.calls.get(id).is_some_and(|c| c.is_tool);
        if is_tool && sent {
            self.calls.move_to(id, Place::Held { until });
        } else {
            self.admission.enter_front(client, id);
            self.calls.move_to(id, Place::Line { until: Some(until) });
        }
    }

    /// Takes back what a connection had not answered: retries what is safe, answers the rest.
    pub(super) fn take_back(
        &mut self,
        now: Now,
        generation: Generation,
        fault: &Fault,
        returned: &[Returned],
    ) {
        self.let_go(returned);
        let in_flight = self.calls.select(|call| call.flies_on(generation));
        if in_flight.is_empty() {
            return;
        }
        self.admission.lose_all();
        // Newest first, since each goes to the front.
        for id in in_flight.into_iter().rev() {
            match returned.iter().find(|r| r.call == id) {
                Some(found) => self.take_back_one(now, *found, fault),
                // Its reply was dropped with the connection task and has answered by itself.
                None => drop(self.calls.remove(id)),
            }
        }
    }

    /// A call that was given up while it was on its way back has nobody here who answers it.
    pub(super) fn let_go(&mut self, returned: &[Returned]) {
        for Returned { call, .. } in returned {
            if self.calls.get(*call).is_none() {
                self.emit(Effect::Forget { call: *call });
            }
        }
    }

    /// A connection ended without giving back what it held: the replies were dropped with its task
    /// and have answered by themselves.
    pub(super) fn lose_flight(&mut self, generation: Generation) {
        let in_flight = self.calls.select(|call| call.flies_on(generation));
        if !in_flight.is_empty() {
            self.admission.lose_all();
        }
        for id in in_flight {
            self.calls.remove(id);
        }
    }

    fn take_back_one(&mut self, now: Now, returned: Returned, fault: &Fault) {
        let id = returned.call;
        let Some(call) = self.calls.by_id.get_mut(&id) else {
            return;
        };
        let trouble = if returned.written {
            Trouble::ConnectionLost
        } else {
            Trouble::NotWritten
        };
        let ruling = retry::rule(
            trouble,
            call.safety,
            call.wish,
            call.retries,
            &self.settings.retry,
        );
        if returned.written {
            call.learn(Known::Unknown);
        }
        let (client, sent) = (call.client, call.sent());
        match ruling.decision {
            Decision::Retry => self.requeue(now, id, client, sent),
            Decision::RetryAfter(_)
            | Decision::ReconnectThenRetry
            | Decision::RefreshThenRetry
            | Decision::Fail => {
                self.calls.remove(id);
                self.resolve(id, Outcome::Unknown(fault.clone()));
            }
        }
    }

    pub(super) fn progressed(&mut self, now: Now, generation: Generation, id: CallId) {
        self.heard(now, generation);
        let Some(call) = self.calls.get(id) else {
            return;
        };
        if let Place::Flight {
            generation: ours,
            started,
            ..
        } = call.place
            && ours == generation
        {
            let idle_until = later(now.at, call.idle);
            self.calls.move_to(
                id,
                Place::Flight {
                    generation,
                    started,
                    idle_until,
                },
            );
        }
    }

    pub(super) fn expire_calls(&mut self, now: Now) {
        while let Some(id) = self.calls.overdue(now.at) {
            self.expire_one(now, id);
        }
    }

    fn expire_one(&mut self, now: Now, id: CallId) {
        if let Some(call) = self.calls.remove(id) {
            self.expire(now, id, &call);
        }
    }

    fn expire(&mut self, now: Now, id: CallId, call: &Call) {
        let over = call.deadline <= now.at;
        match call.place {
            Place::Flight {
                generation,
                started,
                ..
            } => {
                let outcome = Outcome::Deadline {
                    sent: true,
                    idle: !over,
                };
                self.abandon(now, id, generation, outcome);
                if now.at.duration_since(started) >= self.settings.timeouts.idle {
                    self.call_timed_out(now, generation, started);
                }
            }
            Place::Paused { generation, .. } if !over => {
                self.calls.insert(id, call.clone());
                self.pause_over(now, id, generation);
            }
            Place::Line { .. } | Place::Held { .. } | Place::Paused { .. } => {
                self.admission.remove(call.client, id);
                let outcome = if over {
                    Outcome::Deadline {
                        sent: call.sent(),
                        idle: false,
                    }
                } else {
                    let unsent = NotSent::NoConnection(self.last_fault.clone());
                    outcome_of(call.known, self.fault_or_lost(), unsent)
                };
                self.resolve(id, outcome);
            }
        }
    }

    fn fault_or_lost(&self) -> Fault {
        self.last_fault
            .clone()
            .unwrap_or_else(|| Fault::new(FaultClass::ConnectionLost, "the connection was lost"))
    }

    /// Connected: what waits for the connection now only waits for a place.
    pub(super) fn release_waiting(&mut self, now: Now) {
        for id in self
            .calls
            .select(|call| matches!(call.place, Place::Line { .. }))
        {
            self.calls.move_to(id, Place::Line { until: None });
        }
        self.admit(now);
    }

    /// The connection is gone: what waits for a place now waits for the reconnect, and a tool that
    /// was found unchanged has to be looked at again on the next connection.
    pub(super) fn limit_waiting(&mut self, now: Now) {
        let until = later(now.at, self.settings.timeouts.reconnect_wait);
        for id in self
            .calls
            .select(|call| matches!(call.place, Place::Line { .. }))
        {
            let Some(call) = self.calls.get(id) else {
                continue;
            };
            if call.is_tool && call.sent() {
                self.admission.remove(call.client, id);
                self.calls.move_to(id, Place::Held { until });
            } else {
                self.calls.move_to(id, Place::Line { until: Some(until) });
            }
        }
    }

    /// The tools of this connection are known, or will not be: retried tool calls go on or end.
    pub(super) fn release_held(&mut self, now: Now, generation: Generation, outcome: FetchOutcome) {
        let held = self
            .calls
            .select(|call| matches!(call.place, Place::Held { .. }));
        for id in held.into_iter().rev() {
            match outcome {
                FetchOutcome::Fetched => {
                    if let Some(call) = self.calls.get(id) {
                        self.admission.enter_front(call.client, id);
                    }
                    self.calls.move_to(id, Place::Line { until: None });
                }
                FetchOutcome::Refused | FetchOutcome::Failed => {
                    let reason = GiveUp(NotSent::NoConnection(self.last_fault.clone()));
                    self.give_up(id, &reason);
                }
            }
        }
        if self.open_generation() == Some(generation) {
            self.admit(now);
        }
    }

    /// Answers every call that waits.
    pub(super) fn give_up_waiting(&mut self, reason: &GiveUp) {
        for id in self.calls.select(Call::is_waiting) {
            self.give_up(id, reason);
        }
    }

    pub(super) fn give_up(&mut self, id: CallId, reason: &GiveUp) {
        let Some(call) = self.calls.remove(id) else {
            return;
        };
        self.admission.remove(call.client, id);
        let outcome = outcome_of(call.known, self.fault_or_lost(), reason.0.clone());
        self.resolve(id, outcome);
    }

    pub(super) fn resolve(&mut self, call: CallId, outcome: Outcome) {
        self.emit(Effect::Resolve { call, outcome });
    }
}

/// What a caller is told of a call with which nothing more is done.
pub(super) fn outcome_of(known: Known, fault: Fault, unsent: NotSent) -> Outcome {
    match known {
        Known::NotSent => Outcome::NotSent(unsent),
        Known::Unknown => Outcome::Unknown(fault),
        Known::Refused => Outcome::Refused(fault),
        Known::Answered => Outcome::Answered(fault),
    }
}

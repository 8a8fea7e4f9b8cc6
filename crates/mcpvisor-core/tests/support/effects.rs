//! The effects in the model: whether each is allowed now, and what it changes.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use mcpvisor_core::machine::{NewCall, NotSent, Outcome};
use mcpvisor_core::retry::{Known, RequestFailure};
use mcpvisor_core::{CallId, Effect, Generation, Input, Machine, RetryPolicy, Safety, StateName};

use super::model::{Call, Connection, Model, Place, Step, fact_of};

impl Model {
    /// Applies one effect.
    pub fn apply_effect(&mut self, step: &mut Step<'_>, effect: &Effect, machine: &Machine) {
        match effect {
            Effect::RequestPermit { reconnect } => {
                assert!(!self.permit_requested, "a second permit is requested");
                assert!(
                    self.connection.is_none(),
                    "a permit is requested during a connection"
                );
                assert_eq!(*reconnect, self.newest != Generation::NONE);
                self.permit_requested = true;
            }
            Effect::ReleasePermit => self.permit_requested = false,
            Effect::Open { generation } => self.opens(step, *generation, machine),
            Effect::Close { generation, .. } => {
                // Closing a connection that has just ended is harmless.
                if fact_of(step.input) != Some(*generation) || self.connection.is_some() {
                    self.connection_of(*generation).closing = true;
                }
            }
            Effect::StartCall {
                call,
                generation,
                before,
            } => self.starts(step.now, *call, *generation, *before != Known::NotSent),
            Effect::Resolve { call, outcome } => self.resolves(step, *call, outcome),
            Effect::Abandon {
                call,
                generation,
                outcome,
            } => self.abandons(step, *call, *generation, outcome),
            Effect::DropCall { call } => {
                if !step.returned_late.remove(call) {
                    let left =
                        matches!(step.input, Input::CallCancelled { call: left } if left == call);
                    assert!(left, "{call} is dropped without a cancellation");
                    let call = self.end(*call);
                    assert!(matches!(call.place, Place::Waiting { .. }), "{call:?}");
                }
            }
            Effect::RenewCredential { refused } => self.renews(*refused),
            Effect::Check { generation } | Effect::Restore { generation } => {
                assert!(self.connection_of(*generation).up.is_some());
            }
            Effect::FetchList { generation, list } => {
                let connection = self.connection_of(*generation);
                assert!(connection.up.is_some() && !connection.closing);
                assert!(
                    connection.fetching.insert(*list),
                    "{list} is fetched twice at once"
                );
            }
            Effect::AttemptFailed { retry_at, .. } => self.attempt_failed(step, *retry_at),
            Effect::StateChanged { from, to } => {
                assert_eq!(*from, self.state);
                let starting = matches!(step.input, Input::Start);
                assert!(starting || is_legal(*from, *to), "from {from} to {to}");
                if (*from, *to) == (StateName::Connected, StateName::PermanentlyFailed) {
                    assert!(step.fails, "a live connection fails permanently");
                }
                if (*from, *to) == (StateName::Disabling, StateName::Connecting) {
                    self.budget.clear();
                }
                if *to == StateName::Sleeping && !starting {
                    self.falls_asleep(step.now);
                }
                if matches!(from, StateName::Connected | StateName::Connecting) {
                    self.down_since = step.now;
                }
                self.failed &= *to != StateName::Connecting;
                if *to == StateName::Connecting && *from != StateName::Sleeping {
                    (self.free, self.other_era_tried) = (step.heals, false);
                }
                self.state = *to;
            }
            Effect::SaveDurable => step.saved = true,
            Effect::Stop => {
                assert!(
                    self.stopping && !self.stopped,
                    "one stop, and only if requested"
                );
                assert!(self.connection.is_none(), "a connection is still open");
                assert!(self.open.is_empty(), "calls have no outcome");
                self.stopped = true;
            }
        }
    }

    /// Only a connection that was being opened, and was not being closed, is a failed attempt.
    fn attempt_failed(&mut self, step: &Step<'_>, retry_at: Option<Instant>) {
        let opening = match step.input {
            Input::ConnectionEnded { .. } => step.ends_an_attempt,
            Input::Tick => self.connection.as_ref().is_some_and(|it| it.up.is_none()),
            other => panic!("{other:?} fails an attempt"),
        };
        assert!(opening && !self.free, "no attempt failed");
        assert!(retry_at.is_none_or(|at| at >= step.now));
        self.failed = true;
    }

    /// Only an unused server sleeps, and only after the configured time.
    fn falls_asleep(&self, now: Instant) {
        assert!(self.open.is_empty(), "it sleeps with {:?}", self.open);
        assert!(!self.has_subscriptions, "it has subscriptions");
        let after = self.settings.rest.sleep_after.expect("it may sleep");
        let quiet = now - self.last_call;
        assert!(quiet >= after, "it sleeps after {quiet:?}");
    }

    fn connection_of(&mut self, generation: Generation) -> &mut Connection {
        let current = self.connection.as_mut();
        let found = current.filter(|connection| connection.generation == generation);
        found.unwrap_or_else(|| panic!("{generation} does not exist"))
    }

    fn opens(&mut self, step: &Step<'_>, generation: Generation, machine: &Machine) {
        assert!(self.connection.is_none(), "two connections at once");
        assert!(
            generation > self.newest,
            "{generation} after {}",
            self.newest
        );
        assert!(
            self.permit_requested && *step.input == Input::PermitGranted,
            "it has no permit"
        );
        assert!(step.saved, "{generation} would be reused after a crash");
        assert_eq!(machine.durable().generation, generation);
        self.permit_requested = false;
        self.newest = generation;
        self.credentials.connected_with = self.credentials.newest;
        self.connection = Some(Connection {
            generation,
            up: None,
            closing: false,
            is_ending: false,
            has_tools: false,
            tools_known: false,
            listed: false,
            fetching: BTreeSet::new(),
        });
        if !std::mem::take(&mut self.free) {
            self.budget.push(step.now);
            self.spends(step.now);
            self.last_connect = Some(step.now);
        }
        self.user_requested = false;
    }

    /// Connects stay within the budget; beyond it they are probes, or caused by calls.
    fn spends(&self, now: Instant) {
        let budget = &self.settings.budget;
        let used = self
            .budget
            .iter()
            .filter(|at| now - **at < budget.within)
            .count();
        let gap = self.last_connect.map_or(Duration::MAX, |last| now - last);
        if self.user_requested
            || (self.state != StateName::Disconnected && used <= budget.attempts as usize)
        {
            return;
        }
        assert_eq!(
            self.state,
            StateName::Disconnected,
            "{used} connects within the window"
        );
        assert!(
            gap >= budget.wake_every,
            "a parked server is connected after {gap:?}"
        );
    }

    fn starts(&mut self, now: Instant, id: CallId, generation: Generation, retried: bool) {
        let connection = self.connection_of(generation);
        assert!(
            connection.is_open(),
            "{id} is passed to a connection that is not open"
        );
        let tools_known = connection.tools_known;
        let listed = connection.listed;
        assert!(
            listed || !self.settings.listing.before_calls,
            "the tools were not listed before {id}"
        );
        let held = self.credentials.holds_calls();
        let call = self
            .open
            .get_mut(&id)
            .unwrap_or_else(|| panic!("{id} is over"));
        assert!(
            matches!(call.place, Place::Waiting { .. }),
            "{id} is started twice"
        );
        assert!(
            now < call.new.deadline,
            "{id} is started after its deadline"
        );
        assert_eq!(retried, call.lost > 0);
        let paused = call.paused_until.take().is_some_and(|until| now < until);
        assert!(!paused, "{id} is sent during its pause");
        assert!(!call.awaits_credential, "{id} is sent before the renewal");
        assert!(!held, "{id} is sent with a refused credential");
        if retried {
            assert!(call.may_repeat, "{id} must not be sent twice");
            assert_eq!(call.lost, 1, "{id} is retried twice");
            assert!(
                !call.new.is_tool || tools_known || call.failed_on == Some(generation),
                "the tool of {id} may have changed"
            );
        }
        call.place = Place::InFlight {
            on: generation,
            active: now,
        };
    }

    fn resolves(&mut self, step: &Step<'_>, id: CallId, outcome: &Outcome) {
        let new = matches!(step.input, Input::Call(new) if new.call == id);
        let in_line = self.waiting().count();
        let call = self.end(id);
        let Place::Waiting { since } = call.place else {
            panic!("{id} is resolved in flight");
        };
        let sent = call.lost > 0;
        match outcome {
            Outcome::NotSent(reason) => {
                assert!(!sent, "{id} was sent");
                match reason {
                    NotSent::NoConnection(_) => {
                        let waited = step.now - since.max(self.down_since);
                        let limit = self.settings.timeouts.reconnect_wait;
                        assert!(waited >= limit, "{id} waited only {waited:?}");
                    }
                    NotSent::Parked(_) => assert!(!step.ends_a_close, "no attempt failed"),
                    NotSent::Disabled | NotSent::Stopping | NotSent::Failed(_) => {}
                }
            }
            Outcome::Busy => {
                assert!(in_line > self.settings.admission.waiting, "{in_line}");
                self.is_busy(step, &call, new);
            }
            Outcome::Unknown(_) => assert_eq!(call.known, Known::Unknown, "{id}"),
            Outcome::Refused(_) => {
                assert_eq!(call.known, Known::Refused, "{id}");
                let early = self.is_refused_early(step, id, &call);
                assert!(!early, "{id} is refused without a retry");
            }
            Outcome::Answered(_) => assert_eq!(call.known, Known::Answered, "{id}"),
            Outcome::Deadline {
                sent: reported,
                idle,
            } => {
                assert_eq!((*reported, *idle), (sent, false));
                assert!(call.new.deadline <= step.now, "{id} had time left");
            }
            Outcome::Cancelled => panic!("{id} is queued, and is cancelled"),
        }
    }

    /// Whether a call is given up at its first 401 although it may be sent again.
    fn is_refused_early(&self, step: &Step<'_>, id: CallId, call: &Call) -> bool {
        let unauthorized = matches!(step.input, Input::CallFailed {
            call, failure: RequestFailure::Unauthorized { .. }, ..
        } if *call == id);
        // The call may have been the last of a drained connection whose budget is spent.
        let parked = step.becomes == StateName::Disconnected;
        unauthorized && call.lost == 1 && call.may_repeat && !self.rejects() && !parked
    }

    /// A client within its share is never refused, and its calls are never evicted.
    fn is_busy(&self, step: &Step<'_>, call: &Call, new: bool) {
        let Input::Call(entering) = step.input else {
            panic!("nothing enters, and {call:?} is busy");
        };
        assert!(
            !call.was_returned && call.known == Known::NotSent,
            "{call:?}"
        );
        let mut clients: BTreeSet<_> = self.open.values().map(|call| call.new.client).collect();
        clients.extend([entering.client, call.new.client]);
        let owned = self
            .open
            .values()
            .filter(|it| it.new.client == call.new.client);
        // Neither includes a new call of the client itself: one was evicted, the other never queued.
        let share = owned.count() + usize::from(!new);
        let fair = share * clients.len() >= self.settings.admission.waiting;
        assert!(fair, "{call:?} is refused within its share: {share} calls");
    }

    fn abandons(&mut self, step: &Step<'_>, id: CallId, on: Generation, outcome: &Outcome) {
        let call = self.end(id);
        let Place::InFlight { on: ours, active } = call.place else {
            panic!("{id} is abandoned, and not in flight");
        };
        assert_eq!(ours, on);
        match outcome {
            Outcome::Deadline { sent, idle } => {
                let over = call.new.deadline <= step.now;
                assert_eq!((*sent, *idle), (true, !over));
                assert!(
                    over || step.now - active >= call.new.idle,
                    "{id} was not idle"
                );
            }
            Outcome::Cancelled => {
                let left = matches!(step.input, Input::CallCancelled { call } if *call == id);
                assert!(left, "{id} was not cancelled");
            }
            Outcome::NotSent(_)
            | Outcome::Busy
            | Outcome::Unknown(_)
            | Outcome::Refused(_)
            | Outcome::Answered(_) => panic!("{outcome:?}"),
        }
    }
}

/// Whether a call that may have run may be sent again.
pub fn may_repeat(call: &NewCall) -> bool {
    match (call.retry_policy, call.safety) {
        (RetryPolicy::Never, _) | (RetryPolicy::Default, Safety::Effectful) => false,
        (RetryPolicy::Always, _)
        | (RetryPolicy::Default, Safety::Repeatable | Safety::TrustedTool) => true,
    }
}

/// Whether a call that failed on a live connection may be sent again.
pub fn may_repeat_after(failure: RequestFailure, call: &NewCall, expired_too: bool) -> bool {
    if call.retry_policy == RetryPolicy::Never {
        return false;
    }
    match failure {
        RequestFailure::NotWritten
        | RequestFailure::Unauthorized { .. }
        | RequestFailure::Busy {
            retry_after: Some(_),
        } => true,
        RequestFailure::SessionLost => expired_too || call.safety == Safety::Repeatable,
        RequestFailure::ConnectionLost
        | RequestFailure::ServerFault
        | RequestFailure::Busy { retry_after: None } => may_repeat(call),
        RequestFailure::ScopeNeeded | RequestFailure::ConnectTimedOut | RequestFailure::Denied => {
            false
        }
    }
}

/// What is known about a call after a failure.
pub fn known_of(failure: RequestFailure) -> Known {
    match failure {
        RequestFailure::NotWritten | RequestFailure::ConnectTimedOut => Known::NotSent,
        RequestFailure::SessionLost
        | RequestFailure::Unauthorized { .. }
        | RequestFailure::ScopeNeeded
        | RequestFailure::Denied
        | RequestFailure::Busy {
            retry_after: Some(_),
        } => Known::Refused,
        RequestFailure::ConnectionLost
        | RequestFailure::ServerFault
        | RequestFailure::Busy { retry_after: None } => Known::Unknown,
    }
}

/// The allowed state changes of a running server.
fn is_legal(from: StateName, to: StateName) -> bool {
    use StateName::{
        Connected, Connecting, Disabled, Disabling, Disconnected, PermanentlyFailed, Reconnecting,
        Sleeping,
    };
    let next: &[StateName] = match from {
        Connecting => &[
            Connected,
            Reconnecting,
            Disconnected,
            PermanentlyFailed,
            Disabling,
            Disabled,
        ],
        Connected => &[
            Reconnecting,
            Disconnected,
            Disabling,
            Sleeping,
            PermanentlyFailed,
        ],
        Sleeping => &[Connecting, Disconnected, Disabling, Disabled],
        Reconnecting => &[
            Connected,
            Disconnected,
            PermanentlyFailed,
            Disabling,
            Disabled,
        ],
        Disconnected => &[
            Connected,
            Reconnecting,
            PermanentlyFailed,
            Disabling,
            Disabled,
        ],
        Disabling => &[Disabled, Connecting],
        Disabled => &[Connecting],
        PermanentlyFailed => &[Connecting, Disabling, Disabled],
    };
    next.contains(&to)
}

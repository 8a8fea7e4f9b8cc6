//! A machine with a manual clock, and short constructors of inputs and effects.

use std::time::{Duration, Instant};

use crate::ids::{CallId, ClientId, CredentialRevision, Generation};
use crate::machine::{
    Action, CallEnd, ConnectionEnd, Durable, Effect, Fault, FaultClass, Input, Machine, NewCall,
    NotSent, Outcome, PermanentFailure, RenewalFailure, ReturnedCall, State, StateName,
};
use crate::policy::admission::Priority;
use crate::policy::listing::{FetchOutcome, ListKind};
use crate::policy::retry::{Known, RequestFailure, RetryPolicy, Safety};
use crate::random::Random;
use crate::settings::ServerSettings;

/// A machine and its time. The random number is always 0.5.
pub(super) struct Harness {
    pub(super) machine: Machine,
    pub(super) begin: Instant,
    pub(super) now: Instant,
}

impl Harness {
    /// Enabled and not started, with the default settings.
    pub(super) fn new() -> Self {
        Self::with(ServerSettings::default())
    }

    /// Enabled and not started.
    pub(super) fn with(settings: ServerSettings) -> Self {
        let durable = Durable::new(&settings, true);
        Self::resumed(settings, durable, Instant::now())
    }

    /// A new machine from the durable state of an earlier one.
    pub(super) fn resumed(settings: ServerSettings, durable: Durable, now: Instant) -> Self {
        Self {
            machine: Machine::new(settings, durable, now),
            begin: now,
            now,
        }
    }

    /// Connected for the first time, to a server without lists.
    pub(super) fn connected() -> Self {
        Self::connected_with(ServerSettings::default(), &[])
    }

    /// Connected for the first time, to a server with these lists.
    pub(super) fn connected_with(settings: ServerSettings, lists: &[ListKind]) -> Self {
        let mut harness = Self::with(settings);
        harness.step(Input::Start);
        harness.step(Input::PermitGranted);
        harness.step(up_with(1, lists));
        harness
    }

    /// Parked after failed connects; the last generation equals the size of the budget.
    pub(super) fn parked(settings: ServerSettings) -> Self {
        let mut harness = Self::with(settings);
        harness.step(Input::Start);
        harness.fail_until_parked();
        harness
    }

    /// Fails every connect until the budget is spent.
    pub(super) fn fail_until_parked(&mut self) {
        for _ in 0..self.machine.settings().budget.attempts {
            self.fail_one_connect();
        }
        assert_eq!(self.name(), StateName::Disconnected);
    }

    /// Fails one connect, after waiting for its backoff.
    pub(super) fn fail_one_connect(&mut self) {
        if self.machine.retry_at().is_some() {
            self.tick();
        }
        self.step(Input::PermitGranted);
        let generation = self.generation();
        self.step(failed(generation));
    }

    /// Handles an input now.
    pub(super) fn step(&mut self, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.machine
            .handle(self.now, Random::MIDDLE, input, &mut effects);
        effects
    }

    /// Handles an input after some time without ticks.
    pub(super) fn step_after(&mut self, duration: Duration, input: Input) -> Vec<Effect> {
        self.now += duration;
        self.step(input)
    }

    /// Jumps to the next deadline and ticks.
    pub(super) fn tick(&mut self) -> Vec<Effect> {
        self.now = self.machine.next_deadline().expect("there is a deadline");
        self.step(Input::Tick)
    }

    /// Advances the time, with a tick at every deadline.
    pub(super) fn pass(&mut self, duration: Duration) -> Vec<Effect> {
        let end = self.now + duration;
        let mut effects = Vec::new();
        while let Some(due) = self.machine.next_deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            effects.extend(self.step(Input::Tick));
            let next = self.machine.next_deadline();
            assert!(
                next.is_none_or(|next| next > self.now),
                "a tick does nothing"
            );
        }
        self.now = end;
        effects
    }

    pub(super) fn name(&self) -> StateName {
        self.machine.state().name()
    }

    pub(super) fn state(&self) -> &State {
        self.machine.state()
    }

    /// The newest generation.
    pub(super) fn generation(&self) -> u64 {
        self.machine.durable().generation.get()
    }

    /// Connects within the window.
    pub(super) fn used(&self) -> u32 {
        self.machine.durable().budget.used(self.now)
    }

    /// The whole state of the machine, except for the count of late facts.
    pub(super) fn whole(&self) -> String {
        let late = format!("dropped_late: {}", self.machine.dropped_late());
        format!("{:?}", self.machine).replace(&late, "dropped_late: _")
    }

    /// A repeatable request of the default client with the default timeouts.
    pub(super) fn read(&self, call: u64) -> NewCall {
        let timeouts = &self.machine.settings().timeouts;
        NewCall {
            call: CallId(call),
            client: ClientId::DEFAULT,
            safety: Safety::Repeatable,
            retry_policy: RetryPolicy::Default,
            priority: Priority::Normal,
            is_tool: false,
            deadline: self.now + timeouts.call,
            idle: timeouts.idle,
        }
    }

    /// A tool call that may have effects.
    pub(super) fn tool(&self, call: u64) -> NewCall {
        NewCall {
            safety: Safety::Effectful,
            is_tool: true,
            ..self.read(call)
        }
    }

    pub(super) fn call(&mut self, call: NewCall) -> Vec<Effect> {
        self.step(Input::Call(call))
    }

    /// Loses the connection and ends its task.
    pub(super) fn lose(&mut self, generation: u64, returned: &[ReturnedCall]) -> Vec<Effect> {
        let mut effects = self.step(lost(generation, returned));
        effects.extend(self.step(closed(generation)));
        effects
    }
}

pub(super) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) fn generation(number: u64) -> Generation {
    Generation::from(number)
}

/// The fault of lost connections.
pub(super) fn gone() -> Fault {
    Fault::new(FaultClass::Exited, "the process ended")
}

/// The fault of failed connects.
pub(super) fn refused() -> Fault {
    Fault::new(FaultClass::ConnectFailed, "connection refused")
}

/// A permanent failure.
pub(super) fn not_found() -> PermanentFailure {
    PermanentFailure {
        fault: Fault::new(FaultClass::CommandNotFound, "no such command"),
        action: Action::InstallCommand {
            searched_path: true,
        },
    }
}

/// A permanent failure that a login heals.
pub(super) fn login_needed() -> PermanentFailure {
    PermanentFailure {
        fault: Fault::new(FaultClass::Authorization, "the token was revoked"),
        action: Action::Login { scopes: Vec::new() },
    }
}

/// The state of a server that failed permanently and has no connection.
pub(super) fn permanently_failed(failure: PermanentFailure) -> State {
    State::PermanentlyFailed {
        failure,
        closing: None,
    }
}

// Inputs.

pub(super) fn up(number: u64) -> Input {
    up_with(number, &[])
}

pub(super) fn up_with(number: u64, lists: &[ListKind]) -> Input {
    Input::ConnectionUp {
        generation: generation(number),
        lists: lists.to_vec(),
    }
}

pub(super) fn lost(number: u64, returned: &[ReturnedCall]) -> Input {
    Input::ConnectionLost {
        generation: generation(number),
        fault: gone(),
        returned: returned.to_vec(),
    }
}

pub(super) fn ended(number: u64, end: ConnectionEnd) -> Input {
    Input::ConnectionEnded {
        generation: generation(number),
        end,
    }
}

pub(super) fn failed(number: u64) -> Input {
    ended(
        number,
        ConnectionEnd::Failed {
            fault: refused(),
            retry_after: None,
        },
    )
}

pub(super) fn closed(number: u64) -> Input {
    ended(number, ConnectionEnd::Closed { problem: None })
}

pub(super) fn answered(number: u64, call: u64) -> Input {
    call_ended(number, call, CallEnd::Answered)
}

pub(super) fn call_ended(number: u64, call: u64, end: CallEnd) -> Input {
    Input::CallEnded {
        generation: generation(number),
        call: CallId(call),
        end,
    }
}

pub(super) fn call_failed(number: u64, call: u64, failure: RequestFailure) -> Input {
    Input::CallFailed {
        generation: generation(number),
        call: CallId(call),
        failure,
        fault: gone(),
    }
}

/// A call was refused with 401; it carried this credential.
pub(super) fn call_unauthorized(number: u64, call: u64, credential: u64) -> Input {
    let credential = CredentialRevision(credential);
    call_failed(number, call, RequestFailure::Unauthorized { credential })
}

/// A request of the runtime was refused with 401; it carried this credential.
pub(super) fn unauthorized(number: u64, credential: u64) -> Input {
    Input::Unauthorized {
        generation: generation(number),
        credential: CredentialRevision(credential),
        fault: gone(),
    }
}

pub(super) fn renewed(credential: u64) -> Input {
    Input::CredentialRenewed {
        credential: CredentialRevision(credential),
    }
}

pub(super) fn credential_changed(credential: u64) -> Input {
    Input::CredentialChanged {
        credential: CredentialRevision(credential),
    }
}

pub(super) fn renewal_failed_permanently() -> Input {
    let failure = RenewalFailure::Permanent(login_needed());
    Input::RenewalFailed { failure }
}

pub(super) fn session_lost(number: u64) -> Input {
    Input::SessionLost {
        generation: generation(number),
        fault: gone(),
    }
}

pub(super) fn cancelled(call: u64) -> Input {
    Input::CallCancelled { call: CallId(call) }
}

pub(super) fn checked(number: u64, answered: bool) -> Input {
    Input::CheckEnded {
        generation: generation(number),
        failure: (!answered).then(|| Fault::new(FaultClass::ServerFault, "the ping failed")),
    }
}

pub(super) fn fetched(number: u64, list: ListKind, outcome: FetchOutcome) -> Input {
    Input::ListFetched {
        generation: generation(number),
        list,
        outcome,
    }
}

pub(super) fn list_changed(number: u64, list: ListKind) -> Input {
    Input::ListChanged {
        generation: generation(number),
        list,
    }
}

pub(super) fn received(number: u64) -> Input {
    Input::MessageReceived {
        generation: generation(number),
    }
}

pub(super) fn first_byte(number: u64) -> Input {
    Input::FirstByte {
        generation: generation(number),
    }
}

pub(super) fn progressed(number: u64, call: u64) -> Input {
    Input::CallProgressed {
        generation: generation(number),
        call: CallId(call),
    }
}

pub(super) fn undelivered(number: u64, call: u64) -> Input {
    Input::CallUndelivered {
        generation: generation(number),
        call: CallId(call),
    }
}

pub(super) fn report_broken(number: u64) -> Input {
    Input::ReportBroken {
        generation: generation(number),
    }
}

/// A returned call of which some may have reached the server.
pub(super) fn written(call: u64) -> ReturnedCall {
    ReturnedCall {
        call: CallId(call),
        written: true,
    }
}

/// A returned call of which nothing was written.
pub(super) fn unwritten(call: u64) -> ReturnedCall {
    ReturnedCall {
        call: CallId(call),
        written: false,
    }
}

// Effects.

pub(super) fn start(call: u64, number: u64) -> Effect {
    Effect::StartCall {
        call: CallId(call),
        generation: generation(number),
        before: Known::NotSent,
    }
}

pub(super) fn restart(call: u64, number: u64) -> Effect {
    Effect::StartCall {
        call: CallId(call),
        generation: generation(number),
        before: Known::Unknown,
    }
}

/// A call that is sent again after the server refused it.
pub(super) fn resend(call: u64, number: u64) -> Effect {
    Effect::StartCall {
        call: CallId(call),
        generation: generation(number),
        before: Known::Refused,
    }
}

pub(super) fn resolve(call: u64, outcome: Outcome) -> Effect {
    Effect::Resolve {
        call: CallId(call),
        outcome,
    }
}

pub(super) fn not_sent(call: u64, reason: NotSent) -> Effect {
    resolve(call, Outcome::NotSent(reason))
}

pub(super) fn abandon(call: u64, number: u64, outcome: Outcome) -> Effect {
    Effect::Abandon {
        call: CallId(call),
        generation: generation(number),
        outcome,
    }
}

pub(super) fn drop_call(call: u64) -> Effect {
    Effect::DropCall { call: CallId(call) }
}

pub(super) fn open(number: u64) -> Effect {
    Effect::Open {
        generation: generation(number),
    }
}

pub(super) fn check(number: u64) -> Effect {
    Effect::Check {
        generation: generation(number),
    }
}

pub(super) fn renew(refused: u64) -> Effect {
    Effect::RenewCredential {
        refused: CredentialRevision(refused),
    }
}

pub(super) fn fetch(number: u64, list: ListKind) -> Effect {
    Effect::FetchList {
        generation: generation(number),
        list,
    }
}

pub(super) fn attempt_failed(attempt: u32, fault: Fault, retry_at: Option<Instant>) -> Effect {
    Effect::AttemptFailed {
        attempt,
        fault,
        retry_at,
    }
}

pub(super) fn changed(from: StateName, to: StateName) -> Effect {
    Effect::StateChanged { from, to }
}

/// The generations of the connections that are opened.
pub(super) fn opened(effects: &[Effect]) -> Vec<u64> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Open { generation } => Some(generation.get()),
            _ => None,
        })
        .collect()
}

/// The effects on calls.
pub(super) fn about_calls(effects: Vec<Effect>) -> Vec<Effect> {
    effects
        .into_iter()
        .filter(|effect| {
            matches!(
                effect,
                Effect::StartCall { .. }
                    | Effect::Resolve { .. }
                    | Effect::Abandon { .. }
                    | Effect::DropCall { .. }
            )
        })
        .collect()
}

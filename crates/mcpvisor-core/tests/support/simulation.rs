//! A simulation of one machine in virtual time: connection tasks, callers, users and a governor.
//!
//! It performs the effects as the actor would, and the model checks every step.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use mcpvisor_core::machine::{
    Action, Durable, Fault, FaultClass, PermanentFailure, RenewalFailure,
};
use mcpvisor_core::retry::Known;
use mcpvisor_core::{
    CallId, CredentialRevision, Effect, FetchOutcome, Generation, Input, Machine, Random,
    ServerSettings, StateName,
};

use super::model::Model;
use super::mutation::Mutation;
use super::replies::{Holder, Replies};
use super::rng::TestRng;
use super::task::{Behaviour, Task, TaskEvent};
use super::trace::{Detail, Trace};

/// Steps of one history.
const MAX_STEPS: u32 = 50_000;

/// How much longer than its limit a shutdown may take, for messages on their way and late timers.
const SHUTDOWN_SLACK: Duration = Duration::from_millis(250);

/// A scheduled event.
#[derive(Debug)]
pub enum Event {
    /// A message arrives at the actor.
    Deliver(Input),
    /// A message of a connection that has ended.
    DeliverLate(Input),
    Task(Generation, TaskEvent),
    NewCalls,
    CancelCall(CallId),
    UserAction,
    ChangeBehaviour,
    /// The actor crashes and is restarted.
    Crash,
    Shutdown,
}

/// One history.
pub struct Simulation {
    pub begin: Instant,
    pub now: Instant,
    pub settings: ServerSettings,
    pub machine: Machine,
    pub model: Model,
    pub rng: TestRng,
    pub tasks: BTreeMap<Generation, Task>,
    pub replies: Replies,
    pub behaviour: Behaviour,
    /// The longest pause between calls, in milliseconds.
    pub pace: u64,
    pub next_call: u64,
    /// When the requested shutdown should be over.
    pub ends_by: Option<Instant>,
    saved: Durable,
    queue: BTreeMap<(Instant, u64), Event>,
    sequence: u64,
    /// The grant of the governor that is on its way.
    grant: Option<(Instant, u64)>,
    /// The answer to a renewal that is on its way.
    renewal: Option<(Instant, u64)>,
    /// The token in use.
    pub token: u64,
    trace: Trace,
    tally: Tally,
    pub mutation: Mutation,
}

/// Counts of a history.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Tally {
    pub steps: u32,
    pub calls: usize,
    pub connects: u32,
    pub retries: u32,
    pub renewals: u32,
    pub late: u64,
    pub crashes: u32,
    pub changes: BTreeSet<(StateName, StateName)>,
    pub trace: u64,
}

impl Tally {
    pub fn add(&mut self, other: Self) {
        self.steps += other.steps;
        self.calls += other.calls;
        self.connects += other.connects;
        self.retries += other.retries;
        self.renewals += other.renewals;
        self.late += other.late;
        self.crashes += other.crashes;
        self.changes.extend(other.changes);
    }
}

/// Runs the history of a seed from its start to its end.
pub fn run(seed: u64, detail: Detail) -> Tally {
    run_mutated(seed, detail, Mutation::None)
}

/// The same with a defective machine.
pub fn run_mutated(seed: u64, detail: Detail, mutation: Mutation) -> Tally {
    let mut rng = TestRng::new(seed);
    let settings = rng.settings();
    settings.validate().expect("the settings are valid");
    let begin = Instant::now();
    let enabled = rng.percent(95);
    let saved = Durable::new(&settings, enabled);
    let mut simulation = Simulation {
        begin,
        now: begin,
        machine: Machine::new(
            mutation.settings(settings.clone()),
            Durable::new(&mutation.settings(settings.clone()), enabled),
            begin,
        ),
        model: Model::new(settings.clone(), enabled, begin),
        tasks: BTreeMap::new(),
        replies: Replies::default(),
        behaviour: Behaviour::Healthy,
        pace: rng.choose(&[1_000, 5_000, 20_000]),
        next_call: 1,
        ends_by: None,
        saved,
        queue: BTreeMap::new(),
        sequence: 0,
        grant: None,
        renewal: None,
        token: 1,
        trace: Trace::new(detail),
        mutation,
        tally: Tally::default(),
        settings,
        rng,
    };
    simulation.run();
    simulation.tally
}

impl Simulation {
    fn run(&mut self) {
        let ends = self.rng.choose(&[10_000, 60_000, 300_000]);
        let ends = self.rng.millis(ends);
        self.later(ends, Event::Shutdown);
        if self.rng.percent(20) {
            let crashes = ends.mul_f64(self.rng.fraction());
            self.later(crashes, Event::Crash);
        }
        self.later(Duration::ZERO, Event::NewCalls);
        self.change_behaviour();
        if self.rng.percent(70) {
            self.later(Duration::from_secs(1), Event::UserAction);
        }
        self.step(Input::Start);
        while !self.model.stopped {
            self.advance();
        }
        self.replies
            .drop_all(|holder| matches!(holder, Holder::Report));
        self.tally.calls = self.replies.all_answered();
        assert!(self.tasks.is_empty(), "a task is still running");
        self.tally.trace = self.trace.hash();
    }

    /// Handles the next event or the next tick, whichever comes first.
    fn advance(&mut self) {
        let event = self.queue.keys().next().copied();
        let timer = self.machine.next_deadline();
        if timer.is_some_and(|due| event.is_none_or(|(at, _)| due <= at)) {
            // A timer may be late.
            let late = if self.rng.percent(5) {
                self.rng.millis(50)
            } else {
                Duration::ZERO
            };
            let due = timer.unwrap_or(self.now) + late;
            self.now = self.now.max(due);
            self.step(Input::Tick);
        } else if let Some(key) = event {
            let event = self.queue.remove(&key).expect("the event exists");
            self.now = self.now.max(key.0);
            self.handle_event(event);
        } else {
            panic!("no event and no timer is left");
        }
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Deliver(input) => self.step(input),
            Event::DeliverLate(input) => self.step(input),
            Event::Task(generation, what) => self.task_event(generation, what),
            Event::NewCalls => self.new_calls(),
            Event::CancelCall(call) => self.step(Input::CallCancelled { call }),
            Event::UserAction => self.user_action(),
            Event::ChangeBehaviour => self.change_behaviour(),
            // A shutdown would be lost with the actor.
            Event::Crash if self.ends_by.is_some() => {}
            Event::Crash => self.crash(),
            Event::Shutdown => {
                let limit = self.rng.millis(20_000);
                self.ends_by = Some(self.now + limit + SHUTDOWN_SLACK);
                self.step(Input::Shutdown { limit });
            }
        }
    }

    /// Schedules an event after some time.
    pub fn later(&mut self, after: Duration, event: Event) {
        self.at(self.now + after, event);
    }

    /// Schedules an event.
    pub fn at(&mut self, at: Instant, event: Event) {
        self.sequence += 1;
        self.queue.insert((at, self.sequence), event);
    }

    /// Delivers one message to the actor: one step of the machine, and those that follow from it.
    pub fn step(&mut self, input: Input) {
        self.step_once(input);
        let waiting: BTreeSet<_> = self.model.waiting().map(|(call, _)| *call).collect();
        assert_eq!(
            *self.replies.with_actor(),
            waiting,
            "the calls that the actor holds"
        );
    }

    fn step_once(&mut self, input: Input) {
        if self.model.stopped {
            return;
        }
        self.tally.steps += 1;
        assert!(self.tally.steps < MAX_STEPS, "the history does not end");
        if self.trace.is_on() {
            let state = self.machine.state().name();
            self.trace.step(self.begin, self.now, &input, state);
        }
        let late = self.model.is_late(&input);
        let before = late.then(|| whole(&self.machine));
        self.move_replies(&input);
        let mut effects = Vec::new();
        let random = Random::new(self.rng.fraction());
        if let Some(input) = self.mutation.input(&input, self.model.newest) {
            self.machine.handle(self.now, random, input, &mut effects);
        }
        self.mutation.effects(&mut effects);
        self.model
            .observe(self.now, &input, &effects, &self.machine);
        if let Some(before) = before {
            self.tally.late += 1;
            assert_eq!(
                whole(&self.machine),
                before,
                "a late fact changed something"
            );
        }
        let mut follow_ups = Vec::new();
        for effect in effects {
            self.trace.effect(self.now - self.begin, &effect);
            follow_ups.extend(self.perform(effect));
        }
        for follow_up in follow_ups {
            self.step_once(follow_up);
        }
    }

    /// Moves the replies that a message carries.
    fn move_replies(&mut self, input: &Input) {
        match input {
            Input::Call(call) => self.replies.enter(call),
            Input::ConnectionLost { returned, .. } => {
                for returned in returned {
                    self.replies
                        .pass(returned.call, Holder::Report, Holder::Actor);
                }
            }
            Input::CallFailed { call, .. } => {
                self.replies.pass(*call, Holder::Report, Holder::Actor);
            }
            _ => {}
        }
    }

    /// Performs an effect as the actor would. Returns the input that follows from it.
    fn perform(&mut self, effect: Effect) -> Option<Input> {
        match effect {
            Effect::RequestPermit { .. } => {
                let delay = self.rng.millis(1_000);
                self.later(delay, Event::Deliver(Input::PermitGranted));
                self.grant = Some((self.now + delay, self.sequence));
            }
            Effect::ReleasePermit => {
                // The grant may be on its way already.
                if let Some(key) = self.grant.take()
                    && self.rng.percent(80)
                {
                    self.queue.remove(&key);
                }
            }
            Effect::Open { generation } => {
                self.tally.connects += 1;
                self.grant = None;
                self.open(generation);
            }
            Effect::Close { generation, grace } => self.close(generation, grace),
            Effect::StartCall {
                call,
                generation,
                before,
            } => return self.start_call(call, generation, before != Known::NotSent),
            Effect::Resolve { call, .. } | Effect::DropCall { call } => {
                self.replies.answer(call, Holder::Actor);
            }
            Effect::Abandon {
                call, generation, ..
            } => self.cancel(generation, call),
            Effect::RenewCredential { refused } => self.renew(refused),
            Effect::Check { generation } => self.check(generation),
            Effect::FetchList { generation, list } => {
                let outcome = match self.rng.number(0..10) {
                    0 => FetchOutcome::Failed,
                    1 => FetchOutcome::Refused,
                    _ => FetchOutcome::Fetched,
                };
                let fetched = Input::ListFetched {
                    generation,
                    list,
                    outcome,
                };
                let delay = self.rng.millis(3_000);
                self.later(delay, Event::Deliver(fetched));
            }
            Effect::StateChanged { from, to } => drop(self.tally.changes.insert((from, to))),
            Effect::SaveDurable => self.saved = self.machine.durable().clone(),
            Effect::Restore { .. } | Effect::AttemptFailed { .. } | Effect::Stop => {}
        }
        None
    }

    fn start_call(&mut self, call: CallId, generation: Generation, retried: bool) -> Option<Input> {
        self.tally.retries += u32::from(retried);
        if retried && self.replies.call(call).is_tool && self.rng.percent(20) {
            // The tool has changed: the actor answers the call and reports it as cancelled.
            self.replies.answer(call, Holder::Actor);
            return Some(Input::CallCancelled { call });
        }
        if self.accept_call(generation, call) {
            self.replies
                .pass(call, Holder::Actor, Holder::Task(generation));
            return None;
        }
        Some(Input::CallUndelivered { generation, call })
    }

    /// Renews the token unless it is newer already. Its use may begin before the report.
    fn renew(&mut self, refused: CredentialRevision) {
        self.tally.renewals += 1;
        let fault = Fault::new(FaultClass::Authorization, "not renewed");
        let answer = match self.rng.number(0..20) {
            0..=3 => Input::RenewalFailed {
                failure: RenewalFailure::Transient(fault),
            },
            4..=6 => Input::RenewalFailed {
                failure: RenewalFailure::Permanent(PermanentFailure {
                    fault,
                    action: Action::Login { scopes: Vec::new() },
                }),
            },
            // It brings nothing new.
            7 => Input::CredentialRenewed {
                credential: refused,
            },
            _ => {
                self.token = self.token.max(refused.0 + 1);
                let credential = CredentialRevision(self.token);
                Input::CredentialRenewed { credential }
            }
        };
        let most = self.rng.choose(&[10, 3_000, 60_000]);
        let delay = self.rng.millis(most);
        self.later(delay, Event::Deliver(answer));
        self.renewal = Some((self.now + delay, self.sequence));
        if self.rng.percent(10) {
            // A user acts while the failed connection closes.
            let input = self
                .rng
                .choose(&[Input::Disable, Input::Enable, Input::TransportChanged]);
            let soon = self.rng.millis(500);
            self.later(delay + soon, Event::Deliver(input));
        }
    }

    fn check(&mut self, generation: Generation) {
        let answers = match self.behaviour {
            Behaviour::Silent => 10,
            Behaviour::Healthy
            | Behaviour::Flapping
            | Behaviour::Unreachable
            | Behaviour::Unauthorized => 80,
        };
        let failure = (!self.rng.percent(answers))
            .then(|| Fault::new(FaultClass::ServerFault, "the ping failed"));
        let ended = Input::CheckEnded {
            generation,
            failure,
        };
        if self.rng.percent(80) {
            let delay = self.rng.millis(3_000);
            self.later(delay, Event::Deliver(ended));
        }
    }

    /// The actor crashes with everything it holds; a new one continues from the saved state.
    fn crash(&mut self) {
        self.trace.line(self.now - self.begin, "the actor crashes");
        self.tally.crashes += 1;
        self.replies.drop_all(|holder| holder != Holder::Report);
        self.tasks.clear();
        self.grant = None;
        if let Some(key) = self.renewal.take() {
            self.queue.remove(&key);
        }
        self.machine = Machine::new(self.settings.clone(), self.saved.clone(), self.now)
            .resuming_from(self.model.state);
        self.model.crash(self.now);
        self.step(Input::Start);
    }
}

/// The whole state of a machine, except for the count of late facts.
pub fn whole(machine: &Machine) -> String {
    let late = format!("dropped_late: {}", machine.dropped_late());
    format!("{machine:?}").replace(&late, "dropped_late: _")
}

//! A world in virtual time around one machine: connection tasks, callers, people and a governor.
//!
//! It performs the machine's effects as the actor would, and the model watches every step.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use mcpvisor_core::machine::{Durable, Fault, FaultClass};
use mcpvisor_core::retry::Known;
use mcpvisor_core::{
    CallId, Effect, FetchOutcome, Generation, Input, Machine, Random, ServerSettings, StateName,
};

use super::model::Model;
use super::replies::{Holder, Replies};
use super::roll::Dice;
use super::sabotage::Sabotage;
use super::task::{Happening, Task, Weather};
use super::trace::{Detail, Trace};

/// No history has more steps.
const MAX_STEPS: u32 = 50_000;

/// A shutdown takes no longer than its limit and this, for messages on their way and late timers.
const SHUTDOWN_SLACK: Duration = Duration::from_millis(250);

/// Something that will happen.
#[derive(Debug)]
pub enum Event {
    /// A message arrives at the actor.
    Tell(Input),
    /// A message of a connection that has ended.
    Stray(Input),
    Task(Generation, Happening),
    Arrive,
    Leave(CallId),
    Press,
    Weather,
    /// The actor crashes and is restarted.
    Crash,
    Shutdown,
}

/// One history.
pub struct World {
    pub begin: Instant,
    pub now: Instant,
    pub settings: ServerSettings,
    pub machine: Machine,
    pub model: Model,
    pub dice: Dice,
    pub tasks: BTreeMap<Generation, Task>,
    pub replies: Replies,
    pub weather: Weather,
    /// The longest pause between callers, in milliseconds.
    pub pace: u64,
    pub next_call: u64,
    /// A shutdown was asked for, and should be over then.
    pub ends_by: Option<Instant>,
    remembered: Durable,
    queue: BTreeMap<(Instant, u64), Event>,
    sequence: u64,
    /// The answer of the governor that is on its way.
    grant: Option<(Instant, u64)>,
    trace: Trace,
    tally: Tally,
    pub sabotage: Sabotage,
}

/// What a history was made of.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Tally {
    pub steps: u32,
    pub calls: usize,
    pub connects: u32,
    pub retries: u32,
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
        self.late += other.late;
        self.crashes += other.crashes;
        self.changes.extend(other.changes);
    }
}

/// Runs the history of a seed from its start to its end.
pub fn run(seed: u64, detail: Detail) -> Tally {
    run_sabotaged(seed, detail, Sabotage::None)
}

/// The same with a machine that is wrong.
pub fn run_sabotaged(seed: u64, detail: Detail, sabotage: Sabotage) -> Tally {
    let mut dice = Dice::new(seed);
    let settings = dice.settings();
    settings.validate().expect("the settings are valid");
    let begin = Instant::now();
    let enabled = dice.percent(95);
    let remembered = Durable::new(&settings, enabled);
    let mut world = World {
        begin,
        now: begin,
        machine: Machine::new(
            sabotage.settings(settings.clone()),
            Durable::new(&sabotage.settings(settings.clone()), enabled),
            begin,
        ),
        model: Model::new(settings.clone(), enabled, begin),
        tasks: BTreeMap::new(),
        replies: Replies::default(),
        weather: Weather::Fair,
        pace: dice.choose(&[1_000, 5_000, 20_000]),
        next_call: 1,
        ends_by: None,
        remembered,
        queue: BTreeMap::new(),
        sequence: 0,
        grant: None,
        trace: Trace::new(detail),
        sabotage,
        tally: Tally::default(),
        settings,
        dice,
    };
    world.live();
    world.tally
}

impl World {
    fn live(&mut self) {
        let ends = self.dice.choose(&[10_000, 60_000, 300_000]);
        let ends = self.dice.millis(ends);
        self.later(ends, Event::Shutdown);
        if self.dice.percent(20) {
            let crashes = ends.mul_f64(self.dice.chance());
            self.later(crashes, Event::Crash);
        }
        self.later(Duration::ZERO, Event::Arrive);
        self.change_weather();
        if self.dice.percent(70) {
            self.later(Duration::from_secs(1), Event::Press);
        }
        self.step(Input::Start);
        while !self.model.stopped {
            self.advance();
        }
        self.replies
            .drop_all(|holder| matches!(holder, Holder::Report));
        self.tally.calls = self.replies.all_answered();
        assert!(self.tasks.is_empty(), "a task is left behind");
        self.tally.trace = self.trace.hash();
    }

    /// The next event, or the next tick of the one timer, whichever comes first.
    fn advance(&mut self) {
        let event = self.queue.keys().next().copied();
        let timer = self.machine.next_deadline();
        if timer.is_some_and(|due| event.is_none_or(|(at, _)| due <= at)) {
            // A timer may be late.
            let late = if self.dice.percent(5) {
                self.dice.millis(50)
            } else {
                Duration::ZERO
            };
            let due = timer.unwrap_or(self.now) + late;
            self.now = self.now.max(due);
            self.step(Input::Tick);
        } else if let Some(key) = event {
            let event = self.queue.remove(&key).expect("it is there");
            self.now = self.now.max(key.0);
            self.happening(event);
        } else {
            panic!("nothing will ever happen");
        }
    }

    fn happening(&mut self, event: Event) {
        match event {
            Event::Tell(input) => self.step(input),
            Event::Stray(input) => self.step(input),
            Event::Task(generation, what) => self.happen(generation, what),
            Event::Arrive => self.arrive(),
            Event::Leave(call) => self.step(Input::CallCancelled { call }),
            Event::Press => self.press(),
            Event::Weather => self.change_weather(),
            Event::Crash => self.crash(),
            Event::Shutdown => {
                let limit = self.dice.millis(20_000);
                self.ends_by = Some(self.now + limit + SHUTDOWN_SLACK);
                self.step(Input::Shutdown { limit });
            }
        }
    }

    /// Queues an event some time from now.
    pub fn later(&mut self, after: Duration, event: Event) {
        self.at(self.now + after, event);
    }

    /// Queues an event.
    pub fn at(&mut self, at: Instant, event: Event) {
        self.sequence += 1;
        self.queue.insert((at, self.sequence), event);
    }

    /// One message to the actor: a step of the machine, and those that follow from it.
    pub fn step(&mut self, input: Input) {
        self.step_once(input);
        let waiting: BTreeSet<_> = self.model.waiting().map(|(call, _)| *call).collect();
        assert_eq!(*self.replies.with_shell(), waiting, "what the shell holds");
    }

    fn step_once(&mut self, input: Input) {
        if self.model.stopped {
            return;
        }
        self.tally.steps += 1;
        assert!(self.tally.steps < MAX_STEPS, "it goes on for ever");
        if self.trace.is_on() {
            let state = self.machine.state().name();
            self.trace.step(self.begin, self.now, &input, state);
        }
        let late = self.model.is_late(&input);
        let before = late.then(|| whole(&self.machine));
        self.bring_replies(&input);
        let mut effects = Vec::new();
        let chance = Random::new(self.dice.chance());
        if let Some(heard) = self.sabotage.input(&input, self.model.newest) {
            self.machine.handle(self.now, chance, heard, &mut effects);
        }
        self.sabotage.effects(&mut effects);
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

    /// Some messages bring replies with them.
    fn bring_replies(&mut self, input: &Input) {
        match input {
            Input::Call(call) => self.replies.enter(call),
            Input::ConnectionLost { returned, .. } => {
                for back in returned {
                    self.replies.pass(back.call, Holder::Report, Holder::Shell);
                }
            }
            Input::CallFailed { call, .. } => {
                self.replies.pass(*call, Holder::Report, Holder::Shell);
            }
            _ => {}
        }
    }

    /// Performs an effect as the actor would; what the machine must hear of it comes back.
    fn perform(&mut self, effect: Effect) -> Option<Input> {
        match effect {
            Effect::RequestPermit { .. } => {
                let delay = self.dice.millis(1_000);
                self.later(delay, Event::Tell(Input::PermitGranted));
                self.grant = Some((self.now + delay, self.sequence));
            }
            Effect::ReleasePermit => {
                // The answer may be on its way already.
                if let Some(key) = self.grant.take()
                    && self.dice.percent(80)
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
                self.replies.answer(call, Holder::Shell);
            }
            Effect::Abandon {
                call, generation, ..
            } => self.cancel(generation, call),
            Effect::Check { generation } => self.check(generation),
            Effect::FetchList { generation, list } => {
                let outcome = match self.dice.number(0..10) {
                    0 => FetchOutcome::Failed,
                    1 => FetchOutcome::Refused,
                    _ => FetchOutcome::Fetched,
                };
                let fetched = Input::ListFetched {
                    generation,
                    list,
                    outcome,
                };
                let delay = self.dice.millis(3_000);
                self.later(delay, Event::Tell(fetched));
            }
            Effect::StateChanged { from, to } => drop(self.tally.changes.insert((from, to))),
            Effect::SaveDurable => self.remembered = self.machine.durable().clone(),
            Effect::Restore { .. } | Effect::AttemptFailed { .. } | Effect::Stop => {}
        }
        None
    }

    fn start_call(&mut self, call: CallId, generation: Generation, retried: bool) -> Option<Input> {
        self.tally.retries += u32::from(retried);
        if retried && self.replies.call(call).is_tool && self.dice.percent(20) {
            // The tool has changed: the shell answers, and says that nobody waits any more.
            self.replies.answer(call, Holder::Shell);
            return Some(Input::CallCancelled { call });
        }
        if self.take_call(generation, call) {
            self.replies
                .pass(call, Holder::Shell, Holder::Task(generation));
            return None;
        }
        Some(Input::CallUndelivered { generation, call })
    }

    fn check(&mut self, generation: Generation) {
        let answers = match self.weather {
            Weather::Silent => 10,
            Weather::Fair | Weather::Flapping | Weather::Dead => 80,
        };
        let failure = (!self.dice.percent(answers))
            .then(|| Fault::new(FaultClass::ServerFault, "the ping failed"));
        let ended = Input::CheckEnded {
            generation,
            failure,
        };
        if self.dice.percent(80) {
            let delay = self.dice.millis(3_000);
            self.later(delay, Event::Tell(ended));
        }
    }

    /// The actor dies with all it holds; a new one goes on from what was remembered.
    fn crash(&mut self) {
        self.trace.line(self.now - self.begin, "the actor crashes");
        self.tally.crashes += 1;
        self.replies.drop_all(|holder| holder != Holder::Report);
        self.tasks.clear();
        self.grant = None;
        self.machine = Machine::new(self.settings.clone(), self.remembered.clone(), self.now)
            .resuming_from(self.model.state);
        self.model.crash(self.now);
        self.step(Input::Start);
    }
}

/// Everything that a machine knows, but for the count of late facts.
pub fn whole(machine: &Machine) -> String {
    let late = format!("dropped_late: {}", machine.dropped_late());
    format!("{machine:?}").replace(&late, "dropped_late: _")
}

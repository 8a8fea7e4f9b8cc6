//! Servers that never recover, for a day of virtual time: no connect storm, and never forgotten.

mod support;

use std::time::{Duration, Instant};

use mcpvisor_core::machine::{ConnectionEnd, Durable, Fault, FaultClass, NewCall};
use mcpvisor_core::{
    CallId, ClientId, Effect, Generation, Input, Machine, Random, RetryPolicy, Safety,
    ServerSettings, StateName,
};
use support::model::Model;
use support::rng::TestRng;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How a server is broken.
#[derive(Debug, Clone, Copy)]
enum Broken {
    /// It cannot be reached.
    Dead,
    /// It starts and never answers the handshake.
    Hanging,
    /// It connects and dies after this time.
    Flapping(Duration),
}

/// A machine with a broken server, a governor that grants at once, and a model that checks it.
struct Stage {
    machine: Machine,
    model: Model,
    broken: Broken,
    rng: Option<TestRng>,
    begin: Instant,
    now: Instant,
    /// The next report of the connection task, and when it comes.
    report: Option<(Instant, Input)>,
    /// When each connect began, from the start.
    connects: Vec<Duration>,
    outcomes: usize,
}

impl Stage {
    /// Started with the default settings. Without random numbers every delay is as configured.
    fn new(broken: Broken, rng: Option<TestRng>) -> Self {
        Self::with(ServerSettings::default(), broken, rng)
    }

    /// Started with these settings.
    fn with(settings: ServerSettings, broken: Broken, rng: Option<TestRng>) -> Self {
        let begin = Instant::now();
        let durable = Durable::new(&settings, true);
        let mut stage = Self {
            machine: Machine::new(settings.clone(), durable, begin),
            model: Model::new(settings, true, begin),
            broken,
            rng,
            begin,
            now: begin,
            report: None,
            connects: Vec::new(),
            outcomes: 0,
        };
        stage.step(Input::Start);
        stage
    }

    fn state(&self) -> StateName {
        self.machine.state().name()
    }

    fn step(&mut self, input: Input) {
        let random = self.rng.as_mut().map(TestRng::fraction);
        let random = random.map_or(Random::MIDDLE, Random::new);
        let mut effects = Vec::new();
        self.machine
            .handle(self.now, random, input.clone(), &mut effects);
        self.model
            .observe(self.now, &input, &effects, &self.machine);
        for effect in effects {
            self.perform(&effect);
        }
    }

    fn perform(&mut self, effect: &Effect) {
        match effect {
            Effect::RequestPermit { .. } => self.step(Input::PermitGranted),
            Effect::Open { generation } => self.open(*generation),
            Effect::Close { generation, .. } => {
                self.report = Some((self.now, ended(*generation)));
            }
            Effect::Resolve { .. } | Effect::Abandon { .. } => self.outcomes += 1,
            _ => {}
        }
    }

    fn open(&mut self, generation: Generation) {
        self.connects.push(self.now - self.begin);
        self.report = match self.broken {
            Broken::Dead => Some((self.now, ended(generation))),
            Broken::Hanging => None,
            Broken::Flapping(_) => Some((
                self.now,
                Input::ConnectionUp {
                    generation,
                    lists: Vec::new(),
                },
            )),
        };
    }

    /// Delivers a report; a connection that came up will die.
    fn deliver(&mut self, input: Input) {
        if let (Broken::Flapping(lives), Input::ConnectionUp { generation, .. }) =
            (self.broken, &input)
        {
            self.report = Some((self.now + lives, ended(*generation)));
        }
        self.step(input);
    }

    /// Advances the time.
    fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        loop {
            let report = self.report.as_ref().map(|(at, _)| *at);
            let timer = self.machine.next_deadline();
            let Some(next) = report
                .into_iter()
                .chain(timer)
                .min()
                .filter(|at| *at <= end)
            else {
                break;
            };
            self.now = self.now.max(next);
            match self.report.take_if(|(at, _)| *at <= next) {
                Some((_, input)) => self.deliver(input),
                None => self.step(Input::Tick),
            }
        }
        self.now = end;
    }

    fn call(&mut self, number: u64) {
        let call = NewCall {
            call: CallId(number),
            client: ClientId::DEFAULT,
            safety: Safety::Effectful,
            retry_policy: RetryPolicy::Default,
            priority: Default::default(),
            is_tool: true,
            deadline: self.now + Duration::from_secs(300),
            idle: Duration::from_secs(60),
        };
        self.step(Input::Call(call));
    }

    /// The times between the connects, in milliseconds.
    fn gaps(&self) -> Vec<u128> {
        let gap = |pair: &[Duration]| (pair[1] - pair[0]).as_millis();
        self.connects.windows(2).map(gap).collect()
    }
}

fn ended(generation: Generation) -> Input {
    let fault = Fault::new(FaultClass::ConnectFailed, "broken for good");
    Input::ConnectionEnded {
        generation,
        end: ConnectionEnd::Failed {
            fault,
            retry_after: None,
        },
    }
}

/// The delays before the budget of ten connects is spent, and between the first probes.
const BUDGET: [u128; 9] = [
    500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000,
];
const FIRST_PROBES: [u128; 4] = [30_000, 60_000, 120_000, 240_000];
const SLOWEST_PROBE: u128 = 300_000;

/// The times between the connects of a dead server in a day.
fn gaps_of_a_dead_server_in_a_day() -> Vec<u128> {
    let probes = (DAY.as_millis() - 571_500) / SLOWEST_PROBE;
    let probes = (0..probes).map(|_| SLOWEST_PROBE);
    let paced = BUDGET.into_iter().chain(FIRST_PROBES);
    paced.chain(probes).collect()
}

#[test]
fn a_dead_server_gets_its_budget_and_then_only_slow_probes_for_a_day() {
    let mut stage = Stage::new(Broken::Dead, None);
    stage.pass(DAY);
    assert_eq!(stage.gaps(), gaps_of_a_dead_server_in_a_day());
    assert_eq!(stage.connects.len(), 300);
    assert_eq!(stage.state(), StateName::Disconnected);
}

#[test]
fn control_an_unlimited_budget_never_slows_down() {
    let mut settings = ServerSettings::default();
    settings.budget.attempts = 1_000_000;
    let mut stage = Stage::with(settings, Broken::Dead, None);
    stage.pass(DAY);
    assert_ne!(stage.gaps(), gaps_of_a_dead_server_in_a_day());
    let gaps = stage.gaps();
    assert!(
        gaps[BUDGET.len()..].iter().all(|gap| *gap == 30_000),
        "never slower than the backoff"
    );
    assert!(stage.connects.len() > 2_800, "{}", stage.connects.len());
    assert_ne!(stage.state(), StateName::Disconnected);
}

#[test]
fn with_any_jitter_a_dead_server_is_probed_slowly_and_not_forgotten() {
    for seed in 0..10 {
        let mut stage = Stage::new(Broken::Dead, Some(TestRng::new(seed)));
        stage.pass(DAY);
        let gaps = stage.gaps();
        for (seen, planned) in gaps.iter().zip(BUDGET.into_iter().chain(FIRST_PROBES)) {
            assert!(
                (planned * 8 / 10..=planned * 12 / 10).contains(seen),
                "seed {seed}"
            );
        }
        for probe in &gaps[BUDGET.len() + FIRST_PROBES.len()..] {
            assert!(
                (SLOWEST_PROBE * 8 / 10..=SLOWEST_PROBE).contains(probe),
                "seed {seed}"
            );
        }
        assert!((300..=360).contains(&stage.connects.len()), "seed {seed}");
    }
}

#[test]
fn a_server_that_flaps_right_after_connecting_runs_out_of_budget() {
    let mut stage = Stage::new(Broken::Flapping(Duration::ZERO), None);
    stage.pass(Duration::from_secs(121));
    assert_eq!(stage.connects.len(), 9);
    assert_ne!(stage.state(), StateName::Disconnected);
    stage.pass(Duration::from_secs(1));
    assert_eq!(
        (stage.connects.len(), stage.state()),
        (10, StateName::Disconnected)
    );
    stage.pass(DAY - Duration::from_secs(122));
    assert_eq!(stage.connects.len(), 300, "it is probed like a dead server");
}

#[test]
fn a_server_that_lives_for_seconds_runs_out_of_budget_too() {
    let mut stage = Stage::new(Broken::Flapping(Duration::from_secs(10)), None);
    stage.pass(Duration::from_secs(230));
    assert_eq!(
        (stage.connects.len(), stage.state()),
        (10, StateName::Disconnected)
    );
}

#[test]
fn control_a_flapping_server_whose_connections_are_proven_is_never_parked() {
    let mut settings = ServerSettings::default();
    settings.budget.proven_after = Duration::ZERO;
    let lives = Broken::Flapping(Duration::from_secs(10));
    let mut stage = Stage::with(settings, lives, None);
    while stage.now - stage.begin < DAY {
        stage.pass(Duration::from_secs(1));
        assert_ne!(stage.state(), StateName::Disconnected);
    }
    assert!(stage.connects.len() > 5_000, "{}", stage.connects.len());
}

/// Thirty seconds for the handshake and thirty for the backoff: a window never holds ten of these, so the
/// server is not parked, and only the backoff limits its connects.
#[test]
fn a_server_that_never_answers_the_handshake_is_tried_once_a_minute() {
    let mut stage = Stage::new(Broken::Hanging, None);
    stage.pass(DAY);
    let gaps = stage.gaps();
    assert_eq!(gaps[..6], [30_500, 31_000, 32_000, 34_000, 38_000, 46_000]);
    assert!(gaps[6..].iter().all(|gap| *gap == 60_000));
    assert_eq!(stage.connects.len(), 1_443);
}

#[test]
fn a_thousand_calls_in_a_second_cause_two_connects_of_a_dead_parked_server() {
    let mut stage = Stage::new(Broken::Dead, None);
    stage.pass(Duration::from_secs(200));
    assert_eq!(stage.state(), StateName::Disconnected);
    let before = stage.connects.len();
    for number in 0..1_000 {
        stage.call(number);
        stage.pass(Duration::from_millis(1));
    }
    assert!(stage.connects.len() - before <= 2, "{:?}", stage.gaps());
    stage.pass(Duration::from_secs(15));
    assert_eq!(stage.outcomes, 1_000, "every call has its outcome");
}

#[test]
fn continuous_calls_connect_a_dead_parked_server_at_most_once_a_second() {
    let mut stage = Stage::new(Broken::Dead, None);
    stage.pass(Duration::from_secs(200));
    let before = stage.connects.len();
    for number in 0..6_000 {
        stage.call(number);
        stage.pass(Duration::from_millis(10));
    }
    let woken = &stage.gaps()[before..];
    assert!(woken.iter().all(|gap| *gap >= 1_000), "{woken:?}");
    assert!((59..=61).contains(&woken.len()), "{}", woken.len());
}

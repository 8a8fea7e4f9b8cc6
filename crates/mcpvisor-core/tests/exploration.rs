//! Every history of a limited length: lifecycle × generation × two callers, checked by the model.
//!
//! From each of a few starting points all possible inputs are tried, breadth first; a state that was
//! reached before is not explored again. `MCPVISOR_DEPTH` sets the number of inputs.

#![expect(
    clippy::print_stderr,
    clippy::panic,
    reason = "a failing test prints its inputs"
)]

mod support;

use std::collections::HashSet;
use std::fmt::{self, Write as _};
use std::hash::{DefaultHasher, Hasher};
use std::panic;
use std::time::{Duration, Instant};

use mcpvisor_core::machine::{
    Action, CallEnd, ConnectionEnd, Durable, Fault, FaultClass, NewCall, PermanentFailure,
    RenewalFailure, ReturnedCall,
};
use mcpvisor_core::retry::RequestFailure;
use mcpvisor_core::{
    CallId, ClientId, CredentialRevision, FetchOutcome, Generation, Input, ListKind, Machine,
    Priority, Random, RetryPolicy, Safety, ServerSettings, StateName,
};
use support::from_env;
use support::model::{Model, Place};
use support::mutation::Mutation;
use support::simulation::whole;

/// Inputs after each starting point: a few seconds in total in a debug build.
const DEPTH: usize = 5;

/// Inputs until every mutation is detected.
const CONTROL_DEPTH: usize = 3;

/// One in this many nodes gets late facts; for all of them that would take most of the time.
const LATE_EVERY: usize = 5;

/// Two callers: one calls a tool that must not run twice, the other reads.
const TOOL: CallId = CallId(1);
const READ: CallId = CallId(2);

/// The starting points: a name, the inputs that lead there, and the state.
const STARTING_POINTS: [(&str, &str, StateName); 12] = [
    (
        "a credential is renewed",
        "permit up fetched tool read unauthorized",
        StateName::Connected,
    ),
    (
        "closing before a login",
        "permit up fetched tool read unauthorized revoked",
        StateName::PermanentlyFailed,
    ),
    (
        "a login is needed",
        "permit up unauthorized revoked ended",
        StateName::PermanentlyFailed,
    ),
    ("fresh", "", StateName::Connecting),
    ("connected", "permit up fetched", StateName::Connected),
    ("busy", "permit up tool read", StateName::Connected),
    (
        "a retry waits",
        "permit up read lost ended tick permit",
        StateName::Reconnecting,
    ),
    (
        "draining",
        "permit up tool read broken",
        StateName::Reconnecting,
    ),
    (
        "parked",
        "permit failed tick permit failed",
        StateName::Disconnected,
    ),
    ("disabling", "permit up tool disable", StateName::Disabling),
    (
        "falling asleep",
        "permit up fetched tick",
        StateName::Sleeping,
    ),
    (
        "asleep",
        "permit up fetched tick ended",
        StateName::Sleeping,
    ),
];

/// Limits of one, so that two callers interfere, and two connects, so that parking is near.
fn settings() -> ServerSettings {
    let mut settings = ServerSettings::default();
    settings.admission.in_flight = 1;
    settings.admission.waiting = 1;
    settings.budget.attempts = 2;
    settings.rest.sleep_after = Some(Duration::from_secs(10));
    settings
}

/// The same, but calls wait for the list of tools.
fn careful() -> ServerSettings {
    let mut settings = settings();
    settings.listing.before_calls = true;
    settings
}

/// A machine and its model.
#[derive(Clone)]
struct Node {
    machine: Machine,
    model: Model,
    now: Instant,
    /// Its index in the [`Trail`].
    place: usize,
    /// The defect of the machine.
    mutation: Mutation,
    /// The server refuses credentials. Only some starting points explore that, for the time it takes.
    refuses_credentials: bool,
}

impl Node {
    fn begin(settings: ServerSettings, mutation: Mutation) -> Self {
        let now = Instant::now();
        let believed = mutation.settings(settings.clone());
        let durable = Durable::new(&believed, true);
        Self {
            machine: Machine::new(believed, durable, now),
            model: Model::new(settings, true, now),
            now,
            place: 0,
            mutation,
            refuses_credentials: false,
        }
    }

    fn step(&mut self, input: &Input) {
        if *input == Input::Tick {
            let due = self.machine.next_deadline().unwrap_or(self.now);
            self.now = self.now.max(due);
        }
        let mut effects = Vec::new();
        if let Some(input) = self.mutation.input(input, self.model.newest) {
            self.machine
                .handle(self.now, Random::MIDDLE, input, &mut effects);
        }
        self.mutation.effects(&mut effects);
        self.model.observe(self.now, input, &effects, &self.machine);
        if self.model.stopping && self.model.connection.is_none() {
            assert!(self.model.stopped, "the actor is not stopped");
        }
    }

    /// The hash that identifies the node.
    fn key(&self) -> u64 {
        let mut digest = Digest(DefaultHasher::new());
        let (machine, model) = (&self.machine, &self.model);
        let written = write!(
            digest,
            "{machine:?}{:?}{:?}{:?}{:?}",
            self.now, model.connection, model.over, model.has_subscriptions
        );
        assert!(written.is_ok());
        digest.0.finish()
    }

    /// Delivers a late fact, which must change nothing.
    fn deliver_late(&mut self, which: usize) {
        let generation = Generation::from(self.model.newest.get().saturating_sub(1));
        let facts = late_facts(generation);
        let fact = &facts[which % facts.len()];
        let before = whole(&self.machine);
        self.step(fact);
        assert_eq!(whole(&self.machine), before, "after {fact:?}");
    }
}

/// Hashes the text that is written to it.
struct Digest(DefaultHasher);

impl fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

/// How each node was reached: its predecessor and the input.
#[derive(Default)]
struct Trail(Vec<(usize, Input)>);

/// Prints the inputs that lead to a failed node.
struct Telling<'a>(&'a Trail, usize, &'a Input);

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut way = vec![self.2];
            let mut place = self.1;
            while place > 0 {
                let (before, input) = &self.0.0[place - 1];
                way.push(input);
                place = *before;
            }
            eprintln!("\ninputs:");
            way.iter()
                .rev()
                .for_each(|input| eprintln!("    {input:?}"));
        }
    }
}

fn fault() -> Fault {
    Fault::new(FaultClass::ConnectionLost, "gone")
}

fn failed() -> ConnectionEnd {
    ConnectionEnd::Failed {
        fault: fault(),
        retry_after: None,
    }
}

fn closed() -> ConnectionEnd {
    ConnectionEnd::Closed { problem: None }
}

fn late_facts(generation: Generation) -> Vec<Input> {
    let list = ListKind::Tools;
    vec![
        call_ended(generation, READ),
        Input::CallProgressed {
            generation,
            call: READ,
        },
        Input::MessageReceived { generation },
        Input::FirstByte { generation },
        up(generation),
        lost(generation, &[], true),
        ended(generation, closed()),
        Input::CheckEnded {
            generation,
            failure: Some(fault()),
        },
        Input::ListChanged { generation, list },
        Input::ListFetched {
            generation,
            list,
            outcome: FetchOutcome::Fetched,
        },
        Input::ListExpires {
            generation,
            list,
            after: Duration::from_secs(1),
        },
        Input::ReportBroken { generation },
        Input::SessionLost {
            generation,
            fault: fault(),
        },
        Input::Unauthorized {
            generation,
            credential: CredentialRevision(9),
            fault: unauthorized(),
        },
    ]
}

fn up(generation: Generation) -> Input {
    Input::ConnectionUp {
        generation,
        lists: vec![ListKind::Tools],
    }
}

fn ended(generation: Generation, end: ConnectionEnd) -> Input {
    Input::ConnectionEnded { generation, end }
}

fn call_ended(generation: Generation, call: CallId) -> Input {
    Input::CallEnded {
        generation,
        call,
        end: CallEnd::Answered,
    }
}

fn lost(generation: Generation, calls: &[CallId], written: bool) -> Input {
    let back = |call: &CallId| ReturnedCall {
        call: *call,
        written,
    };
    Input::ConnectionLost {
        generation,
        fault: fault(),
        returned: calls.iter().map(back).collect(),
    }
}

fn call(node: &Node, call: CallId) -> Input {
    let is_tool = call == TOOL;
    Input::Call(NewCall {
        call,
        client: ClientId(u32::from(is_tool)),
        safety: if is_tool {
            Safety::Effectful
        } else {
            Safety::Repeatable
        },
        retry_policy: RetryPolicy::Default,
        priority: Priority::default(),
        is_tool,
        deadline: node.now + Duration::from_secs(100),
        idle: Duration::from_secs(60),
    })
}

fn in_flight(node: &Node) -> Vec<CallId> {
    let is_in_flight_on = |place| matches!(place, Place::InFlight { .. });
    let open = node.model.open.iter();
    open.filter(|(_, call)| is_in_flight_on(call.place))
        .map(|(id, _)| *id)
        .collect()
}

/// All inputs that may come next.
fn options(node: &Node) -> Vec<Input> {
    let mut options = vec![
        Input::Enable,
        Input::Disable,
        Input::Reconnect,
        Input::TransportChanged,
        Input::Shutdown {
            limit: Duration::from_secs(9),
        },
    ];
    if node.machine.next_deadline().is_some() {
        options.push(Input::Tick);
    }
    if node.model.state == StateName::Connected && !node.model.has_subscriptions {
        options.push(Input::SubscriptionsChanged { active: true });
    }
    if node.model.permit_requested {
        options.push(Input::PermitGranted);
    }
    for id in [TOOL, READ] {
        if node.model.open.contains_key(&id) {
            options.push(Input::CallCancelled { call: id });
        } else if !node.model.over.contains(&id) {
            options.push(call(node, id));
        }
    }
    options.extend(options_of_connection(node));
    options.extend(options_of_credentials(node));
    options
}

/// The newest credential, or the first.
fn newest_credential(node: &Node) -> CredentialRevision {
    node.model.credentials.newest.max(CredentialRevision(1))
}

fn next_credential(node: &Node) -> CredentialRevision {
    CredentialRevision(newest_credential(node).0 + 1)
}

fn unauthorized() -> Fault {
    Fault::new(FaultClass::Authorization, "unauthorized")
}

fn revoked() -> Input {
    let failure = RenewalFailure::Permanent(PermanentFailure {
        fault: unauthorized(),
        action: Action::Login { scopes: Vec::new() },
    });
    Input::RenewalFailed { failure }
}

/// The answers to a renewal, and logins.
fn options_of_credentials(node: &Node) -> Vec<Input> {
    let credentials = &node.model.credentials;
    let credential = next_credential(node);
    let mut options = Vec::new();
    if node.refuses_credentials {
        options.push(Input::CredentialChanged { credential });
    }
    if credentials.renewing.is_some() {
        options.push(Input::CredentialRenewed { credential });
        let failure = RenewalFailure::Transient(unauthorized());
        options.push(Input::RenewalFailed { failure });
        options.push(revoked());
    }
    options
}

fn options_of_connection(node: &Node) -> Vec<Input> {
    let Some(connection) = &node.model.connection else {
        return Vec::new();
    };
    let generation = connection.generation;
    let mut options = Vec::new();
    if connection.up.is_none() {
        options.push(ended(generation, failed()));
        if !connection.closing {
            options.push(up(generation));
            let permanent = PermanentFailure {
                fault: fault(),
                action: Action::UpdateServer,
            };
            options.push(ended(generation, ConnectionEnd::Permanent(permanent)));
        }
        return options;
    }
    options.push(ended(generation, closed()));
    let flying = in_flight(node);
    options.push(lost(generation, &flying, true));
    for call in &flying {
        options.push(lost(generation, &flying, false));
        options.push(call_ended(generation, *call));
        options.push(Input::CallUndelivered {
            generation,
            call: *call,
        });
        let retry_after = Some(Duration::from_secs(7));
        let credential = newest_credential(node);
        let refused = RequestFailure::Unauthorized { credential };
        let refused = node.refuses_credentials.then_some(refused);
        for failure in refused.into_iter().chain([
            RequestFailure::SessionLost,
            RequestFailure::ServerFault,
            RequestFailure::Busy { retry_after },
        ]) {
            options.push(Input::CallFailed {
                generation,
                call: *call,
                failure,
                fault: fault(),
            });
        }
    }
    if connection.is_open() {
        options.push(Input::ReportBroken { generation });
        if node.refuses_credentials {
            options.push(Input::Unauthorized {
                generation,
                credential: newest_credential(node),
                fault: unauthorized(),
            });
        }
        options.push(Input::SessionLost {
            generation,
            fault: fault(),
        });
    }
    for list in &connection.fetching {
        for outcome in [FetchOutcome::Fetched, FetchOutcome::Failed] {
            options.push(Input::ListFetched {
                generation,
                list: *list,
                outcome,
            });
        }
    }
    options
}

/// Leads a new machine to a starting point.
fn lead(steps: &str, settings: ServerSettings, mutation: Mutation) -> Node {
    let mut node = Node::begin(settings, mutation);
    node.refuses_credentials = steps.contains("unauthorized");
    node.step(&Input::Start);
    for step in steps.split_whitespace() {
        let generation = node.model.newest;
        let input = match step {
            "permit" => Input::PermitGranted,
            "up" => up(generation),
            "fetched" => Input::ListFetched {
                generation,
                list: ListKind::Tools,
                outcome: FetchOutcome::Fetched,
            },
            "failed" => ended(generation, failed()),
            "ended" => ended(generation, closed()),
            "lost" => lost(generation, &in_flight(&node), true),
            "broken" => Input::ReportBroken { generation },
            "tool" => call(&node, TOOL),
            "read" => call(&node, READ),
            "unauthorized" => match in_flight(&node).first() {
                Some(call) => Input::CallFailed {
                    generation,
                    call: *call,
                    failure: RequestFailure::Unauthorized {
                        credential: newest_credential(&node),
                    },
                    fault: unauthorized(),
                },
                None => Input::Unauthorized {
                    generation,
                    credential: newest_credential(&node),
                    fault: unauthorized(),
                },
            },
            "revoked" => revoked(),
            "disable" => Input::Disable,
            "tick" => Input::Tick,
            _ => panic!("unknown step {step}"),
        };
        node.step(&input);
    }
    node
}

/// Explores all inputs. Returns the number of nodes and steps.
fn explore(node: Node, depth: usize) -> (usize, usize) {
    let mut trail = Trail::default();
    let mut seen = HashSet::from([node.key()]);
    let mut steps = 0;
    let mut frontier = vec![node];
    for _ in 0..depth {
        let mut reached = Vec::new();
        for node in &frontier {
            for input in options(node) {
                let mut next = node.clone();
                {
                    let _telling = Telling(&trail, node.place, &input);
                    next.step(&input);
                    steps += 1;
                    if next.model.stopped || !seen.insert(next.key()) {
                        continue;
                    }
                    if seen.len() % LATE_EVERY == 0 {
                        next.clone().deliver_late(seen.len() / LATE_EVERY);
                    }
                }
                trail.0.push((node.place, input));
                next.place = trail.0.len();
                reached.push(next);
            }
        }
        frontier = reached;
    }
    (seen.len(), steps)
}

#[test]
fn no_sequence_of_inputs_breaks_an_invariant() {
    let depth = from_env("MCPVISOR_DEPTH").map_or(DEPTH, |depth| depth as usize);
    for (name, steps, state) in STARTING_POINTS {
        let node = lead(steps, settings(), Mutation::None);
        assert_eq!(node.machine.state().name(), state, "{name}");
        let depth = depth - usize::from(node.refuses_credentials);
        let (nodes, steps) = explore(node, depth);
        println!("{name}: {nodes} nodes and {steps} steps within {depth} inputs");
        assert!(nodes > 50 * depth, "only {nodes} nodes were explored");
    }
    let (nodes, steps) = explore(lead("permit up", careful(), Mutation::None), depth);
    println!("careful: {nodes} nodes and {steps} steps within {depth} inputs");
}

#[test]
fn control_every_mutation_is_detected() {
    for mutation in Mutation::ALL {
        let explored = || {
            for (_, steps, _) in STARTING_POINTS {
                explore(lead(steps, settings(), mutation), CONTROL_DEPTH);
            }
            explore(lead("permit up", careful(), mutation), CONTROL_DEPTH);
        };
        let is_caught = panic::catch_unwind(explored).is_err();
        assert!(is_caught, "{mutation:?} is not detected");
    }
}

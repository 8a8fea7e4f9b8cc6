//! Corrupted histories: one for each kind of violation, which the checker must report.

use std::time::Duration;

use mcpvisor::StateName::{self, *};

use crate::checker::{CONTROL, Kind, LATE, check, last_change, lives};
use crate::history::*;

/// Corrupts a history, if the history has the entries that this needs.
type Sabotage = fn(&mut History) -> Option<()>;

/// Each kind of violation, with a corruption that causes only this kind.
const SABOTAGES: &[(Kind, Sabotage)] = &[
    (Kind::VersionGap, drop_an_event),
    (Kind::VersionGap, miss_the_beginning),
    (Kind::ChainGap, report_a_wrong_from),
    (Kind::ChainGap, remove_without_a_close),
    (Kind::IllegalTransition, go_where_no_way_leads),
    (Kind::MisplacedAttempt, fail_an_attempt_without_one),
    (Kind::MisplacedAttempt, connect_first_after_a_failure),
    (Kind::OutsideOfLife, change_after_removal),
    (Kind::OutsideOfLife, add_twice),
    (Kind::GenerationBackwards, start_again_at_generation_one),
    (Kind::GenerationBackwards, read_an_old_status),
    (Kind::GenerationReused, connect_twice_in_one_generation),
    (Kind::GenerationReused, serve_one_generation_twice),
    (Kind::GenerationReused, start_a_process_too_many),
    (Kind::GenerationReused, report_a_connection_that_was_none),
    (Kind::Overlap, start_a_process_beside_another),
    (Kind::Overlap, open_beside_another),
    (Kind::Overlap, use_two_sessions_at_once),
    (Kind::NoOutcome, lose_an_outcome),
    (Kind::SecondOutcome, answer_twice),
    (Kind::LateOutcome, answer_late),
    (Kind::NotSentRan, run_what_was_not_sent),
    (Kind::RefusedRan, run_what_was_refused),
    (Kind::ResultNotRun, answer_without_running),
    (Kind::RanTwice, run_twice),
    (Kind::RanTwice, run_a_repeatable_call_three_times),
    (Kind::RanElsewhere, run_on_another_server),
    (Kind::RanElsewhere, run_what_was_never_issued),
    (Kind::RequestHung, hang_a_request),
    (Kind::RuntimeGone, end_the_runtime_early),
    (Kind::NotRecovered, stay_down),
    (Kind::NotRecovered, come_up_though_disabled),
    (Kind::StatusDiffers, show_another_state),
    (Kind::StatusDiffers, end_in_another_state),
    (Kind::Leftover, leave_a_process),
    (Kind::Leftover, leave_a_connection_open),
];

/// Applies every applicable corruption to a run without violations, and checks that each is
/// reported.
pub(crate) fn is_seen_in(history: &History) {
    let mut applied = 0;
    for (number, (kind, sabotage)) in SABOTAGES.iter().enumerate() {
        let mut corrupted = history.clone();
        if sabotage(&mut corrupted).is_none() {
            continue;
        }
        applied += 1;
        let seen = check(&corrupted);
        let seen = seen.iter().any(|violation| violation.kind == *kind);
        assert!(seen, "sabotage {number}, {kind:?}, was not seen");
    }
    println!(
        "chaos: {applied} of {} sabotages applied to this run, all seen",
        SABOTAGES.len()
    );
}

fn outcome(history: &mut History, told: Told) -> Option<&mut Outcome> {
    let plain: std::collections::BTreeSet<u64> = history
        .calls
        .iter()
        .filter(|call| call.counted && !call.repeatable)
        .map(|call| call.id)
        .collect();
    history
        .outcomes
        .iter_mut()
        .find(|outcome| outcome.told == told && plain.contains(&outcome.id))
}

fn effect_of(history: &mut History, id: u64) -> Effect {
    let call = history.calls.iter().find(|call| call.id == id);
    let server = call.map_or_else(String::new, |call| call.server.clone());
    Effect { id, server }
}

/// A server that existed at the end, with a state change since it was added.
fn changed(history: &History) -> Option<Ended> {
    let mut ended = history.ended.iter();
    let found = ended.find(|ended| last_change(&history.events, &ended.server).is_some());
    found.cloned()
}

fn status<'a>(history: &'a mut History, server: &str) -> Option<&'a mut Ended> {
    history
        .ended
        .iter_mut()
        .find(|ended| ended.server == server)
}

fn change(from: StateName, to: StateName) -> What {
    What::State { from, to }
}

/// Appends an event.
fn push(history: &mut History, server: &str, generation: u64, what: What) {
    let version = history.events.last().map_or(1, |last| last.version + 1);
    history.events.push(Seen {
        version,
        server: server.to_owned(),
        generation,
        what,
    });
}

fn drop_an_event(history: &mut History) -> Option<()> {
    let other = |event: &Seen| event.what == What::Other;
    let middle = history.events.len().checked_sub(1)?;
    let number = history.events[1..middle].iter().position(other)? + 1;
    history.events.remove(number);
    Some(())
}

fn miss_the_beginning(history: &mut History) -> Option<()> {
    for event in &mut history.events {
        event.version += 1;
    }
    for server in &mut history.recovered {
        server.version += 1;
    }
    Some(())
}

fn report_a_wrong_from(history: &mut History) -> Option<()> {
    let mut changes = history.events.iter_mut().filter(|event| {
        matches!(
            event.what,
            What::State {
                from: Reconnecting,
                to: Connected
            }
        )
    });
    // Not the first change of a server, which has no predecessor.
    let event = changes.next_back()?;
    event.what = change(Connecting, Connected);
    Some(())
}

fn remove_without_a_close(history: &mut History) -> Option<()> {
    let Ended {
        server, generation, ..
    } = changed(history)?;
    push(history, &server, generation, change(Disabled, Connecting));
    push(history, &server, generation, What::Removed);
    history.ended.retain(|ended| ended.server != server);
    Some(())
}

fn go_where_no_way_leads(history: &mut History) -> Option<()> {
    let last = changed(history)?;
    let what = change(last.state, Sleeping);
    push(history, &last.server, last.generation, what);
    status(history, &last.server)?.state = Sleeping;
    Some(())
}

fn fail_an_attempt_without_one(history: &mut History) -> Option<()> {
    let last = changed(history)?;
    push(history, &last.server, last.generation, What::AttemptFailed);
    Some(())
}

fn connect_first_after_a_failure(history: &mut History) -> Option<()> {
    let last = changed(history)?;
    history.connections.push(Connection {
        server: last.server.clone(),
        what: Link::Handshake,
    });
    let generation = last.generation + 1;
    let whats = [
        change(Disabled, Connecting),
        What::AttemptFailed,
        change(Connecting, Connected),
    ];
    for what in whats {
        push(history, &last.server, generation, what);
    }
    let ended = status(history, &last.server)?;
    (ended.state, ended.generation) = (Connected, generation);
    Some(())
}

fn change_after_removal(history: &mut History) -> Option<()> {
    let last = changed(history)?;
    push(history, &last.server, last.generation, What::Removed);
    push(history, &last.server, last.generation, What::ActorRestarted);
    Some(())
}

fn add_twice(history: &mut History) -> Option<()> {
    let last = changed(history)?;
    push(history, &last.server, 0, What::Added);
    Some(())
}

fn start_again_at_generation_one(history: &mut History) -> Option<()> {
    let newest = |ended: &&Ended| {
        let last = last_change(&history.events, &ended.server);
        last.is_some_and(|(_, generation)| generation > 1)
    };
    let last = history.ended.iter().find(newest)?.clone();
    push(history, &last.server, 1, change(last.state, Connecting));
    status(history, &last.server)?.state = Connecting;
    Some(())
}

fn read_an_old_status(history: &mut History) -> Option<()> {
    let mut read = history
        .reads
        .iter()
        .find(|read| read.generation > 0)?
        .clone();
    read.generation -= 1;
    let number = history
        .reads
        .iter()
        .rposition(|other| other.reader == read.reader && other.server == read.server)?;
    history.reads.insert(number + 1, read);
    Some(())
}

fn connect_twice_in_one_generation(history: &mut History) -> Option<()> {
    let connected = |event: &&Seen| matches!(event.what, What::State { to: Connected, .. });
    let event = history.events.iter().rfind(connected)?.clone();
    let (last, generation) = last_change(&history.events, &event.server)?;
    let later = history
        .events
        .iter()
        .filter(|it| it.version > event.version);
    let mut later = later.filter(|it| it.server == event.server);
    // A later life would have its own generations.
    if generation != event.generation || later.any(|it| it.what == What::Added) {
        return None;
    }
    history.connections.push(Connection {
        server: event.server.clone(),
        what: Link::Handshake,
    });
    let ended = status(history, &event.server)?;
    (ended.state, ended.generation) = (Connected, ended.generation + 1);
    for what in [change(last, Connecting), change(Connecting, Connected)] {
        push(history, &event.server, generation, what);
    }
    Some(())
}

/// Repeats a generation more often than the server had lives: each life starts with the first
/// generation.
fn serve_one_generation_twice(history: &mut History) -> Option<()> {
    let opened = |link: &&Connection| matches!(link.what, Link::Opened { .. });
    let last = history.connections.iter().rfind(opened)?.clone();
    let Link::Opened { generation } = last.what else {
        return None;
    };
    let closed = Connection {
        server: last.server.clone(),
        what: Link::Closed { generation },
    };
    for _ in lives(history, &last.server) {
        history.connections.extend([last.clone(), closed.clone()]);
    }
    Some(())
}

/// Records more processes than there were generations.
fn start_a_process_too_many(history: &mut History) -> Option<()> {
    let started = |link: &&Connection| matches!(link.what, Link::Started { .. });
    let one = history.connections.iter().find(started)?.clone();
    let generations: u64 = lives(history, &one.server).iter().sum();
    for _ in 0..=generations {
        history.connections.push(one.clone());
    }
    Some(())
}

fn report_a_connection_that_was_none(history: &mut History) -> Option<()> {
    let connected = |event: &&Seen| matches!(event.what, What::State { to: Connected, .. });
    let server = history.events.iter().find(connected)?.server.clone();
    history.connections.retain(|link| link.server != server);
    history.connections.push(Connection {
        server,
        what: Link::Closed { generation: 0 },
    });
    Some(())
}

fn start_a_process_beside_another(history: &mut History) -> Option<()> {
    let started = |link: &&mut Connection| matches!(link.what, Link::Started { .. });
    let link = history.connections.iter_mut().find(started)?;
    link.what = Link::StartedBeside { pid: 7 };
    Some(())
}

fn open_beside_another(history: &mut History) -> Option<()> {
    let follows = |pair: &[Connection]| {
        pair[0].server == pair[1].server
            && matches!(pair[0].what, Link::Closed { .. })
            && matches!(pair[1].what, Link::Opened { .. })
    };
    let closed = history.connections.windows(2).position(follows)?;
    history.connections.swap(closed, closed + 1);
    Some(())
}

fn use_two_sessions_at_once(history: &mut History) -> Option<()> {
    let mut links = history.connections.iter_mut();
    let used = links.find_map(|link| match &mut link.what {
        Link::Session { first, last, .. } => Some((link.server.clone(), *first, last)),
        _ => None,
    });
    let (server, first, last) = used?;
    *last = first + Duration::from_secs(60);
    history.connections.push(Connection {
        server,
        what: Link::Session {
            id: "another".to_owned(),
            first: first + Duration::from_millis(1),
            last: first + Duration::from_secs(60),
        },
    });
    Some(())
}

fn lose_an_outcome(history: &mut History) -> Option<()> {
    history.outcomes.pop().map(drop)
}

fn answer_twice(history: &mut History) -> Option<()> {
    let again = history.outcomes.first()?.clone();
    history.outcomes.push(again);
    Some(())
}

fn answer_late(history: &mut History) -> Option<()> {
    let outcome = history.outcomes.first_mut()?;
    let call = history.calls.iter().find(|call| call.id == outcome.id)?;
    outcome.took = call.deadline + LATE + Duration::from_millis(1);
    Some(())
}

fn run_what_was_not_sent(history: &mut History) -> Option<()> {
    let id = outcome(history, Told::NotSent)?.id;
    let effect = effect_of(history, id);
    history.effects.push(effect);
    Some(())
}

fn run_what_was_refused(history: &mut History) -> Option<()> {
    let id = outcome(history, Told::Refused)?.id;
    let effect = effect_of(history, id);
    history.effects.push(effect);
    Some(())
}

fn answer_without_running(history: &mut History) -> Option<()> {
    let id = outcome(history, Told::Result)?.id;
    history.effects.retain(|effect| effect.id != id);
    Some(())
}

fn run_twice(history: &mut History) -> Option<()> {
    let id = outcome(history, Told::Result)?.id;
    let effect = effect_of(history, id);
    history.effects.push(effect);
    Some(())
}

fn run_a_repeatable_call_three_times(history: &mut History) -> Option<()> {
    let call = history
        .calls
        .iter()
        .find(|call| call.counted && call.repeatable)?;
    let id = call.id;
    let effect = effect_of(history, id);
    history.effects.retain(|effect| effect.id != id);
    history
        .effects
        .extend([effect.clone(), effect.clone(), effect]);
    Some(())
}

fn run_on_another_server(history: &mut History) -> Option<()> {
    let id = outcome(history, Told::Result)?.id;
    let effect = history.effects.iter_mut().find(|effect| effect.id == id)?;
    effect.server.push_str("-other");
    Some(())
}

fn run_what_was_never_issued(history: &mut History) -> Option<()> {
    let server = history.calls.first()?.server.clone();
    let id = u64::MAX;
    history.effects.push(Effect { id, server });
    Some(())
}

fn hang_a_request(history: &mut History) -> Option<()> {
    history.requests.first_mut()?.took = CONTROL + Duration::from_millis(1);
    Some(())
}

fn end_the_runtime_early(history: &mut History) -> Option<()> {
    let request = history.requests.first_mut()?;
    request.end = RequestEnd::RuntimeGone;
    Some(())
}

fn stay_down(history: &mut History) -> Option<()> {
    let server = history.recovered.iter_mut().find(|server| server.wanted)?;
    server.answers = false;
    Some(())
}

fn come_up_though_disabled(history: &mut History) -> Option<()> {
    let mut recovered = history.recovered.iter_mut();
    recovered.find(|server| !server.wanted)?.answers = true;
    Some(())
}

fn show_another_state(history: &mut History) -> Option<()> {
    let server = history
        .recovered
        .iter_mut()
        .find(|it| it.state == Connected)?;
    server.state = Sleeping;
    Some(())
}

fn end_in_another_state(history: &mut History) -> Option<()> {
    let server = changed(history)?.server;
    status(history, &server)?.state = Connected;
    Some(())
}

fn leave_a_process(history: &mut History) -> Option<()> {
    history.leftovers.push("process 7".to_owned());
    Some(())
}

fn leave_a_connection_open(history: &mut History) -> Option<()> {
    let closed = |link: &Connection| matches!(link.what, Link::Closed { .. });
    let last = history.connections.iter().rposition(closed)?;
    let server = history.connections[last].server.clone();
    let later = &history.connections[last + 1..];
    if later.iter().any(|link| link.server == server) {
        return None;
    }
    history.connections.remove(last);
    Some(())
}

/// A short run without violations, to which every corruption is applicable.
fn good() -> History {
    let second = Duration::from_secs(1);
    let servers = ["child", "http", "inside"];
    let first = servers.map(|server| (server.to_owned(), Connecting));
    let mut history = History {
        first: first.into(),
        shutdown_at: Some(60 * second),
        ..History::default()
    };
    let states = [Connecting, Connected, Reconnecting, Connected];
    let generations = [1, 1, 2];
    for (number, pair) in states.windows(2).enumerate() {
        for server in ["child", "http", "inside"] {
            let what = change(pair[0], pair[1]);
            push(&mut history, server, generations[number], what);
            push(&mut history, server, generations[number], What::Other);
        }
    }
    let version = history.events.last().unwrap().version;
    for server in ["child", "http", "inside"] {
        history.recovered.push(Recovered {
            server: server.to_owned(),
            wanted: true,
            state: Connected,
            generation: 2,
            answers: true,
            version,
        });
    }
    for server in ["child", "http", "inside"] {
        let changes = [(Connected, Disabling), (Disabling, Disabled)];
        for (from, to) in changes {
            push(&mut history, server, 2, What::State { from, to });
        }
        history.ended.push(Ended {
            server: server.to_owned(),
            state: Disabled,
            generation: 2,
        });
        history.reads.push(StatusRead {
            reader: 0,
            server: server.to_owned(),
            instance: 0,
            generation: 2,
        });
    }
    push(&mut history, "off", 0, What::Added);
    history.recovered.push(Recovered {
        server: "off".to_owned(),
        wanted: false,
        state: Disabled,
        generation: 0,
        answers: false,
        version,
    });
    history.connections = connections();
    let told = [
        Told::Result,
        Told::NotSent,
        Told::Refused,
        Told::Unknown,
        Told::Answered,
        Told::Abandoned,
        Told::Result,
    ];
    for (id, told) in (1..).zip(told) {
        add_call(&mut history, id, told);
    }
    history.requests.push(Request {
        server: "child".to_owned(),
        what: "reconnect",
        took: second,
        at: second,
        end: RequestEnd::Answered,
    });
    history
}

fn connections() -> Vec<Connection> {
    let session = |id: &str, first, last| Link::Session {
        id: id.to_owned(),
        first: Duration::from_secs(first),
        last: Duration::from_secs(last),
    };
    let links = [
        ("child", Link::Started { pid: 1 }),
        ("child", Link::Started { pid: 2 }),
        ("http", Link::Handshake),
        ("http", Link::Handshake),
        ("http", session("a", 1, 9)),
        ("http", session("b", 9, 20)),
        ("inside", Link::Opened { generation: 1 }),
        ("inside", Link::Closed { generation: 1 }),
        ("inside", Link::Opened { generation: 2 }),
        ("inside", Link::Closed { generation: 2 }),
    ];
    let links = links.into_iter().map(|(server, what)| Connection {
        server: server.to_owned(),
        what,
    });
    links.collect()
}

fn add_call(history: &mut History, id: u64, told: Told) {
    let server = "child".to_owned();
    // The last call may be repeated, and was.
    let repeatable = id == 7;
    history.calls.push(Call {
        id,
        server: server.clone(),
        deadline: Duration::from_secs(1),
        repeatable,
        counted: true,
    });
    let runs = match told {
        Told::Result if repeatable => 2,
        Told::Result | Told::Unknown => 1,
        _ => 0,
    };
    for _ in 0..runs {
        let server = server.clone();
        history.effects.push(Effect { id, server });
    }
    history.outcomes.push(Outcome {
        id,
        told,
        took: Duration::from_millis(10),
        at: Duration::from_secs(2),
        detail: String::new(),
    });
}

#[test]
fn a_good_history_has_no_violations() {
    assert_eq!(check(&good()), []);
}

#[test]
fn every_sabotage_is_reported_as_its_kind_alone() {
    for (number, (kind, sabotage)) in SABOTAGES.iter().enumerate() {
        let mut history = good();
        sabotage(&mut history).unwrap_or_else(|| panic!("sabotage {number} has no room"));
        let violations = check(&history);
        let kinds: Vec<Kind> = violations.iter().map(|violation| violation.kind).collect();
        let exact = !kinds.is_empty() && kinds.iter().all(|seen| seen == kind);
        assert!(exact, "sabotage {number}, {kind:?}: {violations:?}");
    }
}

#[test]
fn every_kind_has_a_sabotage() {
    // A new kind does not compile here until it is listed.
    let listed = |kind: Kind| match kind {
        Kind::VersionGap
        | Kind::ChainGap
        | Kind::IllegalTransition
        | Kind::MisplacedAttempt
        | Kind::OutsideOfLife
        | Kind::GenerationBackwards
        | Kind::GenerationReused
        | Kind::Overlap
        | Kind::NoOutcome
        | Kind::SecondOutcome
        | Kind::LateOutcome
        | Kind::NotSentRan
        | Kind::RefusedRan
        | Kind::ResultNotRun
        | Kind::RanTwice
        | Kind::RanElsewhere
        | Kind::RequestHung
        | Kind::RuntimeGone
        | Kind::NotRecovered
        | Kind::StatusDiffers
        | Kind::Leftover => 21,
    };
    let kinds: std::collections::BTreeSet<Kind> = SABOTAGES.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds.len(), listed(Kind::Leftover));
}

//! The transition table: every situation × every input → the next situation and the effects.
//!
//! The columns are those of [`super::situations`]. Both tables are read by the tests as they stand
//! here, and a pair that is missing fails them.

use std::collections::{BTreeMap, BTreeSet};

use super::bench::*;
use super::situations::{code_of, columns, reach};
use crate::machine::{ConnectionEnd, Effect, Input, NotSent, Outcome, StateName};
use crate::policy::listing::{FetchOutcome, ListKind};
use crate::policy::retry::{Known, RequestFailure};
use crate::settings::ServerSettings;

/// The next situation. Facts are those of the newest generation; `call` is call 2, and the others
/// are about call 1. A tick comes at the next deadline.
///
/// `=` stays, with something noted; `.` nothing changes; `late` dropped and counted.
const NEXT: &str = "
input            | off  bad  Cq   Co   Cc   L    Rd   Rc   Rw   Rq   Ro   Dw   Dq   Do   Dc   Dd   Xd   Xc   Sc   Sa
start            | =    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .
call             | .    .    =    =    =    =    =    =    =    =    =    =    =    =    =    =    .    .    Cc   Cq
call left        | .    .    =    =    =    =    Rc   =    =    =    =    .    =    =    .    Dc   Xc   .    .    .
call answered    | late late late late late =    Rc   late late late late late late late late Dc   Xc   late late late
call failed      | late late late late late =    Rc   late late late late late late late late Dc   Xc   late late late
call expired     | late late late late late Rc   Rc   late late late late late late late late Dc   Xc   late late late
session gone     | late late late late late Rd   .    late late late late late late late late .    .    late late late
call undelivered | .    .    .    .    .    =    Rc   .    .    .    .    .    .    .    .    Dc   Xc   .    .    .
progressed       | late late late late late =    =    late late late late late late late late =    =    late late late
heard            | late late late late late =    .    late late late late late late late late .    .    late late late
permit granted   | .    .    Co   .    .    .    .    .    .    Ro   .    .    Do   .    .    .    .    .    .    .
first byte       | late late late .    late late late late late late .    late late .    late late late late late late
connection up    | late late late L    late late late late late late L    late late L    late late late late late late
connection lost  | late late late .    .    Rc   Rc   .    late late .    late late .    .    Dc   Xc   .    .    late
ended: failed    | late late late Rw   Cq   Rw   Rw   Rw   late late Rw   late late Dw   Dw   Dw   off  off  Sa   late
ended: hopeless  | late late late bad  Cq   Rw   Rw   Rw   late late bad  late late bad  Dw   Dw   off  off  Sa   late
ended: closed    | late late late Rw   Cq   Rw   Rw   Rw   late late Rw   late late Dw   Dw   Dw   off  off  Sa   late
ended: other era | late late late Cq   Cq   Rw   Rw   Rw   late late Rq   late late Dq   Dw   Dw   off  off  Sa   late
check answered   | late late late late late .    late late late late late late late late late late late late late late
check unanswered | late late late late late .    late late late late late late late late late late late late late late
list changed     | late late late late late =    late late late late late late late late late late late late late late
list fetched     | late late late late late =    late late late late late late late late late late late late late late
list expires     | late late late late late =    late late late late late late late late late late late late late late
lists used       | .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .
report broken    | late late late late late Rd   late late late late late late late late late late late late late late
enable           | Cq   Cq   .    .    .    .    .    .    .    .    .    Rq   Rq   Ro   Rc   Rd   =    =    Cc   Cq
disable          | .    off  off  Xc   Xc   Xd   Xd   Xc   off  off  Xc   off  off  Xc   Xc   Xd   .    .    Xc   off
reconnect        | .    Cq   =    =    =    Rd   =    =    Rq   =    =    Rq   Rq   Ro   Rc   Rd   .    .    Cc   Cq
renew            | .    Cq   =    Cc   =    Rd   =    =    Rq   =    Rc   Rq   Rq   Rc   Rc   Rd   .    .    Cc   Cq
shutdown         | .    off  off  Xc   Xc   Xd   Xd   Xc   off  off  Xc   off  off  Xc   Xc   Xd   =    =    Xc   off
reconfigure      | =    =    =    =    =    =    =    =    =    =    =    =    =    =    =    =    =    =    =    =
watched          | =    =    =    =    =    =    =    =    =    =    =    =    =    =    =    =    =    =    =    =
tick             | .    .    =    Rc   =    =    Rc   =    Rq   =    Rc   Dq   =    Dc   .    Dc   Xc   .    .    .
";

/// The effects, in order, but for the change of the state's name. A pair that is not here has none.
const EFFECTS: &str = "
start            | off                                              | remember
call             | off Xd Xc                                        | 2 is not sent (disabled)
call             | bad                                              | 2 is not sent (failed)
call             | L                                                | start 2 on 1
call             | Sc                                               | remember
call             | Sa                                               | remember, ask again
call left        | Cq Co Cc Rc Rw Rq Ro Dq Do                       | forget 1
call left        | L                                                | cancel 1: cancelled
call left        | Rd                                               | cancel 1: cancelled, remember, close 1
call left        | Dd                                               | cancel 1: cancelled, remember, close 2
call left        | Xd                                               | cancel 1: cancelled, close 1
call answered    | L                                                | remember
call answered    | Rd                                               | remember, close 1
call answered    | Dd                                               | remember, close 2
call answered    | Xd                                               | close 1
call failed      | off bad Dw Dc Xc Sc Sa                           | forget 1
call failed      | L                                                | restart 1 on 1
call failed      | Rd                                               | remember, close 1
call failed      | Dd                                               | 1 is unknown, remember, close 2
call failed      | Xd                                               | 1 is unknown, close 1
call expired     | off bad Dw Dc Xc Sc Sa                           | forget 1
call expired     | L Rd                                             | remember, close 1
call expired     | Dd                                               | 1 is refused, remember, close 2
call expired     | Xd                                               | 1 is refused, close 1
call undelivered | Rd                                               | remember, close 1
call undelivered | Dd                                               | 1 is not sent (parked), remember, close 2
call undelivered | Xd                                               | 1 is not sent (disabled), close 1
permit granted   | off bad Co Cc L Rd Rc Rw Ro Dw Do Dc Dd Xd Xc Sc Sa | return permit
permit granted   | Cq                                               | remember, open 1
permit granted   | Rq Dq                                            | remember, open 2
first byte       | Co Ro Do                                         | return permit
connection up    | Co                                               | remember, return permit, restore 1, fetch tools of 1, start 1 on 1
connection up    | Ro Do                                            | remember, return permit, restore 2, fetch tools of 2, start 1 on 2
connection lost  | off bad Dw Dc Xc Sc Sa                           | forget 1
connection lost  | L                                                | remember
connection lost  | Rd                                               | remember, close 1
connection lost  | Dd                                               | remember, close 2, 1 is unknown
connection lost  | Xd                                               | close 1, 1 is unknown
ended: failed    | Co Ro                                            | return permit, remember, attempt failed
ended: failed    | Cc                                               | ask again
ended: failed    | L                                                | remember
ended: failed    | Rd                                               | remember, close 1
ended: failed    | Do                                               | return permit, remember, 1 is not sent (parked), attempt failed
ended: failed    | Dd                                               | remember, close 2
ended: failed    | Xd                                               | close 1
ended: hopeless  | Co Ro Do                                         | return permit, attempt failed, remember, 1 is not sent (failed)
ended: hopeless  | Cc                                               | ask again
ended: hopeless  | L                                                | remember
ended: hopeless  | Rd                                               | remember, close 1
ended: hopeless  | Dd                                               | remember, close 2
ended: hopeless  | Xd                                               | close 1
ended: closed    | Co Ro                                            | return permit, remember, attempt failed
ended: closed    | Cc                                               | ask again
ended: closed    | L                                                | remember
ended: closed    | Rd                                               | remember, close 1
ended: closed    | Do                                               | return permit, remember, 1 is not sent (parked), attempt failed
ended: closed    | Dd                                               | remember, close 2
ended: closed    | Xd                                               | close 1
ended: other era | Co Ro Do                                         | return permit, ask again
ended: other era | Cc                                               | ask again
ended: other era | L                                                | remember
ended: other era | Rd                                               | remember, close 1
ended: other era | Dd                                               | remember, close 2
ended: other era | Xd                                               | close 1
enable           | off                                              | remember, ask
enable           | bad Dw                                           | remember, ask again
enable           | Dq Do Dc Dd Xd Xc                                | remember
enable           | Sc                                               | remember, remember
enable           | Sa                                               | remember, remember, ask again
disable          | Sc                                               | remember, close 1
disable          | off bad L Rd Dw Dd Xd Xc Sa                      | remember
disable          | Cq Rq Dq                                         | remember, 1 is not sent (disabled), return permit
disable          | Co                                               | remember, 1 is not sent (disabled), return permit, close 1
disable          | Cc Rc                                            | remember, 1 is not sent (disabled), close 1
disable          | Rw                                               | remember, 1 is not sent (disabled)
disable          | Ro Do                                            | remember, 1 is not sent (disabled), return permit, close 2
disable          | Dc                                               | remember, close 1
reconnect        | bad Rw Dw                                        | remember, ask again
reconnect        | Cq Co Cc L Rd Rc Rq Ro Dq Do Dc Dd               | remember
reconnect        | Sc                                               | remember, remember
reconnect        | Sa                                               | remember, remember, ask again
renew            | bad Rw Dw                                        | remember, ask again
renew            | Cq Cc L Rd Rc Rq Dq Dc Dd                        | remember
renew            | Co                                               | remember, return permit, close 1
renew            | Ro Do                                            | remember, return permit, close 2
renew            | Sc                                               | remember, remember
renew            | Sa                                               | remember, remember, ask again
shutdown         | Sc                                               | close 1
shutdown         | off bad Dw Sa                                    | stop
shutdown         | Cq Rq Dq                                         | 1 is not sent (stopping), return permit, stop
shutdown         | Co                                               | 1 is not sent (stopping), return permit, close 1
shutdown         | Cc Rc                                            | 1 is not sent (stopping), close 1
shutdown         | Rw                                               | 1 is not sent (stopping), stop
shutdown         | Ro Do                                            | 1 is not sent (stopping), return permit, close 2
shutdown         | Dc Xc                                            | close 1
reconfigure      | off bad Cq Co Cc L Rd Rc Rw Rq Ro Dw Dq Do Dc Dd Xd Xc Sc Sa | remember
tick             | Cq Cc Rc Rq Dq                                   | 1 is deadline
tick             | Co                                               | return permit, remember, attempt failed, close 1
tick             | Rw Dw                                            | ask again
tick             | L                                                | remember
tick             | Rd                                               | remember, close 1
tick             | Ro                                               | return permit, remember, attempt failed, close 2
tick             | Do                                               | return permit, remember, 1 is not sent (parked), attempt failed, close 2
tick             | Dd                                               | remember, close 2
tick             | Xd                                               | close 1
";

/// Every input, in the order of the rows.
fn inputs(bench: &Bench) -> Vec<Input> {
    let newest = bench.generation();
    vec![
        Input::Start,
        Input::Call(bench.read(2)),
        left(1),
        answered(newest, 1),
        call_failed(newest, 1, RequestFailure::ServerFault),
        call_failed(newest, 1, RequestFailure::SessionLost),
        session_gone(newest),
        undelivered(newest, 1),
        progressed(newest, 1),
        heard(newest),
        Input::PermitGranted,
        first_byte(newest),
        up_with(newest, &[ListKind::Tools]),
        lost(newest, &[written(1)]),
        failed(newest),
        ended(newest, ConnectionEnd::Permanent(not_found())),
        closed(newest),
        ended(newest, ConnectionEnd::TryOtherEra(gone())),
        checked(newest, true),
        checked(newest, false),
        list_changed(newest, ListKind::Tools),
        fetched(newest, ListKind::Tools, FetchOutcome::Fetched),
        Input::ListExpires {
            generation: generation(newest),
            list: ListKind::Tools,
            after: secs(5),
        },
        Input::ListsUsed,
        report_broken(newest),
        Input::Enable,
        Input::Disable,
        Input::Reconnect,
        Input::TransportChanged,
        Input::Shutdown { limit: secs(9) },
        Input::Reconfigure {
            settings: other_settings(bench),
        },
        Input::SubscriptionsChanged { active: true },
        Input::Tick,
    ]
}

/// The settings of the machine, but for some that matter in every situation.
fn other_settings(bench: &Bench) -> Box<ServerSettings> {
    let mut settings = bench.machine.settings().clone();
    settings.admission.in_flight += 1;
    settings.health.threshold += 1;
    Box::new(settings)
}

/// The row of an input. A new input has none, which does not compile.
fn row(input: &Input) -> &'static str {
    match input {
        Input::Start => "start",
        Input::Call(_) => "call",
        Input::CallCancelled { .. } => "call left",
        Input::CallEnded { .. } => "call answered",
        Input::CallFailed {
            failure: RequestFailure::SessionLost,
            ..
        } => "call expired",
        Input::CallFailed { .. } => "call failed",
        Input::SessionLost { .. } => "session gone",
        Input::CallUndelivered { .. } => "call undelivered",
        Input::CallProgressed { .. } => "progressed",
        Input::MessageReceived { .. } => "heard",
        Input::PermitGranted => "permit granted",
        Input::FirstByte { .. } => "first byte",
        Input::ConnectionUp { .. } => "connection up",
        Input::ConnectionLost { .. } => "connection lost",
        Input::ConnectionEnded { end, .. } => match end {
            ConnectionEnd::Failed { .. } => "ended: failed",
            ConnectionEnd::Permanent(_) => "ended: hopeless",
            ConnectionEnd::Closed { .. } => "ended: closed",
            ConnectionEnd::TryOtherEra(_) => "ended: other era",
        },
        Input::CheckEnded { failure: None, .. } => "check answered",
        Input::CheckEnded {
            failure: Some(_), ..
        } => "check unanswered",
        Input::ListChanged { .. } => "list changed",
        Input::ListFetched { .. } => "list fetched",
        Input::ListExpires { .. } => "list expires",
        Input::ListsUsed => "lists used",
        Input::ReportBroken { .. } => "report broken",
        Input::Enable => "enable",
        Input::Disable => "disable",
        Input::Reconnect => "reconnect",
        Input::TransportChanged => "renew",
        Input::Shutdown { .. } => "shutdown",
        Input::Reconfigure { .. } => "reconfigure",
        Input::SubscriptionsChanged { .. } => "watched",
        Input::Tick => "tick",
    }
}

/// What an input does in a situation: the cell of the first table, and the effects.
fn observe(code: &str, input: Input) -> (String, Vec<Effect>) {
    let mut bench = reach(code);
    bench.now = match input {
        Input::Tick => bench.machine.next_deadline().unwrap_or(bench.now),
        _ => bench.now + millis(1),
    };
    let (before, late) = (bench.whole(), bench.machine.dropped_late());
    let effects = bench.step(input);
    let late = bench.machine.dropped_late() - late;
    let next = code_of(&bench);
    let cell = match (next == code, before == bench.whole(), late) {
        (true, true, 1) => "late",
        (true, true, 0) => ".",
        (true, false, 0) => "=",
        (false, _, 0) => next,
        _ => panic!("{code}: {late} late facts, and the machine is in {next}"),
    };
    (cell.to_owned(), effects)
}

/// An effect in a few words.
fn words(effect: &Effect) -> String {
    match effect {
        Effect::RequestPermit { reconnect: false } => "ask".into(),
        Effect::RequestPermit { reconnect: true } => "ask again".into(),
        Effect::ReleasePermit => "return permit".into(),
        Effect::Open { generation } => format!("open {generation}"),
        Effect::Close { generation, .. } => format!("close {generation}"),
        Effect::StartCall {
            call,
            generation,
            before: Known::NotSent,
        } => format!("start {call} on {generation}"),
        Effect::StartCall {
            call,
            generation,
            before: Known::Unknown | Known::Refused | Known::Answered,
        } => format!("restart {call} on {generation}"),
        Effect::Resolve { call, outcome } => format!("{call} is {}", known(outcome)),
        Effect::Abandon { call, outcome, .. } => format!("cancel {call}: {}", known(outcome)),
        Effect::DropCall { call } => format!("forget {call}"),
        Effect::Check { generation } => format!("ping {generation}"),
        Effect::FetchList { generation, list } => format!("fetch {list} of {generation}"),
        Effect::Restore { generation } => format!("restore {generation}"),
        Effect::AttemptFailed { .. } => "attempt failed".into(),
        Effect::SaveDurable => "remember".into(),
        Effect::Stop => "stop".into(),
        Effect::StateChanged { .. } => unreachable!("looked at apart"),
    }
}

fn known(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::NotSent(NotSent::Disabled) => "not sent (disabled)",
        Outcome::NotSent(NotSent::Stopping) => "not sent (stopping)",
        Outcome::NotSent(NotSent::Failed(_)) => "not sent (failed)",
        Outcome::NotSent(NotSent::Parked(_)) => "not sent (parked)",
        Outcome::NotSent(NotSent::NoConnection(_)) => "not sent (no connection)",
        Outcome::Busy => "busy",
        Outcome::Unknown(_) => "unknown",
        Outcome::Refused(_) => "refused",
        Outcome::Answered(_) => "answered",
        Outcome::Deadline { .. } => "deadline",
        Outcome::Cancelled => "cancelled",
    }
}

/// The cells of the first table, by input and column.
fn next_table() -> BTreeMap<(String, String), String> {
    let mut rows = NEXT.trim().lines().map(|line| {
        let (input, cells) = line.split_once('|').expect("a row has a name");
        (input.trim(), cells.split_whitespace())
    });
    let (_, columns) = rows.next().expect("there is a head");
    let columns: Vec<_> = columns.collect();
    rows.flat_map(|(input, cells)| {
        let cells: Vec<_> = cells.collect();
        assert_eq!(cells.len(), columns.len(), "the row {input:?}");
        let pair = |(column, cell): (&&str, &str)| {
            ((input.to_owned(), (*column).to_owned()), cell.to_owned())
        };
        columns.iter().zip(cells).map(pair).collect::<Vec<_>>()
    })
    .collect()
}

/// The second table, by input and column.
fn effects_table() -> BTreeMap<(String, String), String> {
    let mut table = BTreeMap::new();
    for line in EFFECTS.trim().lines() {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        for column in cells[1].split(' ') {
            let pair = (cells[0].to_owned(), column.to_owned());
            let before = table.insert(pair, cells[2].to_owned());
            assert_eq!(before, None, "{line:?} says it twice");
        }
    }
    table
}

/// Every pair of a situation and an input, with its place in the tables.
fn pairs() -> Vec<(&'static str, (String, String), Input)> {
    let of = |code: &'static str| {
        let pair = move |input| (code, (row(&input).to_owned(), code.to_owned()), input);
        inputs(&reach(code)).into_iter().map(pair)
    };
    columns().into_iter().flat_map(of).collect()
}

#[test]
fn every_input_leads_from_every_situation_where_the_table_says() {
    let mut table = next_table();
    for (code, pair, input) in pairs() {
        let (cell, _) = observe(code, input);
        assert_eq!(table.remove(&pair), Some(cell), "{pair:?}");
    }
    assert_eq!(table, BTreeMap::new(), "these pairs do not exist");
}

#[test]
fn every_pair_has_the_effects_that_the_table_says_and_no_others() {
    let mut table = effects_table();
    for (code, pair, input) in pairs() {
        let (_, mut effects) = observe(code, input);
        effects.retain(|effect| !matches!(effect, Effect::StateChanged { .. }));
        let seen: Vec<_> = effects.iter().map(words).collect();
        let said = table.remove(&pair).unwrap_or_default();
        assert_eq!(seen.join(", "), said, "{pair:?}");
    }
    assert_eq!(table, BTreeMap::new(), "these pairs do not exist");
}

#[test]
fn a_change_of_the_states_name_is_said_once_and_last() {
    for (code, pair, input) in pairs() {
        let mut bench = reach(code);
        let before = bench.name();
        let mut effects = bench.step(input);
        let last = effects.last().cloned();
        effects.retain(|effect| matches!(effect, Effect::StateChanged { .. }));
        if before == bench.name() {
            assert_eq!(effects, [], "{pair:?}");
        } else {
            assert_eq!(effects, [changed(before, bench.name())], "{pair:?}");
            assert_eq!(effects.last(), last.as_ref(), "{pair:?}");
        }
    }
}

#[test]
fn the_columns_cover_every_state() {
    let names: BTreeSet<StateName> = columns()
        .into_iter()
        .map(|code| reach(code).name())
        .collect();
    assert_eq!(names, StateName::ALL.iter().copied().collect());
}

//! The transition table: every situation × every input → the next situation and the effects.
//!
//! The columns are those of [`super::situations`]. The tests parse both tables, and a missing pair fails
//! them.

use std::collections::{BTreeMap, BTreeSet};

use super::harness::*;
use super::situations::{code_of, columns, reach};
use crate::machine::{ConnectionEnd, Effect, Input, NotSent, Outcome, StateName};
use crate::policy::listing::{FetchOutcome, ListKind};
use crate::policy::retry::{Known, RequestFailure};
use crate::settings::ServerSettings;

/// The next situation. Facts have the newest generation; `call` is call 2, the others concern call 1. A
/// tick comes at the next deadline.
///
/// `=` same situation, changed data; `.` nothing changes; `late` dropped and counted.
const NEXT: &str = "
input             | off  bad  Bc   Cq   Co   Cc   L    Rd   Rc   Rw   Rq   Ro   Dw   Dq   Do   Dc   Dd   Xd   Xc   Sc   Sa
start             | =    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .
call              | .    .    .    =    =    =    =    =    =    =    =    =    =    =    =    =    =    .    .    Cc   Cq
call cancelled    | .    .    =    =    =    =    =    Rc   =    =    =    =    .    =    =    .    Dc   Xc   .    .    .
call answered     | late late =    late late late =    Rc   late late late late late late late late Dc   Xc   late late late
call failed       | late late =    late late late =    Rc   late late late late late late late late Dc   Xc   late late late
call expired      | late late =    late late late Rc   Rc   late late late late late late late late Dc   Xc   late late late
call unauthorized | late late =    late late late =    Rc   late late late late late late late late Dc   Xc   late late late
session lost      | late late .    late late late Rd   .    late late late late late late late late .    .    late late late
unauthorized      | late late .    late late late =    =    late late late late late late late late .    .    late late late
renewed           | =    =    Cc   =    =    =    =    =    =    =    =    =    =    =    =    =    =    =    =    =    =
renewal failed    | .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .
other credential  | =    =    Cc   =    =    =    =    =    =    =    =    =    =    =    =    =    =    =    =    =    =
call undelivered  | .    .    =    .    .    .    =    Rc   .    .    .    .    .    .    .    .    Dc   Xc   .    .    .
call progressed   | late late =    late late late =    =    late late late late late late late late =    =    late late late
message           | late late .    late late late =    .    late late late late late late late late .    .    late late late
permit granted    | .    .    .    Co   .    .    .    .    .    .    Ro   .    .    Do   .    .    .    .    .    .    .
first byte        | late late late late .    late late late late late late .    late late .    late late late late late late
connection up     | late late late late L    late late late late late late L    late late L    late late late late late late
connection lost   | late late =    late .    .    Rc   Rc   .    late late .    late late .    .    Dc   Xc   .    .    late
ended: failed     | late late bad  late Rw   Cq   Rw   Rw   Rw   late late Rw   late late Dw   Dw   Dw   off  off  Sa   late
ended: permanent  | late late bad  late bad  Cq   Rw   Rw   Rw   late late bad  late late bad  Dw   Dw   off  off  Sa   late
ended: closed     | late late bad  late Rw   Cq   Rw   Rw   Rw   late late Rw   late late Dw   Dw   Dw   off  off  Sa   late
ended: other era  | late late bad  late Cq   Cq   Rw   Rw   Rw   late late Rq   late late Dq   Dw   Dw   off  off  Sa   late
check answered    | late late late late late late .    late late late late late late late late late late late late late late
check unanswered  | late late late late late late .    late late late late late late late late late late late late late late
list changed      | late late late late late late =    late late late late late late late late late late late late late late
list fetched      | late late late late late late =    late late late late late late late late late late late late late late
list expires      | late late late late late late =    late late late late late late late late late late late late late late
lists used        | .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .
give way          | .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .
report broken     | late late late late late late Rd   late late late late late late late late late late late late late late
enable            | Cq   Cq   Cc   .    .    .    .    .    .    .    .    .    Rq   Rq   Ro   Rc   Rd   =    =    Cc   Cq
disable           | .    off  Xc   off  Xc   Xc   Xd   Xd   Xc   off  off  Xc   off  off  Xc   Xc   Xd   .    .    Xc   off
reconnect         | .    Cq   Cc   =    =    =    Rd   =    =    Rq   =    =    Rq   Rq   Ro   Rc   Rd   .    .    Cc   Cq
transport         | .    Cq   Cc   =    Cc   =    Rd   =    =    Rq   =    Rc   Rq   Rq   Rc   Rc   Rd   .    .    Cc   Cq
shutdown          | .    off  Xc   off  Xc   Xc   Xd   Xd   Xc   off  off  Xc   off  off  Xc   Xc   Xd   =    =    Xc   off
reconfigure       | =    =    =    =    =    =    =    =    =    =    =    =    =    =    =    =    =    =    =    =    =
subscriptions     | =    =    =    =    =    =    =    =    =    =    =    =    =    =    =    =    =    =    =    =    =
tick              | .    .    =    =    Rc   =    =    Rc   =    Rq   =    Rc   Dq   =    Dc   .    Dc   Xc   .    .    .
";

/// The effects in order, except for state changes. A pair that is not listed has none.
const EFFECTS: &str = "
start             | off                                              | save
call              | off Xd Xc                                        | 2 is not sent (disabled)
call              | bad Bc                                           | 2 is not sent (failed)
call              | L                                                | start 2 on 1
call              | Sc                                               | save
call              | Sa                                               | save, permit
call cancelled    | Bc L                                             | cancel 1: cancelled
call cancelled    | Cq Co Cc Rc Rw Rq Ro Dq Do                       | drop 1
call cancelled    | Rd                                               | cancel 1: cancelled, save, close 1
call cancelled    | Dd                                               | cancel 1: cancelled, save, close 2
call cancelled    | Xd                                               | cancel 1: cancelled, close 1
call answered     | L                                                | save
call answered     | Rd                                               | save, close 1
call answered     | Dd                                               | save, close 2
call answered     | Xd                                               | close 1
call failed       | off bad Dw Dc Xc Sc Sa                           | drop 1
call failed       | Bc                                               | 1 is unknown
call failed       | L                                                | restart 1 on 1
call failed       | Rd                                               | save, close 1
call failed       | Dd                                               | 1 is unknown, save, close 2
call failed       | Xd                                               | 1 is unknown, close 1
call expired      | off bad Dw Dc Xc Sc Sa                           | drop 1
call expired      | Bc                                               | 1 is refused
call expired      | L Rd                                             | save, close 1
call expired      | Dd                                               | 1 is refused, save, close 2
call expired      | Xd                                               | 1 is refused, close 1
call unauthorized | off bad Dw Dc Xc Sc Sa                           | drop 1
call unauthorized | Bc                                               | 1 is refused
call unauthorized | L                                                | renew 1
call unauthorized | Rd                                               | renew 1, save, close 1
call unauthorized | Dd                                               | 1 is refused, save, close 2
call unauthorized | Xd                                               | 1 is refused, close 1
unauthorized      | L Rd                                             | renew 1
renewed           | Bc                                               | save
other credential  | Bc                                               | save
call undelivered  | Bc                                               | 1 is not sent (failed)
call undelivered  | Rd                                               | save, close 1
call undelivered  | Dd                                               | 1 is not sent (parked), save, close 2
call undelivered  | Xd                                               | 1 is not sent (disabled), close 1
permit granted    | off bad Bc Co Cc L Rd Rc Rw Ro Dw Do Dc Dd Xd Xc Sc Sa | release
permit granted    | Cq                                               | save, open 1
permit granted    | Rq Dq                                            | save, open 2
first byte        | Co Ro Do                                         | release
connection up     | Co                                               | save, release, restore 1, fetch tools of 1, start 1 on 1
connection up     | Ro Do                                            | save, release, restore 2, fetch tools of 2, start 1 on 2
connection lost   | off bad Dw Dc Xc Sc Sa                           | drop 1
connection lost   | Bc                                               | 1 is unknown
connection lost   | L                                                | save
connection lost   | Rd                                               | save, close 1
connection lost   | Dd                                               | save, close 2, 1 is unknown
connection lost   | Xd                                               | close 1, 1 is unknown
ended: failed     | Co Ro                                            | release, save, attempt failed
ended: failed     | Cc                                               | permit
ended: failed     | L                                                | save
ended: failed     | Rd                                               | save, close 1
ended: failed     | Do                                               | release, save, 1 is not sent (parked), attempt failed
ended: failed     | Dd                                               | save, close 2
ended: failed     | Xd                                               | close 1
ended: permanent  | Co Ro Do                                         | release, attempt failed, save, 1 is not sent (failed)
ended: permanent  | Cc                                               | permit
ended: permanent  | L                                                | save
ended: permanent  | Rd                                               | save, close 1
ended: permanent  | Dd                                               | save, close 2
ended: permanent  | Xd                                               | close 1
ended: closed     | Co Ro                                            | release, save, attempt failed
ended: closed     | Cc                                               | permit
ended: closed     | L                                                | save
ended: closed     | Rd                                               | save, close 1
ended: closed     | Do                                               | release, save, 1 is not sent (parked), attempt failed
ended: closed     | Dd                                               | save, close 2
ended: closed     | Xd                                               | close 1
ended: other era  | Co Ro Do                                         | release, permit
ended: other era  | Cc                                               | permit
ended: other era  | L                                                | save
ended: other era  | Rd                                               | save, close 1
ended: other era  | Dd                                               | save, close 2
ended: other era  | Xd                                               | close 1
enable            | off                                              | save, first permit
enable            | bad Dw                                           | save, permit
enable            | Bc Dq Do Dc Dd Xd Xc                             | save
enable            | Sc                                               | save, save
enable            | Sa                                               | save, save, permit
disable           | off bad L Rd Dw Dd Xd Xc Sa                      | save
disable           | Bc Dc Sc                                         | save, close 1
disable           | Cq Rq Dq                                         | save, 1 is not sent (disabled), release
disable           | Co                                               | save, 1 is not sent (disabled), release, close 1
disable           | Cc Rc                                            | save, 1 is not sent (disabled), close 1
disable           | Rw                                               | save, 1 is not sent (disabled)
disable           | Ro Do                                            | save, 1 is not sent (disabled), release, close 2
reconnect         | bad Rw Dw                                        | save, permit
reconnect         | Bc Cq Co Cc L Rd Rc Rq Ro Dq Do Dc Dd            | save
reconnect         | Sc                                               | save, save
reconnect         | Sa                                               | save, save, permit
transport         | bad Rw Dw                                        | save, permit
transport         | Bc Cq Cc L Rd Rc Rq Dq Dc Dd                     | save
transport         | Co                                               | save, release, close 1
transport         | Ro Do                                            | save, release, close 2
transport         | Sc                                               | save, save
transport         | Sa                                               | save, save, permit
shutdown          | off bad Dw Sa                                    | stop
shutdown          | Bc Dc Xc Sc                                      | close 1
shutdown          | Cq Rq Dq                                         | 1 is not sent (stopping), release, stop
shutdown          | Co                                               | 1 is not sent (stopping), release, close 1
shutdown          | Cc Rc                                            | 1 is not sent (stopping), close 1
shutdown          | Rw                                               | 1 is not sent (stopping), stop
shutdown          | Ro Do                                            | 1 is not sent (stopping), release, close 2
reconfigure       | off bad Bc Cq Co Cc L Rd Rc Rw Rq Ro Dw Dq Do Dc Dd Xd Xc Sc Sa | save
tick              | Bc                                               | cancel 1: deadline
tick              | Cq Cc Rc Rq Dq                                   | 1 is deadline
tick              | Co                                               | release, save, attempt failed, close 1
tick              | L                                                | save
tick              | Rd                                               | save, close 1
tick              | Rw Dw                                            | permit
tick              | Ro                                               | release, save, attempt failed, close 2
tick              | Do                                               | release, save, 1 is not sent (parked), attempt failed, close 2
tick              | Dd                                               | save, close 2
tick              | Xd                                               | close 1
";

/// Every input, in the order of the rows.
fn inputs(harness: &Harness) -> Vec<Input> {
    let newest = harness.generation();
    vec![
        Input::Start,
        Input::Call(harness.read(2)),
        cancelled(1),
        answered(newest, 1),
        call_failed(newest, 1, RequestFailure::ServerFault),
        call_failed(newest, 1, RequestFailure::SessionLost),
        call_unauthorized(newest, 1, 1),
        session_lost(newest),
        unauthorized(newest, 1),
        renewed(2),
        renewal_failed_permanently(),
        credential_changed(2),
        undelivered(newest, 1),
        progressed(newest, 1),
        received(newest),
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
        Input::GiveWay,
        report_broken(newest),
        Input::Enable,
        Input::Disable,
        Input::Reconnect,
        Input::TransportChanged,
        Input::Shutdown { limit: secs(9) },
        Input::Reconfigure {
            settings: other_settings(harness),
        },
        Input::SubscriptionsChanged { active: true },
        Input::Tick,
    ]
}

/// Changed settings that matter in every situation.
fn other_settings(harness: &Harness) -> Box<ServerSettings> {
    let mut settings = harness.machine.settings().clone();
    settings.admission.in_flight += 1;
    settings.health.threshold += 1;
    Box::new(settings)
}

/// The row of an input.
fn row(input: &Input) -> &'static str {
    match input {
        Input::Start => "start",
        Input::Call(_) => "call",
        Input::CallCancelled { .. } => "call cancelled",
        Input::CallEnded { .. } => "call answered",
        Input::CallFailed {
            failure: RequestFailure::SessionLost,
            ..
        } => "call expired",
        Input::CallFailed {
            failure: RequestFailure::Unauthorized { .. },
            ..
        } => "call unauthorized",
        Input::CallFailed { .. } => "call failed",
        Input::SessionLost { .. } => "session lost",
        Input::Unauthorized { .. } => "unauthorized",
        Input::CredentialRenewed { .. } => "renewed",
        Input::RenewalFailed { .. } => "renewal failed",
        Input::CredentialChanged { .. } => "other credential",
        Input::CallUndelivered { .. } => "call undelivered",
        Input::CallProgressed { .. } => "call progressed",
        Input::MessageReceived { .. } => "message",
        Input::PermitGranted => "permit granted",
        Input::FirstByte { .. } => "first byte",
        Input::ConnectionUp { .. } => "connection up",
        Input::ConnectionLost { .. } => "connection lost",
        Input::ConnectionEnded { end, .. } => match end {
            ConnectionEnd::Failed { .. } => "ended: failed",
            ConnectionEnd::Permanent(_) => "ended: permanent",
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
        Input::GiveWay => "give way",
        Input::ReportBroken { .. } => "report broken",
        Input::Enable => "enable",
        Input::Disable => "disable",
        Input::Reconnect => "reconnect",
        Input::TransportChanged => "transport",
        Input::Shutdown { .. } => "shutdown",
        Input::Reconfigure { .. } => "reconfigure",
        Input::SubscriptionsChanged { .. } => "subscriptions",
        Input::Tick => "tick",
    }
}

/// The result of an input in a situation: the cell of the first table, and the effects.
fn observe(code: &str, input: Input) -> (String, Vec<Effect>) {
    let mut harness = reach(code);
    harness.now = match input {
        Input::Tick => harness.machine.next_deadline().unwrap_or(harness.now),
        _ => harness.now + millis(1),
    };
    let (before, late) = (harness.whole(), harness.machine.dropped_late());
    let effects = harness.step(input);
    let late = harness.machine.dropped_late() - late;
    let next = code_of(&harness);
    let cell = match (next == code, before == harness.whole(), late) {
        (true, true, 1) => "late",
        (true, true, 0) => ".",
        (true, false, 0) => "=",
        (false, _, 0) => next,
        _ => panic!("{code}: {late} late facts, and the machine is in {next}"),
    };
    (cell.to_owned(), effects)
}

/// An effect as text.
fn describe(effect: &Effect) -> String {
    match effect {
        Effect::RequestPermit { reconnect: false } => "first permit".into(),
        Effect::RequestPermit { reconnect: true } => "permit".into(),
        Effect::ReleasePermit => "release".into(),
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
        Effect::DropCall { call } => format!("drop {call}"),
        Effect::RenewCredential { refused } => format!("renew {refused}"),
        Effect::Check { generation } => format!("ping {generation}"),
        Effect::FetchList { generation, list } => format!("fetch {list} of {generation}"),
        Effect::Restore { generation } => format!("restore {generation}"),
        Effect::AttemptFailed { .. } => "attempt failed".into(),
        Effect::SaveDurable => "save".into(),
        Effect::Stop => "stop".into(),
        Effect::StateChanged { .. } => unreachable!("tested separately"),
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
            assert_eq!(before, None, "duplicate: {line:?}");
        }
    }
    table
}

/// Every pair of a situation and an input, with its key in the tables.
fn pairs() -> Vec<(&'static str, (String, String), Input)> {
    let of = |code: &'static str| {
        let pair = move |input| (code, (row(&input).to_owned(), code.to_owned()), input);
        inputs(&reach(code)).into_iter().map(pair)
    };
    columns().into_iter().flat_map(of).collect()
}

#[test]
fn every_input_leads_to_the_situation_in_the_table() {
    let mut table = next_table();
    for (code, pair, input) in pairs() {
        let (cell, _) = observe(code, input);
        assert_eq!(table.remove(&pair), Some(cell), "{pair:?}");
    }
    assert_eq!(table, BTreeMap::new(), "these pairs do not exist");
}

#[test]
fn every_input_has_the_effects_in_the_table_and_no_others() {
    let mut table = effects_table();
    for (code, pair, input) in pairs() {
        let (_, mut effects) = observe(code, input);
        effects.retain(|effect| !matches!(effect, Effect::StateChanged { .. }));
        let seen: Vec<_> = effects.iter().map(describe).collect();
        let expected = table.remove(&pair).unwrap_or_default();
        assert_eq!(seen.join(", "), expected, "{pair:?}");
    }
    assert_eq!(table, BTreeMap::new(), "these pairs do not exist");
}

#[test]
fn a_state_change_is_reported_once_and_last() {
    for (code, pair, input) in pairs() {
        let mut harness = reach(code);
        let before = harness.name();
        let mut effects = harness.step(input);
        let last = effects.last().cloned();
        effects.retain(|effect| matches!(effect, Effect::StateChanged { .. }));
        if before == harness.name() {
            assert_eq!(effects, [], "{pair:?}");
        } else {
            assert_eq!(effects, [changed(before, harness.name())], "{pair:?}");
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

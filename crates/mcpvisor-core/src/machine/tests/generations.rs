//! One connection at a time, each with a larger number, and only the newest is heard (G1 to G3, O2).

use super::bench::*;
use super::situations::{columns, reach};
use crate::machine::{
    Attempt, CallEnd, ConnectionEnd, Effect, Input, ReconnectTiming, State, StateName,
};
use crate::policy::listing::{FetchOutcome, ListKind};

/// Every fact that a connection can report.
fn facts(number: u64) -> Vec<Input> {
    vec![
        call_ended(number, 1, CallEnd::Answered),
        call_ended(number, 1, CallEnd::Unreadable),
        progressed(number, 1),
        heard(number),
        first_byte(number),
        up_with(number, &ListKind::ALL),
        lost(number, &[]),
        failed(number),
        closed(number),
        checked(number, true),
        checked(number, false),
        list_changed(number, ListKind::Tools),
        fetched(number, ListKind::Tools, FetchOutcome::Fetched),
        fetched(number, ListKind::Tools, FetchOutcome::Failed),
        report_broken(number),
    ]
}

#[test]
fn a_late_result_of_an_old_generation_changes_nothing() {
    for code in columns() {
        let newest = reach(code).generation();
        for fact in facts(newest.saturating_sub(1)) {
            let mut bench = reach(code);
            bench.now += millis(1);
            let before = bench.whole();
            assert_eq!(bench.step(fact.clone()), [], "{fact:?} in {code}");
            assert_eq!(bench.whole(), before, "{fact:?} in {code}");
            assert_eq!(bench.machine.dropped_late(), 1, "{fact:?} in {code}");
        }
    }
}

#[test]
fn a_connection_that_is_gone_cannot_speak_for_the_next() {
    let mut bench = Bench::connected();
    bench.lose(1, &[]);
    bench.tick();
    bench.step(Input::PermitGranted);
    bench.step(up(2));
    bench.call(bench.read(7));
    let before = bench.whole();
    for fact in facts(1) {
        bench.step(fact);
    }
    // An answer to the same call by the connection that had it before is late too.
    bench.step(answered(1, 7));
    assert_eq!(bench.whole(), before);
    assert_eq!(bench.machine.dropped_late(), facts(1).len() as u64 + 1);
}

#[test]
fn every_connection_has_a_larger_generation_than_the_last() {
    let mut bench = Bench::new();
    let mut seen = Vec::new();
    let mut connect = |bench: &mut Bench| {
        seen.extend(opened(&bench.step(Input::PermitGranted)));
        bench.generation()
    };
    bench.step(Input::Start);
    let first = connect(&mut bench);
    bench.step(failed(first));
    bench.tick();
    let second = connect(&mut bench);
    bench.step(up(second));
    bench.step(Input::Disable);
    bench.step(closed(second));
    bench.step(Input::Enable);
    let third = connect(&mut bench);
    bench.step(up(third));
    bench.step(Input::Reconnect);
    bench.step(closed(third));
    connect(&mut bench);
    assert_eq!(seen, [1, 2, 3, 4]);
}

#[test]
fn many_callers_that_report_one_connection_as_broken_cause_one_reconnect() {
    let mut bench = Bench::connected();
    bench.call(bench.read(1));
    let drain = bench.now + secs(5);
    for _ in 0..64 {
        bench.step(report_broken(1));
    }
    assert_eq!(
        *bench.state(),
        State::Reconnecting(Attempt::Draining {
            generation: generation(1),
            until: drain,
            timing: ReconnectTiming::Paced,
        })
    );
    let mut effects = bench.step(answered(1, 1));
    effects.extend(bench.step(closed(1)));
    effects.extend(bench.tick());
    effects.extend(bench.step(Input::PermitGranted));
    effects.extend(bench.step(up(2)));
    for _ in 0..64 {
        effects.extend(bench.step(report_broken(1)));
    }
    assert_eq!(opened(&effects), [2]);
    assert_eq!(bench.name(), StateName::Connected);
    assert_eq!(bench.machine.dropped_late(), 63 + 64);
}

#[test]
fn the_next_connection_opens_only_when_the_last_one_has_ended() {
    let mut bench = Bench::connected();
    bench.call(bench.read(1));
    bench.step(answered(1, 1));
    bench.step(lost(1, &[]));
    let closing = State::Reconnecting(Attempt::Closing {
        generation: generation(1),
        retry_at: bench.now,
    });
    assert_eq!(*bench.state(), closing);
    assert_eq!(bench.pass(secs(60)), []);
    assert_eq!(bench.step(Input::PermitGranted), [Effect::ReleasePermit]);
    assert_eq!(
        *bench.state(),
        closing,
        "its close is slow, and nothing opens beside it"
    );
    assert_eq!(
        bench.step(closed(1)),
        [Effect::RequestPermit { reconnect: true }]
    );
    assert_eq!(
        bench.step(Input::PermitGranted),
        [Effect::SaveDurable, open(2)]
    );
}

#[test]
fn a_second_wish_is_merged_with_the_connect_under_way() {
    let mut bench = Bench::connected();
    let mut effects = Vec::new();
    for _ in 0..3 {
        effects.extend(bench.step(Input::Reconnect));
        effects.extend(bench.step(Input::Enable));
    }
    effects.extend(bench.step(closed(1)));
    effects.extend(bench.step(Input::Reconnect));
    effects.extend(bench.step(Input::PermitGranted));
    effects.extend(bench.step(Input::Reconnect));
    effects.extend(bench.step(Input::PermitGranted));
    let connects: Vec<_> = effects
        .iter()
        .filter(|effect| !matches!(effect, Effect::SaveDurable | Effect::StateChanged { .. }))
        .collect();
    assert_eq!(
        connects,
        [
            &Effect::Close {
                generation: generation(1),
                grace: bench.machine.settings().close,
            },
            &Effect::RequestPermit { reconnect: true },
            &open(2),
            &Effect::ReleasePermit,
        ]
    );
}

#[test]
fn a_connect_in_the_old_way_is_closed_and_the_next_comes_at_once() {
    let mut bench = Bench::new();
    let grace = bench.machine.settings().close;
    bench.step(Input::Start);
    bench.fail_one_connect();
    bench.tick();
    bench.step(Input::PermitGranted);
    bench.call(bench.read(1));
    assert_eq!(
        bench.step(Input::TransportChanged),
        [
            Effect::SaveDurable,
            Effect::ReleasePermit,
            Effect::Close {
                generation: generation(2),
                grace,
            },
        ]
    );
    assert_eq!(
        *bench.state(),
        State::Reconnecting(Attempt::Closing {
            generation: generation(2),
            retry_at: bench.now,
        })
    );
    assert_eq!(bench.step(up(2)), [], "it came up too late");
    // A second one finds nothing that was opened since.
    assert_eq!(bench.step(Input::TransportChanged), [Effect::SaveDurable]);
    assert_eq!(
        bench.step(closed(2)),
        [Effect::RequestPermit { reconnect: true }]
    );
    assert_eq!(
        bench.step(Input::PermitGranted),
        [Effect::SaveDurable, open(3)]
    );
    assert_eq!(
        (bench.used(), bench.machine.attempts()),
        (1, 1),
        "as after a reconnect"
    );
    assert!(bench.step(up(3)).contains(&start(1, 3)));
}

#[test]
fn the_question_for_the_other_era_is_not_for_a_server_that_is_reached_otherwise() {
    let mut bench = Bench::new();
    bench.step(Input::Start);
    bench.step(Input::PermitGranted);
    bench.step(ended(1, ConnectionEnd::TryOtherEra(gone())));
    bench.step(Input::TransportChanged);
    bench.step(Input::PermitGranted);
    assert_eq!(bench.used(), 1, "it costs what a connect costs");
    // And the new one may end on the question too.
    assert_eq!(
        bench.step(ended(2, ConnectionEnd::TryOtherEra(gone()))),
        [
            Effect::ReleasePermit,
            Effect::RequestPermit { reconnect: true }
        ]
    );
}

//! One connection at a time, each with a larger generation; only the newest counts (G1 to G3, O2).

use super::harness::*;
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
        received(number),
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
            let mut harness = reach(code);
            harness.now += millis(1);
            let before = harness.whole();
            assert_eq!(harness.step(fact.clone()), [], "{fact:?} in {code}");
            assert_eq!(harness.whole(), before, "{fact:?} in {code}");
            assert_eq!(harness.machine.dropped_late(), 1, "{fact:?} in {code}");
        }
    }
}

#[test]
fn facts_of_an_old_connection_do_not_count_for_the_next() {
    let mut harness = Harness::connected();
    harness.lose(1, &[]);
    harness.tick();
    harness.step(Input::PermitGranted);
    harness.step(up(2));
    harness.call(harness.read(7));
    let before = harness.whole();
    for fact in facts(1) {
        harness.step(fact);
    }
    // An answer to the same call from its earlier connection is late too.
    harness.step(answered(1, 7));
    assert_eq!(harness.whole(), before);
    assert_eq!(harness.machine.dropped_late(), facts(1).len() as u64 + 1);
}

#[test]
fn every_connection_has_a_larger_generation_than_the_last() {
    let mut harness = Harness::new();
    let mut seen = Vec::new();
    let mut connect = |harness: &mut Harness| {
        seen.extend(opened(&harness.step(Input::PermitGranted)));
        harness.generation()
    };
    harness.step(Input::Start);
    let first = connect(&mut harness);
    harness.step(failed(first));
    harness.tick();
    let second = connect(&mut harness);
    harness.step(up(second));
    harness.step(Input::Disable);
    harness.step(closed(second));
    harness.step(Input::Enable);
    let third = connect(&mut harness);
    harness.step(up(third));
    harness.step(Input::Reconnect);
    harness.step(closed(third));
    connect(&mut harness);
    assert_eq!(seen, [1, 2, 3, 4]);
}

#[test]
fn many_callers_that_report_one_connection_as_broken_cause_one_reconnect() {
    let mut harness = Harness::connected();
    harness.call(harness.read(1));
    let drain = harness.now + secs(5);
    for _ in 0..64 {
        harness.step(report_broken(1));
    }
    assert_eq!(
        *harness.state(),
        State::Reconnecting(Attempt::Draining {
            generation: generation(1),
            until: drain,
            timing: ReconnectTiming::Paced,
        })
    );
    let mut effects = harness.step(answered(1, 1));
    effects.extend(harness.step(closed(1)));
    effects.extend(harness.tick());
    effects.extend(harness.step(Input::PermitGranted));
    effects.extend(harness.step(up(2)));
    for _ in 0..64 {
        effects.extend(harness.step(report_broken(1)));
    }
    assert_eq!(opened(&effects), [2]);
    assert_eq!(harness.name(), StateName::Connected);
    assert_eq!(harness.machine.dropped_late(), 63 + 64);
}

#[test]
fn the_next_connection_opens_only_when_the_last_one_has_ended() {
    let mut harness = Harness::connected();
    harness.call(harness.read(1));
    harness.step(answered(1, 1));
    harness.step(lost(1, &[]));
    let closing = State::Reconnecting(Attempt::Closing {
        generation: generation(1),
        retry_at: harness.now,
    });
    assert_eq!(*harness.state(), closing);
    assert_eq!(harness.pass(secs(60)), []);
    assert_eq!(harness.step(Input::PermitGranted), [Effect::ReleasePermit]);
    assert_eq!(
        *harness.state(),
        closing,
        "nothing opens during a slow close"
    );
    assert_eq!(
        harness.step(closed(1)),
        [Effect::RequestPermit { reconnect: true }]
    );
    assert_eq!(
        harness.step(Input::PermitGranted),
        [Effect::SaveDurable, open(2)]
    );
}

#[test]
fn a_second_request_is_merged_with_the_connect_in_progress() {
    let mut harness = Harness::connected();
    let mut effects = Vec::new();
    for _ in 0..3 {
        effects.extend(harness.step(Input::Reconnect));
        effects.extend(harness.step(Input::Enable));
    }
    effects.extend(harness.step(closed(1)));
    effects.extend(harness.step(Input::Reconnect));
    effects.extend(harness.step(Input::PermitGranted));
    effects.extend(harness.step(Input::Reconnect));
    effects.extend(harness.step(Input::PermitGranted));
    let connects: Vec<_> = effects
        .iter()
        .filter(|effect| !matches!(effect, Effect::SaveDurable | Effect::StateChanged { .. }))
        .collect();
    assert_eq!(
        connects,
        [
            &Effect::Close {
                generation: generation(1),
                grace: harness.machine.settings().close,
            },
            &Effect::RequestPermit { reconnect: true },
            &open(2),
            &Effect::ReleasePermit,
        ]
    );
}

#[test]
fn a_connect_of_the_old_transport_is_closed_and_the_next_comes_at_once() {
    let mut harness = Harness::new();
    let grace = harness.machine.settings().close;
    harness.step(Input::Start);
    harness.fail_one_connect();
    harness.tick();
    harness.step(Input::PermitGranted);
    harness.call(harness.read(1));
    assert_eq!(
        harness.step(Input::TransportChanged),
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
        *harness.state(),
        State::Reconnecting(Attempt::Closing {
            generation: generation(2),
            retry_at: harness.now,
        })
    );
    assert_eq!(harness.step(up(2)), [], "it came up too late");
    // A second change finds no connection in progress.
    assert_eq!(harness.step(Input::TransportChanged), [Effect::SaveDurable]);
    assert_eq!(
        harness.step(closed(2)),
        [Effect::RequestPermit { reconnect: true }]
    );
    assert_eq!(
        harness.step(Input::PermitGranted),
        [Effect::SaveDurable, open(3)]
    );
    assert_eq!(
        (harness.used(), harness.machine.attempts()),
        (1, 1),
        "as with a reconnect"
    );
    assert!(harness.step(up(3)).contains(&start(1, 3)));
}

#[test]
fn a_transport_change_forgets_the_free_connect_of_the_other_era() {
    let mut harness = Harness::new();
    harness.step(Input::Start);
    harness.step(Input::PermitGranted);
    harness.step(ended(1, ConnectionEnd::TryOtherEra(gone())));
    harness.step(Input::TransportChanged);
    harness.step(Input::PermitGranted);
    assert_eq!(harness.used(), 1, "the connect is not free");
    // The new one may close on the probe too.
    assert_eq!(
        harness.step(ended(2, ConnectionEnd::TryOtherEra(gone()))),
        [
            Effect::ReleasePermit,
            Effect::RequestPermit { reconnect: true }
        ]
    );
}

//! One outcome for each call, in time, that says what is known (C1, C2, C4).

use std::time::Duration;

use super::bench::*;
use crate::machine::{Effect, Input, NewCall, NotSent, Outcome, StateName};
use crate::settings::ServerSettings;

const DEADLINE_UNSENT: Outcome = Outcome::Deadline {
    sent: false,
    idle: false,
};
const DEADLINE_SENT: Outcome = Outcome::Deadline {
    sent: true,
    idle: false,
};
const SILENT: Outcome = Outcome::Deadline {
    sent: true,
    idle: true,
};

/// A call with a deadline of its own.
fn within(bench: &Bench, call: u64, limit: Duration) -> NewCall {
    NewCall {
        deadline: bench.now + limit,
        ..bench.read(call)
    }
}

#[test]
fn a_call_is_started_once_and_answered_once() {
    let mut bench = Bench::connected();
    assert_eq!(bench.call(bench.tool(1)), [start(1, 1)]);
    assert_eq!(bench.step(answered(1, 1)), [Effect::SaveDurable]);
    assert_eq!((bench.machine.in_flight(), bench.machine.waiting()), (0, 0));
    let before = bench.whole();
    assert_eq!(bench.step(answered(1, 1)), [], "a second answer is nothing");
    assert_eq!(bench.step(left(1)), [], "nor is a caller who left since");
    assert_eq!(bench.whole(), before);
}

#[test]
fn what_a_lost_connection_had_not_answered_says_what_is_known() {
    let mut bench = Bench::connected();
    bench.call(bench.tool(1));
    bench.call(bench.tool(2));
    bench.call(bench.tool(3));
    bench.call(bench.tool(4));
    bench.step(lost(1, &[written(1), unwritten(2), written(3)]));
    // Of 1 and 3 it is known at once; 2 was never sent and waits; 4 was answered when dropped.
    assert_eq!((bench.machine.in_flight(), bench.machine.waiting()), (0, 1));
    bench.step(closed(1));
    let effects = bench.step(Input::Disable);
    assert_eq!(about_calls(effects), [not_sent(2, NotSent::Disabled)]);

    let mut bench = Bench::connected();
    bench.call(bench.tool(1));
    assert_eq!(
        about_calls(bench.step(lost(1, &[written(1)]))),
        [resolve(1, Outcome::Unknown(gone()))]
    );
}

#[test]
fn a_deadline_covers_waiting_and_the_call_itself() {
    let mut bench = Bench::new();
    bench.step(Input::Start);
    bench.call(within(&bench, 1, secs(20)));
    bench.call(within(&bench, 2, secs(40)));
    assert_eq!(bench.pass(secs(20)), [resolve(1, DEADLINE_UNSENT)]);
    bench.step(Input::PermitGranted);
    assert_eq!(
        about_calls(bench.step_after(secs(10), up(1))),
        [start(2, 1)]
    );
    assert_eq!(bench.pass(millis(9_999)), []);
    assert_eq!(bench.pass(millis(1)), [abandon(2, 1, DEADLINE_SENT)]);
}

#[test]
fn a_deadline_that_passes_before_the_retry_says_that_it_was_sent() {
    let mut bench = Bench::connected();
    bench.call(within(&bench, 1, secs(5)));
    bench.call(within(&bench, 2, secs(5)));
    bench.step(lost(1, &[written(1), unwritten(2)]));
    assert_eq!(
        bench.pass(secs(5)),
        [resolve(1, DEADLINE_SENT), resolve(2, DEADLINE_UNSENT)]
    );
}

#[test]
fn a_deadline_that_is_over_is_an_outcome_at_once() {
    let mut bench = Bench::connected();
    let over = within(&bench, 1, Duration::ZERO);
    assert_eq!(bench.call(over), [resolve(1, DEADLINE_UNSENT)]);
}

#[test]
fn a_call_whose_time_is_up_is_not_sent_even_when_the_tick_is_late() {
    let mut settings = ServerSettings::default();
    settings.admission.in_flight = 1;
    let mut bench = Bench::connected_with(settings, &[]);
    bench.call(bench.tool(1));
    bench.call(within(&bench, 2, secs(5)));
    bench.call(bench.tool(3));
    let effects = bench.step_after(secs(6), answered(1, 1));
    assert_eq!(
        about_calls(effects),
        [resolve(2, DEADLINE_UNSENT), start(3, 1)]
    );
}

#[test]
fn the_idle_timeout_starts_when_the_call_is_sent() {
    let mut bench = Bench::new();
    bench.step(Input::Start);
    bench.call(bench.read(1));
    bench.step(Input::PermitGranted);
    bench.step_after(secs(25), up(1));
    bench.pass(millis(59_999));
    assert_eq!(bench.machine.in_flight(), 1);
    assert!(bench.pass(millis(1)).contains(&abandon(1, 1, SILENT)));
}

#[test]
fn progress_renews_the_idle_time_and_never_the_deadline() {
    let mut bench = Bench::connected();
    let limit = NewCall {
        deadline: bench.now + secs(90),
        ..bench.read(1)
    };
    bench.call(limit);
    for _ in 0..8 {
        assert_eq!(bench.pass(secs(10)), bench_proof(&bench));
        bench.step(progressed(1, 1));
    }
    assert_eq!(bench.machine.in_flight(), 1);
    assert_eq!(bench.pass(secs(10)), [abandon(1, 1, DEADLINE_SENT)]);
}

/// A connection proves itself after 30 s, by the way.
fn bench_proof(bench: &Bench) -> Vec<Effect> {
    let proven = bench.now - bench.begin == secs(30);
    if proven {
        vec![Effect::SaveDurable]
    } else {
        Vec::new()
    }
}

#[test]
fn the_progress_of_another_call_renews_nothing() {
    let mut bench = Bench::connected();
    bench.call(bench.read(1));
    bench.call(bench.read(2));
    bench.step_after(secs(50), progressed(1, 2));
    assert!(bench.pass(secs(10)).contains(&abandon(1, 1, SILENT)));
    assert_eq!(bench.machine.in_flight(), 1);
}

#[test]
fn a_caller_who_leaves_is_cancelled_at_the_server_or_forgotten() {
    let mut bench = Bench::connected();
    bench.call(bench.read(1));
    assert_eq!(bench.step(left(1)), [abandon(1, 1, Outcome::Cancelled)]);
    bench.lose(1, &[]);
    bench.call(bench.read(2));
    assert_eq!(bench.step(left(2)), [forget(2)]);
    assert_eq!((bench.machine.in_flight(), bench.machine.waiting()), (0, 0));
}

#[test]
fn a_call_that_comes_back_after_it_was_given_up_is_let_go() {
    let mut bench = Bench::connected();
    bench.call(within(&bench, 1, secs(5)));
    bench.call(bench.read(2));
    bench.pass(secs(5));
    bench.step(left(2));
    let effects = bench.step(lost(1, &[written(1), written(2)]));
    assert_eq!(about_calls(effects), [forget(1), forget(2)]);

    // The same from a connection of which nothing was expected any more.
    let effects = bench.step(lost(0, &[unwritten(3)]));
    assert_eq!(effects, [forget(3)]);
}

#[test]
fn the_calls_of_a_connection_task_that_died_hold_no_places() {
    let draining = |bench: &mut Bench| drop(bench.step(Input::Reconnect));
    let closing = |bench: &mut Bench| {
        bench.step(Input::Reconnect);
        bench.tick();
    };
    let disabling = |bench: &mut Bench| {
        bench.step(Input::Disable);
        bench.tick();
    };
    let up: fn(&mut Bench) = |_| {};
    for lead in [up, draining, closing, disabling] {
        let mut bench = Bench::connected();
        bench.call(bench.tool(1));
        lead(&mut bench);
        let effects = about_calls(bench.step(closed(1)));
        assert_eq!(effects, [], "its reply answered when it was dropped");
        assert_eq!((bench.machine.in_flight(), bench.machine.waiting()), (0, 0));
        assert_eq!(bench.step(left(1)), []);
    }
}

#[test]
fn a_call_that_the_connection_did_not_take_waits_for_the_next() {
    let mut bench = Bench::connected();
    bench.call(bench.tool(1));
    assert_eq!(bench.step(undelivered(1, 1)), []);
    assert_eq!(bench.call(bench.tool(2)), [], "nothing else is given to it");
    assert_eq!(
        bench.name(),
        StateName::Connected,
        "its loss is not reported yet"
    );
    bench.lose(1, &[]);
    bench.tick();
    bench.step(Input::PermitGranted);
    assert_eq!(
        about_calls(bench.step(up(2))),
        [start(1, 2), start(2, 2)],
        "in order, and as new: neither was sent before"
    );
}

#[test]
fn no_duration_overflows_the_clock() {
    let mut settings = ServerSettings::default();
    settings.timeouts.connect = Duration::MAX;
    settings.timeouts.reconnect_wait = Duration::MAX;
    settings.health.keepalive = Duration::MAX;
    settings.budget.proven_after = Duration::MAX;
    settings.close.drain = Duration::MAX;
    settings.close.stdin = Duration::MAX;
    let mut bench = Bench::connected_with(settings, &[]);
    let endless = NewCall {
        idle: Duration::MAX,
        ..bench.tool(1)
    };
    assert_eq!(bench.call(endless), [start(1, 1)]);
    bench.step(progressed(1, 1));
    bench.step(Input::Reconnect);
    bench.step(Input::Shutdown { limit: secs(9) });
    bench.step(Input::Disable);
    let effects = about_calls(bench.step(lost(1, &[written(1)])));
    assert_eq!(effects, [resolve(1, Outcome::Unknown(gone()))]);
}

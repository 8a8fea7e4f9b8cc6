//! Each call has one outcome, in time, with what is known (C1, C2, C4).

use std::time::Duration;

use super::harness::*;
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

/// A call with this deadline.
fn within(harness: &Harness, call: u64, limit: Duration) -> NewCall {
    NewCall {
        deadline: harness.now + limit,
        ..harness.read(call)
    }
}

#[test]
fn a_call_is_started_once_and_answered_once() {
    let mut harness = Harness::connected();
    assert_eq!(harness.call(harness.tool(1)), [start(1, 1)]);
    assert_eq!(harness.step(answered(1, 1)), [Effect::SaveDurable]);
    assert_eq!(
        (harness.machine.in_flight(), harness.machine.waiting()),
        (0, 0)
    );
    let before = harness.whole();
    assert_eq!(
        harness.step(answered(1, 1)),
        [],
        "a second answer changes nothing"
    );
    assert_eq!(
        harness.step(cancelled(1)),
        [],
        "nor does a later cancellation"
    );
    assert_eq!(harness.whole(), before);
}

#[test]
fn calls_of_a_lost_connection_end_with_what_is_known() {
    let mut harness = Harness::connected();
    harness.call(harness.tool(1));
    harness.call(harness.tool(2));
    harness.call(harness.tool(3));
    harness.call(harness.tool(4));
    harness.step(lost(1, &[written(1), unwritten(2), written(3)]));
    // 1 and 3 end at once; 2 was never sent and is queued; 4 was answered when it was dropped.
    assert_eq!(
        (harness.machine.in_flight(), harness.machine.waiting()),
        (0, 1)
    );
    harness.step(closed(1));
    let effects = harness.step(Input::Disable);
    assert_eq!(about_calls(effects), [not_sent(2, NotSent::Disabled)]);

    let mut harness = Harness::connected();
    harness.call(harness.tool(1));
    assert_eq!(
        about_calls(harness.step(lost(1, &[written(1)]))),
        [resolve(1, Outcome::Unknown(gone()))]
    );
}

#[test]
fn a_deadline_covers_waiting_and_the_call_itself() {
    let mut harness = Harness::new();
    harness.step(Input::Start);
    harness.call(within(&harness, 1, secs(20)));
    harness.call(within(&harness, 2, secs(40)));
    assert_eq!(harness.pass(secs(20)), [resolve(1, DEADLINE_UNSENT)]);
    harness.step(Input::PermitGranted);
    assert_eq!(
        about_calls(harness.step_after(secs(10), up(1))),
        [start(2, 1)]
    );
    assert_eq!(harness.pass(millis(9_999)), []);
    assert_eq!(harness.pass(millis(1)), [abandon(2, 1, DEADLINE_SENT)]);
}

#[test]
fn a_deadline_before_the_retry_reports_that_the_call_was_sent() {
    let mut harness = Harness::connected();
    harness.call(within(&harness, 1, secs(5)));
    harness.call(within(&harness, 2, secs(5)));
    harness.step(lost(1, &[written(1), unwritten(2)]));
    assert_eq!(
        harness.pass(secs(5)),
        [resolve(1, DEADLINE_SENT), resolve(2, DEADLINE_UNSENT)]
    );
}

#[test]
fn a_call_after_its_deadline_fails_at_once() {
    let mut harness = Harness::connected();
    let over = within(&harness, 1, Duration::ZERO);
    assert_eq!(harness.call(over), [resolve(1, DEADLINE_UNSENT)]);
}

#[test]
fn an_overdue_call_is_not_sent_even_when_the_tick_is_late() {
    let mut settings = ServerSettings::default();
    settings.admission.in_flight = 1;
    let mut harness = Harness::connected_with(settings, &[]);
    harness.call(harness.tool(1));
    harness.call(within(&harness, 2, secs(5)));
    harness.call(harness.tool(3));
    let effects = harness.step_after(secs(6), answered(1, 1));
    assert_eq!(
        about_calls(effects),
        [resolve(2, DEADLINE_UNSENT), start(3, 1)]
    );
}

#[test]
fn the_idle_timeout_starts_when_the_call_is_sent() {
    let mut harness = Harness::new();
    harness.step(Input::Start);
    harness.call(harness.read(1));
    harness.step(Input::PermitGranted);
    harness.step_after(secs(25), up(1));
    harness.pass(millis(59_999));
    assert_eq!(harness.machine.in_flight(), 1);
    assert!(harness.pass(millis(1)).contains(&abandon(1, 1, SILENT)));
}

#[test]
fn progress_renews_the_idle_time_and_never_the_deadline() {
    let mut harness = Harness::connected();
    let limit = NewCall {
        deadline: harness.now + secs(90),
        ..harness.read(1)
    };
    harness.call(limit);
    for _ in 0..8 {
        assert_eq!(harness.pass(secs(10)), proof_effects(&harness));
        harness.step(progressed(1, 1));
    }
    assert_eq!(harness.machine.in_flight(), 1);
    assert_eq!(harness.pass(secs(10)), [abandon(1, 1, DEADLINE_SENT)]);
}

/// The effect of the proof of the connection after 30 s.
fn proof_effects(harness: &Harness) -> Vec<Effect> {
    let proven = harness.now - harness.begin == secs(30);
    if proven {
        vec![Effect::SaveDurable]
    } else {
        Vec::new()
    }
}

#[test]
fn the_progress_of_another_call_renews_nothing() {
    let mut harness = Harness::connected();
    harness.call(harness.read(1));
    harness.call(harness.read(2));
    harness.step_after(secs(50), progressed(1, 2));
    assert!(harness.pass(secs(10)).contains(&abandon(1, 1, SILENT)));
    assert_eq!(harness.machine.in_flight(), 1);
}

#[test]
fn a_cancelled_call_is_cancelled_at_the_server_or_dropped() {
    let mut harness = Harness::connected();
    harness.call(harness.read(1));
    assert_eq!(
        harness.step(cancelled(1)),
        [abandon(1, 1, Outcome::Cancelled)]
    );
    harness.lose(1, &[]);
    harness.call(harness.read(2));
    assert_eq!(harness.step(cancelled(2)), [drop_call(2)]);
    assert_eq!(
        (harness.machine.in_flight(), harness.machine.waiting()),
        (0, 0)
    );
}

#[test]
fn a_call_returned_after_it_was_given_up_is_dropped() {
    let mut harness = Harness::connected();
    harness.call(within(&harness, 1, secs(5)));
    harness.call(harness.read(2));
    harness.pass(secs(5));
    harness.step(cancelled(2));
    let effects = harness.step(lost(1, &[written(1), written(2)]));
    assert_eq!(about_calls(effects), [drop_call(1), drop_call(2)]);

    // The same from a connection that is no longer current.
    let effects = harness.step(lost(0, &[unwritten(3)]));
    assert_eq!(effects, [drop_call(3)]);
}

#[test]
fn the_calls_of_a_dead_connection_task_are_not_in_flight() {
    let draining = |harness: &mut Harness| drop(harness.step(Input::Reconnect));
    let closing = |harness: &mut Harness| {
        harness.step(Input::Reconnect);
        harness.tick();
    };
    let disabling = |harness: &mut Harness| {
        harness.step(Input::Disable);
        harness.tick();
    };
    let up: fn(&mut Harness) = |_| {};
    for lead in [up, draining, closing, disabling] {
        let mut harness = Harness::connected();
        harness.call(harness.tool(1));
        lead(&mut harness);
        let effects = about_calls(harness.step(closed(1)));
        assert_eq!(effects, [], "its reply answered when it was dropped");
        assert_eq!(
            (harness.machine.in_flight(), harness.machine.waiting()),
            (0, 0)
        );
        assert_eq!(harness.step(cancelled(1)), []);
    }
}

#[test]
fn a_call_that_the_connection_rejects_waits_for_the_next_one() {
    let mut harness = Harness::connected();
    harness.call(harness.tool(1));
    assert_eq!(harness.step(undelivered(1, 1)), []);
    assert_eq!(harness.call(harness.tool(2)), [], "it gets no other call");
    assert_eq!(
        harness.name(),
        StateName::Connected,
        "its loss is not reported yet"
    );
    harness.lose(1, &[]);
    harness.tick();
    harness.step(Input::PermitGranted);
    assert_eq!(
        about_calls(harness.step(up(2))),
        [start(1, 2), start(2, 2)],
        "in order, as first sends"
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
    let mut harness = Harness::connected_with(settings, &[]);
    let endless = NewCall {
        idle: Duration::MAX,
        ..harness.tool(1)
    };
    assert_eq!(harness.call(endless), [start(1, 1)]);
    harness.step(progressed(1, 1));
    harness.step(Input::Reconnect);
    harness.step(Input::Shutdown { limit: secs(9) });
    harness.step(Input::Disable);
    let effects = about_calls(harness.step(lost(1, &[written(1)])));
    assert_eq!(effects, [resolve(1, Outcome::Unknown(gone()))]);
}

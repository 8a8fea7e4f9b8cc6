//! Soft failures, checks and what follows (H1 to H4, S5).

use super::harness::*;
use crate::machine::{
    Attempt, CallEnd, Check, CheckReason, Effect, FaultClass, Input, NewCall, Outcome,
    ReconnectTiming, State, StateName,
};
use crate::policy::listing::{FetchOutcome, ListKind};
use crate::settings::ServerSettings;

/// A call with a long timeout, so that the connection is never idle.
fn long_call(harness: &Harness, call: u64) -> NewCall {
    NewCall {
        deadline: harness.now + secs(3_600),
        idle: secs(3_600),
        ..harness.read(call)
    }
}

/// Connected, with one long call in flight and `count` calls that timed out.
fn after_timeouts(count: u64) -> (Harness, Vec<Effect>) {
    let mut harness = Harness::connected();
    harness.call(long_call(&harness, 100));
    for call in 1..=count {
        harness.call(harness.read(call));
    }
    let effects = harness.pass(secs(60));
    (harness, effects)
}

fn silent(call: u64) -> Effect {
    abandon(
        call,
        1,
        Outcome::Deadline {
            sent: true,
            idle: true,
        },
    )
}

#[test]
fn a_dead_transport_starts_a_reconnect_at_once() {
    let mut harness = Harness::connected();
    harness.call(harness.read(1));
    harness.step(answered(1, 1));
    assert_eq!(
        harness.step(lost(1, &[])),
        [
            Effect::SaveDurable,
            changed(StateName::Connected, StateName::Reconnecting)
        ]
    );
    assert_eq!(
        harness.step(closed(1)),
        [Effect::RequestPermit { reconnect: true }]
    );
}

#[test]
fn three_timed_out_calls_in_a_row_cause_one_ping_which_decides() {
    let (harness, effects) = after_timeouts(2);
    assert_eq!(effects, [Effect::SaveDurable, silent(1), silent(2)]);
    assert_eq!(harness.machine.failures(), (2, 0));

    let (mut harness, effects) = after_timeouts(3);
    let expected = [
        Effect::SaveDurable,
        silent(1),
        silent(2),
        silent(3),
        check(1),
    ];
    assert_eq!(effects, expected);
    assert_eq!(harness.machine.failures(), (3, 0));
    assert_eq!(harness.name(), StateName::Connected, "not decided yet");

    assert_eq!(harness.step(checked(1, true)), []);
    assert_eq!(
        harness.machine.failures(),
        (0, 0),
        "the answer clears the counts"
    );
    assert_eq!(harness.name(), StateName::Connected);
}

#[test]
fn a_ping_that_fails_at_once_is_not_reported_as_a_timeout() {
    let (mut harness, _) = after_timeouts(3);
    harness.step(checked(1, false));
    assert_eq!(harness.name(), StateName::Reconnecting);
    let fault = harness.machine.last_fault().expect("there is a fault");
    assert_eq!(
        (fault.class, &*fault.message),
        (FaultClass::ServerFault, "the ping failed")
    );
    let (mut harness, _) = after_timeouts(3);
    harness.tick();
    let fault = harness.machine.last_fault().expect("there is a fault");
    assert_eq!(fault.class, FaultClass::Timeout);
}

#[test]
fn an_unanswered_ping_after_soft_failures_drains_before_the_reconnect() {
    let (mut harness, _) = after_timeouts(3);
    harness.tick();
    assert_eq!(
        *harness.state(),
        State::Reconnecting(Attempt::Draining {
            generation: generation(1),
            until: harness.now + secs(5),
            timing: ReconnectTiming::Paced,
        })
    );
    assert_eq!(harness.machine.in_flight(), 1, "the long call may finish");
    let close = Effect::Close {
        generation: generation(1),
        grace: harness.machine.settings().close,
    };
    assert_eq!(
        harness.step(answered(1, 100)),
        [Effect::SaveDurable, close],
        "then the connection is closed"
    );
}

#[test]
fn an_unreadable_answer_is_a_soft_failure() {
    let mut harness = Harness::connected();
    harness.call(long_call(&harness, 100));
    for call in 1..=3 {
        harness.call(harness.read(call));
        let effects = harness.step(call_ended(1, call, CallEnd::Unreadable));
        let expected = if call == 3 { vec![check(1)] } else { vec![] };
        assert_eq!(effects, expected);
    }
    assert_eq!(harness.used(), 1, "it proves nothing");
}

#[test]
fn short_deadlines_of_one_client_do_not_count_as_failures() {
    let mut harness = Harness::connected();
    harness.call(long_call(&harness, 100));
    for call in 1..=50 {
        let tiny = NewCall {
            deadline: harness.now + millis(10),
            ..harness.read(call)
        };
        harness.call(tiny);
        let impatient = NewCall {
            idle: millis(10),
            ..harness.read(call + 100)
        };
        harness.call(impatient);
        harness.pass(millis(10));
    }
    assert_eq!(harness.machine.in_flight(), 1);
    assert_eq!(harness.machine.failures(), (0, 0));
}

#[test]
fn a_timeout_does_not_count_when_something_arrived_meanwhile() {
    let mut harness = Harness::connected();
    harness.call(long_call(&harness, 100));
    for call in 1..=3 {
        harness.call(harness.read(call));
    }
    harness.step_after(secs(30), received(1));
    harness.pass(secs(30));
    assert_eq!(harness.machine.in_flight(), 1);
    assert_eq!(harness.machine.failures(), (0, 0));
}

#[test]
fn a_working_tool_does_not_hide_a_broken_listing() {
    let mut harness = Harness::connected_with(ServerSettings::default(), &[ListKind::Tools]);
    harness.call(long_call(&harness, 100));
    let failed = || fetched(1, ListKind::Tools, FetchOutcome::Failed);
    harness.step(failed());
    for call in 1..=2 {
        harness.tick();
        harness.call(harness.read(call));
        harness.step(answered(1, call));
        assert_eq!(
            harness.machine.failures(),
            (0, u32::try_from(call).unwrap())
        );
        let effects = harness.step(failed());
        assert_eq!(effects, if call == 2 { vec![check(1)] } else { vec![] });
    }
    assert_eq!(harness.machine.failures(), (0, 3));
}

#[test]
fn a_refused_listing_is_not_a_soft_failure() {
    let mut harness = Harness::connected_with(ServerSettings::default(), &[ListKind::Tools]);
    harness.step(fetched(1, ListKind::Tools, FetchOutcome::Failed));
    harness.tick();
    assert_eq!(harness.machine.failures(), (0, 1));
    harness.step(fetched(1, ListKind::Tools, FetchOutcome::Refused));
    assert_eq!(harness.machine.failures(), (0, 0));
}

#[test]
fn an_answer_or_a_cancelled_call_is_not_a_soft_failure() {
    let mut harness = Harness::connected();
    harness.call(long_call(&harness, 100));
    for call in 1..=10 {
        harness.call(harness.read(call));
        // The machine does not know whether it was a result, an error, or `isError`.
        harness.step(answered(1, call));
        harness.call(harness.read(call + 100));
        harness.step(cancelled(call + 100));
    }
    assert_eq!(harness.machine.failures(), (0, 0));
    assert_eq!(harness.name(), StateName::Connected);
}

#[test]
fn an_idle_connection_is_checked_and_a_dead_one_replaced_at_once() {
    let mut harness = Harness::connected();
    assert_eq!(harness.pass(millis(59_999)), [Effect::SaveDurable]);
    assert_eq!(harness.pass(millis(1)), [check(1)]);
    let deadline = harness.now + secs(10);
    assert_eq!(harness.machine.next_deadline(), Some(deadline));
    let close = Effect::Close {
        generation: generation(1),
        grace: harness.machine.settings().close,
    };
    assert_eq!(
        harness.pass(secs(10)),
        [
            Effect::SaveDurable,
            close,
            changed(StateName::Connected, StateName::Reconnecting)
        ],
        "a dead transport is not drained"
    );
    assert_eq!(
        *harness.state(),
        State::Reconnecting(Attempt::Closing {
            generation: generation(1),
            retry_at: harness.now,
        })
    );
}

#[test]
fn after_an_answered_check_the_next_one_comes_after_the_keepalive_time() {
    let mut harness = Harness::connected();
    harness.pass(secs(60));
    harness.step_after(secs(1), checked(1, true));
    assert_eq!(harness.pass(millis(59_999)), []);
    assert_eq!(harness.pass(millis(1)), [check(1)]);
}

#[test]
fn a_check_never_competes_with_calls_in_flight() {
    let mut harness = Harness::connected();
    harness.call(long_call(&harness, 1));
    assert_eq!(harness.pass(secs(1_800)), [Effect::SaveDurable]);
    harness.step(answered(1, 1));
    assert_eq!(
        harness.pass(millis(59_999)),
        [],
        "an answer restarts the keepalive time"
    );
    assert_eq!(harness.pass(millis(1)), [check(1)]);
}

#[test]
fn an_answered_call_during_a_check_passes_the_check() {
    let mut harness = Harness::connected();
    harness.pass(secs(60));
    harness.call(harness.read(1));
    harness.call(long_call(&harness, 2));
    harness.step_after(secs(5), answered(1, 1));
    assert_eq!(harness.pass(secs(60)), []);
    let State::Connected(live) = harness.state() else {
        panic!("{:?}", harness.state());
    };
    assert_eq!(live.check, None);
}

#[test]
fn a_failed_check_does_not_affect_calls_that_started_meanwhile() {
    for in_time in [true, false] {
        let mut harness = Harness::connected();
        harness.pass(secs(60));
        harness.call(harness.tool(1));
        let effects = match in_time {
            true => harness.step(checked(1, false)),
            false => harness.pass(secs(10)),
        };
        assert_eq!(effects, [], "the connection stays");
        assert_eq!(harness.machine.in_flight(), 1);
        let effects = harness.step(call_ended(1, 1, CallEnd::Local));
        let effects = [effects, harness.tick()].concat();
        assert!(
            effects.contains(&check(1)),
            "the next one follows: {effects:?}"
        );
    }
}

#[test]
fn a_check_that_was_overtaken_is_followed_by_the_next_without_delay() {
    let mut settings = ServerSettings::default();
    settings.health.keepalive = secs(1);
    let mut harness = Harness::connected_with(settings, &[]);
    assert_eq!(harness.tick(), [check(1)]);
    harness.step_after(secs(2), received(1));
    assert_eq!(harness.tick(), [check(1)], "silent for 8 s of the 10");
    assert!(harness.machine.next_deadline() > Some(harness.now));
}

#[test]
fn soft_failures_are_decided_by_the_ping_alone() {
    let (mut harness, _) = after_timeouts(3);
    harness.step_after(secs(1), received(1));
    let State::Connected(live) = harness.state() else {
        panic!("{:?}", harness.state());
    };
    let check = Check {
        deadline: harness.now + secs(9),
        reason: CheckReason::SoftFailures,
    };
    assert_eq!(live.check, Some(check));
    harness.pass(secs(9));
    assert_eq!(harness.name(), StateName::Reconnecting);
}

#[test]
fn a_success_clears_the_failure_counts_and_so_does_a_new_connection() {
    let (mut harness, _) = after_timeouts(2);
    assert_eq!(harness.machine.failures(), (2, 0));
    harness.step(answered(1, 100));
    assert_eq!(harness.machine.failures(), (0, 0));

    let (mut harness, _) = after_timeouts(2);
    harness.lose(1, &[]);
    harness.step(Input::PermitGranted);
    harness.step(up(2));
    assert_eq!(harness.machine.failures(), (0, 0));
}

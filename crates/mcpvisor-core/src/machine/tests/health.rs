//! What counts against a connection, and what is done about it (H1 to H4, S5).

use super::bench::*;
use crate::machine::{
    Attempt, CallEnd, Check, CheckReason, Effect, FaultClass, Input, NewCall, Outcome,
    ReconnectTiming, State, StateName,
};
use crate::policy::listing::{FetchOutcome, ListKind};
use crate::settings::ServerSettings;

/// A call that stays in flight for long, so that the connection is never idle.
fn patient(bench: &Bench, call: u64) -> NewCall {
    NewCall {
        deadline: bench.now + secs(3_600),
        idle: secs(3_600),
        ..bench.read(call)
    }
}

/// Connected, with one patient call in flight and `count` calls that were silent too long.
fn after_timeouts(count: u64) -> (Bench, Vec<Effect>) {
    let mut bench = Bench::connected();
    bench.call(patient(&bench, 100));
    for call in 1..=count {
        bench.call(bench.read(call));
    }
    let effects = bench.pass(secs(60));
    (bench, effects)
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
    let mut bench = Bench::connected();
    bench.call(bench.read(1));
    bench.step(answered(1, 1));
    assert_eq!(
        bench.step(lost(1, &[])),
        [
            Effect::SaveDurable,
            changed(StateName::Connected, StateName::Reconnecting)
        ]
    );
    assert_eq!(
        bench.step(closed(1)),
        [Effect::RequestPermit { reconnect: true }]
    );
}

#[test]
fn three_silent_calls_in_a_row_ask_for_one_ping_which_decides() {
    let (bench, effects) = after_timeouts(2);
    assert_eq!(effects, [Effect::SaveDurable, silent(1), silent(2)]);
    assert_eq!(bench.machine.failures(), (2, 0));

    let (mut bench, effects) = after_timeouts(3);
    let asked = [
        Effect::SaveDurable,
        silent(1),
        silent(2),
        silent(3),
        check(1),
    ];
    assert_eq!(effects, asked);
    assert_eq!(bench.machine.failures(), (3, 0));
    assert_eq!(bench.name(), StateName::Connected, "nothing is decided yet");

    assert_eq!(bench.step(checked(1, true)), []);
    assert_eq!(bench.machine.failures(), (0, 0), "answered: all is well");
    assert_eq!(bench.name(), StateName::Connected);
}

#[test]
fn a_ping_that_fails_at_once_is_not_reported_as_a_timeout() {
    let (mut bench, _) = after_timeouts(3);
    bench.step(checked(1, false));
    assert_eq!(bench.name(), StateName::Reconnecting);
    let fault = bench.machine.last_fault().expect("it says why");
    assert_eq!(
        (fault.class, &*fault.message),
        (FaultClass::ServerFault, "the ping failed")
    );
    let (mut bench, _) = after_timeouts(3);
    bench.tick();
    let fault = bench.machine.last_fault().expect("it says why");
    assert_eq!(fault.class, FaultClass::Timeout);
}

#[test]
fn an_unanswered_ping_of_suspicion_drains_before_it_reconnects() {
    let (mut bench, _) = after_timeouts(3);
    bench.tick();
    assert_eq!(
        *bench.state(),
        State::Reconnecting(Attempt::Draining {
            generation: generation(1),
            until: bench.now + secs(5),
            timing: ReconnectTiming::Paced,
        })
    );
    assert_eq!(bench.machine.in_flight(), 1, "the patient call may finish");
    let close = Effect::Close {
        generation: generation(1),
        grace: bench.machine.settings().close,
    };
    assert_eq!(
        bench.step(answered(1, 100)),
        [Effect::SaveDurable, close],
        "and then the connection is closed"
    );
}

#[test]
fn an_unreadable_answer_is_a_soft_failure() {
    let mut bench = Bench::connected();
    bench.call(patient(&bench, 100));
    for call in 1..=3 {
        bench.call(bench.read(call));
        let effects = bench.step(call_ended(1, call, CallEnd::Unreadable));
        let expected = if call == 3 { vec![check(1)] } else { vec![] };
        assert_eq!(effects, expected);
    }
    assert_eq!(bench.used(), 1, "and it proves nothing");
}

#[test]
fn the_tiny_deadlines_of_one_agent_count_against_nobody() {
    let mut bench = Bench::connected();
    bench.call(patient(&bench, 100));
    for call in 1..=50 {
        let tiny = NewCall {
            deadline: bench.now + millis(10),
            ..bench.read(call)
        };
        bench.call(tiny);
        let impatient = NewCall {
            idle: millis(10),
            ..bench.read(call + 100)
        };
        bench.call(impatient);
        bench.pass(millis(10));
    }
    assert_eq!(bench.machine.in_flight(), 1);
    assert_eq!(bench.machine.failures(), (0, 0));
}

#[test]
fn a_timeout_does_not_count_when_something_arrived_meanwhile() {
    let mut bench = Bench::connected();
    bench.call(patient(&bench, 100));
    for call in 1..=3 {
        bench.call(bench.read(call));
    }
    bench.step_after(secs(30), heard(1));
    bench.pass(secs(30));
    assert_eq!(bench.machine.in_flight(), 1);
    assert_eq!(bench.machine.failures(), (0, 0));
}

#[test]
fn a_working_tool_does_not_hide_a_broken_listing() {
    let mut bench = Bench::connected_with(ServerSettings::default(), &[ListKind::Tools]);
    bench.call(patient(&bench, 100));
    let failed = || fetched(1, ListKind::Tools, FetchOutcome::Failed);
    bench.step(failed());
    for call in 1..=2 {
        bench.tick();
        bench.call(bench.read(call));
        bench.step(answered(1, call));
        assert_eq!(bench.machine.failures(), (0, u32::try_from(call).unwrap()));
        let effects = bench.step(failed());
        assert_eq!(effects, if call == 2 { vec![check(1)] } else { vec![] });
    }
    assert_eq!(bench.machine.failures(), (0, 3));
}

#[test]
fn a_listing_that_the_server_refuses_is_no_failure() {
    let mut bench = Bench::connected_with(ServerSettings::default(), &[ListKind::Tools]);
    bench.step(fetched(1, ListKind::Tools, FetchOutcome::Failed));
    bench.tick();
    assert_eq!(bench.machine.failures(), (0, 1));
    bench.step(fetched(1, ListKind::Tools, FetchOutcome::Refused));
    assert_eq!(bench.machine.failures(), (0, 0));
}

#[test]
fn an_answer_and_a_caller_who_leaves_never_count() {
    let mut bench = Bench::connected();
    bench.call(patient(&bench, 100));
    for call in 1..=10 {
        bench.call(bench.read(call));
        // The machine is not told whether it was a result, an error, or `isError`.
        bench.step(answered(1, call));
        bench.call(bench.read(call + 100));
        bench.step(left(call + 100));
    }
    assert_eq!(bench.machine.failures(), (0, 0));
    assert_eq!(bench.name(), StateName::Connected);
}

#[test]
fn an_idle_connection_is_checked_and_a_dead_one_replaced_at_once() {
    let mut bench = Bench::connected();
    assert_eq!(bench.pass(millis(59_999)), [Effect::SaveDurable]);
    assert_eq!(bench.pass(millis(1)), [check(1)]);
    let deadline = bench.now + secs(10);
    assert_eq!(bench.machine.next_deadline(), Some(deadline));
    let close = Effect::Close {
        generation: generation(1),
        grace: bench.machine.settings().close,
    };
    assert_eq!(
        bench.pass(secs(10)),
        [
            Effect::SaveDurable,
            close,
            changed(StateName::Connected, StateName::Reconnecting)
        ],
        "a dead transport is not drained"
    );
    assert_eq!(
        *bench.state(),
        State::Reconnecting(Attempt::Closing {
            generation: generation(1),
            retry_at: bench.now,
        })
    );
}

#[test]
fn an_answered_check_is_followed_by_another_silence() {
    let mut bench = Bench::connected();
    bench.pass(secs(60));
    bench.step_after(secs(1), checked(1, true));
    assert_eq!(bench.pass(millis(59_999)), []);
    assert_eq!(bench.pass(millis(1)), [check(1)]);
}

#[test]
fn a_check_never_competes_with_calls_in_flight() {
    let mut bench = Bench::connected();
    bench.call(patient(&bench, 1));
    assert_eq!(bench.pass(secs(1_800)), [Effect::SaveDurable]);
    bench.step(answered(1, 1));
    assert_eq!(bench.pass(millis(59_999)), [], "an answer needs no check");
    assert_eq!(bench.pass(millis(1)), [check(1)]);
}

#[test]
fn a_server_that_answers_a_call_during_its_check_has_passed_it() {
    let mut bench = Bench::connected();
    bench.pass(secs(60));
    bench.call(bench.read(1));
    bench.call(patient(&bench, 2));
    bench.step_after(secs(5), answered(1, 1));
    assert_eq!(bench.pass(secs(60)), []);
    let State::Connected(live) = bench.state() else {
        panic!("{:?}", bench.state());
    };
    assert_eq!(live.check, None);
}

#[test]
fn a_check_that_fails_leaves_calls_alone_that_started_meanwhile() {
    for in_time in [true, false] {
        let mut bench = Bench::connected();
        bench.pass(secs(60));
        bench.call(bench.tool(1));
        let effects = match in_time {
            true => bench.step(checked(1, false)),
            false => bench.pass(secs(10)),
        };
        assert_eq!(effects, [], "nothing is replaced");
        assert_eq!(bench.machine.in_flight(), 1);
        let effects = bench.step(call_ended(1, 1, CallEnd::Local));
        let effects = [effects, bench.tick()].concat();
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
    let mut bench = Bench::connected_with(settings, &[]);
    assert_eq!(bench.tick(), [check(1)]);
    bench.step_after(secs(2), heard(1));
    assert_eq!(bench.tick(), [check(1)], "silent for 8 s of the 10 again");
    assert!(bench.machine.next_deadline() > Some(bench.now));
}

#[test]
fn a_suspicion_is_decided_by_the_ping_alone() {
    let (mut bench, _) = after_timeouts(3);
    bench.step_after(secs(1), heard(1));
    let State::Connected(live) = bench.state() else {
        panic!("{:?}", bench.state());
    };
    let check = Check {
        deadline: bench.now + secs(9),
        reason: CheckReason::SoftFailures,
    };
    assert_eq!(live.check, Some(check));
    bench.pass(secs(9));
    assert_eq!(bench.name(), StateName::Reconnecting);
}

#[test]
fn a_success_clears_the_failure_counts_and_so_does_a_new_connection() {
    let (mut bench, _) = after_timeouts(2);
    assert_eq!(bench.machine.failures(), (2, 0));
    bench.step(answered(1, 100));
    assert_eq!(bench.machine.failures(), (0, 0));

    let (mut bench, _) = after_timeouts(2);
    bench.lose(1, &[]);
    bench.step(Input::PermitGranted);
    bench.step(up(2));
    assert_eq!(bench.machine.failures(), (0, 0));
}

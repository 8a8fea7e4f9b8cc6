//! When connects happen, and when they stop (B1 to B7).

use std::time::Duration;

use super::harness::*;
use crate::machine::{
    Attempt, CallEnd, ConnectionEnd, Effect, FaultClass, Input, LiveConnection, NotSent, Outcome,
    State, StateName,
};
use crate::policy::listing::{FetchOutcome, ListKind};
use crate::random::Random;
use crate::settings::ServerSettings;

/// When each connect of a server that never comes up happens, from the start.
fn connects(harness: &mut Harness, count: usize) -> Vec<Duration> {
    (0..count)
        .map(|_| {
            harness.fail_one_connect();
            harness.now - harness.begin
        })
        .collect()
}

#[test]
fn reconnects_are_paced_by_a_growing_backoff_under_a_budget() {
    let mut harness = Harness::new();
    harness.step(Input::Start);
    let delays = [0, 500, 1_500, 3_500, 7_500, 15_500, 31_500, 61_500, 91_500];
    assert_eq!(connects(&mut harness, 9), delays.map(millis));
    let status = |harness: &Harness| {
        let budget = &harness.machine.durable().budget;
        let waits = harness.machine.retry_at().map(|at| at - harness.now);
        (
            harness.name(),
            harness.machine.attempts(),
            harness.used(),
            budget.limit(),
            waits,
        )
    };
    assert_eq!(
        status(&harness),
        (StateName::Reconnecting, 9, 9, 10, Some(secs(30)))
    );
    assert_eq!(connects(&mut harness, 1), [millis(121_500)]);
    assert_eq!(
        status(&harness),
        (StateName::Disconnected, 10, 10, 10, Some(secs(30))),
        "all ten are spent, and the first probe has its own delay"
    );
    assert_eq!(harness.machine.last_fault(), Some(&refused()));
}

#[test]
fn jitter_moves_a_retry_by_a_fifth_either_way() {
    let waits = |random: f64| {
        let mut harness = Harness::new();
        harness.step(Input::Start);
        harness.step(Input::PermitGranted);
        harness
            .machine
            .handle(harness.now, Random::new(random), failed(1), &mut Vec::new());
        harness.machine.retry_at().unwrap() - harness.now
    };
    assert_eq!(waits(0.0), millis(400));
    assert_eq!(waits(0.5), millis(500));
    assert!((millis(599)..=millis(600)).contains(&waits(1.0)));
}

#[test]
fn the_retry_after_of_a_server_is_honoured() {
    let mut harness = Harness::new();
    harness.step(Input::Start);
    harness.step(Input::PermitGranted);
    let end = ConnectionEnd::Failed {
        fault: refused(),
        retry_after: Some(secs(7)),
    };
    harness.step(ended(1, end));
    assert_eq!(harness.machine.retry_at(), Some(harness.now + secs(7)));
}

#[test]
fn a_failed_reconnect_continues_with_the_same_budget() {
    let mut harness = Harness::connected();
    harness.lose(1, &[]);
    for used in 2..=10 {
        assert_eq!(harness.name(), StateName::Reconnecting);
        harness.fail_one_connect();
        assert_eq!(harness.used(), used);
    }
    assert_eq!(harness.name(), StateName::Disconnected);
}

/// Connects, does everything except answer a call, and dies.
fn flap(harness: &mut Harness) {
    if harness.machine.retry_at().is_some() {
        harness.tick();
    }
    harness.step(Input::PermitGranted);
    let number = harness.generation();
    harness.step(up_with(number, &[ListKind::Tools]));
    harness.step(fetched(number, ListKind::Tools, FetchOutcome::Fetched));
    harness.step(received(number));
    harness.step(checked(number, true));
    harness.step(list_changed(number, ListKind::Tools));
    harness.lose(number, &[]);
}

#[test]
fn a_server_that_flaps_right_after_connecting_runs_out() {
    let mut harness = Harness::new();
    harness.step(Input::Start);
    for used in 1..=10 {
        assert_ne!(harness.name(), StateName::Disconnected);
        flap(&mut harness);
        assert_eq!(harness.used(), used, "the first connect counts too");
    }
    assert_eq!(harness.name(), StateName::Disconnected);
    assert_eq!(harness.now - harness.begin, millis(121_500));
}

#[test]
fn an_answered_call_proves_a_connection_and_restores_the_budget() {
    let mut harness = Harness::new();
    harness.step(Input::Start);
    connects(&mut harness, 5);
    harness.tick();
    harness.step(Input::PermitGranted);
    harness.step(up(6));
    assert_eq!((harness.used(), harness.machine.attempts()), (6, 6));
    assert_eq!(harness.machine.last_fault(), Some(&refused()));
    harness.call(harness.read(1));
    assert_eq!(harness.step(answered(6, 1)), [Effect::SaveDurable]);
    assert_eq!((harness.used(), harness.machine.attempts()), (0, 0));
    assert_eq!(harness.machine.last_fault(), None);
    assert!(harness.machine.durable().proven);
}

#[test]
fn a_connection_that_stays_up_proves_itself() {
    let mut harness = Harness::connected();
    let since = harness.now;
    harness.pass(millis(29_999));
    assert_eq!(harness.used(), 1);
    assert_eq!(harness.pass(millis(1)), [Effect::SaveDurable]);
    assert_eq!(harness.used(), 0);
    let live = LiveConnection {
        generation: generation(1),
        since,
        last_received: since,
        check: None,
        is_ending: false,
        awaits_tools: false,
        last_call: since,
    };
    assert_eq!(*harness.state(), State::Connected(live));
    assert!(harness.machine.durable().proven);
}

#[test]
fn a_proven_connection_is_retried_at_once_but_not_in_a_loop() {
    let mut harness = Harness::connected();
    let mut waits = Vec::new();
    for number in 1..4 {
        harness.call(harness.read(number));
        harness.step(answered(number, number));
        harness.step(lost(number, &[]));
        waits.push(harness.machine.retry_at().unwrap() - harness.now);
        harness.step(closed(number));
        if harness.machine.retry_at().is_some() {
            harness.tick();
        }
        harness.step(Input::PermitGranted);
        harness.step(up(number + 1));
    }
    assert_eq!(waits, [millis(0), millis(500), millis(500)]);
}

#[test]
fn a_failing_close_costs_no_attempt() {
    let clean = ConnectionEnd::Closed { problem: None };
    let failing = ConnectionEnd::Closed {
        problem: Some("ignored every signal".to_owned()),
    };
    for end in [clean, failing] {
        let mut harness = Harness::connected();
        harness.step(lost(1, &[]));
        harness.step(ended(1, end));
        assert_eq!((harness.used(), harness.machine.attempts()), (1, 1));
        assert_eq!(harness.machine.retry_at(), Some(harness.now + millis(500)));
        assert_eq!(harness.machine.last_fault(), Some(&gone()));
    }
}

#[test]
fn a_failing_close_is_shown_unless_there_is_a_worse_fault() {
    let mut harness = Harness::connected();
    harness.step(Input::Reconnect);
    let problem = Some("ignored every signal".to_owned());
    harness.step(ended(1, ConnectionEnd::Closed { problem }));
    let shown = harness.machine.last_fault().map(|fault| fault.class);
    assert_eq!(shown, Some(FaultClass::Close));
}

#[test]
fn a_parked_server_is_probed_ever_more_slowly() {
    let mut harness = Harness::parked(ServerSettings::default());
    let mut rests = Vec::new();
    for _ in 0..6 {
        rests.push(harness.machine.retry_at().unwrap() - harness.now);
        harness.fail_one_connect();
        assert_eq!(harness.name(), StateName::Disconnected);
    }
    assert_eq!(rests, [30, 60, 120, 240, 300, 300].map(secs));
}

#[test]
fn a_parked_server_that_connects_stays_parked_until_it_is_proven() {
    let mut harness = Harness::parked(ServerSettings::default());
    flap(&mut harness);
    let rest = harness.machine.retry_at().map(|at| at - harness.now);
    assert_eq!(
        (harness.name(), rest),
        (StateName::Disconnected, Some(secs(60)))
    );
    harness.tick();
    harness.step(Input::PermitGranted);
    let number = harness.generation();
    harness.step(up(number));
    harness.call(harness.read(1));
    harness.step(answered(number, 1));
    harness.step(lost(number, &[]));
    assert_eq!(
        *harness.state(),
        State::Reconnecting(Attempt::Closing {
            generation: generation(number),
            retry_at: harness.now,
        })
    );
}

#[test]
fn the_user_or_a_call_wakes_a_parked_server_at_once() {
    let permit = Effect::RequestPermit { reconnect: true };
    let back = changed(StateName::Disconnected, StateName::Reconnecting);
    for request in [Input::Reconnect, Input::Enable] {
        let mut harness = Harness::parked(ServerSettings::default());
        assert_eq!(
            harness.step(request),
            [Effect::SaveDurable, permit.clone(), back.clone()]
        );
        assert_eq!(
            (harness.used(), harness.machine.attempts()),
            (0, 0),
            "the user resets the budget"
        );
    }
    let mut harness = Harness::parked(ServerSettings::default());
    harness.now += secs(1);
    assert_eq!(harness.call(harness.read(1)), [permit]);
    assert_eq!(
        *harness.state(),
        State::Disconnected(Attempt::AwaitingPermit)
    );
    assert_eq!(harness.used(), 10, "a call does not reset it");
}

#[test]
fn a_reconnect_by_the_user_resets_the_budget() {
    let mut harness = Harness::parked(ServerSettings::default());
    harness.tick();
    harness.step(Input::PermitGranted);
    harness.step(up(11));
    harness.step(Input::Reconnect);
    assert_eq!(
        *harness.state(),
        State::Reconnecting(Attempt::Closing {
            generation: generation(11),
            retry_at: harness.now,
        })
    );
    assert_eq!((harness.used(), harness.machine.attempts()), (0, 0));
}

#[test]
fn calls_wake_a_parked_server_no_faster_than_once_a_second() {
    let mut harness = Harness::parked(ServerSettings::default());
    harness.now += millis(400);
    assert_eq!(harness.call(harness.read(1)), []);
    assert_eq!(harness.machine.retry_at(), Some(harness.now + millis(600)));
    assert_eq!(harness.tick(), [Effect::RequestPermit { reconnect: true }]);
    harness.step(Input::PermitGranted);
    assert_eq!(
        harness.step(failed(11)),
        [
            Effect::ReleasePermit,
            Effect::SaveDurable,
            not_sent(1, NotSent::Parked(Some(refused()))),
            attempt_failed(11, refused(), harness.machine.retry_at()),
        ]
    );
}

#[test]
fn a_call_wakes_a_parked_server_even_without_a_queue() {
    let mut settings = ServerSettings::default();
    settings.admission.waiting = 0;
    let mut harness = Harness::parked(settings.clone());
    harness.now += secs(1);
    let effects = harness.step(Input::Call(harness.read(1)));
    assert!(effects.contains(&resolve(1, Outcome::Busy)), "{effects:?}");
    let request = Effect::RequestPermit { reconnect: true };
    assert!(effects.contains(&request), "{effects:?}");
    settings.budget.wake_on_call = false;
    let mut harness = Harness::parked(settings);
    harness.now += secs(1);
    let parked = not_sent(1, NotSent::Parked(Some(refused())));
    assert_eq!(harness.step(Input::Call(harness.read(1))), [parked]);
}

#[test]
fn a_local_answer_neither_proves_a_connection_nor_counts_against_it() {
    let mut harness = Harness::connected();
    harness.step(Input::Call(harness.read(1)));
    let last_received = |harness: &Harness| match harness.state() {
        State::Connected(live) => live.last_received,
        other => panic!("{other:?}"),
    };
    let before = last_received(&harness);
    harness.step_after(secs(1), call_ended(1, 1, CallEnd::Local));
    assert_eq!((harness.used(), harness.machine.in_flight()), (1, 0));
    assert_eq!(last_received(&harness), before);
    assert_eq!(harness.machine.failures(), (0, 0));
}

#[test]
fn a_call_does_not_wake_a_parked_server_if_configured_so() {
    let mut settings = ServerSettings::default();
    settings.budget.wake_on_call = false;
    let mut harness = Harness::parked(settings);
    harness.now += secs(10);
    let before = harness.whole();
    let parked = not_sent(1, NotSent::Parked(Some(refused())));
    assert_eq!(harness.call(harness.read(1)), [parked]);
    assert_eq!(harness.whole(), before);
}

#[test]
fn a_permanent_failure_is_reported_at_once_with_what_to_do() {
    let mut harness = Harness::new();
    harness.step(Input::Start);
    harness.call(harness.read(1));
    harness.step(Input::PermitGranted);
    let hopeless = NotSent::Failed(not_found());
    assert_eq!(
        harness.step(ended(1, ConnectionEnd::Permanent(not_found()))),
        [
            Effect::ReleasePermit,
            attempt_failed(1, not_found().fault, None),
            Effect::SaveDurable,
            not_sent(1, hopeless.clone()),
            changed(StateName::Connecting, StateName::PermanentlyFailed),
        ]
    );
    assert_eq!(*harness.state(), permanently_failed(not_found()));
    assert_eq!(harness.call(harness.read(2)), [not_sent(2, hopeless)]);
    assert_eq!(harness.pass(secs(24 * 60 * 60)), [], "it is not retried");
}

#[test]
fn the_user_restarts_a_permanently_failed_server() {
    for request in [Input::Reconnect, Input::Enable] {
        let mut harness = Harness::new();
        harness.step(Input::Start);
        harness.step(Input::PermitGranted);
        harness.step(ended(1, ConnectionEnd::Permanent(not_found())));
        harness.step(request);
        assert_eq!(*harness.state(), State::Connecting(Attempt::AwaitingPermit));
        assert_eq!((harness.used(), harness.machine.last_fault()), (0, None));
    }
}

#[test]
fn waiting_for_the_governor_is_outside_the_connect_timeout() {
    let mut harness = Harness::new();
    harness.step(Input::Start);
    assert_eq!(harness.pass(secs(3_600)), []);
    assert_eq!(*harness.state(), State::Connecting(Attempt::AwaitingPermit));
    assert_eq!(
        harness.step(Input::PermitGranted),
        [Effect::SaveDurable, open(1)]
    );
    assert_eq!(harness.used(), 1);
    let deadline = harness.now + secs(30);
    assert_eq!(
        *harness.state(),
        State::Connecting(Attempt::Opening {
            generation: generation(1),
            deadline,
        })
    );
    assert_eq!(harness.machine.next_deadline(), Some(deadline));
}

#[test]
fn the_permit_is_released_with_the_first_byte_or_the_end() {
    let opening = || {
        let mut harness = Harness::new();
        harness.step(Input::Start);
        harness.step(Input::PermitGranted);
        harness
    };
    assert_eq!(opening().step(first_byte(1)), [Effect::ReleasePermit]);
    let is_released = |effects: Vec<Effect>| effects.contains(&Effect::ReleasePermit);
    assert!(is_released(opening().step(up(1))));
    assert!(is_released(opening().step(failed(1))));
    assert!(is_released(opening().tick()), "the connect took too long");
    assert!(is_released(opening().step(Input::Disable)));
    let mut queued = Harness::new();
    queued.step(Input::Start);
    assert!(
        is_released(queued.step(Input::Disable)),
        "the request is withdrawn"
    );
    assert!(
        is_released(queued.step(Input::PermitGranted)),
        "the grant was on its way"
    );
}

#[test]
fn a_server_that_closes_on_the_probe_is_reconnected_at_once_and_free() {
    let mut harness = Harness::new();
    harness.step(Input::Start);
    harness.step(Input::PermitGranted);
    assert_eq!((harness.generation(), harness.used()), (1, 1));
    let effects = harness.step(ended(1, ConnectionEnd::TryOtherEra(gone())));
    assert!(effects.contains(&Effect::RequestPermit { reconnect: true }));
    harness.step(Input::PermitGranted);
    assert_eq!((harness.generation(), harness.used()), (2, 1));
    assert_eq!(harness.machine.attempts(), 1);
    harness.step(up(2));
    assert_eq!(harness.name(), StateName::Connected);
}

#[test]
fn a_server_that_closes_on_every_probe_is_paced_like_any_other() {
    let mut harness = Harness::new();
    harness.step(Input::Start);
    harness.step(Input::PermitGranted);
    harness.step(ended(1, ConnectionEnd::TryOtherEra(gone())));
    harness.step(Input::PermitGranted);
    harness.step(ended(2, ConnectionEnd::TryOtherEra(gone())));
    assert_eq!(harness.machine.retry_at(), Some(harness.now + millis(500)));
    harness.tick();
    harness.step(Input::PermitGranted);
    assert_eq!(harness.used(), 2, "the second connect is not free");
    harness.step(up(3));
    harness.lose(3, &[]);
    harness.step(closed(3));
    harness.tick();
    harness.step(Input::PermitGranted);
    let used = harness.used();
    harness.step(ended(4, ConnectionEnd::TryOtherEra(gone())));
    harness.step(Input::PermitGranted);
    assert_eq!(
        (harness.generation(), harness.used()),
        (5, used),
        "after a connection the next probe is free again"
    );
}

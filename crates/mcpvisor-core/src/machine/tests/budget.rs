//! When connects come, and when they stop (B1 to B7).

use std::time::Duration;

use super::bench::*;
use crate::machine::{
    Attempt, CallEnd, ConnectionEnd, Effect, FaultClass, Input, LiveConnection, NotSent, Outcome,
    State, StateName,
};
use crate::policy::listing::{FetchOutcome, ListKind};
use crate::random::Random;
use crate::settings::ServerSettings;

/// The moments of the connects of a server that never comes up, since the beginning.
fn connects(bench: &mut Bench, count: usize) -> Vec<Duration> {
    (0..count)
        .map(|_| {
            bench.fail_one_connect();
            bench.now - bench.begin
        })
        .collect()
}

#[test]
fn reconnects_are_paced_by_a_growing_backoff_under_a_budget() {
    let mut bench = Bench::new();
    bench.step(Input::Start);
    let delays = [0, 500, 1_500, 3_500, 7_500, 15_500, 31_500, 61_500, 91_500];
    assert_eq!(connects(&mut bench, 9), delays.map(millis));
    let status = |bench: &Bench| {
        let budget = &bench.machine.durable().budget;
        let waits = bench.machine.retry_at().map(|at| at - bench.now);
        (
            bench.name(),
            bench.machine.attempts(),
            bench.used(),
            budget.limit(),
            waits,
        )
    };
    assert_eq!(
        status(&bench),
        (StateName::Reconnecting, 9, 9, 10, Some(secs(30)))
    );
    assert_eq!(connects(&mut bench, 1), [millis(121_500)]);
    assert_eq!(
        status(&bench),
        (StateName::Disconnected, 10, 10, 10, Some(secs(30))),
        "all ten are spent, and the first probe comes after its own time"
    );
    assert_eq!(bench.machine.last_fault(), Some(&refused()));
}

#[test]
fn the_dice_move_a_retry_by_a_fifth_either_way() {
    let waits = |rolled: f64| {
        let mut bench = Bench::new();
        bench.step(Input::Start);
        bench.step(Input::PermitGranted);
        bench
            .machine
            .handle(bench.now, Random::new(rolled), failed(1), &mut Vec::new());
        bench.machine.retry_at().unwrap() - bench.now
    };
    assert_eq!(waits(0.0), millis(400));
    assert_eq!(waits(0.5), millis(500));
    assert!((millis(599)..=millis(600)).contains(&waits(1.0)));
}

#[test]
fn a_servers_own_wish_when_to_come_back_is_heard() {
    let mut bench = Bench::new();
    bench.step(Input::Start);
    bench.step(Input::PermitGranted);
    let end = ConnectionEnd::Failed {
        fault: refused(),
        retry_after: Some(secs(7)),
    };
    bench.step(ended(1, end));
    assert_eq!(bench.machine.retry_at(), Some(bench.now + secs(7)));
}

#[test]
fn a_failed_reconnect_goes_on_with_the_budget() {
    let mut bench = Bench::connected();
    bench.lose(1, &[]);
    for used in 2..=10 {
        assert_eq!(bench.name(), StateName::Reconnecting);
        bench.fail_one_connect();
        assert_eq!(bench.used(), used);
    }
    assert_eq!(bench.name(), StateName::Disconnected);
}

/// Comes up, does everything but answer a caller, and dies.
fn flap(bench: &mut Bench) {
    if bench.machine.retry_at().is_some() {
        bench.tick();
    }
    bench.step(Input::PermitGranted);
    let number = bench.generation();
    bench.step(up_with(number, &[ListKind::Tools]));
    bench.step(fetched(number, ListKind::Tools, FetchOutcome::Fetched));
    bench.step(heard(number));
    bench.step(checked(number, true));
    bench.step(list_changed(number, ListKind::Tools));
    bench.lose(number, &[]);
}

#[test]
fn a_server_that_flaps_right_after_connecting_runs_out() {
    let mut bench = Bench::new();
    bench.step(Input::Start);
    for used in 1..=10 {
        assert_ne!(bench.name(), StateName::Disconnected);
        flap(&mut bench);
        assert_eq!(bench.used(), used, "the first connect counts too");
    }
    assert_eq!(bench.name(), StateName::Disconnected);
    assert_eq!(bench.now - bench.begin, millis(121_500));
}

#[test]
fn an_answered_caller_proves_a_connection_and_gives_the_budget_back() {
    let mut bench = Bench::new();
    bench.step(Input::Start);
    connects(&mut bench, 5);
    bench.tick();
    bench.step(Input::PermitGranted);
    bench.step(up(6));
    assert_eq!((bench.used(), bench.machine.attempts()), (6, 6));
    assert_eq!(bench.machine.last_fault(), Some(&refused()));
    bench.call(bench.read(1));
    assert_eq!(bench.step(answered(6, 1)), [Effect::SaveDurable]);
    assert_eq!((bench.used(), bench.machine.attempts()), (0, 0));
    assert_eq!(bench.machine.last_fault(), None);
    assert!(bench.machine.durable().proven);
}

#[test]
fn a_connection_that_stays_up_proves_itself() {
    let mut bench = Bench::connected();
    let since = bench.now;
    bench.pass(millis(29_999));
    assert_eq!(bench.used(), 1);
    assert_eq!(bench.pass(millis(1)), [Effect::SaveDurable]);
    assert_eq!(bench.used(), 0);
    let live = LiveConnection {
        generation: generation(1),
        since,
        last_received: since,
        check: None,
        is_ending: false,
        awaits_tools: false,
        last_call: since,
    };
    assert_eq!(*bench.state(), State::Connected(live));
    assert!(bench.machine.durable().proven);
}

#[test]
fn a_proven_connection_is_retried_at_once_but_not_in_a_loop() {
    let mut bench = Bench::connected();
    let mut waits = Vec::new();
    for number in 1..4 {
        bench.call(bench.read(number));
        bench.step(answered(number, number));
        bench.step(lost(number, &[]));
        waits.push(bench.machine.retry_at().unwrap() - bench.now);
        bench.step(closed(number));
        if bench.machine.retry_at().is_some() {
            bench.tick();
        }
        bench.step(Input::PermitGranted);
        bench.step(up(number + 1));
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
        let mut bench = Bench::connected();
        bench.step(lost(1, &[]));
        bench.step(ended(1, end));
        assert_eq!((bench.used(), bench.machine.attempts()), (1, 1));
        assert_eq!(bench.machine.retry_at(), Some(bench.now + millis(500)));
        assert_eq!(bench.machine.last_fault(), Some(&gone()));
    }
}

#[test]
fn a_failing_close_is_shown_where_nothing_worse_is() {
    let mut bench = Bench::connected();
    bench.step(Input::Reconnect);
    let problem = Some("ignored every signal".to_owned());
    bench.step(ended(1, ConnectionEnd::Closed { problem }));
    let shown = bench.machine.last_fault().map(|fault| fault.class);
    assert_eq!(shown, Some(FaultClass::Close));
}

#[test]
fn a_parked_server_is_probed_ever_more_slowly() {
    let mut bench = Bench::parked(ServerSettings::default());
    let mut rests = Vec::new();
    for _ in 0..6 {
        rests.push(bench.machine.retry_at().unwrap() - bench.now);
        bench.fail_one_connect();
        assert_eq!(bench.name(), StateName::Disconnected);
    }
    assert_eq!(rests, [30, 60, 120, 240, 300, 300].map(secs));
}

#[test]
fn a_parked_server_that_comes_back_stays_on_probation_until_it_is_proven() {
    let mut bench = Bench::parked(ServerSettings::default());
    flap(&mut bench);
    let rest = bench.machine.retry_at().map(|at| at - bench.now);
    assert_eq!(
        (bench.name(), rest),
        (StateName::Disconnected, Some(secs(60)))
    );
    bench.tick();
    bench.step(Input::PermitGranted);
    let number = bench.generation();
    bench.step(up(number));
    bench.call(bench.read(1));
    bench.step(answered(number, 1));
    bench.step(lost(number, &[]));
    assert_eq!(
        *bench.state(),
        State::Reconnecting(Attempt::Closing {
            generation: generation(number),
            retry_at: bench.now,
        })
    );
}

#[test]
fn a_person_or_a_call_wakes_a_parked_server_at_once() {
    let ask = Effect::RequestPermit { reconnect: true };
    let back = changed(StateName::Disconnected, StateName::Reconnecting);
    for wish in [Input::Reconnect, Input::Enable] {
        let mut bench = Bench::parked(ServerSettings::default());
        assert_eq!(
            bench.step(wish),
            [Effect::SaveDurable, ask.clone(), back.clone()]
        );
        assert_eq!(
            (bench.used(), bench.machine.attempts()),
            (0, 0),
            "a person forgives"
        );
    }
    let mut bench = Bench::parked(ServerSettings::default());
    bench.now += secs(1);
    assert_eq!(bench.call(bench.read(1)), [ask]);
    assert_eq!(*bench.state(), State::Disconnected(Attempt::AwaitingPermit));
    assert_eq!(bench.used(), 10, "a call does not");
}

#[test]
fn a_person_who_replaces_a_connection_forgives_what_it_cost() {
    let mut bench = Bench::parked(ServerSettings::default());
    bench.tick();
    bench.step(Input::PermitGranted);
    bench.step(up(11));
    bench.step(Input::Reconnect);
    assert_eq!(
        *bench.state(),
        State::Reconnecting(Attempt::Closing {
            generation: generation(11),
            retry_at: bench.now,
        })
    );
    assert_eq!((bench.used(), bench.machine.attempts()), (0, 0));
}

#[test]
fn calls_wake_a_parked_server_no_faster_than_once_a_second() {
    let mut bench = Bench::parked(ServerSettings::default());
    bench.now += millis(400);
    assert_eq!(bench.call(bench.read(1)), []);
    assert_eq!(bench.machine.retry_at(), Some(bench.now + millis(600)));
    assert_eq!(bench.tick(), [Effect::RequestPermit { reconnect: true }]);
    bench.step(Input::PermitGranted);
    assert_eq!(
        bench.step(failed(11)),
        [
            Effect::ReleasePermit,
            Effect::SaveDurable,
            not_sent(1, NotSent::Parked(Some(refused()))),
            attempt_failed(11, refused(), bench.machine.retry_at()),
        ]
    );
}

#[test]
fn a_call_wakes_a_parked_server_though_there_is_no_line() {
    let mut settings = ServerSettings::default();
    settings.admission.waiting = 0;
    let mut bench = Bench::parked(settings.clone());
    bench.now += secs(1);
    let effects = bench.step(Input::Call(bench.read(1)));
    assert!(effects.contains(&resolve(1, Outcome::Busy)), "{effects:?}");
    let asked = Effect::RequestPermit { reconnect: true };
    assert!(effects.contains(&asked), "{effects:?}");
    settings.budget.wake_on_call = false;
    let mut bench = Bench::parked(settings);
    bench.now += secs(1);
    let parked = not_sent(1, NotSent::Parked(Some(refused())));
    assert_eq!(bench.step(Input::Call(bench.read(1))), [parked]);
}

#[test]
fn what_we_answer_ourselves_neither_proves_a_connection_nor_speaks_against_it() {
    let mut bench = Bench::connected();
    bench.step(Input::Call(bench.read(1)));
    let heard = |bench: &Bench| match bench.state() {
        State::Connected(live) => live.last_received,
        other => panic!("{other:?}"),
    };
    let before = heard(&bench);
    bench.step_after(secs(1), call_ended(1, 1, CallEnd::Local));
    assert_eq!((bench.used(), bench.machine.in_flight()), (1, 0));
    assert_eq!(heard(&bench), before);
    assert_eq!(bench.machine.failures(), (0, 0));
}

#[test]
fn a_call_does_not_wake_a_parked_server_that_is_configured_so() {
    let mut settings = ServerSettings::default();
    settings.budget.wake_on_call = false;
    let mut bench = Bench::parked(settings);
    bench.now += secs(10);
    let before = bench.whole();
    let parked = not_sent(1, NotSent::Parked(Some(refused())));
    assert_eq!(bench.call(bench.read(1)), [parked]);
    assert_eq!(bench.whole(), before);
}

#[test]
fn what_cannot_get_better_fails_at_once_and_says_what_to_do() {
    let mut bench = Bench::new();
    bench.step(Input::Start);
    bench.call(bench.read(1));
    bench.step(Input::PermitGranted);
    let hopeless = NotSent::Failed(not_found());
    assert_eq!(
        bench.step(ended(1, ConnectionEnd::Permanent(not_found()))),
        [
            Effect::ReleasePermit,
            attempt_failed(1, not_found().fault, None),
            Effect::SaveDurable,
            not_sent(1, hopeless.clone()),
            changed(StateName::Connecting, StateName::PermanentlyFailed),
        ]
    );
    assert_eq!(*bench.state(), State::PermanentlyFailed(not_found()));
    assert_eq!(bench.call(bench.read(2)), [not_sent(2, hopeless)]);
    assert_eq!(
        bench.pass(secs(24 * 60 * 60)),
        [],
        "and nothing is tried again"
    );
}

#[test]
fn a_person_takes_a_server_out_of_permanent_failure() {
    for wish in [Input::Reconnect, Input::Enable] {
        let mut bench = Bench::new();
        bench.step(Input::Start);
        bench.step(Input::PermitGranted);
        bench.step(ended(1, ConnectionEnd::Permanent(not_found())));
        bench.step(wish);
        assert_eq!(*bench.state(), State::Connecting(Attempt::AwaitingPermit));
        assert_eq!((bench.used(), bench.machine.last_fault()), (0, None));
    }
}

#[test]
fn waiting_for_the_governor_is_outside_the_connect_timeout() {
    let mut bench = Bench::new();
    bench.step(Input::Start);
    assert_eq!(bench.pass(secs(3_600)), []);
    assert_eq!(*bench.state(), State::Connecting(Attempt::AwaitingPermit));
    assert_eq!(
        bench.step(Input::PermitGranted),
        [Effect::SaveDurable, open(1)]
    );
    assert_eq!(bench.used(), 1);
    let deadline = bench.now + secs(30);
    assert_eq!(
        *bench.state(),
        State::Connecting(Attempt::Opening {
            generation: generation(1),
            deadline,
        })
    );
    assert_eq!(bench.machine.next_deadline(), Some(deadline));
}

#[test]
fn the_place_at_the_governor_is_given_back_with_the_first_byte_or_the_end() {
    let opening = || {
        let mut bench = Bench::new();
        bench.step(Input::Start);
        bench.step(Input::PermitGranted);
        bench
    };
    assert_eq!(opening().step(first_byte(1)), [Effect::ReleasePermit]);
    let given_back = |effects: Vec<Effect>| effects.contains(&Effect::ReleasePermit);
    assert!(given_back(opening().step(up(1))));
    assert!(given_back(opening().step(failed(1))));
    assert!(given_back(opening().tick()), "the connect took too long");
    assert!(given_back(opening().step(Input::Disable)));
    let mut queued = Bench::new();
    queued.step(Input::Start);
    assert!(
        given_back(queued.step(Input::Disable)),
        "nor does the question stay"
    );
    assert!(
        given_back(queued.step(Input::PermitGranted)),
        "when the answer was on its way"
    );
}

#[test]
fn a_server_that_ends_on_a_question_is_connected_again_at_once_and_for_nothing() {
    let mut bench = Bench::new();
    bench.step(Input::Start);
    bench.step(Input::PermitGranted);
    assert_eq!((bench.generation(), bench.used()), (1, 1));
    let effects = bench.step(ended(1, ConnectionEnd::TryOtherEra(gone())));
    assert!(effects.contains(&Effect::RequestPermit { reconnect: true }));
    bench.step(Input::PermitGranted);
    assert_eq!((bench.generation(), bench.used()), (2, 1));
    assert_eq!(bench.machine.attempts(), 1);
    bench.step(up(2));
    assert_eq!(bench.name(), StateName::Connected);
}

#[test]
fn a_server_that_ends_on_every_question_is_paced_like_any_other() {
    let mut bench = Bench::new();
    bench.step(Input::Start);
    bench.step(Input::PermitGranted);
    bench.step(ended(1, ConnectionEnd::TryOtherEra(gone())));
    bench.step(Input::PermitGranted);
    bench.step(ended(2, ConnectionEnd::TryOtherEra(gone())));
    assert_eq!(bench.machine.retry_at(), Some(bench.now + millis(500)));
    bench.tick();
    bench.step(Input::PermitGranted);
    assert_eq!(bench.used(), 2, "the free connect was used up");
    bench.step(up(3));
    bench.lose(3, &[]);
    bench.step(closed(3));
    bench.tick();
    bench.step(Input::PermitGranted);
    let used = bench.used();
    bench.step(ended(4, ConnectionEnd::TryOtherEra(gone())));
    bench.step(Input::PermitGranted);
    assert_eq!(
        (bench.generation(), bench.used()),
        (5, used),
        "what was up may have become another server"
    );
}

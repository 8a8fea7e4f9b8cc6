//! A crash of the actor: a new machine goes on from what the old one left behind (O4, G1).

use super::bench::*;
use crate::machine::{
    Attempt, ConnectionEnd, Durable, Effect, FaultClass, Input, State, StateName,
};
use crate::settings::ServerSettings;

/// The machine that follows after a crash, started.
fn crash(bench: &Bench) -> Bench {
    let durable: Durable = bench.machine.durable().clone();
    let mut next = Bench::resumed(ServerSettings::default(), durable, bench.now);
    next.machine = next.machine.resuming_from(bench.name());
    next.step(Input::Start);
    next
}

#[test]
fn a_restarted_actor_goes_on_with_a_larger_generation() {
    let mut bench = Bench::connected();
    bench.call(bench.read(1));
    bench.step(answered(1, 1));
    let mut next = crash(&bench);
    assert_eq!(
        *next.state(),
        State::Reconnecting(Attempt::AwaitingPermit),
        "the connection had proven itself"
    );
    let fault = next.machine.last_fault().map(|fault| fault.class);
    assert_eq!(fault, Some(FaultClass::ActorCrashed));
    assert_eq!(
        next.step(up(1)),
        [],
        "the old connection is not heard any more"
    );
    assert_eq!(
        next.step(Input::PermitGranted),
        [Effect::SaveDurable, open(2)]
    );
    assert_eq!(next.used(), 2, "the restart and the connect");
}

#[test]
fn what_is_remembered_is_remembered_before_the_connection_opens() {
    let mut bench = Bench::new();
    bench.step(Input::Start);
    let effects = bench.step(Input::PermitGranted);
    assert_eq!(effects, [Effect::SaveDurable, open(1)]);
    assert_eq!(bench.machine.durable().generation, generation(1));
}

#[test]
fn the_restart_of_an_unproven_server_is_paced() {
    let next = crash(&Bench::connected());
    assert_eq!(
        *next.state(),
        State::Reconnecting(Attempt::BackingOff {
            retry_at: next.now + millis(500),
        })
    );
}

#[test]
fn the_immediate_retry_of_a_lost_connection_is_used_up_once() {
    let mut bench = Bench::connected();
    bench.call(bench.read(1));
    bench.step(answered(1, 1));
    bench.lose(1, &[]);
    bench.step(Input::PermitGranted);
    bench.now += secs(10);
    bench.step(failed(2));
    let next = crash(&bench);
    assert_eq!(next.machine.retry_at(), Some(next.now + secs(1)));
}

#[test]
fn an_actor_that_crashes_again_and_again_comes_back_parked() {
    let mut bench = Bench::new();
    bench.step(Input::Start);
    for _ in 0..9 {
        bench = crash(&bench);
        assert_eq!(bench.name(), StateName::Reconnecting);
    }
    let bench = crash(&bench);
    // Though it never came as far as a connect.
    assert_eq!(
        *bench.state(),
        State::Disconnected(Attempt::BackingOff {
            retry_at: bench.now + secs(30),
        })
    );
}

#[test]
fn one_budget_counts_connects_and_restarts() {
    let mut bench = Bench::new();
    bench.step(Input::Start);
    for _ in 0..5 {
        bench.fail_one_connect();
    }
    for _ in 0..4 {
        bench = crash(&bench);
    }
    assert_eq!((bench.name(), bench.used()), (StateName::Reconnecting, 9));
    let bench = crash(&bench);
    assert_eq!((bench.name(), bench.used()), (StateName::Disconnected, 10));
}

#[test]
fn a_parked_server_comes_back_parked() {
    let bench = Bench::parked(ServerSettings::default());
    let next = crash(&bench);
    assert_eq!(next.name(), StateName::Disconnected);
    assert_eq!(next.machine.retry_at(), Some(next.now + secs(60)));
}

#[test]
fn a_restart_lets_no_call_wake_a_parked_server_sooner() {
    let mut bench = Bench::parked(ServerSettings::default());
    for _ in 0..5 {
        bench = crash(&bench);
        assert_eq!(bench.call(bench.read(1)), []);
        assert_eq!(bench.machine.retry_at(), Some(bench.now + secs(1)));
        bench.now += millis(10);
    }
}

#[test]
fn what_people_decided_survives() {
    let mut disabled = Bench::connected();
    disabled.step(Input::Disable);
    assert_eq!(*crash(&disabled).state(), State::Disabled);

    disabled.step(Input::Enable);
    assert_eq!(crash(&disabled).name(), StateName::Reconnecting);

    let mut failed = Bench::new();
    failed.step(Input::Start);
    failed.step(Input::PermitGranted);
    failed.step(ended(1, ConnectionEnd::Permanent(not_found())));
    assert_eq!(
        *crash(&failed).state(),
        State::PermanentlyFailed(not_found())
    );
}

#[test]
fn a_second_start_is_nothing() {
    let mut bench = Bench::connected();
    let before = bench.whole();
    assert_eq!(bench.step(Input::Start), []);
    assert_eq!(bench.whole(), before);
}

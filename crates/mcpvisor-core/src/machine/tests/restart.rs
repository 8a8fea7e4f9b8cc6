//! A crash of the actor: a new machine continues from the durable state (O4, G1).

use super::harness::*;
use crate::machine::{
    Attempt, ConnectionEnd, Durable, Effect, FaultClass, Input, State, StateName,
};
use crate::settings::ServerSettings;

/// The started machine after a crash.
fn crash(harness: &Harness) -> Harness {
    let durable: Durable = harness.machine.durable().clone();
    let mut next = Harness::resumed(ServerSettings::default(), durable, harness.now);
    next.machine = next.machine.resuming_from(harness.name());
    next.step(Input::Start);
    next
}

#[test]
fn a_restarted_actor_continues_with_a_larger_generation() {
    let mut harness = Harness::connected();
    harness.call(harness.read(1));
    harness.step(answered(1, 1));
    let mut next = crash(&harness);
    assert_eq!(
        *next.state(),
        State::Reconnecting(Attempt::AwaitingPermit),
        "the connection had proven itself"
    );
    let fault = next.machine.last_fault().map(|fault| fault.class);
    assert_eq!(fault, Some(FaultClass::ActorCrashed));
    assert_eq!(next.step(up(1)), [], "facts of the old connection are late");
    assert_eq!(
        next.step(Input::PermitGranted),
        [Effect::SaveDurable, open(2)]
    );
    assert_eq!(next.used(), 2, "the restart and the connect");
}

#[test]
fn the_durable_state_is_saved_before_the_connection_opens() {
    let mut harness = Harness::new();
    harness.step(Input::Start);
    let effects = harness.step(Input::PermitGranted);
    assert_eq!(effects, [Effect::SaveDurable, open(1)]);
    assert_eq!(harness.machine.durable().generation, generation(1));
}

#[test]
fn the_restart_of_an_unproven_server_is_paced() {
    let next = crash(&Harness::connected());
    assert_eq!(
        *next.state(),
        State::Reconnecting(Attempt::BackingOff {
            retry_at: next.now + millis(500),
        })
    );
}

#[test]
fn the_immediate_reconnect_of_a_lost_connection_happens_once() {
    let mut harness = Harness::connected();
    harness.call(harness.read(1));
    harness.step(answered(1, 1));
    harness.lose(1, &[]);
    harness.step(Input::PermitGranted);
    harness.now += secs(10);
    harness.step(failed(2));
    let next = crash(&harness);
    assert_eq!(next.machine.retry_at(), Some(next.now + secs(1)));
}

#[test]
fn an_actor_that_keeps_crashing_is_parked() {
    let mut harness = Harness::new();
    harness.step(Input::Start);
    for _ in 0..9 {
        harness = crash(&harness);
        assert_eq!(harness.name(), StateName::Reconnecting);
    }
    let harness = crash(&harness);
    // Although it never connected.
    assert_eq!(
        *harness.state(),
        State::Disconnected(Attempt::BackingOff {
            retry_at: harness.now + secs(30),
        })
    );
}

#[test]
fn one_budget_counts_connects_and_restarts() {
    let mut harness = Harness::new();
    harness.step(Input::Start);
    for _ in 0..5 {
        harness.fail_one_connect();
    }
    for _ in 0..4 {
        harness = crash(&harness);
    }
    assert_eq!(
        (harness.name(), harness.used()),
        (StateName::Reconnecting, 9)
    );
    let harness = crash(&harness);
    assert_eq!(
        (harness.name(), harness.used()),
        (StateName::Disconnected, 10)
    );
}

#[test]
fn a_parked_server_is_still_parked_after_a_crash() {
    let harness = Harness::parked(ServerSettings::default());
    let next = crash(&harness);
    assert_eq!(next.name(), StateName::Disconnected);
    assert_eq!(next.machine.retry_at(), Some(next.now + secs(60)));
}

#[test]
fn a_call_does_not_wake_a_parked_server_sooner_after_a_restart() {
    let mut harness = Harness::parked(ServerSettings::default());
    for _ in 0..5 {
        harness = crash(&harness);
        assert_eq!(harness.call(harness.read(1)), []);
        assert_eq!(harness.machine.retry_at(), Some(harness.now + secs(1)));
        harness.now += millis(10);
    }
}

#[test]
fn the_decisions_of_the_user_survive_a_crash() {
    let mut disabled = Harness::connected();
    disabled.step(Input::Disable);
    assert_eq!(*crash(&disabled).state(), State::Disabled);

    disabled.step(Input::Enable);
    assert_eq!(crash(&disabled).name(), StateName::Reconnecting);

    let mut failed = Harness::new();
    failed.step(Input::Start);
    failed.step(Input::PermitGranted);
    failed.step(ended(1, ConnectionEnd::Permanent(not_found())));
    assert_eq!(*crash(&failed).state(), permanently_failed(not_found()));
}

#[test]
fn a_second_start_changes_nothing() {
    let mut harness = Harness::connected();
    let before = harness.whole();
    assert_eq!(harness.step(Input::Start), []);
    assert_eq!(harness.whole(), before);
}

//! The first attempt and the next: a failing server never looks like a slow one (C7).

use super::harness::*;
use crate::machine::{Attempt, ConnectionEnd, Effect, Input, NotSent, State, StateName};
use crate::settings::ServerSettings;

/// A server on its first attempt, with call 1 waiting for it.
fn opening() -> Harness {
    let mut harness = Harness::new();
    harness.step(Input::Start);
    harness.call(harness.read(1));
    harness.step(Input::PermitGranted);
    harness
}

#[test]
fn after_a_failed_first_attempt_a_server_is_reconnecting_with_the_fault() {
    let mut harness = opening();
    let effects = harness.step(failed(1));
    let retry_at = harness.now + millis(500);
    assert_eq!(
        effects,
        [
            Effect::ReleasePermit,
            Effect::SaveDurable,
            attempt_failed(1, refused(), Some(retry_at)),
            changed(StateName::Connecting, StateName::Reconnecting),
        ]
    );
    assert_eq!(harness.machine.last_fault(), Some(&refused()));
    assert_eq!(harness.machine.attempts(), 1);
}

#[test]
fn a_first_attempt_that_takes_too_long_fails() {
    let mut harness = opening();
    let effects = harness.tick();
    let changed = changed(StateName::Connecting, StateName::Reconnecting);
    assert_eq!(effects.last(), Some(&changed));
}

#[test]
fn a_call_waits_for_the_first_attempt_then_fifteen_seconds_from_its_failure() {
    let mut harness = opening();
    harness.step_after(secs(20), failed(1));
    harness.tick();
    harness.step(Input::PermitGranted);
    harness.now += secs(5);
    harness.call(harness.read(2));
    let late = |call| not_sent(call, NotSent::NoConnection(Some(refused())));
    // Half a second of backoff and five seconds have passed.
    assert_eq!(harness.pass(millis(9_499)), []);
    assert_eq!(harness.pass(millis(1)), [late(1)], "from the failure");
    assert_eq!(harness.pass(millis(5_499)), []);
    assert_eq!(harness.pass(millis(1)), [late(2)], "from its arrival");
}

#[test]
fn a_call_that_waited_for_the_first_attempt_is_sent_on_the_second() {
    let mut harness = opening();
    harness.step_after(secs(20), failed(1));
    harness.tick();
    harness.step(Input::PermitGranted);
    let effects = harness.step_after(secs(10), up(2));
    assert_eq!(about_calls(effects), [start(1, 2)]);
}

#[test]
fn a_close_on_the_probe_leads_to_the_other_era_without_a_failed_attempt() {
    let mut harness = opening();
    let died = ended(1, ConnectionEnd::TryOtherEra(gone()));
    let request = Effect::RequestPermit { reconnect: true };
    assert_eq!(harness.step(died), [Effect::ReleasePermit, request]);
    assert_eq!(*harness.state(), State::Connecting(Attempt::AwaitingPermit));
    assert_eq!(harness.machine.last_fault(), None);
    harness.step(Input::PermitGranted);
    assert_eq!((harness.used(), harness.machine.attempts()), (1, 1));

    let effects = harness.step(ended(2, ConnectionEnd::TryOtherEra(gone())));
    let retry_at = Some(harness.now + millis(500));
    assert_eq!(effects[2], attempt_failed(1, gone(), retry_at), "once");
    assert_eq!(harness.name(), StateName::Reconnecting);
}

#[test]
fn a_server_that_is_enabled_or_woken_connects_for_the_first_time_again() {
    let mut enabled = opening();
    enabled.step(failed(1));
    enabled.step(Input::Disable);
    enabled.step(Input::Enable);
    assert_eq!(enabled.name(), StateName::Connecting);
    assert_eq!(enabled.machine.last_fault(), None);
}

#[test]
fn the_first_state_change_begins_with_the_state_shown_before_the_start() {
    let mut eager = Harness::new();
    assert_eq!(
        eager.step(Input::Start),
        [
            Effect::RequestPermit { reconnect: false },
            Effect::SaveDurable
        ]
    );
    let mut lazy = ServerSettings::default();
    lazy.rest.lazy = true;
    let mut lazy = Harness::with(lazy);
    assert_eq!(lazy.step(Input::Start), [Effect::SaveDurable]);
    assert_eq!(lazy.name(), StateName::Sleeping);
}

#[test]
fn a_state_change_by_a_crash_is_reported() {
    let mut disabling = Harness::connected();
    disabling.step(Input::Disable);
    let mut next = Harness::resumed(
        ServerSettings::default(),
        disabling.machine.durable().clone(),
        disabling.now,
    );
    next.machine = next.machine.resuming_from(StateName::Disabling);
    let effects = next.step(Input::Start);
    let end = changed(StateName::Disabling, StateName::Disabled);
    assert_eq!(effects.last(), Some(&end));
}

#[test]
fn a_server_that_became_lazy_before_its_start_follows_the_shown_state() {
    let mut lazy = ServerSettings::default();
    lazy.rest.lazy = true;
    let mut harness = Harness::with(lazy);
    harness.machine = harness.machine.resuming_from(StateName::Connecting);
    let request = Effect::RequestPermit { reconnect: false };
    assert_eq!(harness.step(Input::Start), [request, Effect::SaveDurable]);
    assert_eq!(harness.name(), StateName::Connecting);
}

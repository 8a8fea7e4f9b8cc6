//! The first attempt and the one after it: a failing server never looks like a slow one (C7).

use super::bench::*;
use crate::machine::{Attempt, ConnectionEnd, Effect, Input, NotSent, State, StateName};
use crate::settings::ServerSettings;

/// A server whose first attempt is under way, with call 1 waiting for it.
fn opening() -> Bench {
    let mut bench = Bench::new();
    bench.step(Input::Start);
    bench.call(bench.read(1));
    bench.step(Input::PermitGranted);
    bench
}

#[test]
fn after_a_failed_first_attempt_a_server_reconnects_and_says_why() {
    let mut bench = opening();
    let effects = bench.step(failed(1));
    let retry_at = bench.now + millis(500);
    assert_eq!(
        effects,
        [
            Effect::ReleasePermit,
            Effect::SaveDurable,
            attempt_failed(1, refused(), Some(retry_at)),
            changed(StateName::Connecting, StateName::Reconnecting),
        ]
    );
    assert_eq!(bench.machine.last_fault(), Some(&refused()));
    assert_eq!(bench.machine.attempts(), 1);
}

#[test]
fn a_first_attempt_that_takes_too_long_has_failed() {
    let mut bench = opening();
    let effects = bench.tick();
    let changed = changed(StateName::Connecting, StateName::Reconnecting);
    assert_eq!(effects.last(), Some(&changed));
}

#[test]
fn a_call_waits_for_the_first_attempt_then_fifteen_seconds_from_its_failure() {
    let mut bench = opening();
    bench.step_after(secs(20), failed(1));
    bench.tick();
    bench.step(Input::PermitGranted);
    bench.now += secs(5);
    bench.call(bench.read(2));
    let late = |call| not_sent(call, NotSent::NoConnection(Some(refused())));
    // Half a second of backoff and five seconds are over.
    assert_eq!(bench.pass(millis(9_499)), []);
    assert_eq!(bench.pass(millis(1)), [late(1)], "from the failure");
    assert_eq!(bench.pass(millis(5_499)), []);
    assert_eq!(bench.pass(millis(1)), [late(2)], "from its arrival");
}

#[test]
fn a_call_that_waited_for_the_first_attempt_is_sent_on_the_second() {
    let mut bench = opening();
    bench.step_after(secs(20), failed(1));
    bench.tick();
    bench.step(Input::PermitGranted);
    let effects = bench.step_after(secs(10), up(2));
    assert_eq!(about_calls(effects), [start(1, 2)]);
}

#[test]
fn a_death_on_the_probe_leads_to_the_other_era_and_is_no_failed_attempt() {
    let mut bench = opening();
    let died = ended(1, ConnectionEnd::TryOtherEra(gone()));
    let ask = Effect::RequestPermit { reconnect: true };
    assert_eq!(bench.step(died), [Effect::ReleasePermit, ask]);
    assert_eq!(*bench.state(), State::Connecting(Attempt::AwaitingPermit));
    assert_eq!(bench.machine.last_fault(), None);
    bench.step(Input::PermitGranted);
    assert_eq!((bench.used(), bench.machine.attempts()), (1, 1));

    let effects = bench.step(ended(2, ConnectionEnd::TryOtherEra(gone())));
    let retry_at = Some(bench.now + millis(500));
    assert_eq!(effects[2], attempt_failed(1, gone(), retry_at), "once");
    assert_eq!(bench.name(), StateName::Reconnecting);
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
fn the_chain_of_changes_begins_with_what_a_status_shows_before_the_start() {
    let mut eager = Bench::new();
    assert_eq!(
        eager.step(Input::Start),
        [
            Effect::RequestPermit { reconnect: false },
            Effect::SaveDurable
        ]
    );
    let mut lazy = ServerSettings::default();
    lazy.rest.lazy = true;
    let mut lazy = Bench::with(lazy);
    assert_eq!(lazy.step(Input::Start), [Effect::SaveDurable]);
    assert_eq!(lazy.name(), StateName::Sleeping);
}

#[test]
fn a_crash_changes_nothing_without_saying_so() {
    let mut disabling = Bench::connected();
    disabling.step(Input::Disable);
    let mut next = Bench::resumed(
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
fn a_server_that_became_lazy_before_it_started_does_what_was_shown() {
    let mut lazy = ServerSettings::default();
    lazy.rest.lazy = true;
    let mut bench = Bench::with(lazy);
    bench.machine = bench.machine.resuming_from(StateName::Connecting);
    let ask = Effect::RequestPermit { reconnect: false };
    assert_eq!(bench.step(Input::Start), [ask, Effect::SaveDurable]);
    assert_eq!(bench.name(), StateName::Connecting);
}

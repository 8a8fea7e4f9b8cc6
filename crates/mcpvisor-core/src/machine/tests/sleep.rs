//! Lazy servers and sleep: no connection while it is not needed.

use super::harness::*;
use crate::machine::{Effect, Input, Machine, Outcome, StateName};
use crate::policy::listing::{FetchOutcome, ListKind};
use crate::settings::ServerSettings;

fn sleepy() -> ServerSettings {
    let mut settings = ServerSettings::default();
    settings.rest.sleep_after = Some(secs(10));
    settings
}

/// Asleep after a connection without calls.
fn asleep() -> Harness {
    let mut harness = Harness::connected_with(sleepy(), &[]);
    harness.pass(secs(10));
    harness.step(closed(1));
    assert_eq!(harness.name(), StateName::Sleeping);
    harness
}

#[test]
fn a_lazy_server_connects_at_its_first_call() {
    let mut settings = ServerSettings::default();
    settings.rest.lazy = true;
    let mut harness = Harness::with(settings);
    harness.step(Input::Start);
    assert_eq!(harness.name(), StateName::Sleeping);
    assert_eq!(harness.machine.next_deadline(), None);
    let effects = harness.step(Input::Call(harness.read(1)));
    assert!(effects.contains(&Effect::RequestPermit { reconnect: false }));
    assert_eq!(harness.name(), StateName::Connecting);
}

fn reconfigured(harness: &mut Harness, settings: ServerSettings) {
    let settings = Box::new(settings);
    harness.step(Input::Reconfigure { settings });
}

/// It behaves as if it had been started with these settings.
#[test]
fn a_lazy_server_that_never_connected_connects_once_it_is_not_lazy() {
    let mut lazy = sleepy();
    lazy.rest.lazy = true;
    let mut harness = Harness::with(lazy.clone());
    harness.step(Input::Start);
    reconfigured(&mut harness, lazy.clone());
    assert_eq!(harness.name(), StateName::Sleeping);
    reconfigured(&mut harness, sleepy());
    assert_eq!(harness.name(), StateName::Connecting);

    // The same after a crash of the actor.
    let mut harness = Harness::with(lazy);
    harness.step(Input::Start);
    let durable = harness.machine.durable().clone();
    harness.machine = Machine::new(sleepy(), durable, harness.now);
    harness.step(Input::Start);
    assert_ne!(harness.name(), StateName::Sleeping);

    // One that was connected before has a catalog and stays asleep.
    let mut harness = asleep();
    reconfigured(&mut harness, sleepy());
    assert_eq!(harness.name(), StateName::Sleeping);
}

#[test]
fn an_idle_server_sleeps_and_wakes_for_a_call() {
    let mut harness = Harness::connected_with(sleepy(), &[]);
    harness.step_after(secs(9), Input::Call(harness.read(1)));
    harness.step_after(secs(9), answered(1, 1));
    assert_eq!(
        harness.pass(secs(9)),
        [],
        "the time counts from the end of the call"
    );
    let effects = harness.pass(secs(1));
    assert!(matches!(effects[1], Effect::Close { .. }), "{effects:?}");
    assert_eq!(harness.name(), StateName::Sleeping);
    harness.step(closed(1));
    harness.step(Input::Call(harness.read(2)));
    assert_eq!(harness.name(), StateName::Connecting);
    harness.step(Input::PermitGranted);
    assert_eq!(harness.generation(), 2);
}

#[test]
fn a_server_with_calls_or_subscriptions_never_sleeps() {
    let mut harness = Harness::connected_with(sleepy(), &[]);
    harness.step(Input::Call(harness.read(1)));
    harness.pass(secs(50));
    assert_eq!(harness.name(), StateName::Connected);
    harness.step(answered(1, 1));
    harness.step(Input::SubscriptionsChanged { active: true });
    harness.pass(secs(50));
    assert_eq!(harness.name(), StateName::Connected);
    harness.step(Input::SubscriptionsChanged { active: false });
    harness.pass(secs(10));
    assert_eq!(harness.name(), StateName::Sleeping);
}

#[test]
fn sleep_neither_uses_nor_restores_the_budget() {
    let harness = asleep();
    assert_eq!(harness.used(), 1, "the connect before it was never proven");
    let mut harness = Harness::connected_with(sleepy(), &[]);
    harness.step(Input::Call(harness.read(1)));
    harness.step(answered(1, 1));
    harness.pass(secs(10));
    assert_eq!(harness.used(), 0);
}

#[test]
fn a_server_that_keeps_waking_without_proof_is_parked() {
    let mut settings = sleepy();
    settings.budget.attempts = 2;
    let mut harness = Harness::connected_with(settings, &[]);
    for number in 1..3 {
        harness.pass(secs(10));
        harness.step(closed(number));
        harness.step(Input::Call(harness.read(number)));
        if harness.name() == StateName::Disconnected {
            assert_eq!(number, 2);
            return;
        }
        harness.step(Input::PermitGranted);
        harness.step(up_with(number + 1, &[]));
        harness.step(cancelled(number));
    }
    panic!("it is never parked: {:?}", harness.state());
}

#[test]
fn the_user_wakes_or_disables_a_sleeping_server() {
    for request in [Input::Enable, Input::Reconnect] {
        let mut harness = asleep();
        harness.step(request);
        assert_eq!(harness.name(), StateName::Connecting);
    }
    let mut harness = asleep();
    harness.step(Input::Disable);
    assert_eq!(harness.name(), StateName::Disabled);
}

#[test]
fn a_crash_of_the_actor_does_not_wake_the_server() {
    let harness = asleep();
    let durable = harness.machine.durable().clone();
    let mut again = Harness::with(sleepy());
    again.machine = Machine::new(sleepy(), durable, again.now);
    again.step(Input::Start);
    assert_eq!(again.name(), StateName::Sleeping);
}

#[test]
fn a_call_wakes_a_sleeping_server_even_without_a_queue() {
    let mut settings = sleepy();
    settings.admission.waiting = 0;
    settings.rest.lazy = true;
    let mut harness = Harness::with(settings);
    harness.step(Input::Start);
    let effects = harness.step(Input::Call(harness.read(1)));
    let busy = Outcome::Busy;
    assert!(matches!(&effects[0], Effect::Resolve { outcome, .. } if *outcome == busy));
    assert_eq!(harness.name(), StateName::Connecting);
}

#[test]
fn calls_wait_for_the_tools_if_configured_so() {
    for outcome in [
        FetchOutcome::Fetched,
        FetchOutcome::Refused,
        FetchOutcome::Failed,
    ] {
        let mut settings = ServerSettings::default();
        settings.listing.before_calls = true;
        let mut harness = Harness::connected_with(settings, &[ListKind::Tools]);
        assert_eq!(harness.step(Input::Call(harness.tool(1))), []);
        let effects = harness.step(fetched(1, ListKind::Tools, outcome));
        let starts = |effect: &Effect| matches!(effect, Effect::StartCall { .. });
        assert!(effects.iter().any(starts), "{outcome:?}: {effects:?}");
    }
}

#[test]
fn an_unused_server_gives_way_and_a_used_one_does_not() {
    let mut harness = Harness::connected_with(sleepy(), &[]);
    harness.step(Input::SubscriptionsChanged { active: true });
    assert!(!harness.machine.can_give_way());
    harness.step(Input::GiveWay);
    assert_eq!(harness.name(), StateName::Connected, "it has subscriptions");
    harness.step(Input::SubscriptionsChanged { active: false });
    harness.step(Input::Call(harness.read(1)));
    harness.step(Input::GiveWay);
    assert_eq!(harness.name(), StateName::Connected, "it has a call");
    harness.step(answered(1, 1));
    assert!(harness.machine.can_give_way());
    harness.step(Input::GiveWay);
    assert_eq!(harness.name(), StateName::Sleeping);
    // A server that may not sleep keeps its connection.
    let mut harness = Harness::connected_with(ServerSettings::default(), &[]);
    harness.step(Input::GiveWay);
    assert_eq!(harness.name(), StateName::Connected);
}

#[test]
fn a_server_on_demand_connects_for_calls_alone() {
    let mut settings = sleepy();
    (settings.rest.lazy, settings.rest.on_demand) = (true, true);
    let mut harness = Harness::with(settings);
    harness.step(Input::Start);
    for input in [
        Input::Reconnect,
        Input::TransportChanged,
        Input::Enable,
        Input::Disable,
    ] {
        let effects = harness.step(input);
        let connects = |effect: &Effect| matches!(effect, Effect::RequestPermit { .. });
        assert!(!effects.iter().any(connects), "{effects:?}");
    }
    assert_eq!(harness.name(), StateName::Disabled);
    harness.step(Input::Enable);
    assert_eq!(harness.name(), StateName::Sleeping);
    let effects = harness.step(Input::Call(harness.read(1)));
    assert!(
        effects.contains(&Effect::RequestPermit { reconnect: false }),
        "{effects:?}"
    );
}

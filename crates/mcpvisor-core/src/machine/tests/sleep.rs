//! Lazy servers and sleep: no connection while nobody needs one.

use super::bench::*;
use crate::machine::{Effect, Input, Machine, Outcome, StateName};
use crate::policy::listing::{FetchOutcome, ListKind};
use crate::settings::ServerSettings;

fn sleepy() -> ServerSettings {
    let mut settings = ServerSettings::default();
    settings.rest.sleep_after = Some(secs(10));
    settings
}

/// Connected, and asleep for want of calls.
fn asleep() -> Bench {
    let mut bench = Bench::connected_with(sleepy(), &[]);
    bench.pass(secs(10));
    bench.step(closed(1));
    assert_eq!(bench.name(), StateName::Sleeping);
    bench
}

#[test]
fn a_lazy_server_connects_at_its_first_call() {
    let mut settings = ServerSettings::default();
    settings.rest.lazy = true;
    let mut bench = Bench::with(settings);
    bench.step(Input::Start);
    assert_eq!(bench.name(), StateName::Sleeping);
    assert_eq!(bench.machine.next_deadline(), None);
    let effects = bench.step(Input::Call(bench.read(1)));
    assert!(effects.contains(&Effect::RequestPermit { reconnect: false }));
    assert_eq!(bench.name(), StateName::Connecting);
}

fn reconfigured(bench: &mut Bench, settings: ServerSettings) {
    let settings = Box::new(settings);
    bench.step(Input::Reconfigure { settings });
}

/// As it would if it were started with these settings, whether it may sleep later or not.
#[test]
fn a_lazy_server_that_was_never_met_connects_once_it_is_lazy_no_longer() {
    let mut lazy = sleepy();
    lazy.rest.lazy = true;
    let mut bench = Bench::with(lazy.clone());
    bench.step(Input::Start);
    reconfigured(&mut bench, lazy.clone());
    assert_eq!(bench.name(), StateName::Sleeping);
    reconfigured(&mut bench, sleepy());
    assert_eq!(bench.name(), StateName::Connecting);

    // A crash of the actor in between loses nothing of it.
    let mut bench = Bench::with(lazy);
    bench.step(Input::Start);
    let durable = bench.machine.durable().clone();
    bench.machine = Machine::new(sleepy(), durable, bench.now);
    bench.step(Input::Start);
    assert_ne!(bench.name(), StateName::Sleeping);

    // One that was met, and fell asleep for want of calls, has a catalog and sleeps on.
    let mut bench = asleep();
    reconfigured(&mut bench, sleepy());
    assert_eq!(bench.name(), StateName::Sleeping);
}

#[test]
fn an_idle_server_sleeps_and_wakes_for_a_call() {
    let mut bench = Bench::connected_with(sleepy(), &[]);
    bench.step_after(secs(9), Input::Call(bench.read(1)));
    bench.step_after(secs(9), answered(1, 1));
    assert_eq!(bench.pass(secs(9)), [], "calls count from their end");
    let effects = bench.pass(secs(1));
    assert!(matches!(effects[1], Effect::Close { .. }), "{effects:?}");
    assert_eq!(bench.name(), StateName::Sleeping);
    bench.step(closed(1));
    bench.step(Input::Call(bench.read(2)));
    assert_eq!(bench.name(), StateName::Connecting);
    bench.step(Input::PermitGranted);
    assert_eq!(bench.generation(), 2);
}

#[test]
fn a_server_with_calls_or_listeners_never_sleeps() {
    let mut bench = Bench::connected_with(sleepy(), &[]);
    bench.step(Input::Call(bench.read(1)));
    bench.pass(secs(50));
    assert_eq!(bench.name(), StateName::Connected);
    bench.step(answered(1, 1));
    bench.step(Input::SubscriptionsChanged { active: true });
    bench.pass(secs(50));
    assert_eq!(bench.name(), StateName::Connected);
    bench.step(Input::SubscriptionsChanged { active: false });
    bench.pass(secs(10));
    assert_eq!(bench.name(), StateName::Sleeping);
}

#[test]
fn sleep_costs_nothing_of_the_budget_and_gives_nothing_back() {
    let bench = asleep();
    assert_eq!(bench.used(), 1, "the connect before it was never proven");
    let mut bench = Bench::connected_with(sleepy(), &[]);
    bench.step(Input::Call(bench.read(1)));
    bench.step(answered(1, 1));
    bench.pass(secs(10));
    assert_eq!(bench.used(), 0);
}

#[test]
fn a_server_that_wakes_again_and_again_without_proof_runs_out() {
    let mut settings = sleepy();
    settings.budget.attempts = 2;
    let mut bench = Bench::connected_with(settings, &[]);
    for number in 1..3 {
        bench.pass(secs(10));
        bench.step(closed(number));
        bench.step(Input::Call(bench.read(number)));
        if bench.name() == StateName::Disconnected {
            assert_eq!(number, 2);
            return;
        }
        bench.step(Input::PermitGranted);
        bench.step(up_with(number + 1, &[]));
        bench.step(left(number));
    }
    panic!("it is connected for ever: {:?}", bench.state());
}

#[test]
fn a_person_wakes_it_and_a_person_switches_it_off() {
    for wish in [Input::Enable, Input::Reconnect] {
        let mut bench = asleep();
        bench.step(wish);
        assert_eq!(bench.name(), StateName::Connecting);
    }
    let mut bench = asleep();
    bench.step(Input::Disable);
    assert_eq!(bench.name(), StateName::Disabled);
}

#[test]
fn a_crash_of_the_actor_does_not_wake_it() {
    let bench = asleep();
    let durable = bench.machine.durable().clone();
    let mut again = Bench::with(sleepy());
    again.machine = Machine::new(sleepy(), durable, again.now);
    again.step(Input::Start);
    assert_eq!(again.name(), StateName::Sleeping);
}

#[test]
fn a_call_wakes_it_though_there_is_no_line() {
    let mut settings = sleepy();
    settings.admission.waiting = 0;
    settings.rest.lazy = true;
    let mut bench = Bench::with(settings);
    bench.step(Input::Start);
    let effects = bench.step(Input::Call(bench.read(1)));
    let busy = Outcome::Busy;
    assert!(matches!(&effects[0], Effect::Resolve { outcome, .. } if *outcome == busy));
    assert_eq!(bench.name(), StateName::Connecting);
}

#[test]
fn where_tools_are_looked_at_first_calls_wait_for_that() {
    for outcome in [
        FetchOutcome::Fetched,
        FetchOutcome::Refused,
        FetchOutcome::Failed,
    ] {
        let mut settings = ServerSettings::default();
        settings.listing.before_calls = true;
        let mut bench = Bench::connected_with(settings, &[ListKind::Tools]);
        assert_eq!(bench.step(Input::Call(bench.tool(1))), []);
        let effects = bench.step(fetched(1, ListKind::Tools, outcome));
        let starts = |effect: &Effect| matches!(effect, Effect::StartCall { .. });
        assert!(effects.iter().any(starts), "{outcome:?}: {effects:?}");
    }
}

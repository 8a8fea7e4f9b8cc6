//! Who waits, for how long, and in which order (C5, C7).

use super::bench::*;
use crate::ids::ClientId;
use crate::machine::{
    Attempt, ConnectionEnd, Effect, Input, NewCall, NotSent, Outcome, State, StateName,
};
use crate::settings::ServerSettings;

fn settings(in_flight: usize, waiting: usize) -> ServerSettings {
    let mut settings = ServerSettings::default();
    settings.admission.in_flight = in_flight;
    settings.admission.waiting = waiting;
    settings
}

fn by(bench: &Bench, client: u32, call: u64) -> NewCall {
    NewCall {
        client: ClientId(client),
        ..bench.read(call)
    }
}

#[test]
fn a_full_line_refuses_at_once() {
    let mut bench = Bench::connected_with(settings(2, 3), &[]);
    let effects: Vec<_> = (1..=7)
        .flat_map(|call| bench.call(bench.read(call)))
        .collect();
    assert_eq!(
        effects,
        [
            start(1, 1),
            start(2, 1),
            resolve(6, Outcome::Busy),
            resolve(7, Outcome::Busy),
        ]
    );
    assert_eq!((bench.machine.in_flight(), bench.machine.waiting()), (2, 3));
    assert_eq!(
        bench.step(answered(1, 2)),
        [Effect::SaveDurable, start(3, 1)],
        "a free place goes to the line"
    );
    assert_eq!(bench.call(bench.read(8)), [], "which has room again");
}

#[test]
fn every_way_to_end_in_flight_frees_the_place() {
    let ends: [fn(&mut Bench) -> Vec<Effect>; 3] = [
        |bench| bench.step(answered(1, 1)),
        |bench| bench.step(left(1)),
        |bench| bench.pass(secs(60)),
    ];
    for end in ends {
        let mut bench = Bench::connected_with(settings(1, 3), &[]);
        bench.call(bench.read(1));
        bench.call(bench.read(2));
        assert!(end(&mut bench).contains(&start(2, 1)));
    }
}

#[test]
fn a_client_with_one_call_does_not_wait_behind_a_client_with_many() {
    let mut bench = Bench::connected_with(settings(1, 100), &[]);
    bench.call(by(&bench, 1, 1));
    for call in 2..=5 {
        bench.call(by(&bench, 1, call));
    }
    bench.call(by(&bench, 2, 10));
    bench.call(by(&bench, 3, 20));
    let mut order = vec![1];
    while let Some(&running) = order.last() {
        let effects = about_calls(bench.step(answered(1, running)));
        match effects.as_slice() {
            [Effect::StartCall { call, .. }] => order.push(call.0),
            [] => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(order, [1, 2, 10, 20, 3, 4, 5]);
}

#[test]
fn a_call_waits_fifteen_seconds_for_a_reconnect() {
    let mut bench = Bench::connected();
    bench.step(lost(1, &[]));
    bench.call(bench.read(1));
    assert_eq!(bench.pass(millis(14_999)), []);
    let late = not_sent(1, NotSent::NoConnection(Some(gone())));
    assert_eq!(bench.pass(millis(1)), [late]);
}

#[test]
fn a_call_in_line_waits_fifteen_seconds_more_when_the_connection_goes() {
    let mut bench = Bench::connected_with(settings(1, 8), &[]);
    bench.call(bench.tool(1));
    bench.call(bench.read(2));
    bench.pass(secs(40));
    bench.step(lost(1, &[written(1)]));
    assert_eq!(about_calls(bench.pass(millis(14_999))), []);
    let late = not_sent(2, NotSent::NoConnection(Some(gone())));
    assert_eq!(about_calls(bench.pass(millis(1))), [late]);
}

#[test]
fn a_call_that_waited_for_the_connection_then_only_waits_for_a_place() {
    let mut bench = Bench::connected_with(settings(1, 8), &[]);
    bench.step(lost(1, &[]));
    bench.call(bench.read(1));
    bench.call(bench.read(2));
    bench.step(closed(1));
    bench.tick();
    bench.step(Input::PermitGranted);
    assert_eq!(about_calls(bench.step(up(2))), [start(1, 2)]);
    assert_eq!(about_calls(bench.pass(secs(59))), []);
    assert_eq!(about_calls(bench.step(answered(2, 1))), [start(2, 2)]);
}

#[test]
fn a_call_wakes_a_parked_server_and_is_sent_when_it_comes() {
    let mut bench = Bench::parked(ServerSettings::default());
    bench.now += secs(1);
    assert_eq!(
        bench.call(bench.read(1)),
        [Effect::RequestPermit { reconnect: true }]
    );
    bench.step(Input::PermitGranted);
    let effects = bench.step_after(secs(5), up(11));
    assert_eq!(about_calls(effects), [start(1, 11)]);
}

#[test]
fn a_call_to_a_parked_server_waits_fifteen_seconds_at_most() {
    let mut bench = Bench::parked(ServerSettings::default());
    bench.now += secs(1);
    bench.call(bench.read(1));
    bench.step(Input::PermitGranted);
    assert_eq!(bench.pass(millis(14_999)), []);
    let late = not_sent(1, NotSent::NoConnection(Some(refused())));
    assert_eq!(bench.pass(millis(1)), [late]);
}

/// Parked while its last connection is still closing.
fn parked_and_closing() -> Bench {
    let mut settings = ServerSettings::default();
    settings.budget.attempts = 1;
    let mut bench = Bench::connected_with(settings, &[]);
    bench.step(lost(1, &[]));
    assert_eq!(bench.name(), StateName::Disconnected);
    bench
}

#[test]
fn a_call_that_comes_while_a_parked_server_still_closes_waits_for_its_connect() {
    let mut bench = parked_and_closing();
    assert_eq!(bench.call(bench.read(1)), []);
    assert_eq!(
        bench.step(closed(1)),
        [],
        "it is not told that it is parked"
    );
    assert_eq!(
        *bench.state(),
        State::Disconnected(Attempt::BackingOff {
            retry_at: bench.now + secs(1),
        })
    );
    bench.tick();
    bench.step(Input::PermitGranted);
    assert_eq!(about_calls(bench.step(up(2))), [start(1, 2)]);
}

#[test]
fn a_call_that_comes_while_a_parked_server_is_drained_wakes_it_too() {
    let mut bench = parked_and_closing();
    bench.step(closed(1));
    bench.tick();
    bench.step(Input::PermitGranted);
    bench.step(up(2));
    bench.call(bench.read(1));
    bench.step_after(secs(2), report_broken(2));
    assert_eq!(bench.name(), StateName::Disconnected);
    assert_eq!(bench.call(bench.read(2)), []);
    bench.step(answered(2, 1));
    assert_eq!(
        bench.step(closed(2)),
        [Effect::RequestPermit { reconnect: true }]
    );
    bench.step(Input::PermitGranted);
    assert_eq!(about_calls(bench.step(up(3))), [start(2, 3)]);
}

#[test]
fn a_server_that_is_parked_tells_those_who_waited() {
    let mut settings = ServerSettings::default();
    settings.budget.attempts = 1;
    let mut bench = Bench::with(settings);
    bench.step(Input::Start);
    bench.call(bench.read(1));
    bench.step(Input::PermitGranted);
    let parked = not_sent(1, NotSent::Parked(Some(refused())));
    assert_eq!(about_calls(bench.step(failed(1))), [parked]);
}

#[test]
fn a_server_that_is_off_refuses_at_once_and_says_why() {
    let refuse = |bench: &mut Bench, reason: NotSent| {
        let before = bench.whole();
        assert_eq!(bench.call(bench.read(9)), [not_sent(9, reason)]);
        assert_eq!(bench.whole(), before);
    };
    let mut bench = Bench::connected();
    bench.call(bench.read(1));
    bench.step(Input::Disable);
    refuse(&mut bench, NotSent::Disabled);
    bench.step(answered(1, 1));
    bench.step(closed(1));
    refuse(&mut bench, NotSent::Disabled);

    let mut bench = Bench::connected();
    bench.call(bench.read(1));
    bench.step(Input::Shutdown { limit: secs(1) });
    refuse(&mut bench, NotSent::Stopping);

    let mut bench = Bench::new();
    bench.step(Input::Start);
    bench.step(Input::PermitGranted);
    bench.step(ended(1, ConnectionEnd::Permanent(not_found())));
    refuse(&mut bench, NotSent::Failed(not_found()));
}

/// A server that dies right after the handshake takes none of those that waited for it.
#[test]
fn calls_that_could_not_be_delivered_are_sent_in_the_order_in_which_they_came() {
    let mut bench = Bench::connected();
    bench.step(lost(1, &[]));
    bench.step(closed(1));
    for call in 1..=3 {
        bench.call(bench.read(call));
    }
    bench.tick();
    bench.step(Input::PermitGranted);
    let started = [start(1, 2), start(2, 2), start(3, 2)];
    assert_eq!(about_calls(bench.step(up(2))), started);
    for call in 1..=3 {
        assert_eq!(about_calls(bench.step(undelivered(2, call))), []);
    }
    bench.step(lost(2, &[]));
    bench.step(closed(2));
    bench.tick();
    bench.step(Input::PermitGranted);
    let started = [start(1, 3), start(2, 3), start(3, 3)];
    assert_eq!(about_calls(bench.step(up(3))), started);
}

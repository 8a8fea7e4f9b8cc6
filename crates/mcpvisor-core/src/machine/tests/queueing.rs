//! Queued calls: limits, order and timeouts (C5, C7).

use super::harness::*;
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

fn by(harness: &Harness, client: u32, call: u64) -> NewCall {
    NewCall {
        client: ClientId(client),
        ..harness.read(call)
    }
}

#[test]
fn a_full_queue_refuses_at_once() {
    let mut harness = Harness::connected_with(settings(2, 3), &[]);
    let effects: Vec<_> = (1..=7)
        .flat_map(|call| harness.call(harness.read(call)))
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
    assert_eq!(
        (harness.machine.in_flight(), harness.machine.waiting()),
        (2, 3)
    );
    assert_eq!(
        harness.step(answered(1, 2)),
        [Effect::SaveDurable, start(3, 1)],
        "the next call comes from the queue"
    );
    assert_eq!(
        harness.call(harness.read(8)),
        [],
        "the queue accepts a call again"
    );
}

#[test]
fn every_end_of_a_call_in_flight_lets_the_next_start() {
    let ends: [fn(&mut Harness) -> Vec<Effect>; 3] = [
        |harness| harness.step(answered(1, 1)),
        |harness| harness.step(cancelled(1)),
        |harness| harness.pass(secs(60)),
    ];
    for end in ends {
        let mut harness = Harness::connected_with(settings(1, 3), &[]);
        harness.call(harness.read(1));
        harness.call(harness.read(2));
        assert!(end(&mut harness).contains(&start(2, 1)));
    }
}

#[test]
fn a_client_with_one_call_does_not_wait_behind_a_client_with_many() {
    let mut harness = Harness::connected_with(settings(1, 100), &[]);
    harness.call(by(&harness, 1, 1));
    for call in 2..=5 {
        harness.call(by(&harness, 1, call));
    }
    harness.call(by(&harness, 2, 10));
    harness.call(by(&harness, 3, 20));
    let mut order = vec![1];
    while let Some(&running) = order.last() {
        let effects = about_calls(harness.step(answered(1, running)));
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
    let mut harness = Harness::connected();
    harness.step(lost(1, &[]));
    harness.call(harness.read(1));
    assert_eq!(harness.pass(millis(14_999)), []);
    let late = not_sent(1, NotSent::NoConnection(Some(gone())));
    assert_eq!(harness.pass(millis(1)), [late]);
}

#[test]
fn a_queued_call_waits_fifteen_seconds_more_when_the_connection_is_lost() {
    let mut harness = Harness::connected_with(settings(1, 8), &[]);
    harness.call(harness.tool(1));
    harness.call(harness.read(2));
    harness.pass(secs(40));
    harness.step(lost(1, &[written(1)]));
    assert_eq!(about_calls(harness.pass(millis(14_999))), []);
    let late = not_sent(2, NotSent::NoConnection(Some(gone())));
    assert_eq!(about_calls(harness.pass(millis(1))), [late]);
}

#[test]
fn after_the_connect_a_queued_call_only_waits_for_its_turn() {
    let mut harness = Harness::connected_with(settings(1, 8), &[]);
    harness.step(lost(1, &[]));
    harness.call(harness.read(1));
    harness.call(harness.read(2));
    harness.step(closed(1));
    harness.tick();
    harness.step(Input::PermitGranted);
    assert_eq!(about_calls(harness.step(up(2))), [start(1, 2)]);
    assert_eq!(about_calls(harness.pass(secs(59))), []);
    assert_eq!(about_calls(harness.step(answered(2, 1))), [start(2, 2)]);
}

#[test]
fn a_call_wakes_a_parked_server_and_is_sent_when_it_connects() {
    let mut harness = Harness::parked(ServerSettings::default());
    harness.now += secs(1);
    assert_eq!(
        harness.call(harness.read(1)),
        [Effect::RequestPermit { reconnect: true }]
    );
    harness.step(Input::PermitGranted);
    let effects = harness.step_after(secs(5), up(11));
    assert_eq!(about_calls(effects), [start(1, 11)]);
}

#[test]
fn a_call_to_a_parked_server_waits_fifteen_seconds_at_most() {
    let mut harness = Harness::parked(ServerSettings::default());
    harness.now += secs(1);
    harness.call(harness.read(1));
    harness.step(Input::PermitGranted);
    assert_eq!(harness.pass(millis(14_999)), []);
    let late = not_sent(1, NotSent::NoConnection(Some(refused())));
    assert_eq!(harness.pass(millis(1)), [late]);
}

/// Parked while its last connection is still closing.
fn parked_and_closing() -> Harness {
    let mut settings = ServerSettings::default();
    settings.budget.attempts = 1;
    let mut harness = Harness::connected_with(settings, &[]);
    harness.step(lost(1, &[]));
    assert_eq!(harness.name(), StateName::Disconnected);
    harness
}

#[test]
fn a_call_while_a_parked_server_still_closes_waits_for_its_connect() {
    let mut harness = parked_and_closing();
    assert_eq!(harness.call(harness.read(1)), []);
    assert_eq!(
        harness.step(closed(1)),
        [],
        "the call is not refused as parked"
    );
    assert_eq!(
        *harness.state(),
        State::Disconnected(Attempt::BackingOff {
            retry_at: harness.now + secs(1),
        })
    );
    harness.tick();
    harness.step(Input::PermitGranted);
    assert_eq!(about_calls(harness.step(up(2))), [start(1, 2)]);
}

#[test]
fn a_call_while_a_parked_server_is_drained_wakes_it_too() {
    let mut harness = parked_and_closing();
    harness.step(closed(1));
    harness.tick();
    harness.step(Input::PermitGranted);
    harness.step(up(2));
    harness.call(harness.read(1));
    harness.step_after(secs(2), report_broken(2));
    assert_eq!(harness.name(), StateName::Disconnected);
    assert_eq!(harness.call(harness.read(2)), []);
    harness.step(answered(2, 1));
    assert_eq!(
        harness.step(closed(2)),
        [Effect::RequestPermit { reconnect: true }]
    );
    harness.step(Input::PermitGranted);
    assert_eq!(about_calls(harness.step(up(3))), [start(2, 3)]);
}

#[test]
fn parking_a_server_fails_the_calls_that_wait() {
    let mut settings = ServerSettings::default();
    settings.budget.attempts = 1;
    let mut harness = Harness::with(settings);
    harness.step(Input::Start);
    harness.call(harness.read(1));
    harness.step(Input::PermitGranted);
    let parked = not_sent(1, NotSent::Parked(Some(refused())));
    assert_eq!(about_calls(harness.step(failed(1))), [parked]);
}

#[test]
fn a_disabled_or_failed_server_refuses_at_once_with_the_reason() {
    let refuse = |harness: &mut Harness, reason: NotSent| {
        let before = harness.whole();
        assert_eq!(harness.call(harness.read(9)), [not_sent(9, reason)]);
        assert_eq!(harness.whole(), before);
    };
    let mut harness = Harness::connected();
    harness.call(harness.read(1));
    harness.step(Input::Disable);
    refuse(&mut harness, NotSent::Disabled);
    harness.step(answered(1, 1));
    harness.step(closed(1));
    refuse(&mut harness, NotSent::Disabled);

    let mut harness = Harness::connected();
    harness.call(harness.read(1));
    harness.step(Input::Shutdown { limit: secs(1) });
    refuse(&mut harness, NotSent::Stopping);

    let mut harness = Harness::new();
    harness.step(Input::Start);
    harness.step(Input::PermitGranted);
    harness.step(ended(1, ConnectionEnd::Permanent(not_found())));
    refuse(&mut harness, NotSent::Failed(not_found()));
}

/// The server dies right after the handshake and accepts none of the queued calls.
#[test]
fn undelivered_calls_are_sent_in_the_order_of_their_ids() {
    let mut harness = Harness::connected();
    harness.step(lost(1, &[]));
    harness.step(closed(1));
    for call in 1..=3 {
        harness.call(harness.read(call));
    }
    harness.tick();
    harness.step(Input::PermitGranted);
    let started = [start(1, 2), start(2, 2), start(3, 2)];
    assert_eq!(about_calls(harness.step(up(2))), started);
    for call in 1..=3 {
        assert_eq!(about_calls(harness.step(undelivered(2, call))), []);
    }
    harness.step(lost(2, &[]));
    harness.step(closed(2));
    harness.tick();
    harness.step(Input::PermitGranted);
    let started = [start(1, 3), start(2, 3), start(3, 3)];
    assert_eq!(about_calls(harness.step(up(3))), started);
}

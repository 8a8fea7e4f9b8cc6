//! A server that needs a login: the way to `permanently_failed`, and from there with another
//! credential (A4, B6).

use super::authorization::{awaiting, closes, connected, refused_with, unavailable};
use super::harness::*;
use crate::machine::{
    Attempt, CallEnd, ConnectionEnd, Effect, Input, NotSent, Outcome, State, StateName,
};
use crate::settings::ServerSettings;

/// The connection is closing after a renewal that failed for good.
fn closing_for_login() -> Harness {
    let mut harness = awaiting();
    harness.step(renewal_failed_permanently());
    let failure = login_needed();
    let closing = Some(generation(1));
    assert_eq!(
        *harness.state(),
        State::PermanentlyFailed { failure, closing }
    );
    harness
}

/// Without a connection, until a login.
fn failed_for_login() -> Harness {
    let mut harness = closing_for_login();
    harness.step(closed(1));
    assert_eq!(*harness.state(), permanently_failed(login_needed()));
    harness
}

#[test]
fn a_permanent_failure_closes_the_connection_at_once_and_answers_every_call() {
    let mut settings = ServerSettings::default();
    settings.admission.in_flight = 3;
    let grace = settings.close;
    let mut harness = Harness::connected_with(settings, &[]);
    for call in 1..=4 {
        harness.call(harness.read(call));
    }
    harness.step(call_unauthorized(1, 1, 1));
    // Call 1 awaits, 2 and 3 are in flight, 4 is queued.
    let effects = harness.step(renewal_failed_permanently());
    let close = Effect::Close {
        generation: generation(1),
        grace,
    };
    let expected = [
        refused_with(1, login_needed().fault),
        close,
        Effect::SaveDurable,
        not_sent(4, NotSent::Failed(login_needed())),
        changed(StateName::Connected, StateName::PermanentlyFailed),
    ];
    assert_eq!(effects, expected);
    assert_eq!(harness.machine.current_generation(), Some(generation(1)));
    assert_eq!(harness.machine.last_fault(), Some(&login_needed().fault));
    assert!(!harness.name().publishes());
    let failed = NotSent::Failed(login_needed());
    let effects = harness.call(harness.read(5));
    assert_eq!(effects, [not_sent(5, failed.clone())]);
    let effects = harness.step(lost(1, &[written(2), unwritten(3)]));
    let unknown = Outcome::Unknown(login_needed().fault);
    assert_eq!(effects, [not_sent(3, failed), resolve(2, unknown)]);
    let end = ConnectionEnd::Closed {
        problem: Some("not cleanly".to_owned()),
    };
    assert_eq!(harness.step(ended(1, end)), []);
    assert_eq!(*harness.state(), permanently_failed(login_needed()));
    assert_eq!(harness.machine.last_fault(), Some(&login_needed().fault));
    assert_eq!(
        (harness.machine.in_flight(), harness.machine.waiting()),
        (0, 0)
    );
}

#[test]
fn calls_in_flight_may_still_be_answered_while_the_failed_connection_closes() {
    let mut harness = connected();
    harness.call(harness.tool(1));
    harness.call(harness.tool(2));
    harness.step(unauthorized(1, 1));
    harness.step(renewal_failed_permanently());
    assert_eq!(harness.step(call_ended(1, 1, CallEnd::Answered)), []);
    let effects = harness.step(call_unauthorized(1, 2, 1));
    assert_eq!(effects, [refused_with(2, gone())]);
    assert_eq!(harness.machine.dropped_late(), 0);
    assert_eq!(harness.machine.in_flight(), 0);
}

#[test]
fn the_calls_of_a_failed_connection_task_that_panics_are_forgotten() {
    let mut harness = connected();
    harness.call(harness.tool(1));
    harness.step(unauthorized(1, 1));
    harness.step(renewal_failed_permanently());
    harness.step(closed(1));
    assert_eq!(harness.machine.in_flight(), 0);
    assert_eq!(*harness.state(), permanently_failed(login_needed()));
}

#[test]
fn a_login_heals_a_failed_server_at_once_and_free() {
    for login in [credential_changed(2), renewed(2)] {
        let mut harness = failed_for_login();
        let effects = harness.step(login);
        assert!(effects.contains(&Effect::RequestPermit { reconnect: true }));
        assert_eq!(harness.name(), StateName::Connecting);
        assert_eq!(harness.machine.last_fault(), None);
        let used = harness.used();
        assert_eq!(opened(&harness.step(Input::PermitGranted)), [2]);
        assert_eq!(harness.used(), used, "it is free");
        harness.step(up(2));
        assert_eq!(harness.name(), StateName::Connected);
        assert_eq!(harness.used(), used);
    }
}

#[test]
fn a_failed_free_connect_is_the_first_attempt_and_the_next_one_counts() {
    let mut harness = failed_for_login();
    harness.step(credential_changed(2));
    harness.step(Input::PermitGranted);
    let effects = harness.step(failed(2));
    let retry_at = harness.machine.retry_at();
    assert!(effects.contains(&attempt_failed(1, refused(), retry_at)));
    harness.tick();
    harness.step(Input::PermitGranted);
    assert_eq!(harness.used(), 1);
}

#[test]
fn a_token_that_is_known_already_heals_nothing() {
    let mut harness = failed_for_login();
    let before = harness.whole();
    assert_eq!(harness.step(credential_changed(1)), []);
    assert_eq!(harness.step(renewed(1)), []);
    assert_eq!(harness.whole(), before);
}

#[test]
fn a_login_heals_after_a_crash_of_the_actor_too() {
    let failed = failed_for_login();
    let durable = failed.machine.durable().clone();
    let mut harness = Harness::resumed(ServerSettings::default(), durable, failed.now);
    harness.step(Input::Start);
    assert_eq!(*harness.state(), permanently_failed(login_needed()));
    harness.step(credential_changed(1));
    assert_eq!(harness.name(), StateName::Connecting);
}

#[test]
fn whatever_reconnects_a_failed_server_waits_for_the_close() {
    for input in [
        credential_changed(2),
        renewed(2),
        Input::Enable,
        Input::Reconnect,
        Input::TransportChanged,
    ] {
        let mut harness = closing_for_login();
        harness.step(input.clone());
        let closing = Attempt::Closing {
            generation: generation(1),
            retry_at: harness.now,
        };
        assert_eq!(*harness.state(), State::Connecting(closing), "{input:?}");
        harness.call(harness.read(9));
        let effects = harness.step(closed(1));
        assert_eq!(effects, [Effect::RequestPermit { reconnect: true }]);
        harness.step(Input::PermitGranted);
        assert_eq!(about_calls(harness.step(up(2))), [start(9, 2)]);
    }
}

#[test]
fn whatever_ends_a_failed_server_waits_for_the_close() {
    for (input, stops) in [
        (Input::Disable, false),
        (Input::Shutdown { limit: secs(1) }, true),
    ] {
        let mut harness = closing_for_login();
        let effects = harness.step(input);
        assert_eq!(closes(&effects), [1], "within the limit");
        assert_eq!(harness.name(), StateName::Disabling);
        let effects = harness.step(closed(1));
        assert_eq!(effects.contains(&Effect::Stop), stops);
        assert_eq!(harness.name(), StateName::Disabled);
    }
}

#[test]
fn another_token_is_only_remembered_where_it_cannot_help() {
    let mut not_found_server = Harness::new();
    not_found_server.step(Input::Start);
    not_found_server.step(Input::PermitGranted);
    not_found_server.step(ended(1, ConnectionEnd::Permanent(not_found())));
    let mut disabled = connected();
    disabled.step(Input::Disable);
    let mut lost = connected();
    lost.step(report_broken(1));
    lost.step(closed(1));
    for mut harness in [not_found_server, disabled, lost] {
        let state = harness.state().clone();
        assert_eq!(harness.step(credential_changed(2)), []);
        assert_eq!(harness.step(renewed(3)), []);
        assert_eq!(*harness.state(), state);
    }
}

#[test]
fn another_token_ends_the_backoff_after_a_refused_authorization_free() {
    let fault = unavailable();
    for attempts in [10, 1] {
        let mut settings = ServerSettings::default();
        settings.budget.attempts = attempts;
        let mut harness = Harness::with(settings);
        harness.step(Input::Start);
        harness.step(Input::PermitGranted);
        let end = ConnectionEnd::Failed {
            fault: fault.clone(),
            retry_after: None,
        };
        harness.step(ended(1, end));
        let (state, used) = (harness.name(), harness.used());
        let effects = harness.step(credential_changed(1));
        assert_eq!(effects, [Effect::RequestPermit { reconnect: true }]);
        assert_eq!(harness.name(), state);
        assert_eq!(opened(&harness.step(Input::PermitGranted)), [2]);
        assert_eq!(harness.used(), used, "it is free");
    }
}

#[test]
fn a_token_that_arrives_during_a_connect_with_the_old_one_is_tried() {
    let mut harness = Harness::new();
    harness.step(Input::Start);
    harness.step(Input::PermitGranted);
    harness.step(credential_changed(1));
    let permanent = || ConnectionEnd::Permanent(login_needed());
    let effects = harness.step(ended(1, permanent()));
    let permit = Effect::RequestPermit { reconnect: true };
    assert_eq!(effects, [Effect::ReleasePermit, permit]);
    assert_eq!(opened(&harness.step(Input::PermitGranted)), [2]);
    assert_eq!(harness.used(), 1, "it is free");
    harness.step(ended(2, permanent()));
    assert_eq!(harness.name(), StateName::PermanentlyFailed, "only once");
}

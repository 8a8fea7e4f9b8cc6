//! Authorization: one renewal for all refused calls, and one retry each (S3, S4). `login` has the servers
//! that need a person.

use super::harness::*;
use crate::ids::{CallId, CredentialRevision};
use crate::machine::{
    Effect, Fault, FaultClass, Input, NewCall, Outcome, RenewalFailure, StateName,
};
use crate::policy::listing::{FetchOutcome, ListKind};
use crate::policy::retry::{RequestFailure, RetryPolicy};
use crate::settings::ServerSettings;

const TOOLS: &[ListKind] = &[ListKind::Tools];

/// Connected, with the tools listed.
pub(super) fn connected() -> Harness {
    let mut harness = Harness::connected_with(ServerSettings::default(), TOOLS);
    harness.step(fetched(1, ListKind::Tools, FetchOutcome::Fetched));
    harness
}

/// Connected, and call 1 (a tool) was refused with credential 1 and waits.
pub(super) fn awaiting() -> Harness {
    let mut harness = connected();
    harness.call(harness.tool(1));
    assert_eq!(harness.step(call_unauthorized(1, 1, 1)), [renew(1)]);
    harness
}

/// The same, while call 2 is in flight.
fn awaiting_with_another_in_flight() -> Harness {
    let mut harness = connected();
    harness.call(harness.tool(1));
    harness.call(harness.tool(2));
    assert_eq!(harness.step(call_unauthorized(1, 1, 1)), [renew(1)]);
    harness
}

pub(super) fn unavailable() -> Fault {
    Fault::new(FaultClass::Authorization, "the token endpoint is down")
}

fn renewal_failed_for_now() -> Input {
    Input::RenewalFailed {
        failure: RenewalFailure::Transient(unavailable()),
    }
}

pub(super) fn refused_with(call: u64, fault: Fault) -> Effect {
    resolve(call, Outcome::Refused(fault))
}

/// The generations that are told to close.
pub(super) fn closes(effects: &[Effect]) -> Vec<u64> {
    let generation = |effect: &Effect| match effect {
        Effect::Close { generation, .. } => Some(generation.get()),
        _ => None,
    };
    effects.iter().filter_map(generation).collect()
}

#[test]
fn many_calls_refused_with_one_token_cause_one_renewal_and_one_retry_each() {
    let mut harness = connected();
    let mut effects = Vec::new();
    for call in 1..=64 {
        harness.call(harness.tool(call));
    }
    for call in 1..=64 {
        effects.extend(harness.step(call_unauthorized(1, call, 1)));
    }
    assert_eq!(effects, [renew(1)]);
    assert_eq!(harness.machine.in_flight(), 0, "they hold no place");
    assert_eq!(harness.machine.waiting(), 64);
    let effects = harness.step(renewed(2));
    let expected: Vec<_> = (1..=64).map(|call| resend(call, 1)).collect();
    assert_eq!(effects, expected, "each once and in order");
    for call in 1..=64 {
        assert_eq!(about_calls(harness.step(answered(1, call))), []);
    }
    assert_eq!(harness.name(), StateName::Connected);
    assert_eq!(harness.generation(), 1, "the session stays");
}

#[test]
fn the_renewed_calls_come_before_queued_ones() {
    let mut settings = ServerSettings::default();
    settings.admission.in_flight = 2;
    let mut harness = Harness::connected_with(settings, &[]);
    for call in 1..=4 {
        harness.call(harness.read(call));
    }
    assert_eq!(harness.step(call_unauthorized(1, 2, 1)), [renew(1)]);
    assert_eq!(harness.step(call_unauthorized(1, 1, 1)), []);
    let effects = harness.step(renewed(2));
    assert_eq!(effects, [resend(1, 1), resend(2, 1)]);
    assert_eq!(about_calls(harness.step(answered(1, 2))), [start(3, 1)]);
    assert_eq!(about_calls(harness.step(answered(1, 1))), [start(4, 1)]);
}

#[test]
fn calls_that_arrive_during_a_renewal_wait_for_it_and_keep_their_retry() {
    let mut harness = awaiting_with_another_in_flight();
    let arrived = [harness.tool(3), harness.read(4)];
    for call in arrived {
        assert_eq!(harness.call(call), [], "it would be refused");
    }
    // A place that becomes free is not used either.
    assert_eq!(about_calls(harness.step(answered(1, 2))), []);
    assert_eq!(harness.machine.waiting(), 3);
    let effects = harness.step(renewed(2));
    assert_eq!(effects, [resend(1, 1), start(3, 1), start(4, 1)]);
    // They were not sent before, so a refusal of the new token does not end them.
    assert_eq!(harness.step(call_unauthorized(1, 3, 2)), [renew(2)]);
    assert_eq!(harness.step(renewed(3)), [resend(3, 1)]);
}

#[test]
fn a_refused_request_of_the_runtime_holds_calls_too() {
    let mut harness = connected();
    assert_eq!(harness.step(unauthorized(1, 1)), [renew(1)]);
    assert_eq!(harness.call(harness.tool(1)), []);
    assert_eq!(harness.step(credential_changed(2)), [start(1, 1)]);
    assert_eq!(harness.call(harness.tool(2)), [start(2, 1)]);
    assert_eq!(harness.step(renewed(2)), [], "the answer comes late");
}

#[test]
fn a_renewal_ahead_of_the_expiry_holds_no_calls() {
    let mut harness = connected();
    assert_eq!(harness.call(harness.tool(1)), [start(1, 1)]);
    // The machine learns of it when the new token is in use.
    assert_eq!(harness.step(credential_changed(2)), []);
    assert_eq!(harness.call(harness.tool(2)), [start(2, 1)]);
}

#[test]
fn a_renewal_that_fails_for_now_releases_held_calls_with_the_token_there_is() {
    let mut harness = awaiting();
    harness.call(harness.tool(2));
    let effects = harness.step(renewal_failed_for_now());
    assert_eq!(effects, [refused_with(1, unavailable()), start(2, 1)]);
    assert_eq!(harness.call(harness.tool(3)), [start(3, 1)]);
    // Each is refused, and asks again.
    assert_eq!(harness.step(call_unauthorized(1, 2, 1)), [renew(1)]);
    assert_eq!(harness.step(call_unauthorized(1, 3, 1)), []);
    assert_eq!(harness.step(renewed(2)), [resend(2, 1), resend(3, 1)]);
}

#[test]
fn a_held_call_times_out_unsent_at_its_deadline_only() {
    let mut harness = awaiting();
    let call = NewCall {
        deadline: harness.now + secs(50),
        idle: secs(5),
        ..harness.tool(2)
    };
    harness.call(call);
    assert_eq!(about_calls(harness.pass(secs(49))), []);
    let late = Outcome::Deadline {
        sent: false,
        idle: false,
    };
    assert_eq!(about_calls(harness.pass(secs(1))), [resolve(2, late)]);
    assert_eq!(harness.step(renewed(2)), [resend(1, 1)]);
}

#[test]
fn held_calls_are_queued_within_the_limit_and_can_be_cancelled() {
    let mut settings = ServerSettings::default();
    settings.admission.waiting = 2;
    let mut harness = Harness::connected_with(settings, &[]);
    harness.call(harness.read(1));
    harness.step(call_unauthorized(1, 1, 1));
    for call in [2, 3] {
        assert_eq!(harness.call(harness.read(call)), []);
    }
    let effects = harness.call(harness.read(4));
    assert_eq!(effects, [resolve(4, Outcome::Busy)]);
    assert_eq!(harness.step(cancelled(2)), [drop_call(2)]);
    assert_eq!(harness.step(renewed(2)), [resend(1, 1), start(3, 1)]);
}

#[test]
fn a_renewal_for_another_transport_holds_no_calls_and_says_nothing_about_its_tokens() {
    let failed = Input::RenewalFailed {
        failure: RenewalFailure::Permanent(login_needed()),
    };
    for ended in [renewed(9), failed] {
        let mut harness = connected();
        harness.call(harness.read(1));
        harness.step(call_unauthorized(1, 1, 1));
        harness.step(Input::TransportChanged);
        harness.step(closed(1));
        harness.step(Input::PermitGranted);
        harness.step(up(2));
        assert_eq!(harness.call(harness.read(2)), [start(2, 2)]);
        assert_eq!(about_calls(harness.step(ended)), [resend(1, 2)]);
        assert_eq!(harness.name(), StateName::Connected);
        // Token 1 of the new transport is not older than token 9 of the old one.
        let effects = harness.step(call_unauthorized(2, 2, 1));
        assert_eq!(effects, [renew(1)]);
    }
}

#[test]
fn a_call_refused_with_an_old_token_is_retried_at_once_without_a_renewal() {
    for newer in [renewed(2), credential_changed(2)] {
        let mut harness = connected();
        harness.call(harness.tool(1));
        assert_eq!(harness.step(newer), []);
        assert_eq!(harness.step(call_unauthorized(1, 1, 1)), [resend(1, 1)]);
    }
}

#[test]
fn an_old_token_waits_for_the_renewal_of_a_newer_one() {
    let mut harness = connected();
    harness.call(harness.tool(1));
    harness.call(harness.tool(2));
    assert_eq!(harness.step(call_unauthorized(1, 1, 2)), [renew(2)]);
    let effects = harness.step(call_unauthorized(1, 2, 1));
    assert_eq!(effects, [], "token 2 would be refused again");
    assert_eq!(harness.step(renewed(3)), [resend(1, 1), resend(2, 1)]);
}

#[test]
fn a_newer_token_that_is_refused_before_its_report_is_renewed_too() {
    let mut harness = awaiting_with_another_in_flight();
    let effects = harness.step(call_unauthorized(1, 2, 2));
    assert_eq!(effects, [], "one renewal at a time");
    assert_eq!(harness.step(renewed(2)), [renew(2)], "2 is refused already");
    assert_eq!(harness.step(renewed(3)), [resend(1, 1), resend(2, 1)]);
}

#[test]
fn a_failed_renewal_of_an_old_token_says_nothing_about_a_newer_one() {
    for failed in [renewal_failed_for_now(), renewal_failed_permanently()] {
        let mut harness = awaiting();
        assert_eq!(harness.step(credential_changed(2)), [resend(1, 1)]);
        assert_eq!(harness.step(failed.clone()), []);
        assert_eq!(harness.name(), StateName::Connected);
        // The newer one was refused before the answer.
        let mut harness = awaiting_with_another_in_flight();
        harness.step(call_unauthorized(1, 2, 2));
        assert_eq!(harness.step(failed), [renew(2)]);
        assert_eq!(harness.machine.waiting(), 2);
    }
}

#[test]
fn another_token_releases_the_calls_that_wait_and_an_old_one_does_not() {
    let mut harness = awaiting();
    assert_eq!(harness.step(credential_changed(1)), []);
    assert_eq!(harness.step(credential_changed(2)), [resend(1, 1)]);
    assert_eq!(harness.step(renewed(2)), [], "the answer comes late");
}

#[test]
fn a_second_401_is_the_answer_and_starts_a_renewal() {
    let mut harness = awaiting();
    harness.step(renewed(2));
    let effects = harness.step(call_unauthorized(1, 1, 2));
    assert_eq!(effects, [refused_with(1, gone()), renew(2)]);
    harness.step(renewal_failed_permanently());
    assert_eq!(harness.name(), StateName::PermanentlyFailed);
}

#[test]
fn a_call_without_retry_gets_the_refusal_and_the_token_is_renewed() {
    let mut harness = connected();
    let once = NewCall {
        retry_policy: RetryPolicy::Never,
        ..harness.read(1)
    };
    harness.call(once);
    let effects = harness.step(call_unauthorized(1, 1, 1));
    assert_eq!(effects, [refused_with(1, gone()), renew(1)]);
}

#[test]
fn a_renewal_that_brings_nothing_newer_costs_the_retry_and_is_not_repeated() {
    let mut harness = awaiting();
    assert_eq!(harness.step(renewed(1)), [resend(1, 1)]);
    let effects = harness.step(call_unauthorized(1, 1, 1));
    assert_eq!(effects, [refused_with(1, gone()), renew(1)]);
}

#[test]
fn a_request_without_a_renewable_token_is_refused_like_any_other() {
    let mut harness = connected();
    harness.call(harness.tool(1));
    let none = CredentialRevision::NONE.0;
    assert_eq!(harness.step(call_unauthorized(1, 1, none)), [renew(none)]);
    assert_eq!(harness.step(renewed(1)), [resend(1, 1)]);
}

#[test]
fn a_refused_request_of_the_runtime_causes_one_renewal() {
    let mut harness = connected();
    assert_eq!(harness.step(unauthorized(1, 1)), [renew(1)]);
    assert_eq!(harness.step(unauthorized(1, 1)), []);
    assert_eq!(harness.step(renewed(2)), []);
    assert_eq!(harness.step(unauthorized(1, 1)), [], "token 2 is in use");
    assert_eq!(harness.step(unauthorized(1, 2)), [renew(2)]);
    harness.step(renewal_failed_permanently());
    assert_eq!(harness.name(), StateName::PermanentlyFailed);
}

#[test]
fn a_refusal_of_an_old_connection_changes_nothing() {
    let mut harness = connected();
    harness.lose(1, &[]);
    harness.tick();
    harness.step(Input::PermitGranted);
    harness.step(up(2));
    let before = harness.whole();
    assert_eq!(harness.step(unauthorized(1, 9)), []);
    assert_eq!(harness.whole(), before);
    assert_eq!(harness.machine.dropped_late(), 1);
}

#[test]
fn a_401_is_no_soft_failure_and_uses_no_budget() {
    let mut harness = connected();
    let used = harness.used();
    for call in 1..=9 {
        harness.call(harness.tool(call));
        let effects = harness.step(call_unauthorized(1, call, 1));
        assert!(!effects.contains(&check(1)), "no ping");
        harness.step(renewal_failed_for_now());
        harness.step(unauthorized(1, 1));
        harness.step(renewal_failed_for_now());
    }
    assert_eq!(harness.machine.failures(), (0, 0));
    assert_eq!((harness.used(), harness.generation()), (used, 1));
    assert_eq!(harness.name(), StateName::Connected);
}

#[test]
fn a_lost_session_never_renews_a_token() {
    let mut harness = connected();
    harness.call(harness.tool(1));
    let mut effects = harness.step(call_failed(1, 1, RequestFailure::SessionLost));
    effects.extend(harness.step(session_lost(1)));
    let renews = |effect: &Effect| matches!(effect, Effect::RenewCredential { .. });
    assert!(!effects.iter().any(renews), "{effects:?}");
}

#[test]
fn a_transient_failure_refuses_the_calls_that_wait_and_the_next_401_asks_again() {
    let mut harness = awaiting_with_another_in_flight();
    harness.step(call_unauthorized(1, 2, 1));
    let effects = harness.step(renewal_failed_for_now());
    let expected = [
        refused_with(1, unavailable()),
        refused_with(2, unavailable()),
    ];
    assert_eq!(effects, expected);
    assert_eq!(harness.name(), StateName::Connected);
    assert_eq!(harness.pass(secs(9)), [], "no loop");
    harness.call(harness.tool(3));
    assert_eq!(harness.step(call_unauthorized(1, 3, 1)), [renew(1)]);
    assert_eq!(harness.step(renewed(2)), [resend(3, 1)]);
}

#[test]
fn an_unrequested_answer_fails_nothing() {
    let mut harness = connected();
    harness.call(harness.tool(1));
    let before = harness.whole();
    assert_eq!(harness.step(renewal_failed_permanently()), []);
    assert_eq!(harness.step(renewal_failed_for_now()), []);
    assert_eq!(harness.whole(), before);
}

#[test]
fn a_call_that_awaits_a_credential_times_out_at_its_deadline_only() {
    let mut harness = connected();
    let call = NewCall {
        deadline: harness.now + secs(50),
        idle: secs(5),
        ..harness.tool(1)
    };
    harness.call(call);
    harness.step(call_unauthorized(1, 1, 1));
    assert_eq!(about_calls(harness.pass(secs(49))), []);
    let late = Outcome::Deadline {
        sent: true,
        idle: false,
    };
    assert_eq!(about_calls(harness.pass(secs(1))), [resolve(1, late)]);
    assert_eq!(harness.step(renewed(2)), [], "it is not sent again");
    assert_eq!(harness.name(), StateName::Connected);
}

#[test]
fn a_call_can_be_cancelled_while_it_awaits_a_credential() {
    let mut harness = awaiting();
    assert_eq!(harness.step(cancelled(1)), [drop_call(1)]);
    assert_eq!(harness.machine.waiting(), 0);
    assert_eq!(harness.step(renewed(2)), []);
}

#[test]
fn an_awaiting_call_survives_a_lost_connection_and_is_retried_on_the_next() {
    // The renewal ends before the next connection is up, or after.
    for early in [true, false] {
        let mut harness = awaiting();
        assert_eq!(about_calls(harness.lose(1, &[])), []);
        if early {
            assert_eq!(harness.step(renewed(2)), []);
        }
        harness.tick();
        harness.step(Input::PermitGranted);
        assert_eq!(about_calls(harness.step(up_with(2, TOOLS))), []);
        let listed = fetched(2, ListKind::Tools, FetchOutcome::Fetched);
        let mut effects = harness.step(listed);
        if !early {
            effects.extend(harness.step(renewed(2)));
        }
        assert_eq!(about_calls(effects), [resend(1, 2)]);
    }
}

#[test]
fn a_parked_server_that_drains_still_renews_for_the_calls_that_wait() {
    let mut settings = ServerSettings::default();
    settings.budget.attempts = 1;
    let mut harness = Harness::parked(settings);
    harness.tick();
    harness.step(Input::PermitGranted);
    harness.step(up(2));
    for call in 1..=3 {
        harness.call(harness.read(call));
    }
    assert_eq!(harness.step(call_unauthorized(2, 1, 1)), [renew(1)]);
    harness.step(call_unauthorized(2, 2, 2));
    harness.step(report_broken(2));
    assert_eq!(harness.name(), StateName::Disconnected);
    assert_eq!(harness.step(renewed(2)), [renew(2)]);
}

#[test]
fn a_failed_renewal_of_a_lost_connection_does_not_fail_the_next_one() {
    let mut harness = awaiting();
    harness.lose(1, &[]);
    harness.tick();
    harness.step(Input::PermitGranted);
    harness.step(up(2));
    let effects = harness.step(renewal_failed_permanently());
    assert_eq!(effects, [refused_with(1, login_needed().fault)]);
    assert_eq!(harness.name(), StateName::Connected);
    assert_eq!(harness.step(unauthorized(2, 1)), [renew(1)]);
    harness.step(renewal_failed_permanently());
    assert_eq!(harness.name(), StateName::PermanentlyFailed);
}

#[test]
fn a_call_refused_on_a_draining_connection_is_retried_on_the_next() {
    let mut harness = connected();
    harness.call(harness.read(1));
    harness.step(Input::Reconnect);
    let effects = harness.step(call_unauthorized(1, 1, 1));
    assert!(effects.contains(&renew(1)));
    assert_eq!(closes(&effects), [1], "it does not delay the close");
    harness.step(renewed(2));
    harness.step(closed(1));
    harness.step(Input::PermitGranted);
    assert_eq!(about_calls(harness.step(up(2))), [resend(1, 2)]);
}

#[test]
fn disabling_or_stopping_ends_an_awaiting_call_as_refused_and_its_renewal_changes_nothing() {
    for input in [Input::Disable, Input::Shutdown { limit: secs(9) }] {
        let mut harness = awaiting();
        let effects = harness.step(input);
        let refused = |effect: &Effect| {
            matches!(
                effect,
                Effect::Resolve {
                    call: CallId(1),
                    outcome: Outcome::Refused(_)
                }
            )
        };
        assert!(effects.iter().any(refused), "{effects:?}");
        assert_eq!(harness.step(renewal_failed_permanently()), []);
        harness.step(closed(1));
        assert_eq!(harness.name(), StateName::Disabled);
    }
}

#[test]
fn a_call_refused_while_the_server_is_disabled_is_answered_at_once() {
    let mut harness = connected();
    harness.call(harness.tool(1));
    harness.step(Input::Disable);
    let effects = harness.step(call_unauthorized(1, 1, 1));
    assert_eq!(effects.first(), Some(&refused_with(1, gone())));
    assert!(!effects.contains(&renew(1)), "nothing to renew for");
}

#[test]
fn another_transport_has_other_tokens() {
    let mut harness = connected();
    harness.step(credential_changed(5));
    harness.step(Input::TransportChanged);
    harness.step(closed(1));
    harness.step(Input::PermitGranted);
    harness.step(up(2));
    harness.call(harness.read(1));
    let none = CredentialRevision::NONE.0;
    assert_eq!(harness.step(call_unauthorized(2, 1, none)), [renew(none)]);
}

#[test]
fn a_server_with_an_awaiting_call_does_not_sleep() {
    let mut settings = ServerSettings::default();
    settings.rest.sleep_after = Some(secs(5));
    let mut harness = Harness::connected_with(settings, &[]);
    harness.call(harness.read(1));
    harness.step(call_unauthorized(1, 1, 1));
    harness.pass(secs(30));
    assert_eq!(harness.name(), StateName::Connected);
}

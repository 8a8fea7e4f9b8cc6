//! A single call fails while its connection lives: what is retried, where and how often (S1, S2, S4, S5,
//! C3).

use super::harness::*;
use crate::machine::{Effect, Input, NewCall, NotSent, Outcome, StateName};
use crate::policy::listing::{FetchOutcome, ListKind};
use crate::policy::retry::{MAX_RETRY_AFTER, RequestFailure, RetryPolicy, Safety};
use crate::settings::ServerSettings;

const TOOLS: &[ListKind] = &[ListKind::Tools];

fn connected() -> Harness {
    Harness::connected_with(ServerSettings::default(), TOOLS)
}

fn refused_by_server(call: u64) -> Effect {
    resolve(call, Outcome::Refused(gone()))
}

fn unknown(call: u64) -> Effect {
    resolve(call, Outcome::Unknown(gone()))
}

fn busy(secs: u64) -> RequestFailure {
    RequestFailure::Busy {
        retry_after: Some(std::time::Duration::from_secs(secs)),
    }
}

/// Closes the old connection, opens the next and lists its tools.
fn reopen(harness: &mut Harness, number: u64) -> Vec<Effect> {
    let mut effects = harness.step(closed(number - 1));
    if harness.machine.retry_at().is_some() {
        effects.extend(harness.tick());
    }
    effects.extend(harness.step(Input::PermitGranted));
    effects.extend(harness.step(up_with(number, TOOLS)));
    effects.extend(harness.step(fetched(number, ListKind::Tools, FetchOutcome::Fetched)));
    effects
}

#[test]
fn a_lost_session_is_replaced_once_and_every_call_is_retried_once() {
    let mut harness = connected();
    let mut effects = Vec::new();
    for call in 1..=64 {
        let new = if call % 2 == 0 {
            harness.read(call)
        } else {
            harness.tool(call)
        };
        harness.call(new);
    }
    for call in 1..=64 {
        effects.extend(harness.step(call_failed(1, call, RequestFailure::SessionLost)));
    }
    assert_eq!(about_calls(effects), [], "no call has its outcome yet");
    assert_eq!(harness.name(), StateName::Reconnecting);
    let effects = reopen(&mut harness, 2);
    assert_eq!(opened(&effects), [2], "one reconnect for all calls");
    let mut restarted: Vec<_> = about_calls(effects);
    assert_eq!(restarted.len(), 64);
    for call in 1..=64 {
        let at = restarted.iter().position(|seen| *seen == resend(call, 2));
        restarted.remove(at.expect("it is sent again"));
    }
}

#[test]
fn a_session_that_is_lost_again_costs_one_retry_and_then_the_error() {
    let mut harness = connected();
    harness.call(harness.tool(1));
    harness.step(call_failed(1, 1, RequestFailure::SessionLost));
    assert_eq!(about_calls(reopen(&mut harness, 2)), [resend(1, 2)]);
    let effects = harness.step(call_failed(2, 1, RequestFailure::SessionLost));
    assert_eq!(about_calls(effects), [refused_by_server(1)]);
    assert_eq!(harness.name(), StateName::Connected, "not replaced again");
    // The next call may replace it, once.
    harness.call(harness.tool(2));
    harness.step(call_failed(2, 2, RequestFailure::SessionLost));
    assert_eq!(harness.name(), StateName::Reconnecting);
    assert_eq!(about_calls(reopen(&mut harness, 3)), [resend(2, 3)]);
}

#[test]
fn the_setting_prevents_the_retry_of_an_expired_tool_call_but_not_the_reconnect() {
    let mut settings = ServerSettings::default();
    settings.retry.retry_expired_calls = false;
    let mut harness = Harness::connected_with(settings, TOOLS);
    harness.call(harness.tool(1));
    harness.call(harness.read(2));
    let effects = harness.step(call_failed(1, 1, RequestFailure::SessionLost));
    assert_eq!(about_calls(effects), [refused_by_server(1)]);
    harness.step(call_failed(1, 2, RequestFailure::SessionLost));
    assert_eq!(about_calls(reopen(&mut harness, 2)), [resend(2, 2)]);
}

#[test]
fn a_call_in_flight_on_a_lost_session_may_finish() {
    let mut harness = connected();
    harness.call(harness.tool(1));
    harness.call(harness.tool(2));
    let effects = harness.step(call_failed(1, 1, RequestFailure::SessionLost));
    assert_eq!(about_calls(effects), []);
    assert_eq!(harness.machine.in_flight(), 1, "the connection drains");
    let effects = harness.step(answered(1, 2));
    let closes = |effect: &Effect| matches!(effect, Effect::Close { .. });
    assert!(effects.iter().any(closes), "then it is closed");
}

#[test]
fn a_call_that_a_lost_session_rejects_does_not_delay_its_close() {
    let mut harness = connected();
    harness.call(harness.tool(1));
    harness.call(harness.tool(2));
    harness.step(call_failed(1, 1, RequestFailure::SessionLost));
    let effects = harness.step(call_failed(1, 2, RequestFailure::NotWritten));
    let closes = |effect: &Effect| matches!(effect, Effect::Close { .. });
    assert!(effects.iter().any(closes), "{effects:?}");
}

#[test]
fn a_call_whose_connect_timed_out_was_not_sent_and_does_not_affect_others() {
    let mut harness = connected();
    harness.call(harness.tool(1));
    harness.call(harness.tool(2));
    let effects = harness.step(call_failed(1, 2, RequestFailure::ConnectTimedOut));
    let unsent = NotSent::NoConnection(Some(gone()));
    assert_eq!(about_calls(effects), [resolve(2, Outcome::NotSent(unsent))]);
    assert_eq!(harness.name(), StateName::Connected);
    assert_eq!(harness.machine.in_flight(), 1, "the other call continues");
    let effects = harness.call(harness.tool(3));
    assert!(
        !about_calls(effects).is_empty(),
        "the connection accepts more calls"
    );
}

#[test]
fn a_listing_that_reports_the_lost_session_starts_the_reconnect_too() {
    let mut harness = connected();
    harness.step(session_lost(1));
    assert_eq!(harness.name(), StateName::Reconnecting);
    let opened_now = opened(&reopen(&mut harness, 2));
    assert_eq!(opened_now, [2]);
    let late = harness.machine.dropped_late();
    harness.step(session_lost(1));
    assert_eq!(harness.machine.dropped_late(), late + 1, "only once");
}

#[test]
fn an_expired_call_waits_for_the_reconnect_within_its_limit_and_ends_as_refused() {
    let mut harness = connected();
    harness.call(harness.tool(1));
    harness.step(call_failed(1, 1, RequestFailure::SessionLost));
    let effects = harness.pass(secs(15));
    assert_eq!(about_calls(effects), [refused_by_server(1)]);
}

#[test]
fn a_success_after_recovery_clears_the_failure_counts() {
    let mut harness = connected();
    for call in [1, 2] {
        harness.call(harness.tool(call));
        harness.step(call_failed(1, call, RequestFailure::ServerFault));
    }
    assert_eq!(harness.machine.failures().0, 2);
    harness.call(harness.tool(3));
    harness.step(call_failed(1, 3, RequestFailure::SessionLost));
    reopen(&mut harness, 2);
    harness.step(answered(2, 3));
    assert_eq!(harness.machine.failures(), (0, 0));
    assert_eq!(harness.machine.last_fault(), None);
}

#[test]
fn a_server_fault_is_retried_at_once_on_the_same_connection_only_if_safe() {
    let mut harness = connected();
    harness.call(harness.read(1));
    let effects = harness.step(call_failed(1, 1, RequestFailure::ServerFault));
    assert_eq!(about_calls(effects), [restart(1, 1)]);
    let effects = harness.step(call_failed(1, 1, RequestFailure::ServerFault));
    assert_eq!(about_calls(effects), [unknown(1)], "one retry in total");
    harness.call(harness.tool(2));
    let effects = harness.step(call_failed(1, 2, RequestFailure::ServerFault));
    assert_eq!(about_calls(effects), [unknown(2)]);
    let trusted = NewCall {
        safety: Safety::TrustedTool,
        ..harness.tool(3)
    };
    harness.call(trusted);
    let effects = harness.step(call_failed(1, 3, RequestFailure::ServerFault));
    assert_eq!(about_calls(effects), [restart(3, 1)]);
    assert_eq!(harness.name(), StateName::Connected);
}

#[test]
fn a_busy_server_gets_the_call_again_after_its_pause() {
    let mut harness = connected();
    harness.call(harness.tool(1));
    assert_eq!(about_calls(harness.step(call_failed(1, 1, busy(7)))), []);
    assert_eq!(about_calls(harness.pass(secs(6))), []);
    assert_eq!(about_calls(harness.pass(secs(1))), [resend(1, 1)]);
    let effects = harness.step(call_failed(1, 1, busy(7)));
    assert_eq!(about_calls(effects), [refused_by_server(1)]);
}

#[test]
fn a_pause_is_limited_and_one_beyond_the_deadline_fails_at_once() {
    let mut settings = ServerSettings::default();
    settings.health.keepalive = secs(3_600);
    let mut harness = Harness::connected_with(settings, TOOLS);
    harness.call(harness.tool(1));
    harness.step(call_failed(1, 1, busy(100_000)));
    assert_eq!(about_calls(harness.pass(MAX_RETRY_AFTER)), [resend(1, 1)]);
    let short = NewCall {
        deadline: harness.now + secs(5),
        ..harness.tool(2)
    };
    harness.call(short);
    let effects = harness.step(call_failed(1, 2, busy(7)));
    assert_eq!(about_calls(effects), [refused_by_server(2)]);
}

#[test]
fn a_pause_that_outlives_its_connection_ends_on_the_next() {
    let mut harness = connected();
    harness.call(harness.tool(1));
    harness.step(call_failed(1, 1, busy(60)));
    harness.step(session_lost(1));
    assert_eq!(about_calls(reopen(&mut harness, 2)), []);
    assert_eq!(about_calls(harness.pass(secs(60))), [resend(1, 2)]);
}

#[test]
fn refusals_are_not_retried_and_never_replace_the_session() {
    for failure in [RequestFailure::ScopeNeeded, RequestFailure::Denied] {
        let mut harness = connected();
        for call in 1..=9 {
            harness.call(harness.read(call));
            let effects = harness.step(call_failed(1, call, failure));
            assert_eq!(effects, [refused_by_server(call)], "{failure:?}");
        }
        assert_eq!(harness.name(), StateName::Connected);
        assert_eq!(harness.machine.failures(), (0, 0), "{failure:?}");
    }
}

#[test]
fn a_call_without_retry_gets_the_error_and_the_session_is_still_replaced() {
    let mut harness = connected();
    let careful = NewCall {
        retry_policy: RetryPolicy::Never,
        ..harness.tool(1)
    };
    harness.call(careful);
    let effects = harness.step(call_failed(1, 1, RequestFailure::SessionLost));
    assert_eq!(about_calls(effects), [refused_by_server(1)]);
    assert_eq!(harness.name(), StateName::Reconnecting);
}

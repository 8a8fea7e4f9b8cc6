//! A single request fails while its connection lives: what is retried, where and how often (S1, S2,
//! S4, S5, C3).

use super::bench::*;
use crate::machine::{Effect, Input, NewCall, NotSent, Outcome, StateName};
use crate::policy::listing::{FetchOutcome, ListKind};
use crate::policy::retry::{MAX_RETRY_AFTER, RequestFailure, RetryPolicy, Safety};
use crate::settings::ServerSettings;

const TOOLS: &[ListKind] = &[ListKind::Tools];

fn connected() -> Bench {
    Bench::connected_with(ServerSettings::default(), TOOLS)
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

/// The old connection has closed, the next is up, and its tools are known.
fn comes_back(bench: &mut Bench, number: u64) -> Vec<Effect> {
    let mut effects = bench.step(closed(number - 1));
    if bench.machine.retry_at().is_some() {
        effects.extend(bench.tick());
    }
    effects.extend(bench.step(Input::PermitGranted));
    effects.extend(bench.step(up_with(number, TOOLS)));
    effects.extend(bench.step(fetched(number, ListKind::Tools, FetchOutcome::Fetched)));
    effects
}

#[test]
fn a_session_that_is_gone_is_replaced_once_and_every_call_is_retried_once() {
    let mut bench = connected();
    let mut effects = Vec::new();
    for call in 1..=64 {
        let new = if call % 2 == 0 {
            bench.read(call)
        } else {
            bench.tool(call)
        };
        bench.call(new);
    }
    for call in 1..=64 {
        effects.extend(bench.step(call_failed(1, call, RequestFailure::SessionLost)));
    }
    assert_eq!(about_calls(effects), [], "nobody has an answer yet");
    assert_eq!(bench.name(), StateName::Reconnecting);
    let effects = comes_back(&mut bench, 2);
    assert_eq!(opened(&effects), [2], "one reconnect for all");
    let mut restarted: Vec<_> = about_calls(effects);
    assert_eq!(restarted.len(), 64);
    for call in 1..=64 {
        let at = restarted.iter().position(|seen| *seen == resend(call, 2));
        restarted.remove(at.expect("it is sent again"));
    }
}

#[test]
fn a_session_that_is_gone_for_ever_costs_one_retry_and_then_the_error() {
    let mut bench = connected();
    bench.call(bench.tool(1));
    bench.step(call_failed(1, 1, RequestFailure::SessionLost));
    assert_eq!(about_calls(comes_back(&mut bench, 2)), [resend(1, 2)]);
    let effects = bench.step(call_failed(2, 1, RequestFailure::SessionLost));
    assert_eq!(about_calls(effects), [refused_by_server(1)]);
    assert_eq!(bench.name(), StateName::Connected, "not replaced again");
    // The next call may have it replaced, once.
    bench.call(bench.tool(2));
    bench.step(call_failed(2, 2, RequestFailure::SessionLost));
    assert_eq!(bench.name(), StateName::Reconnecting);
    assert_eq!(about_calls(comes_back(&mut bench, 3)), [resend(2, 3)]);
}

#[test]
fn the_switch_keeps_an_expired_tool_call_from_being_sent_again_but_not_the_reconnect() {
    let mut settings = ServerSettings::default();
    settings.retry.retry_expired_calls = false;
    let mut bench = Bench::connected_with(settings, TOOLS);
    bench.call(bench.tool(1));
    bench.call(bench.read(2));
    let effects = bench.step(call_failed(1, 1, RequestFailure::SessionLost));
    assert_eq!(about_calls(effects), [refused_by_server(1)]);
    bench.step(call_failed(1, 2, RequestFailure::SessionLost));
    assert_eq!(about_calls(comes_back(&mut bench, 2)), [resend(2, 2)]);
}

#[test]
fn a_call_that_still_runs_on_a_dying_session_is_not_cut_off() {
    let mut bench = connected();
    bench.call(bench.tool(1));
    bench.call(bench.tool(2));
    let effects = bench.step(call_failed(1, 1, RequestFailure::SessionLost));
    assert_eq!(about_calls(effects), []);
    assert_eq!(bench.machine.in_flight(), 1, "it drains");
    let effects = bench.step(answered(1, 2));
    let closes = |effect: &Effect| matches!(effect, Effect::Close { .. });
    assert!(effects.iter().any(closes), "and then it is closed");
}

#[test]
fn a_call_that_a_dying_session_no_longer_takes_holds_up_its_end_no_longer() {
    let mut bench = connected();
    bench.call(bench.tool(1));
    bench.call(bench.tool(2));
    bench.step(call_failed(1, 1, RequestFailure::SessionLost));
    let effects = bench.step(call_failed(1, 2, RequestFailure::NotWritten));
    let closes = |effect: &Effect| matches!(effect, Effect::Close { .. });
    assert!(effects.iter().any(closes), "{effects:?}");
}

#[test]
fn a_call_for_which_no_connection_could_be_opened_was_not_sent_and_leaves_the_others_alone() {
    let mut bench = connected();
    bench.call(bench.tool(1));
    bench.call(bench.tool(2));
    let effects = bench.step(call_failed(1, 2, RequestFailure::ConnectTimedOut));
    let unsent = NotSent::NoConnection(Some(gone()));
    assert_eq!(about_calls(effects), [resolve(2, Outcome::NotSent(unsent))]);
    assert_eq!(bench.name(), StateName::Connected);
    assert_eq!(bench.machine.in_flight(), 1, "the other one goes on");
    let effects = bench.call(bench.tool(3));
    assert!(
        !about_calls(effects).is_empty(),
        "the connection takes more"
    );
}

#[test]
fn a_listing_that_finds_the_session_gone_starts_the_reconnect_too() {
    let mut bench = connected();
    bench.step(session_gone(1));
    assert_eq!(bench.name(), StateName::Reconnecting);
    let opened_now = opened(&comes_back(&mut bench, 2));
    assert_eq!(opened_now, [2]);
    let late = bench.machine.dropped_late();
    bench.step(session_gone(1));
    assert_eq!(bench.machine.dropped_late(), late + 1, "and only once");
}

#[test]
fn an_expired_call_waits_for_the_reconnect_no_longer_than_it_may_and_is_known_as_refused() {
    let mut bench = connected();
    bench.call(bench.tool(1));
    bench.step(call_failed(1, 1, RequestFailure::SessionLost));
    let effects = bench.pass(secs(15));
    assert_eq!(about_calls(effects), [refused_by_server(1)]);
}

#[test]
fn a_success_after_recovery_clears_the_failure_counts() {
    let mut bench = connected();
    for call in [1, 2] {
        bench.call(bench.tool(call));
        bench.step(call_failed(1, call, RequestFailure::ServerFault));
    }
    assert_eq!(bench.machine.failures().0, 2);
    bench.call(bench.tool(3));
    bench.step(call_failed(1, 3, RequestFailure::SessionLost));
    comes_back(&mut bench, 2);
    bench.step(answered(2, 3));
    assert_eq!(bench.machine.failures(), (0, 0));
    assert_eq!(bench.machine.last_fault(), None);
}

#[test]
fn a_server_fault_is_retried_at_once_on_the_same_connection_only_where_that_is_safe() {
    let mut bench = connected();
    bench.call(bench.read(1));
    let effects = bench.step(call_failed(1, 1, RequestFailure::ServerFault));
    assert_eq!(about_calls(effects), [restart(1, 1)]);
    let effects = bench.step(call_failed(1, 1, RequestFailure::ServerFault));
    assert_eq!(about_calls(effects), [unknown(1)], "one retry in total");
    bench.call(bench.tool(2));
    let effects = bench.step(call_failed(1, 2, RequestFailure::ServerFault));
    assert_eq!(about_calls(effects), [unknown(2)]);
    let trusted = NewCall {
        safety: Safety::TrustedTool,
        ..bench.tool(3)
    };
    bench.call(trusted);
    let effects = bench.step(call_failed(1, 3, RequestFailure::ServerFault));
    assert_eq!(about_calls(effects), [restart(3, 1)]);
    assert_eq!(bench.name(), StateName::Connected);
}

#[test]
fn a_busy_server_gets_its_pause_and_then_the_call_again() {
    let mut bench = connected();
    bench.call(bench.tool(1));
    assert_eq!(about_calls(bench.step(call_failed(1, 1, busy(7)))), []);
    assert_eq!(about_calls(bench.pass(secs(6))), []);
    assert_eq!(about_calls(bench.pass(secs(1))), [resend(1, 1)]);
    let effects = bench.step(call_failed(1, 1, busy(7)));
    assert_eq!(about_calls(effects), [refused_by_server(1)]);
}

#[test]
fn a_pause_is_capped_and_one_beyond_the_deadline_is_not_waited_for() {
    let mut settings = ServerSettings::default();
    settings.health.keepalive = secs(3_600);
    let mut bench = Bench::connected_with(settings, TOOLS);
    bench.call(bench.tool(1));
    bench.step(call_failed(1, 1, busy(100_000)));
    assert_eq!(about_calls(bench.pass(MAX_RETRY_AFTER)), [resend(1, 1)]);
    let short = NewCall {
        deadline: bench.now + secs(5),
        ..bench.tool(2)
    };
    bench.call(short);
    let effects = bench.step(call_failed(1, 2, busy(7)));
    assert_eq!(about_calls(effects), [refused_by_server(2)]);
}

#[test]
fn a_pause_that_outlives_its_connection_ends_on_the_next() {
    let mut bench = connected();
    bench.call(bench.tool(1));
    bench.step(call_failed(1, 1, busy(60)));
    bench.step(session_gone(1));
    assert_eq!(about_calls(comes_back(&mut bench, 2)), []);
    assert_eq!(about_calls(bench.pass(secs(60))), [resend(1, 2)]);
}

#[test]
fn authorization_and_refusals_never_take_the_path_of_a_session() {
    for failure in [RequestFailure::Unauthorized, RequestFailure::Denied] {
        let mut bench = connected();
        bench.call(bench.read(1));
        let effects = bench.step(call_failed(1, 1, failure));
        assert_eq!(about_calls(effects), [refused_by_server(1)], "{failure:?}");
        assert_eq!(bench.name(), StateName::Connected);
    }
}

#[test]
fn a_server_that_wants_authorization_again_and_again_is_asked_with_a_ping() {
    let mut bench = connected();
    let mut effects = Vec::new();
    for call in 1..=3 {
        bench.call(bench.tool(call));
        effects = bench.step(call_failed(1, call, RequestFailure::Unauthorized));
    }
    assert!(effects.contains(&check(1)), "{effects:?}");
}

#[test]
fn a_caller_who_wants_no_retry_gets_the_error_and_the_session_is_replaced_all_the_same() {
    let mut bench = connected();
    let careful = NewCall {
        retry_policy: RetryPolicy::Never,
        ..bench.tool(1)
    };
    bench.call(careful);
    let effects = bench.step(call_failed(1, 1, RequestFailure::SessionLost));
    assert_eq!(about_calls(effects), [refused_by_server(1)]);
    assert_eq!(bench.name(), StateName::Reconnecting);
}

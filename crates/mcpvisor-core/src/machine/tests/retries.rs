//! Nothing with side effects is sent twice, and nothing is retried twice (C3).

use super::harness::*;
use crate::machine::{Effect, Input, NewCall, NotSent, Outcome, ReturnedCall};
use crate::policy::listing::{FetchOutcome, ListKind};
use crate::policy::retry::{RetryPolicy, Safety};
use crate::settings::ServerSettings;

const TOOLS: &[ListKind] = &[ListKind::Tools];

/// Connected to a server that has tools.
fn connected() -> Harness {
    Harness::connected_with(ServerSettings::default(), TOOLS)
}

/// Loses a connection and opens the next. Returns the effects on calls.
fn reconnect(harness: &mut Harness, returned: &[ReturnedCall]) -> Vec<Effect> {
    let number = harness.generation();
    let mut effects = harness.lose(number, returned);
    if harness.machine.retry_at().is_some() {
        effects.extend(harness.tick());
    }
    effects.extend(harness.step(Input::PermitGranted));
    effects.extend(harness.step(up_with(number + 1, TOOLS)));
    about_calls(effects)
}

fn tools_known(harness: &mut Harness) -> Vec<Effect> {
    let number = harness.generation();
    about_calls(harness.step(fetched(number, ListKind::Tools, FetchOutcome::Fetched)))
}

fn unknown(call: u64) -> Effect {
    resolve(call, Outcome::Unknown(gone()))
}

/// Whether a call that was lost after it was written is retried.
fn sent_again(is_tool: bool, safety: Safety, retry_policy: RetryPolicy) -> bool {
    let mut harness = connected();
    let call = NewCall {
        is_tool,
        safety,
        retry_policy,
        ..harness.read(1)
    };
    harness.call(call);
    let mut effects = reconnect(&mut harness, &[written(1)]);
    effects.extend(tools_known(&mut harness));
    let retried = [restart(1, 2)];
    assert!(effects == retried || effects == [unknown(1)], "{effects:?}");
    effects == retried
}

#[test]
fn a_lost_call_that_was_sent_is_retried_only_if_that_is_safe() {
    use RetryPolicy::{Always, Default, Never};
    use Safety::{Effectful, Repeatable, TrustedTool};
    //  a tool  safety             retry policy       retried
    let table = [
        (false, Repeatable, Default, true),
        (false, Repeatable, Always, true),
        (false, Repeatable, Never, false),
        (true, Effectful, Default, false),
        (true, Effectful, Always, true),
        (true, Effectful, Never, false),
        (true, TrustedTool, Default, true),
        (true, TrustedTool, Always, true),
        (true, TrustedTool, Never, false),
    ];
    for (is_tool, safety, policy, again) in table {
        let seen = sent_again(is_tool, safety, policy);
        assert_eq!(seen, again, "{safety:?} with the policy {policy:?}");
    }
}

#[test]
fn there_is_one_retry_in_total() {
    let mut harness = connected();
    harness.call(harness.read(1));
    assert_eq!(reconnect(&mut harness, &[written(1)]), [restart(1, 2)]);
    assert_eq!(reconnect(&mut harness, &[written(1)]), [unknown(1)]);
}

#[test]
fn sending_an_unwritten_call_again_is_never_a_retry() {
    let mut harness = connected();
    let careful = NewCall {
        retry_policy: RetryPolicy::Never,
        ..harness.tool(1)
    };
    harness.call(careful);
    for number in 2..=5 {
        assert_eq!(reconnect(&mut harness, &[unwritten(1)]), [start(1, number)]);
    }
    assert_eq!(reconnect(&mut harness, &[written(1)]), [unknown(1)]);
}

#[test]
fn returned_calls_keep_their_order_before_the_queued_ones() {
    let mut settings = ServerSettings::default();
    settings.admission.in_flight = 2;
    let mut harness = Harness::connected_with(settings, TOOLS);
    for call in 1..=4 {
        harness.call(harness.read(call));
    }
    let effects = reconnect(&mut harness, &[written(2), unwritten(1)]);
    assert_eq!(effects, [start(1, 2), restart(2, 2)]);
}

/// A trusted tool call was written on connection 1 and lost with it; connection 2 is up.
fn held() -> Harness {
    let mut harness = connected();
    let trusted = NewCall {
        safety: Safety::TrustedTool,
        ..harness.tool(1)
    };
    harness.call(trusted);
    assert_eq!(reconnect(&mut harness, &[written(1)]), []);
    harness
}

#[test]
fn a_retried_tool_call_waits_for_the_tools_of_the_new_connection() {
    let mut harness = held();
    assert_eq!(
        harness.call(harness.tool(2)),
        [start(2, 2)],
        "others do not"
    );
    assert_eq!(harness.machine.waiting(), 1);
    assert_eq!(tools_known(&mut harness), [restart(1, 2)]);
}

#[test]
fn a_retried_tool_call_fails_if_the_tools_cannot_be_listed() {
    for outcome in [FetchOutcome::Refused, FetchOutcome::Failed] {
        let mut harness = held();
        let effects = harness.step(fetched(2, ListKind::Tools, outcome));
        assert_eq!(about_calls(effects), [unknown(1)]);
    }
    let mut harness = held();
    assert_eq!(about_calls(harness.pass(secs(15))), [unknown(1)]);

    let mut without_tools = held();
    without_tools.lose(2, &[]);
    without_tools.tick();
    without_tools.step(Input::PermitGranted);
    assert_eq!(about_calls(without_tools.step(up(3))), [unknown(1)]);
}

#[test]
fn a_retried_tool_call_waits_for_the_tools_again_after_another_loss() {
    let mut settings = ServerSettings::default();
    settings.admission.in_flight = 1;
    let mut harness = Harness::connected_with(settings, TOOLS);
    let trusted = NewCall {
        safety: Safety::TrustedTool,
        ..harness.tool(1)
    };
    harness.call(trusted);
    reconnect(&mut harness, &[written(1)]);
    harness.call(harness.tool(2));
    assert_eq!(
        tools_known(&mut harness),
        [],
        "call 2 is in flight, and the limit is 1"
    );
    let effects = reconnect(&mut harness, &[written(2)]);
    assert_eq!(
        effects,
        [unknown(2)],
        "the tools of connection 3 are not listed yet"
    );
    assert_eq!(tools_known(&mut harness), [restart(1, 3)]);
}

#[test]
fn a_call_that_fails_before_its_retry_has_an_unknown_outcome() {
    let mut harness = held();
    assert_eq!(about_calls(harness.step(Input::Disable)), [unknown(1)]);

    let mut harness = held();
    assert_eq!(harness.step(cancelled(1)), [drop_call(1)]);

    // A call that was never sent ends as not sent.
    let mut harness = connected();
    harness.call(harness.tool(1));
    harness.lose(1, &[unwritten(1)]);
    let effects = about_calls(harness.step(Input::Disable));
    assert_eq!(effects, [not_sent(1, NotSent::Disabled)]);
}

//! Nothing with side effects runs twice by our doing, and nothing is retried twice (C3).

use super::bench::*;
use crate::machine::{Effect, Input, NewCall, NotSent, Outcome, ReturnedCall};
use crate::policy::listing::{FetchOutcome, ListKind};
use crate::policy::retry::{RetryPolicy, Safety};
use crate::settings::ServerSettings;

const TOOLS: &[ListKind] = &[ListKind::Tools];

/// Connected, by a server that has tools.
fn connected() -> Bench {
    Bench::connected_with(ServerSettings::default(), TOOLS)
}

/// Loses a connection and brings up the next; the effects about calls on the way.
fn reconnect(bench: &mut Bench, returned: &[ReturnedCall]) -> Vec<Effect> {
    let number = bench.generation();
    let mut effects = bench.lose(number, returned);
    if bench.machine.retry_at().is_some() {
        effects.extend(bench.tick());
    }
    effects.extend(bench.step(Input::PermitGranted));
    effects.extend(bench.step(up_with(number + 1, TOOLS)));
    about_calls(effects)
}

fn tools_known(bench: &mut Bench) -> Vec<Effect> {
    let number = bench.generation();
    about_calls(bench.step(fetched(number, ListKind::Tools, FetchOutcome::Fetched)))
}

fn unknown(call: u64) -> Effect {
    resolve(call, Outcome::Unknown(gone()))
}

/// Whether a call that was lost after it was written is sent again.
fn sent_again(is_tool: bool, safety: Safety, retry_policy: RetryPolicy) -> bool {
    let mut bench = connected();
    let call = NewCall {
        is_tool,
        safety,
        retry_policy,
        ..bench.read(1)
    };
    bench.call(call);
    let mut effects = reconnect(&mut bench, &[written(1)]);
    effects.extend(tools_known(&mut bench));
    let retried = [restart(1, 2)];
    assert!(effects == retried || effects == [unknown(1)], "{effects:?}");
    effects == retried
}

#[test]
fn what_was_sent_and_lost_is_sent_again_only_when_that_is_safe() {
    use RetryPolicy::{Always, Default, Never};
    use Safety::{Effectful, Repeatable, TrustedTool};
    //  a tool  may it run twice?  the caller's wish  sent again
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
    for (is_tool, safety, wish, again) in table {
        let seen = sent_again(is_tool, safety, wish);
        assert_eq!(seen, again, "{safety:?} with the wish {wish:?}");
    }
}

#[test]
fn there_is_one_retry_in_total() {
    let mut bench = connected();
    bench.call(bench.read(1));
    assert_eq!(reconnect(&mut bench, &[written(1)]), [restart(1, 2)]);
    assert_eq!(reconnect(&mut bench, &[written(1)]), [unknown(1)]);
}

#[test]
fn what_was_never_written_is_no_retry_however_often_it_comes_back() {
    let mut bench = connected();
    let careful = NewCall {
        retry_policy: RetryPolicy::Never,
        ..bench.tool(1)
    };
    bench.call(careful);
    for number in 2..=5 {
        assert_eq!(reconnect(&mut bench, &[unwritten(1)]), [start(1, number)]);
    }
    assert_eq!(reconnect(&mut bench, &[written(1)]), [unknown(1)]);
}

#[test]
fn calls_that_come_back_keep_their_order_before_those_that_waited() {
    let mut settings = ServerSettings::default();
    settings.admission.in_flight = 2;
    let mut bench = Bench::connected_with(settings, TOOLS);
    for call in 1..=4 {
        bench.call(bench.read(call));
    }
    let effects = reconnect(&mut bench, &[written(2), unwritten(1)]);
    assert_eq!(effects, [start(1, 2), restart(2, 2)]);
}

/// A trusted tool call that was written on connection 1 and lost with it; connection 2 is up.
fn held() -> Bench {
    let mut bench = connected();
    let trusted = NewCall {
        safety: Safety::TrustedTool,
        ..bench.tool(1)
    };
    bench.call(trusted);
    assert_eq!(reconnect(&mut bench, &[written(1)]), []);
    bench
}

#[test]
fn a_retried_tool_waits_until_the_tools_of_the_new_connection_are_known() {
    let mut bench = held();
    assert_eq!(bench.call(bench.tool(2)), [start(2, 2)], "others do not");
    assert_eq!(bench.machine.waiting(), 1);
    assert_eq!(tools_known(&mut bench), [restart(1, 2)]);
}

#[test]
fn a_retried_tool_is_given_up_when_the_tools_cannot_be_known() {
    for outcome in [FetchOutcome::Refused, FetchOutcome::Failed] {
        let mut bench = held();
        let effects = bench.step(fetched(2, ListKind::Tools, outcome));
        assert_eq!(about_calls(effects), [unknown(1)]);
    }
    let mut bench = held();
    assert_eq!(about_calls(bench.pass(secs(15))), [unknown(1)]);

    let mut without_tools = held();
    without_tools.lose(2, &[]);
    without_tools.tick();
    without_tools.step(Input::PermitGranted);
    assert_eq!(about_calls(without_tools.step(up(3))), [unknown(1)]);
}

#[test]
fn a_retried_tool_that_loses_the_next_connection_too_is_looked_at_again() {
    let mut settings = ServerSettings::default();
    settings.admission.in_flight = 1;
    let mut bench = Bench::connected_with(settings, TOOLS);
    let trusted = NewCall {
        safety: Safety::TrustedTool,
        ..bench.tool(1)
    };
    bench.call(trusted);
    reconnect(&mut bench, &[written(1)]);
    bench.call(bench.tool(2));
    assert_eq!(tools_known(&mut bench), [], "the only place is taken by 2");
    let effects = reconnect(&mut bench, &[written(2)]);
    assert_eq!(
        effects,
        [unknown(2)],
        "the tools of connection 3 are not known yet"
    );
    assert_eq!(tools_known(&mut bench), [restart(1, 3)]);
}

#[test]
fn a_call_that_waits_for_its_retry_is_unknown_when_it_ends_there() {
    let mut bench = held();
    assert_eq!(about_calls(bench.step(Input::Disable)), [unknown(1)]);

    let mut bench = held();
    assert_eq!(bench.step(left(1)), [forget(1)]);

    // Never sent, the same call would be known as such.
    let mut bench = connected();
    bench.call(bench.tool(1));
    bench.lose(1, &[unwritten(1)]);
    let effects = about_calls(bench.step(Input::Disable));
    assert_eq!(effects, [not_sent(1, NotSent::Disabled)]);
}

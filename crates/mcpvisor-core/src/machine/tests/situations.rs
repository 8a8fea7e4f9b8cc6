//! Every situation of a machine: a state with its step.

use super::harness::*;
use crate::machine::{Attempt, ConnectionEnd, Input, SleepPhase, State, TeardownPhase};
use crate::policy::listing::ListKind;
use crate::settings::ServerSettings;

/// A short name, the inputs that lead there after the start, and its meaning.
const SITUATIONS: &str = "
off | disable                                | disabled
bad | permit permanent                       | permanently_failed
Bc  | permit up call refused revoked         | permanently_failed: closing, login needed; call 1 is in flight
Cq  | call                                   | connecting: waiting for a permit; call 1 waits
Co  | call permit                            | connecting: opening; call 1 waits
Cc  | call permit transport                  | connecting: closing after a transport change; call 1 waits
L   | permit up call                         | connected; call 1 is in flight
Rd  | permit up call broken                  | reconnecting: draining; call 1 is in flight
Rc  | permit up call lost                    | reconnecting: closing; call 1 waits
Rw  | permit up call lost closed             | reconnecting: backing off; call 1 waits
Rq  | permit up call lost closed tick        | reconnecting: waiting for a permit; call 1 waits
Ro  | permit up call lost closed tick permit | reconnecting: opening; call 1 waits
Dw  | permit failed                          | disconnected: waiting for a probe
Dq  | permit failed rest call                | disconnected: call 1 woke it, waiting for a permit
Do  | permit failed rest call permit         | disconnected: call 1 woke it, opening
Dc  | permit tick                            | disconnected: closing after a timeout
Dd  | permit failed tick permit up call broken | disconnected: draining; call 1 is in flight
Xd  | permit up call disable                 | disabling: draining; call 1 is in flight
Xc  | permit disable                         | disabling: closing
Sc  | permit up tick                         | sleeping: closing
Sa  | permit up tick closed                  | sleeping: no connection
";

/// The short names, in order.
pub(super) fn columns() -> Vec<&'static str> {
    let first = |line: &'static str| line.split_whitespace().next();
    SITUATIONS.lines().filter_map(first).collect()
}

/// A machine in a situation. The newest connection has a list of tools.
pub(super) fn reach(code: &str) -> Harness {
    let mut harness = Harness::with(settings(code));
    harness.step(Input::Start);
    for step in steps_to(code).split_whitespace() {
        perform(&mut harness, step);
    }
    assert_eq!(code_of(&harness), code);
    harness
}

fn steps_to(code: &str) -> &'static str {
    let steps = |line: &'static str| {
        let mut cells = line.split('|').map(str::trim);
        cells.next().filter(|cell| *cell == code)?;
        cells.next()
    };
    let found = SITUATIONS.lines().find_map(steps);
    found.unwrap_or_else(|| panic!("unknown situation {code}"))
}

fn perform(harness: &mut Harness, step: &str) {
    let newest = harness.generation();
    let input = match step {
        "permit" => Input::PermitGranted,
        "up" => up_with(newest, &[ListKind::Tools]),
        "failed" => failed(newest),
        "permanent" => ended(newest, ConnectionEnd::Permanent(not_found())),
        "refused" => unauthorized(newest, 1),
        "revoked" => renewal_failed_permanently(),
        "call" => Input::Call(harness.read(1)),
        "lost" => lost(newest, &[unwritten(1)]),
        "closed" => closed(newest),
        "broken" => report_broken(newest),
        "disable" => Input::Disable,
        "transport" => Input::TransportChanged,
        "tick" => return drop(harness.tick()),
        "rest" => return harness.now += secs(2),
        _ => panic!("unknown step {step}"),
    };
    harness.step(input);
}

/// Calls have long timeouts, so that a tick concerns the connection. One connect spends the budget for the
/// disconnected situations.
fn settings(code: &str) -> ServerSettings {
    let mut settings = ServerSettings::default();
    settings.timeouts.reconnect_wait = secs(3_600);
    settings.timeouts.call = secs(3_600);
    settings.timeouts.idle = secs(3_600);
    settings.rest.sleep_after = code.starts_with('S').then(|| secs(10));
    settings.budget.attempts = if code.starts_with('D') { 1 } else { 10 };
    settings
}

/// The situation of a machine.
pub(super) fn code_of(harness: &Harness) -> &'static str {
    let step = |attempt: &Attempt| match attempt {
        Attempt::Draining { .. } => 'd',
        Attempt::Closing { .. } => 'c',
        Attempt::BackingOff { .. } => 'w',
        Attempt::AwaitingPermit => 'q',
        Attempt::Opening { .. } => 'o',
    };
    let code = match harness.state() {
        State::Connecting(attempt) => format!("C{}", step(attempt)),
        State::Connected(_) => "L".to_owned(),
        State::Reconnecting(attempt) => format!("R{}", step(attempt)),
        State::Disconnected(attempt) => format!("D{}", step(attempt)),
        State::Disabling(teardown) => match teardown.phase {
            TeardownPhase::Draining { .. } => "Xd".to_owned(),
            TeardownPhase::Closing { .. } => "Xc".to_owned(),
        },
        State::Sleeping(SleepPhase::Closing { .. }) => "Sc".to_owned(),
        State::Sleeping(SleepPhase::Asleep) => "Sa".to_owned(),
        State::Disabled => "off".to_owned(),
        State::PermanentlyFailed { closing: None, .. } => "bad".to_owned(),
        State::PermanentlyFailed {
            closing: Some(_), ..
        } => "Bc".to_owned(),
    };
    let column = columns().into_iter().find(|column| *column == code);
    column.unwrap_or_else(|| panic!("unknown situation {code}"))
}

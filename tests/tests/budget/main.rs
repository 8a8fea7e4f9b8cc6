//! How often a server is connected, when it is parked, and what reconnects it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

#[path = "../fleet/mod.rs"]
mod fleet;

mod governor;
mod pacing;
mod parking;
mod proof;

use std::time::Duration;

use mcpvisor::{Runtime, ServerHandle, ServerSettings, StateName};
use mcpvisor_testkit::eventually_in;
use mcpvisor_testkit::scripted::{Behaviour, Record, Script, ScriptedServer};

use fleet::{fleet, millis, secs, server, settings};

/// Connection attempts fail: the server exits during the handshake.
fn dead() -> Script {
    Script::new().on("initialize", Behaviour::end())
}

/// The intervals between connection attempts.
fn pauses(record: &Record) -> Vec<Duration> {
    let openings = record.openings();
    openings.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// Waits for a state without a limit, on paused time.
async fn in_time(handle: &ServerHandle, state: StateName) {
    let what = format!("{state}");
    eventually_in(secs(3_600), what, &mut handle.watch(), |status| {
        status.state == state
    })
    .await;
}

/// Starts a fleet of one without waiting.
async fn started(scripted: &ScriptedServer, settings: ServerSettings) -> (Runtime, ServerHandle) {
    let runtime = fleet([server("a", scripted.transport()).settings(settings)]).await;
    let handle = runtime.server("a").unwrap();
    (runtime, handle)
}

/// Without jitter, so that times are exact to the millisecond.
fn exact(change: impl FnOnce(&mut ServerSettings)) -> ServerSettings {
    settings(|settings| {
        settings.backoff.jitter = 0.0;
        change(settings);
    })
}

#[track_caller]
fn assert_about(pauses: &[Duration], expected: &[Duration]) {
    let close = |(pause, expected): (&Duration, &Duration)| {
        *pause >= *expected && *pause <= *expected + millis(5)
    };
    assert!(
        pauses.len() == expected.len() && pauses.iter().zip(expected).all(close),
        "{pauses:?}, expected about {expected:?}"
    );
}

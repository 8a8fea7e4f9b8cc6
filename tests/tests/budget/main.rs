//! How often a server is connected, when it is left alone, and what brings it back.

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

/// Connects fail: the server ends in the middle of the handshake.
fn dead() -> Script {
    Script::new().on("initialize", Behaviour::end())
}

/// The times between one connect and the next.
fn pauses(record: &Record) -> Vec<Duration> {
    let openings = record.openings();
    openings.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// Waits for a state for as long as it takes on paused time.
async fn in_time(handle: &ServerHandle, state: StateName) {
    let what = format!("{state}");
    eventually_in(secs(3_600), what, &mut handle.watch(), |status| {
        status.state == state
    })
    .await;
}

/// A fleet of one, of which nothing is awaited.
async fn started(scripted: &ScriptedServer, settings: ServerSettings) -> (Runtime, ServerHandle) {
    let runtime = fleet([server("a", scripted.transport()).settings(settings)]).await;
    let handle = runtime.server("a").unwrap();
    (runtime, handle)
}

/// Without jitter, so that times are exact; timers are exact to the millisecond.
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

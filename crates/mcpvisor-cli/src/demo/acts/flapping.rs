//! Act 3: a server flaps until it is parked, then it is fixed and woken by a call.

use std::time::{Duration, Instant};

use mcpvisor::{ServerStatus, StateName};
use serde_json::json;

use super::{describe, ms};
use crate::demo::background_calls::BackgroundCalls;
use crate::demo::sandbox::{WEATHER, WEATHER_ATTEMPTS, lower, raise};
use crate::demo::{Demo, processes};
use crate::failure::Failure;
use crate::screen::Tone;

/// Limit for the budget to be spent.
const PARKED: Duration = Duration::from_secs(20);

pub(super) async fn play(demo: &mut Demo, background: &BackgroundCalls) -> Result<(), Failure> {
    demo.narrator.act(
        "Act 3: weather flaps",
        "It now exits after every handshake. A naive client would restart it forever.",
    );
    background.weather(false).await;
    let before = demo.sandbox.started(WEATHER);
    let pid = before.last().copied();
    let pid = pid.ok_or_else(|| Failure::unexpected("weather has no process"))?;
    let answered = demo.agents.tally.counts().answered;
    raise(&demo.sandbox.flap())?;
    demo.narrator.line(
        Tone::Fault,
        "fault",
        &format!("kill -9 {pid}; every restart will exit too"),
    );
    let killed = Instant::now();
    processes::kill(pid)?;
    let parked = parked(demo).await?;
    let took = killed.elapsed();
    demo.narrator.pause(Duration::from_millis(500)).await;
    let tries = demo.sandbox.started(WEATHER).len() - before.len();
    tell_parked(demo, parked.as_ref(), tries, took);
    demo.narrator.pause(Duration::from_millis(1_000)).await;
    let meanwhile = demo.agents.tally.counts().answered - answered;
    let text = format!("{meanwhile} calls to other servers answered meanwhile");
    demo.narrator.line(Tone::Good, "agents", &text);
    heal(demo).await?;
    background.weather(true).await;
    demo.narrator.pause(Duration::from_millis(1_500)).await;
    Ok(())
}

/// Waits until the server is parked.
async fn parked(demo: &Demo) -> Result<Option<ServerStatus>, Failure> {
    let server = demo.runtime.server(WEATHER).map_err(Failure::unexpected)?;
    let mut status = server.watch();
    let parked = status.wait_for(|status| status.state == StateName::Disconnected);
    let parked = tokio::time::timeout(PARKED, parked).await;
    Ok(parked
        .ok()
        .and_then(Result::ok)
        .map(|status| status.clone()))
}

fn tell_parked(demo: &mut Demo, parked: Option<&ServerStatus>, tries: usize, took: Duration) {
    let probe = parked.and_then(ServerStatus::retry_in);
    let probe = probe.map_or_else(String::new, |wait| {
        format!("; next probe in {:.0} s, or on a call", wait.as_secs_f64())
    });
    let text = format!("parked after {tries} attempts in {}{probe}", ms(took));
    demo.narrator.line(Tone::Bad, WEATHER, &text);
    demo.check("a flapping server is parked", parked.is_some());
    let within = tries >= 1 && tries <= WEATHER_ATTEMPTS as usize;
    demo.check("a flapping server stays within its budget", within);
}

/// Fixes the server, and wakes it with a call.
async fn heal(demo: &mut Demo) -> Result<(), Failure> {
    lower(&demo.sandbox.flap())?;
    demo.narrator.line(
        Tone::Plain,
        "fix",
        "weather works again; the fleet is not notified",
    );
    demo.narrator.pause(Duration::from_millis(1_000)).await;
    demo.narrator.line(
        Tone::Plain,
        "planner",
        "calls weather.forecast, which wakes the parked server",
    );
    let report = demo
        .agents
        .planner()
        .call(WEATHER, "forecast", json!({ "city": "Lisbon" }))
        .await;
    let text = format!(
        "{} after {}, connecting included",
        describe(&report),
        ms(report.took)
    );
    demo.narrator.line(Tone::Good, "planner", &text);
    demo.check("a call wakes a parked server", report.is_answered());
    demo.recoveries.push(report.took);
    Ok(())
}

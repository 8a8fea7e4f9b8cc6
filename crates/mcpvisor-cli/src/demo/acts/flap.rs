//! Act 3: a server flaps until it is parked, then it is mended and woken by a call.

use std::time::{Duration, Instant};

use mcpvisor::{ServerStatus, StateName};
use serde_json::json;

use super::{ms, words};
use crate::demo::load::Load;
use crate::demo::scenery::{WEATHER, WEATHER_ATTEMPTS, lower, raise};
use crate::demo::stage::Tone;
use crate::demo::{Demo, processes};
use crate::failure::Failure;

/// The budget must be spent by then.
const PARKED: Duration = Duration::from_secs(20);

pub(super) async fn play(demo: &mut Demo, load: &Load) -> Result<(), Failure> {
    demo.stage.act(
        "Act 3: weather flaps",
        "From now on it dies right after every handshake. A naive client would start it for ever.",
    );
    load.weather(false).await;
    let before = demo.scenery.started(WEATHER);
    let pid = before.last().copied();
    let pid = pid.ok_or_else(|| Failure::unexpected("weather has no process"))?;
    let answered = demo.agents.tally().counts().answered;
    raise(&demo.scenery.flap())?;
    demo.stage.line(
        Tone::Fault,
        "fault",
        &format!("kill -9 {pid}, and its successors will not live either"),
    );
    let killed = Instant::now();
    processes::kill(pid).map_err(|error| Failure::unexpected(format!("kill: {error}")))?;
    let parked = parked(demo).await?;
    let took = killed.elapsed();
    demo.stage.pause(Duration::from_millis(500)).await;
    let tries = demo.scenery.started(WEATHER).len() - before.len();
    tell_parked(demo, parked.as_ref(), tries, took);
    demo.stage.pause(Duration::from_millis(1_000)).await;
    let meanwhile = demo.agents.tally().counts().answered - answered;
    let text = format!("{meanwhile} calls to the other servers were answered meanwhile");
    demo.stage.line(Tone::Good, "agents", &text);
    heal(demo).await?;
    load.weather(true).await;
    demo.stage.pause(Duration::from_millis(1_500)).await;
    Ok(())
}

/// Waits until the server is parked.
async fn parked(demo: &Demo) -> Result<Option<ServerStatus>, Failure> {
    let server = demo.runtime.server(WEATHER);
    let server = server.map_err(|error| Failure::unexpected(error.to_string()))?;
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
        format!(
            "; looks again in {:.0} s, or when called",
            wait.as_secs_f64()
        )
    });
    let text = format!("parked after {tries} tries in {}{probe}", ms(took));
    demo.stage.line(Tone::Bad, WEATHER, &text);
    demo.promises
        .check("a flapping server is parked", parked.is_some());
    let within = tries >= 1 && tries <= WEATHER_ATTEMPTS as usize;
    demo.promises
        .check("a flapping server stays within its budget", within);
}

/// Mends the server, and wakes it with a call.
async fn heal(demo: &mut Demo) -> Result<(), Failure> {
    lower(&demo.scenery.flap())?;
    demo.stage.line(
        Tone::Plain,
        "mend",
        "weather would live again, but nobody tells the fleet",
    );
    demo.stage.pause(Duration::from_millis(1_000)).await;
    demo.stage.line(
        Tone::Plain,
        "planner",
        "calls weather.forecast: a call wakes a parked server",
    );
    let told = demo
        .agents
        .planner()
        .call(WEATHER, "forecast", json!({ "city": "Lisbon" }))
        .await;
    let text = format!(
        "{} after {}, connecting included",
        words(&told),
        ms(told.took)
    );
    demo.stage.line(Tone::Good, "planner", &text);
    demo.promises
        .check("a mended server is woken by a call", told.is_answered());
    demo.recoveries.push(told.took);
    Ok(())
}

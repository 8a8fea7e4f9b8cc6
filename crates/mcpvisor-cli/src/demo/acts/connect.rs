//! Act 1: everyone connects, and the agents begin to work.

use std::time::Duration;

use crate::demo::Demo;
use crate::demo::sandbox::{NOTES, ORDERS, WEATHER};
use crate::failure::Failure;
use crate::screen::Tone;

/// All servers must be connected by then.
const READY: Duration = Duration::from_secs(20);

pub(super) async fn play(demo: &mut Demo) -> Result<(), Failure> {
    demo.narrator.act(
        "Act 1: everyone connects",
        "Four servers: notes and weather are processes of their own, clock lives in this one,\n\
         orders is reached over HTTP.\n\
         Four agents share them: planner, coder, reviewer and tester.",
    );
    let ready = demo.runtime.ready(READY).await;
    demo.promises.check("all servers connect", ready.is_ok());
    ready.map_err(|error| Failure::unexpected(error.to_string()))?;
    for status in demo.runtime.status() {
        let name = status.name.as_str();
        let process = match demo.sandbox.started(name).last() {
            Some(pid) => format!("process {pid}"),
            None => "no process".to_owned(),
        };
        let text = format!("{}, {process}, tools: {}", status.transport, status.tools);
        demo.narrator.line(Tone::Plain, name, &text);
    }
    Ok(())
}

/// Lets the agents work for a while.
pub(super) async fn warm_up(demo: &mut Demo) {
    demo.narrator.line(
        Tone::Plain,
        "agents",
        "begin to call all servers, again and again",
    );
    demo.narrator.pause(Duration::from_millis(2_500)).await;
    let counts = demo.agents.tally().counts();
    let started = [NOTES, WEATHER, ORDERS].map(|name| demo.sandbox.started(name).len());
    let processes: usize = started.iter().sum();
    let text = format!(
        "{} calls answered by {processes} processes",
        counts.answered
    );
    demo.narrator.line(Tone::Good, "agents", &text);
}

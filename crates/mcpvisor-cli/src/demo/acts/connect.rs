//! Act 1: all servers connect, and the agents start.

use std::time::Duration;

use crate::demo::Demo;
use crate::demo::sandbox::{NOTES, ORDERS, WEATHER};
use crate::failure::Failure;
use crate::screen::Tone;

/// Limit for all servers to connect.
const READY: Duration = Duration::from_secs(20);

pub(super) async fn play(demo: &mut Demo) -> Result<(), Failure> {
    demo.narrator.act(
        "Act 1: connect",
        "Four servers: notes and weather are child processes, clock runs in this process,\n\
         orders is an HTTP server.\n\
         Four agents share them: planner, coder, reviewer and tester.",
    );
    let ready = demo.runtime.ready(READY).await;
    demo.check("all servers connect", ready.is_ok());
    ready.map_err(Failure::unexpected)?;
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

/// Lets the agents call for a while.
pub(super) async fn warm_up(demo: &mut Demo) {
    demo.narrator
        .line(Tone::Plain, "agents", "start calling all servers");
    demo.narrator.pause(Duration::from_millis(2_500)).await;
    let counts = demo.agents.tally.counts();
    let started = [NOTES, WEATHER, ORDERS].map(|name| demo.sandbox.started(name).len());
    let processes: usize = started.iter().sum();
    let text = format!(
        "{} calls answered by {processes} processes",
        counts.answered
    );
    demo.narrator.line(Tone::Good, "agents", &text);
}

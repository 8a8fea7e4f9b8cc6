//! Faults at random, for demos that are asked to last: a process is killed, comes back, and the next
//! one is chosen by the seed.

use std::time::{Duration, Instant};

use mcpvisor::StateName;

use super::sandbox::{NOTES, WEATHER};
use super::{Demo, processes};
use crate::failure::Failure;
use crate::screen::Tone;

/// A killed server is back by then.
const BACK: Duration = Duration::from_secs(20);

/// The last acts need this long.
const REST: Duration = Duration::from_secs(4);

/// A pause between two faults, in milliseconds.
const BETWEEN: std::ops::Range<u64> = 300..1_200;

/// Kills one of the servers again and again until the demo has lasted as long as it should.
pub(super) async fn play(demo: &mut Demo) -> Result<(), Failure> {
    let until = demo.options.length.saturating_sub(REST);
    if demo.narrator.elapsed() >= until {
        return Ok(());
    }
    demo.narrator.act(
        "A random_faults",
        "Servers are killed at random. The seed says which, and when.",
    );
    let mut chance = fastrand::Rng::with_seed(demo.options.seed);
    let mut faults = 0;
    let mut all_back = true;
    while demo.narrator.elapsed() < until {
        tokio::time::sleep(Duration::from_millis(chance.u64(BETWEEN))).await;
        let server = if chance.bool() { NOTES } else { WEATHER };
        all_back &= strike(demo, server).await?;
        faults += 1;
    }
    let text = format!("{faults} faults, every server is back");
    if all_back {
        demo.narrator.line(Tone::Good, "fleet", &text);
    }
    demo.promises
        .check("after every fault the server came back", all_back);
    Ok(())
}

/// Kills a server's process, and says whether it came back.
async fn strike(demo: &mut Demo, name: &str) -> Result<bool, Failure> {
    let server = demo.runtime.server(name);
    let server = server.map_err(|error| Failure::unexpected(error.to_string()))?;
    let before = server.status().generation;
    let Some(pid) = demo.sandbox.started(name).last().copied() else {
        return Ok(false);
    };
    demo.narrator
        .line(Tone::Fault, "fault", &format!("kill -9 {pid}: {name}"));
    let killed = Instant::now();
    processes::kill(pid).map_err(|error| Failure::unexpected(format!("kill: {error}")))?;
    let mut status = server.watch();
    let back = status
        .wait_for(|status| status.state == StateName::Connected && status.generation > before);
    let back = tokio::time::timeout(BACK, back)
        .await
        .is_ok_and(|back| back.is_ok());
    if back {
        demo.recoveries.push(killed.elapsed());
    }
    Ok(back)
}

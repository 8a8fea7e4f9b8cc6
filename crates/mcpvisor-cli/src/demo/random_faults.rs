//! Random faults for long demos: kills a server, waits until it is back, and repeats. The seed
//! chooses which and when.

use std::time::{Duration, Instant};

use mcpvisor::StateName;

use super::sandbox::{NOTES, WEATHER};
use super::{Demo, processes};
use crate::failure::Failure;
use crate::screen::Tone;

/// Limit for a killed server to reconnect.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Time reserved for the last acts.
const RESERVED: Duration = Duration::from_secs(4);

/// The pause between two faults, in milliseconds.
const PAUSE_MS: std::ops::Range<u64> = 300..1_200;

/// Kills servers until only the reserved time is left.
pub(super) async fn play(demo: &mut Demo) -> Result<(), Failure> {
    let until = demo.options.length.saturating_sub(RESERVED);
    if demo.narrator.elapsed() >= until {
        return Ok(());
    }
    demo.narrator.act(
        "Random faults",
        "Servers are killed at random, chosen by the seed.",
    );
    let mut chance = fastrand::Rng::with_seed(demo.options.seed);
    let mut faults = 0;
    let mut all_back = true;
    while demo.narrator.elapsed() < until {
        tokio::time::sleep(Duration::from_millis(chance.u64(PAUSE_MS))).await;
        let server = if chance.bool() { NOTES } else { WEATHER };
        all_back &= kill_server(demo, server).await?;
        faults += 1;
    }
    let text = format!("{faults} faults, every server reconnected");
    if all_back {
        demo.narrator.line(Tone::Good, "fleet", &text);
    }
    demo.check("every server reconnected after its faults", all_back);
    Ok(())
}

/// Kills a server's process. Returns whether it reconnected.
async fn kill_server(demo: &mut Demo, name: &str) -> Result<bool, Failure> {
    let server = demo.runtime.server(name).map_err(Failure::unexpected)?;
    let before = server.status().generation;
    let Some(pid) = demo.sandbox.started(name).last().copied() else {
        return Ok(false);
    };
    demo.narrator
        .line(Tone::Fault, "fault", &format!("kill -9 {pid}: {name}"));
    let killed = Instant::now();
    processes::kill(pid)?;
    let mut status = server.watch();
    let back = status
        .wait_for(|status| status.state == StateName::Connected && status.generation > before);
    let back = tokio::time::timeout(RECONNECT_TIMEOUT, back)
        .await
        .is_ok_and(|back| back.is_ok());
    if back {
        demo.recoveries.push(killed.elapsed());
    }
    Ok(back)
}

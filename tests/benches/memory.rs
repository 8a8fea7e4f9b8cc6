//! What an idle server weighs in the process that calls it.

use std::process::Command;

use crate::report::{Row, Verdict, median};
use crate::side::{Side, Way};
use crate::{Outcome, bare, ours};

/// Servers of a weighed fleet in one process.
pub(crate) const IN_PROCESS_SERVERS: usize = 1_000;

/// Servers of a weighed fleet of child processes.
const STDIO_SERVERS: usize = 100;

/// Servers that are started before the scales are set to zero: the program's own pages that come in
/// with the first of them are no part of what one more server weighs.
const SERVERS_BEFORE: usize = 5;

/// How many processes are weighed on each side.
const WEIGHINGS: usize = 5;

/// Weighs idle fleets in processes of their own; the difference is what the runtime adds. In-process
/// servers have both ends in the weighed process, on both sides.
pub(crate) fn added(way: Way, gate: f64) -> Outcome<Row> {
    let mut weights = Vec::with_capacity(WEIGHINGS);
    for _ in 0..WEIGHINGS {
        weights.push((
            weigh_process(Side::Ours, way)?,
            weigh_process(Side::Bare, way)?,
        ));
    }
    let added = median(weights.iter().map(|weight| weight.0 - weight.1));
    Ok(Row {
        measure: format!("{}: memory added to an idle server", way.word()),
        unit: "KiB",
        ours: median(weights.iter().map(|weight| weight.0)),
        bare: Some(median(weights.iter().map(|weight| weight.1))),
        verdict: Verdict::Amount(added),
        gate: Some(gate),
        tries: Vec::new(),
    })
}

fn weigh_process(side: Side, way: Way) -> Outcome<f64> {
    let output = Command::new(std::env::current_exe()?)
        .args(["weigh", side.word(), way.word()])
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

/// What a weighed process does: builds a fleet and gives the KiB that each server added. The fleet
/// is not closed: the process ends with the figure, and its children with it.
pub(crate) async fn weigh(side: Side, way: Way) -> Outcome<f64> {
    let servers = match way {
        Way::Stdio => STDIO_SERVERS,
        Way::InProcess => IN_PROCESS_SERVERS,
        Way::Http => Err("servers over HTTP are not weighed")?,
    };
    start_and_keep(side, way, SERVERS_BEFORE).await?;
    let before = resident_kib()?;
    start_and_keep(side, way, servers).await?;
    Ok((resident_kib()? - before) / servers as f64)
}

async fn start_and_keep(side: Side, way: Way, servers: usize) -> Outcome<()> {
    match (side, way) {
        (Side::Ours, way) => std::mem::forget(ours::fleet(way, servers).await?),
        (Side::Bare, Way::Http) => {}
        (Side::Bare, Way::Stdio) => std::mem::forget(bare::fleet(servers, bare::stdio).await?),
        (Side::Bare, Way::InProcess) => {
            std::mem::forget(bare::fleet(servers, bare::InProcess::connect).await?);
        }
    }
    Ok(())
}

/// The memory of this process that is really in use, from the kernel.
fn resident_kib() -> Outcome<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib.ok_or("the kernel does not say VmRSS")?.parse()?)
}

//! Memory per idle server in the process that calls it.

use std::process::Command;

use crate::report::{Row, Verdict, median};
use crate::side::{Side, Way};
use crate::{Outcome, bare, ours};

/// Servers of a measured in-process fleet.
pub(crate) const IN_PROCESS_SERVERS: usize = 1_000;

/// Servers of a measured fleet of child processes.
const STDIO_SERVERS: usize = 100;

/// Servers started before the baseline is taken. The first ones load pages of the program itself,
/// which are not part of the cost of one more server.
const SERVERS_BEFORE: usize = 5;

/// Measured processes per side.
const WEIGHINGS: usize = 5;

/// Measures idle fleets in separate processes; the difference is what the runtime adds. In-process
/// servers have both ends in the measured process, on both sides.
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

/// The main function of a measured process: builds a fleet and returns the KiB added per server. It
/// does not close the fleet: the process exits with the figure, and its children end with it.
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

/// Resident memory of this process, from the kernel.
pub(crate) fn resident_kib() -> Outcome<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib.ok_or("the kernel does not say VmRSS")?.parse()?)
}

//! Act 4: an HTTP server drops its sessions, then dies and restarts on its port.

use std::time::{Duration, Instant};

use mcpvisor::ServerHandle;

use super::{describe, ms};
use crate::demo::Demo;
use crate::demo::processes::wait_until;
use crate::demo::sandbox::{ORDERS, raise};
use crate::failure::Failure;
use crate::screen::Tone;

/// Limit for the server to drop its sessions.
const DROP_TIMEOUT: Duration = Duration::from_secs(10);

/// Downtime of the server.
const DOWNTIME: Duration = Duration::from_millis(300);

pub(super) async fn play(demo: &mut Demo) -> Result<(), Failure> {
    demo.narrator.act(
        "Act 4: orders forgets its sessions, then restarts",
        "It is an HTTP server, and every agent calls it. The fleet is not notified.",
    );
    let server = demo.runtime.server(ORDERS).map_err(Failure::unexpected)?;
    forget(demo, &server).await?;
    demo.narrator.pause(Duration::from_millis(1_500)).await;
    restart(demo).await?;
    demo.narrator.pause(Duration::from_millis(1_500)).await;
    Ok(())
}

async fn forget(demo: &mut Demo, server: &ServerHandle) -> Result<(), Failure> {
    let before = server.status().generation.get();
    demo.narrator.line(
        Tone::Fault,
        "fault",
        "orders forgets every session while calls are in flight",
    );
    let flag = demo.sandbox.forget();
    raise(&flag)?;
    if !wait_until(DROP_TIMEOUT, || !flag.exists()).await {
        return Err(Failure::unexpected("orders did not drop its sessions"));
    }
    let coder = demo.agents.coder();
    let report = coder.order("a better memory").await;
    let text = format!(
        "calls orders.place: {} after {}; a call refused for its session did not run, so it was retried",
        describe(&report),
        ms(report.took)
    );
    demo.narrator.line(Tone::Good, coder.name, &text);
    demo.check(
        "a call with a lost session is answered",
        report.is_answered(),
    );
    let reconnects = server.status().generation.get() - before;
    let text = format!("all agents share the new session: {reconnects} reconnect");
    demo.narrator.line(Tone::Good, "agents", &text);
    demo.check(
        "a lost session costs one reconnect for all agents",
        reconnects == 1,
    );
    demo.recoveries.push(report.took);
    Ok(())
}

async fn restart(demo: &mut Demo) -> Result<(), Failure> {
    let pid = demo.orders.kill();
    let pid = pid.ok_or_else(|| Failure::unexpected("orders has no process"))?;
    let text = format!("kill -9 {pid}; restarted after {}", ms(DOWNTIME));
    demo.narrator.line(Tone::Fault, "fault", &text);
    tokio::time::sleep(DOWNTIME).await;
    demo.orders.start().await?;
    let back = Instant::now();
    demo.narrator
        .line(Tone::Plain, "fix", "orders listens on its port again");
    let planner = demo.agents.planner();
    let report = planner.order("a spare process").await;
    let by = report
        .pid()
        .map_or_else(String::new, |pid| format!(" by the new process {pid}"));
    let text = format!(
        "calls orders.place: {}{by}, {} after the restart",
        describe(&report),
        ms(back.elapsed())
    );
    demo.narrator.line(Tone::Good, planner.name, &text);
    let found = report.is_answered() && report.pid() != Some(pid);
    demo.check("a restarted HTTP server is reconnected", found);
    demo.recoveries.push(report.took);
    Ok(())
}

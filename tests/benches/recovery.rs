//! A stdio server is killed with SIGKILL: time until the next call is answered, and until calls in
//! flight fail.

use std::time::{Duration, Instant};

use mcpvisor::ServerHandle;
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinSet;

use crate::caller::Caller;
use crate::plan::Plan;
use crate::report::{Both, Row, percentile};
use crate::{Outcome, bare, ours};

/// Calls in flight when the server is killed.
const IN_FLIGHT: usize = 16;

/// Kills for timing the calls in flight.
const KILLS: usize = 60;

/// How long a call in flight would run if its server survived.
const LONG: Duration = Duration::from_secs(60);

/// Upper bound for each step, unless something is broken.
const PATIENCE: Duration = Duration::from_secs(20);

/// From the kill to the next reply, compared with a manual spawn, handshake and call.
pub(crate) async fn next_answer(plan: &Plan, gate: f64) -> Outcome<Row> {
    let ours = ours::stdio().await?;
    let caller = ours.caller()?;
    let mut rounds = Vec::with_capacity(plan.kills);
    for _ in 0..plan.kills {
        let ours_time = tokio::time::timeout(PATIENCE, kill_and_call(&caller)).await??;
        let bare_time = tokio::time::timeout(PATIENCE, spawn_and_call()).await??;
        rounds.push((millis(ours_time), millis(bare_time)));
    }
    ours.close().await;
    let measure = "stdio: SIGKILL to the next answered call";
    let both = Both::of_rounds(&rounds);
    Ok(Row::ratio(measure, "ms", both, Some(gate)))
}

async fn kill_and_call(caller: &impl Caller) -> Outcome<Duration> {
    let pid = caller.pid().await?;
    let start = Instant::now();
    kill(pid)?;
    // A call written before the death was noticed has an unknown outcome. Retry, as a user would.
    while caller.echo().await.is_err() {
        tokio::task::yield_now().await;
    }
    Ok(start.elapsed())
}

async fn spawn_and_call() -> Outcome<Duration> {
    let start = Instant::now();
    let client = bare::stdio().await?;
    client.peer().echo().await?;
    let took = start.elapsed();
    client.cancel().await?;
    Ok(took)
}

/// From the kill to the outcome of each call in flight.
pub(crate) async fn in_flight(gate: f64) -> Outcome<[Row; 3]> {
    let ours = ours::stdio().await?;
    let caller = ours.caller()?;
    let mut times = Vec::with_capacity(KILLS * IN_FLIGHT);
    for _ in 0..KILLS {
        let seen = tokio::time::timeout(PATIENCE, kill_with_calls(&caller)).await??;
        times.extend(seen.into_iter().map(millis));
    }
    ours.close().await;
    let row = |name: &str, share: f64, gate: Option<f64>| {
        let measure = format!("stdio: SIGKILL to outcomes in flight, {name}");
        let time = percentile(times.iter().copied(), share);
        Row::amount(measure, "ms", time, gate)
    };
    Ok([
        row("median", 0.5, None),
        row("p99", 0.99, Some(gate)),
        row("max", 1.0, Some(gate)),
    ])
}

async fn kill_with_calls(caller: &ServerHandle) -> Outcome<Vec<Duration>> {
    let pid = answered(caller).await?;
    let mut calls = JoinSet::new();
    for _ in 0..IN_FLIGHT {
        let caller = caller.clone();
        calls.spawn(async move { (caller.sleep(LONG).await.is_err(), Instant::now()) });
    }
    while caller.status().in_flight < IN_FLIGHT {
        tokio::task::yield_now().await;
    }
    // Requests are written in order: once this one is answered, the server has received the earlier
    // ones.
    answered(caller).await?;

    let start = Instant::now();
    kill(pid)?;
    let mut times = Vec::with_capacity(IN_FLIGHT);
    while let Some(ended) = calls.join_next().await {
        let (failed, at) = ended?;
        if !failed {
            return Err("a call outlived its server".into());
        }
        times.push(at.saturating_duration_since(start));
    }
    Ok(times)
}

/// The pid in the first reply, after any number of attempts.
async fn answered(caller: &impl Caller) -> Outcome<i32> {
    loop {
        match caller.pid().await {
            Ok(pid) => return Ok(pid),
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

fn kill(pid: i32) -> Outcome<()> {
    let pid = Pid::from_raw(pid).ok_or("not a pid")?;
    Ok(kill_process(pid, Signal::KILL)?)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

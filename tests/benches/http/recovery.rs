//! An HTTP server dies and restarts on its port: time until the next call is answered, and until
//! calls in flight fail.

use std::time::{Duration, Instant};

use mcpvisor::ServerHandle;
use mcpvisor_testkit::http_server::{HttpOptions, HttpServer};
use serde_json::json;
use tokio::task::JoinSet;

use crate::Outcome;
use crate::caller::Caller;
use crate::plan::Plan;
use crate::report::{Both, Row, percentile};

use super::bare;
use super::ours;

/// Calls in flight when the server dies.
const IN_FLIGHT: usize = 16;

/// Deaths for timing the calls in flight.
const DEATHS: usize = 40;

/// How long a call in flight would run if its server survived.
const LONG_MS: u64 = 60_000;

/// Upper bound for each step, unless something is broken.
const PATIENCE: Duration = Duration::from_secs(20);

/// From the open port to the next reply, compared with a manual connect, handshake and call by an
/// existing client.
pub(crate) async fn next_answer(plan: &Plan, gate: f64) -> Outcome<Row> {
    let server = HttpServer::start(HttpOptions::sse()).await;
    let ours = ours::connect(&server.url()).await?;
    let caller = ours.caller()?;
    let client = bare::unpooled()?;
    let mut rounds = Vec::with_capacity(plan.kills);
    for _ in 0..plan.kills {
        let ours_time = restart_and_call(&server, &caller);
        let ours_time = tokio::time::timeout(PATIENCE, ours_time).await??;
        let bare_time =
            tokio::time::timeout(PATIENCE, connect_and_call(&client, &server)).await??;
        rounds.push((millis(ours_time), millis(bare_time)));
    }
    ours.close().await;
    let measure = "http: back on its port to the next answered call";
    let both = Both::of_rounds(&rounds);
    Ok(Row::ratio(measure, "ms", both, Some(gate)))
}

async fn restart_and_call(server: &HttpServer, caller: &ServerHandle) -> Outcome<Duration> {
    caller.echo().await?;
    server.restart().await;
    let start = Instant::now();
    // A call written before the death was noticed has an unknown outcome. Retry, as a user would.
    while caller.echo().await.is_err() {
        tokio::task::yield_now().await;
    }
    Ok(start.elapsed())
}

async fn connect_and_call(client: &reqwest::Client, server: &HttpServer) -> Outcome<Duration> {
    let start = Instant::now();
    let client = bare::connect_with(client.clone(), &server.url()).await?;
    client.peer().echo().await?;
    let took = start.elapsed();
    client.cancel().await?;
    Ok(took)
}

/// From the closed sockets to the outcome of each call in flight.
pub(crate) async fn in_flight(gate: f64) -> Outcome<[Row; 3]> {
    let server = HttpServer::start(HttpOptions::sse()).await;
    let ours = ours::connect(&server.url()).await?;
    let caller = ours.caller()?;
    let mut times = Vec::with_capacity(DEATHS * IN_FLIGHT);
    for round in 0..DEATHS {
        let seen = die_with_calls(&server, &caller, round);
        let seen = tokio::time::timeout(PATIENCE, seen).await??;
        times.extend(seen.into_iter().map(millis));
    }
    ours.close().await;
    let row = |name: &str, share: f64, gate: Option<f64>| {
        let measure = format!("http: closed socket to outcomes in flight, {name}");
        let time = percentile(times.iter().copied(), share);
        Row::amount(measure, "ms", time, gate)
    };
    Ok([
        row("median", 0.5, None),
        row("p99", 0.99, Some(gate)),
        row("max", 1.0, None),
    ])
}

async fn die_with_calls(
    server: &HttpServer,
    caller: &ServerHandle,
    round: usize,
) -> Outcome<Vec<Duration>> {
    while caller.echo().await.is_err() {
        tokio::task::yield_now().await;
    }
    let mut calls = JoinSet::new();
    for number in 0..IN_FLIGHT {
        let arguments = json!({ "key": format!("{round}-{number}"), "ms": LONG_MS });
        let call = caller.call_tool("run", arguments);
        calls.spawn(async move { (call.await.is_err(), Instant::now()) });
    }
    while server.all_runs() < ((round + 1) * IN_FLIGHT) as u64 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    server.stop().await;
    let start = Instant::now();
    let mut times = Vec::with_capacity(IN_FLIGHT);
    while let Some(ended) = calls.join_next().await {
        let (failed, at) = ended?;
        if !failed {
            return Err("a call outlived its server".into());
        }
        times.push(at.saturating_duration_since(start));
    }
    server.resume().await;
    Ok(times)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

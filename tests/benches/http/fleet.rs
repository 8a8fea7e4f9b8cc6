//! A thousand servers over HTTP: time until they are ready.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::Outcome;
use crate::plan::Plan;
use crate::report::{Both, Row};

use super::bare;
use super::ours;
use super::server::{Packets, Server};

/// Sessions opened concurrently.
const SERVERS: usize = 1_000;

/// Rounds per side.
const ROUNDS: usize = 5;

/// Starts fleets, alternating between the sides, until every server has answered.
pub(crate) async fn ready(_: &Plan, gate: f64) -> Outcome<Row> {
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        // A fresh process for each side, so that neither shares sessions with the other.
        let ours_time = ours_ready(&Server::start(Packets::AtOnce).await?).await?;
        let bare_time = bare_ready(&Server::start(Packets::AtOnce).await?).await?;
        rounds.push((millis(ours_time), millis(bare_time)));
    }
    let measure = format!("{SERVERS} http servers: ready");
    let both = Both::of_rounds(&rounds);
    Ok(Row::ratio(measure, "ms", both, Some(gate)))
}

async fn ours_ready(server: &Server) -> Outcome<Duration> {
    let start = Instant::now();
    let fleet = ours::fleet(server.url(), SERVERS).await?;
    let took = start.elapsed();
    fleet.close().await;
    Ok(took)
}

async fn bare_ready(server: &Server) -> Outcome<Duration> {
    let start = Instant::now();
    let mut connecting = JoinSet::new();
    for _ in 0..SERVERS {
        let url = server.url().to_owned();
        connecting.spawn(async move { bare::connect(&url).await });
    }
    let mut fleet = Vec::with_capacity(SERVERS);
    while let Some(connected) = connecting.join_next().await {
        fleet.push(connected??);
    }
    let took = start.elapsed();
    drop(fleet);
    Ok(took)
}

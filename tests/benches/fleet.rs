//! A thousand servers at once: time until they are ready, and the cost.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::memory::IN_PROCESS_SERVERS as SERVERS;
use crate::plan::Plan;
use crate::report::{Both, Row};
use crate::side::{Side, Way};
use crate::{Outcome, bare, instructions, ours};

/// Counts the instructions of a process that starts a fleet and exits as soon as it is ready.
pub(crate) fn instructions(gate: Option<f64>) -> Outcome<Row> {
    let count = |side: Side| -> Outcome<f64> {
        let total = instructions::of_run(&["weigh", side.word(), Way::InProcess.word()])?;
        Ok(total as f64 / SERVERS as f64)
    };
    let both = Both::of_figures(count(Side::Ours)?, count(Side::Bare)?);
    let measure = format!("{SERVERS} in-process servers: instructions each");
    Ok(Row::ratio(measure, "Ir", both, gate))
}

/// What the bare side does before its fleet counts as ready.
#[derive(Debug, Clone, Copy, PartialEq)]
enum BareDoes {
    /// The handshake and the tool listing, as on our side.
    TheSame,
    /// The handshake alone.
    Less,
}

/// Starts fleets of in-process servers, alternating between the sides, until every server has
/// listed its tools. The bare side of the second row does not list them.
pub(crate) async fn ready(plan: &Plan, gate: f64) -> Outcome<[Row; 2]> {
    let less = compare(plan, BareDoes::Less, None).await?;
    Ok([less, compare(plan, BareDoes::TheSame, Some(gate)).await?])
}

async fn compare(plan: &Plan, bare: BareDoes, gate: Option<f64>) -> Outcome<Row> {
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    let mut rounds = Vec::with_capacity(plan.rounds);
    for round in 0..=plan.rounds {
        let (ours_time, bare_time);
        if round % 2 == 0 {
            ours_time = ours_ready().await?;
            bare_time = bare_ready(bare).await?;
        } else {
            bare_time = bare_ready(bare).await?;
            ours_time = ours_ready().await?;
        }
        // The first round of each side pays for mapping memory that later rounds reuse.
        if round > 0 {
            rounds.push((millis(ours_time), millis(bare_time)));
        }
    }
    let what = match bare {
        BareDoes::TheSame => "ready and listed",
        BareDoes::Less => "ready and listed, bare: unlisted",
    };
    let measure = format!("{SERVERS} in-process servers: {what}");
    let both = Both::of_rounds(&rounds);
    Ok(Row::ratio(measure, "ms", both, gate))
}

async fn ours_ready() -> Outcome<Duration> {
    let start = Instant::now();
    let fleet = ours::fleet(Way::InProcess, SERVERS).await?;
    let took = start.elapsed();
    fleet.close().await;
    Ok(took)
}

async fn bare_ready(does: BareDoes) -> Outcome<Duration> {
    let start = Instant::now();
    let connect = move || async move {
        let server = bare::InProcess::connect().await?;
        if does == BareDoes::TheSame {
            server.client.list_all_tools().await?;
        }
        Ok(server)
    };
    let fleet = bare::fleet(SERVERS, connect).await?;
    let took = start.elapsed();
    let mut closing = JoinSet::new();
    for server in fleet {
        closing.spawn(server.close());
    }
    while let Some(closed) = closing.join_next().await {
        closed??;
    }
    Ok(took)
}

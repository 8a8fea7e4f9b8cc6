//! Wall time of calls over HTTP.

use crate::Outcome;
use crate::caller::{Callers, Load};
use crate::plan::Plan;
use crate::report::Row;
use crate::wall::rounds;

use super::bare;
use super::ours;
use super::server::{Packets, Server};

/// Enough calls to show a stall that affects each of them.
const STALLS: usize = 50;

/// Compared with rmcp's default client.
pub(crate) async fn calls(plan: &Plan, callers: Callers, gate: Option<f64>) -> Outcome<Row> {
    let server = Server::start(Packets::AtOnce).await?;
    let bare = bare::connect(server.url()).await?;
    let ours = ours::connect(server.url()).await?;
    let load = plan.burst(callers);
    let both = rounds(plan, load, &ours.caller()?, bare.peer()).await?;
    ours.close().await;
    bare.cancel().await?;
    let measure = format!("http, {callers}: wall per call");
    Ok(Row::ratio(measure, "µs", both, gate))
}

/// The mean time of calls to a server whose small packets wait for an acknowledgement. The other
/// side is a client that reuses connections and has no workaround.
pub(crate) async fn without_nodelay(_: &Plan, gate: f64) -> Outcome<Row> {
    let server = Server::start(Packets::Delayed).await?;
    let bare = bare::connect_with(bare::pooled()?, server.url()).await?;
    let ours = ours::connect(server.url()).await?;
    let load = Load::echo(crate::plan::ONE, STALLS);
    load.run(&ours.caller()?).await?;
    let millis = |time: std::time::Duration| time.as_secs_f64() * 1e3 / STALLS as f64;
    let ours_time = millis(load.run(&ours.caller()?).await?);
    let bare_time = millis(load.run(bare.peer()).await?);
    ours.close().await;
    bare.cancel().await?;
    let measure = "http, a server without TCP_NODELAY: wall per call";
    let mut row = Row::amount(measure, "ms", ours_time, Some(gate));
    row.bare = Some(bare_time);
    Ok(row)
}

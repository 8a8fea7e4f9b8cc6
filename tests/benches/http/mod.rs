//! Servers over Streamable HTTP: calls, fleets, and recovery after a server dies.
//!
//! The bench server is rmcp's own, on axum, in its own process. Both sides speak the newest
//! revision with sessions, so that they do the same work.

mod authorization;
mod bare;
mod fleet;
mod ours;
mod peer;
mod recovery;
mod server;
mod wall;

use std::io::Write;

use crate::Outcome;
use crate::caller::Load;
use crate::instructions;
use crate::plan::{MANY, ONE, Plan, gates};
use crate::report::Table;
use crate::side::{Side, Way};

pub(crate) use authorization::client as authorized_client;
pub(crate) use server::serve;

/// The main function of a client process: connect, call, close.
pub(crate) async fn client(side: Side, load: Load) -> Outcome<()> {
    let server = server::Server::start(server::Packets::AtOnce).await?;
    match side {
        // The same kind of HTTP client as ours, so that only the code around it differs.
        Side::Bare => {
            let client = bare::connect_with(bare::pooled()?, server.url()).await?;
            load.run(client.peer()).await?;
            client.cancel().await?;
        }
        Side::Ours => {
            let ours = ours::connect(server.url()).await?;
            load.run(&ours.caller()?).await?;
            ours.close().await;
        }
    }
    Ok(())
}

/// Instructions of a call.
pub(crate) async fn count_instructions(plan: &Plan, table: &mut Table<impl Write>) -> Outcome<()> {
    let gate = Some(gates::HTTP_INSTRUCTIONS);
    table.row(&instructions::compare(Way::Http, ONE, gate)?)?;
    table.row(&instructions::compare(Way::Http, MANY, None)?)?;
    // Its gate is close enough that a busy machine can exceed it.
    let gate = Some(gates::OAUTH_INSTRUCTIONS);
    let authorized = async || Ok([authorization::compare(ONE, gate)?]);
    table.rows(&plan.best(authorized).await?)?;
    Ok(())
}

/// Wall time of a call, compared with rmcp's default client.
pub(crate) async fn time_calls(plan: &Plan, table: &mut Table<impl Write>) -> Outcome<()> {
    for (callers, gate) in [
        (ONE, plan.wall(gates::HTTP_ONE)),
        (MANY, plan.wall(gates::HTTP_MANY)),
    ] {
        let measure = async || Ok([wall::calls(plan, callers, gate).await?]);
        table.rows(&plan.best(measure).await?)?;
    }
    let stall = async || Ok([wall::without_nodelay(plan, gates::HTTP_STALL_MS).await?]);
    table.rows(&plan.best(stall).await?)?;
    match peer::installed() {
        Some(peers) => {
            let gate = plan.wall(gates::NODE_P99);
            let slowest = async || Ok([peer::slowest(plan, &peers, MANY, gate).await?]);
            table.rows(&plan.best(slowest).await?)?;
        }
        None => table.note("p99 of a call to a Node server: skipped: MCPVISOR_PEERS is not set")?,
    }
    Ok(())
}

/// A large fleet becomes ready.
pub(crate) async fn start_fleet(plan: &Plan, table: &mut Table<impl Write>) -> Outcome<()> {
    let ready = async || Ok([fleet::ready(plan, gates::HTTP_READY).await?]);
    table.rows(&plan.best(ready).await?)?;
    Ok(())
}

/// A server dies and recovers.
pub(crate) async fn try_recovery(plan: &Plan, table: &mut Table<impl Write>) -> Outcome<()> {
    let next = async || Ok([recovery::next_answer(plan, gates::RECOVERY).await?]);
    table.rows(&plan.best(next).await?)?;
    let outcomes = async || recovery::in_flight(gates::IN_FLIGHT_MS).await;
    table.rows(&plan.best(outcomes).await?)?;
    Ok(())
}

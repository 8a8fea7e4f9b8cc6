//! The catalog of a large fleet: from a server's change to the first read that shows it, and a
//! plain read.

use std::hint::black_box;
use std::time::{Duration, Instant};

use mcpvisor::{EventKind, Runtime, ServerConfig, Transport};
use mcpvisor_testkit::scripted::{Listing, Script, ScriptedServer, tool};
use rmcp::model::Tool;

use crate::Outcome;
use crate::plan::Plan;
use crate::report::{Row, median};

const SERVERS: usize = 200;

const TOOLS: usize = 200;

/// Reads timed together.
const READS: u32 = 1_000_000;

/// Upper bound for a change to become visible, unless something is broken.
const PATIENCE: Duration = Duration::from_secs(30);

/// Minimum interval between refreshes of one list. A change waits this long before it is timed.
const APART: Duration = Duration::from_millis(120);

/// Changes one of many servers, then reads the catalog.
pub(crate) async fn rows(plan: &Plan, merge: f64, read: f64) -> Outcome<[Row; 3]> {
    let servers: Vec<ScriptedServer> = (0..SERVERS)
        .map(|_| ScriptedServer::new(Script::bare().tools(tools(0))))
        .collect();
    let mut runtime = Runtime::builder();
    for (number, server) in servers.iter().enumerate() {
        let config = ServerConfig::new(format!("server{number}"), transport(server))?;
        runtime = runtime.server(config);
    }
    let runtime = runtime.start().await?;
    runtime.ready(PATIENCE).await?;
    let mut changes = Vec::with_capacity(plan.rounds);
    for round in 1..=plan.rounds {
        tokio::time::sleep(APART).await;
        changes.push(change(&runtime, &servers[SERVERS / 2], round).await?);
    }
    let whole = runtime.catalog().tool_count();
    if whole != SERVERS * TOOLS {
        Err(format!("{whole} tools are in the catalog"))?;
    }
    let began = Instant::now();
    for _ in 0..READS {
        black_box(runtime.catalog());
    }
    let per_read = began.elapsed().as_secs_f64() * 1e9 / f64::from(READS);
    runtime.shutdown(PATIENCE).await;
    let measure = |what: &str| format!("{SERVERS} servers × {TOOLS} tools: {what}");
    let seen = median(changes.iter().map(|change| change.listed + change.merged));
    let merged = median(changes.iter().map(|change| change.merged));
    Ok([
        Row::amount(measure("a read"), "ns", per_read, Some(read)),
        Row::amount(measure("the first read of a change"), "ms", merged, None),
        // Includes the listing, which the gate does not cover, so that no part of the delay goes
        // unreported.
        Row::amount(measure("a change is seen"), "ms", seen, Some(merge)),
    ])
}

/// One change, in milliseconds.
struct Change {
    /// From the server's change notification to the event with the difference, which is sent when
    /// the new tools are published. Includes requesting and processing the list.
    listed: f64,
    /// The first read after that, which merges the tools into the fleet's catalog.
    merged: f64,
}

async fn change(runtime: &Runtime, server: &ScriptedServer, round: usize) -> Outcome<Change> {
    let mut events = runtime.events();
    server
        .control()
        .update(|script| script.tools = tools(round));
    let newest = format!("server{}__{}", SERVERS / 2, name(round + TOOLS - 1));
    let began = Instant::now();
    server.control().tools_changed();
    while !matches!(events.recv().await?.kind, EventKind::CatalogChanged { .. }) {}
    let listed = Instant::now();
    let catalog = runtime.catalog();
    let merged = listed.elapsed();
    if catalog.tool(&newest).is_none() {
        Err("a change is not seen by who heard of it")?;
    }
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    Ok(Change {
        listed: millis(listed - began),
        merged: millis(merged),
    })
}

fn name(number: usize) -> String {
    format!("tool{number}")
}

fn tools(from: usize) -> Listing<Tool> {
    Listing::of((from..from + TOOLS).map(|number| tool(name(number))))
}

fn transport(server: &ScriptedServer) -> Transport {
    let server = server.clone();
    Transport::channel(move |end| {
        let generation = end.generation.get();
        server.clone().serve(end.incoming, end.outgoing, generation)
    })
}

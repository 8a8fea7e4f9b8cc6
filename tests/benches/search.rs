//! Search over the tools of a large fleet: a query, the index of a server that changed, and the
//! memory of all indexes. The control ranks the same tools without an index that is kept.

use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

use mcpvisor::{EventKind, FleetCatalog, Runtime, ServerConfig, Transport};
use mcpvisor_core::search::{Document, Index, Query, search};
use mcpvisor_testkit::scripted::{Listing, Script, ScriptedServer};
use rmcp::model::Tool;
use serde_json::{Value, json};

use crate::Outcome;
use crate::memory::resident_kib;
use crate::plan::Plan;
use crate::report::{Row, median};

const SERVERS: usize = 100;

const TOOLS: usize = 100;

/// Processes whose memory is measured.
const WEIGHINGS: usize = 3;

/// Upper bound for a change to become visible, unless something is broken.
const PATIENCE: Duration = Duration::from_secs(30);

/// Minimum interval between refreshes of one list. A change waits this long before it is timed.
const APART: Duration = Duration::from_millis(120);

/// From one rare word to a whole question of common words.
const QUERIES: [&str; 6] = [
    "invoice",
    "create issue",
    "server42 archive",
    "upd",
    "how do I list the files of a project that were changed by a user",
    "create update delete list search send record by identifier in the workspace of the user",
];

/// The gates: a query, an update, memory per tool.
#[derive(Clone, Copy)]
pub(crate) struct Gates {
    pub(crate) query_ms: f64,
    pub(crate) update_ms: f64,
    pub(crate) memory_kib: f64,
}

pub(crate) async fn rows(plan: &Plan, gates: Gates) -> Outcome<[Row; 5]> {
    let (servers, runtime) = start().await?;
    let catalog = runtime.catalog();
    let began = Instant::now();
    black_box(catalog.search(QUERIES[0], 10));
    let first = millis(began.elapsed());
    let query = slowest_query(plan, &catalog)?;
    let mut updates = Vec::with_capacity(plan.rounds);
    for round in 1..=plan.rounds {
        tokio::time::sleep(APART).await;
        updates.push(update(&runtime, &servers[SERVERS / 2], round).await?);
    }
    let control = without_index(&catalog);
    if control < gates.query_ms {
        Err(format!("the control passes the gate: {control} ms"))?;
    }
    runtime.shutdown(PATIENCE).await;
    let weights: Outcome<Vec<f64>> = (0..WEIGHINGS).map(|_| weigh_process()).collect();
    let memory = median(weights?.into_iter());
    let measure = |what: &str| format!("{SERVERS} servers × {TOOLS} tools: {what}");
    Ok([
        Row::amount(measure("the first search"), "ms", first, None),
        Row::amount(measure("a query without an index"), "ms", control, None),
        Row::amount(
            measure("index memory per tool"),
            "KiB",
            memory,
            Some(gates.memory_kib),
        ),
        Row::amount(
            measure("search after a change"),
            "ms",
            median(updates.into_iter()),
            Some(gates.update_ms),
        ),
        Row::amount(measure("slowest query"), "ms", query, Some(gates.query_ms)),
    ])
}

/// The main function of a measured process: the KiB that the indexes add per tool.
pub(crate) async fn weigh() -> Outcome<f64> {
    let (_servers, runtime) = start().await?;
    let catalog = runtime.catalog();
    let before = resident_kib()?;
    if catalog.search(QUERIES[0], 10).is_empty() {
        Err("nothing is found")?;
    }
    Ok((resident_kib()? - before) / (SERVERS * TOOLS) as f64)
}

fn weigh_process() -> Outcome<f64> {
    let output = Command::new(std::env::current_exe()?)
        .arg("weigh-search")
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

async fn start() -> Outcome<(Vec<ScriptedServer>, Runtime)> {
    let servers: Vec<ScriptedServer> = (0..SERVERS)
        .map(|server| ScriptedServer::new(Script::bare().tools(tools(server, 0))))
        .collect();
    let mut builder = Runtime::builder();
    for (number, server) in servers.iter().enumerate() {
        let config = ServerConfig::new(format!("server{number}"), transport(server))?;
        builder = builder.server(config);
    }
    let runtime = builder.start().await?;
    runtime.ready(PATIENCE).await?;
    let count = runtime.catalog().tool_count();
    if count != SERVERS * TOOLS {
        Err(format!("{count} tools are in the catalog"))?;
    }
    Ok((servers, runtime))
}

/// The median time of the slowest query.
fn slowest_query(plan: &Plan, catalog: &FleetCatalog) -> Outcome<f64> {
    let mut slowest: f64 = 0.0;
    for query in QUERIES {
        if catalog.search(query, 10).len() != 10 {
            Err(format!("too little is found for {query:?}"))?;
        }
        let times = (0..plan.rounds * 10).map(|_| {
            let began = Instant::now();
            black_box(catalog.search(black_box(query), 10));
            millis(began.elapsed())
        });
        slowest = slowest.max(median(times));
    }
    Ok(slowest)
}

/// The first search after a server lists other tools, which indexes them.
async fn update(runtime: &Runtime, server: &ScriptedServer, round: usize) -> Outcome<f64> {
    let mut events = runtime.events();
    server
        .control()
        .update(|script| script.tools = tools(SERVERS / 2, round));
    server.control().tools_changed();
    while !matches!(events.recv().await?.kind, EventKind::CatalogChanged { .. }) {}
    let catalog = runtime.catalog();
    let newest = format!("round {round}");
    let began = Instant::now();
    let found = catalog.search(&newest, 1);
    let took = millis(began.elapsed());
    let is_new = found
        .first()
        .is_some_and(|it| it.tool.name().contains(&newest.replace(' ', "_")));
    if !is_new {
        Err("a search does not see the change")?;
    }
    Ok(took)
}

/// The time of a query that reads the texts of all tools.
fn without_index(catalog: &FleetCatalog) -> f64 {
    let times = (0..3).map(|_| {
        let began = Instant::now();
        let indexes: Vec<Index> = catalog
            .servers()
            .map(|view| {
                let tools = view.tools().iter().map(|tool| document(tool.definition()));
                Index::new(view.server().as_str(), tools)
            })
            .collect();
        let indexes: Vec<&Index> = indexes.iter().collect();
        black_box(search(&indexes, &Query::new(QUERIES[1]), 10));
        millis(began.elapsed())
    });
    median(times)
}

fn document(tool: &Tool) -> Document<'_, impl Iterator<Item = &str>> {
    let parameters = tool
        .input_schema
        .get("properties")
        .and_then(Value::as_object);
    Document {
        name: &tool.name,
        title: "",
        description: tool.description.as_deref().unwrap_or_default(),
        parameters: parameters
            .into_iter()
            .flat_map(|it| it.keys().map(String::as_str)),
    }
}

/// The tools of a server, with names and descriptions of the usual length. A few words are in all
/// of them, most in some.
fn tools(server: usize, round: usize) -> Listing<Tool> {
    let verbs = [
        "create", "update", "delete", "list", "search", "send", "archive", "restore", "merge",
        "export",
    ];
    let nouns = [
        "issue",
        "file",
        "project",
        "message",
        "invoice",
        "branch",
        "ticket",
        "calendar",
        "contact",
        "database",
        "deployment",
        "page",
        "comment",
        "pipeline",
        "customer",
        "order",
        "report",
        "workflow",
        "image",
        "secret",
    ];
    let tool = move |number: usize| {
        let verb = verbs[number % verbs.len()];
        let noun = nouns[(number / verbs.len() + server) % nouns.len()];
        let other = nouns[(number * 7 + server * 3) % nouns.len()];
        let mut name = format!("{verb}_{noun}_{number}");
        if round > 0 {
            name = format!("{name}_round_{round}");
        }
        let description = format!(
            "Uses the service number {server} to {verb} one {noun} of a {other} by its identifier \
             in the workspace of the user. Returns the {noun} with its revision, its owner and the \
             time of the last change. Fails if the {noun} is locked by another user or if the \
             {other} does not exist. Word{number} and word{} are accepted as labels.",
            number * server,
        );
        let schema = json!({
            "type": "object",
            "properties": {
                "workspace": { "type": "string", "description": "The workspace" },
                format!("{noun}Id"): { "type": "string", "description": "The identifier" },
                format!("{other}Name"): { "type": "string" },
                "limit": { "type": "integer", "minimum": 1 },
                "dry_run": { "type": "boolean", "default": false },
            },
            "required": ["workspace"],
        });
        let schema = schema.as_object().cloned().unwrap_or_default();
        Tool::new(name, description, schema)
    };
    Listing::of((0..TOOLS).map(tool))
}

fn transport(server: &ScriptedServer) -> Transport {
    let server = server.clone();
    Transport::channel(move |end| {
        let generation = end.generation.get();
        server.clone().serve(end.incoming, end.outgoing, generation)
    })
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

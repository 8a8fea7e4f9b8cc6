//! `tools`: what the servers offer.

use std::sync::Arc;
use std::time::Duration;

use mcpvisor::rmcp::model::Tool;
use mcpvisor::{Runtime, ServerCatalog, ServerName, StateName};
use serde::Serialize;
use tokio::time::Instant;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet::{self, Source};
use crate::output::{Output, Table};

/// Servers may take this long to connect and to list their tools.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// A description is cut here in the table; the JSON has all of it.
const MAX_DESCRIPTION: usize = 100;

/// One tool, in the protocol's own shape, with its server.
#[derive(Debug, Serialize)]
struct Listed<'a> {
    server: &'a str,
    #[serde(flatten)]
    tool: &'a Tool,
}

pub(super) async fn run(
    source: &Source,
    server: Option<&str>,
    timeout: Option<Duration>,
    output: &Output,
) -> Result<Exit, Failure> {
    let until = Instant::now() + timeout.unwrap_or(DEFAULT_TIMEOUT);
    let mut config = source.read_to_start()?;
    if let Some(server) = server {
        config = fleet::only(config, server)?;
    }
    fleet::warn(&config, output);
    fleet::with(config, async |runtime| {
        let catalogs = catalogs(runtime, until, output).await?;
        let listed: Vec<Listed<'_>> = catalogs.iter().flat_map(listed).collect();
        if output.json() {
            output.document(&listed)?;
        } else {
            output.text(&table(&listed).render())?;
        }
        Ok(Exit::Ok)
    })
    .await
}

/// The catalogs of all servers that have one. A server without one is a warning beside others, and
/// a failure alone.
async fn catalogs(
    runtime: &Runtime,
    until: Instant,
    output: &Output,
) -> Result<Vec<(ServerName, Arc<ServerCatalog>)>, Failure> {
    let mut catalogs = Vec::new();
    let mut failures = Vec::new();
    for name in runtime.servers() {
        match catalog(runtime, &name, until).await {
            Ok(Some(catalog)) => catalogs.push((name, catalog)),
            Ok(None) => {}
            Err(failure) => failures.push(failure),
        }
    }
    if catalogs.is_empty()
        && let Some(failure) = failures.pop()
    {
        return Err(failure);
    }
    for failure in failures {
        output.warning(&failure.message);
    }
    Ok(catalogs)
}

/// The catalog of one server; a disabled one has none, and that is how it should be.
async fn catalog(
    runtime: &Runtime,
    name: &ServerName,
    until: Instant,
) -> Result<Option<Arc<ServerCatalog>>, Failure> {
    let server = runtime
        .server(name.as_str())
        .map_err(|error| Failure::unexpected(error.to_string()))?;
    let Some(status) = fleet::settled(&server, until).await else {
        let message = format!("{name} did not list its tools in time; allow more with --timeout");
        return Err(Failure::deadline(message).at(name.as_str()));
    };
    match status.state {
        StateName::Connected if status.is_ready() => Ok(Some(server.catalog())),
        StateName::Disabled => Ok(None),
        _ => Err(Failure::unreachable(&status)),
    }
}

fn listed((name, catalog): &(ServerName, Arc<ServerCatalog>)) -> impl Iterator<Item = Listed<'_>> {
    catalog.tools.iter().map(|tool| Listed {
        server: name.as_str(),
        tool,
    })
}

fn table(listed: &[Listed<'_>]) -> Table {
    let mut table = Table::new(["SERVER", "TOOL", "DESCRIPTION"]);
    for Listed { server, tool } in listed {
        let description = tool.description.as_deref().unwrap_or_default();
        table.row([
            server.to_string(),
            tool.name.to_string(),
            headline(description),
        ]);
    }
    table
}

/// The first line of a description, at most [`MAX_DESCRIPTION`] characters of it.
fn headline(description: &str) -> String {
    let line = description.trim().lines().next().unwrap_or_default();
    if line.chars().count() <= MAX_DESCRIPTION {
        return line.to_owned();
    }
    let cut: String = line.chars().take(MAX_DESCRIPTION - 1).collect();
    format!("{cut}…")
}

//! `tools`, `prompts`, `resources` and `templates`: the catalogs of the servers.

use std::sync::Arc;

use mcpvisor::rmcp::model::{Prompt, Resource, ResourceTemplate, Tool};
use mcpvisor::{ListKind, ListState, Runtime, ServerCatalog, ServerName, StateName, exposed_name};
use serde::Serialize;
use tokio::time::Instant;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::invocation::Invocation;
use crate::output::{Output, Table, TextFormat, cut, server_notes};
use crate::request::deadlines::Deadline;
use crate::request::server_ready;

/// Columns of a description in the table; JSON has all of it.
const MAX_DESCRIPTION: usize = 240;

/// One item, in the protocol's own shape, with its server.
#[derive(Debug, Serialize)]
struct Listed<'a> {
    server: &'a str,
    /// The name of a tool across servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    exposed_name: Option<String>,
    #[serde(flatten)]
    item: Item<'a>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Item<'a> {
    Tool(&'a Tool),
    Prompt(&'a Prompt),
    Resource(&'a Resource),
    Template(&'a ResourceTemplate),
}

pub(super) async fn run(
    list: ListKind,
    server: Option<&str>,
    invocation: &Invocation<'_>,
) -> Result<Exit, Failure> {
    let output = &invocation.output;
    let mut config = invocation.source()?.read_to_start()?;
    if let Some(server) = server {
        config = fleet::only(config, server)?;
        if config.servers.iter().any(|server| !server.enabled) {
            return Err(Failure::disabled(server));
        }
    }
    fleet::warn(&config, output);
    // If every entry is unusable, the printed problems are the result: exit 1.
    let no_servers = config.servers.is_empty()
        && config
            .unusable_servers()
            .iter()
            .any(|entry| entry.state != StateName::Disabled);
    let until = invocation.deadline.ready_until(&config);
    fleet::with(config, invocation, async |runtime| {
        let catalogs = catalogs(runtime, list, until, invocation).await?;
        let listed: Vec<Listed<'_>> = catalogs
            .iter()
            .flat_map(|(name, catalog)| listed(list, name, catalog))
            .collect();
        output.result(&listed, || {
            table(list, &listed).render(TextFormat::of_stdout())
        })?;
        if list == ListKind::Tools {
            warn_of_held_tools(runtime, output);
        }
        Ok(if no_servers { Exit::Usage } else { Exit::Ok })
    })
    .await
}

/// Held-back tools are in no list, so a warning says where they are.
fn warn_of_held_tools(runtime: &Runtime, output: &Output) {
    for name in runtime.servers() {
        let Ok(server) = runtime.server(&name) else {
            continue;
        };
        let (name, status) = (name.as_str(), server.status());
        if let Some(held) = server_notes::held_tools(name, status.held) {
            output.warning(&format!("{name}: {}", held.into_sentence()));
        }
    }
}

/// The catalogs of all servers. A server without one is a warning, or a failure if no other has one.
async fn catalogs(
    runtime: &Runtime,
    list: ListKind,
    until: Instant,
    invocation: &Invocation<'_>,
) -> Result<Vec<(ServerName, Arc<ServerCatalog>)>, Failure> {
    let mut catalogs = Vec::new();
    let mut failures = Vec::new();
    for name in runtime.servers() {
        match catalog(runtime, &name, list, invocation.deadline, until).await {
            Ok(Some(catalog)) => catalogs.push((name, catalog)),
            Ok(None) => {}
            Err(failure) => failures.push(failure),
        }
    }
    let last = failures.pop_if(|_| catalogs.is_empty());
    for failure in failures {
        invocation.output.partial_failure(&failure);
    }
    last.map_or(Ok(catalogs), Err)
}

/// The catalog of one server, in which this list belongs to the present connection; `None` for a
/// disabled server. Its other lists may fail.
async fn catalog(
    runtime: &Runtime,
    name: &ServerName,
    list: ListKind,
    deadline: Deadline,
    until: Instant,
) -> Result<Option<Arc<ServerCatalog>>, Failure> {
    let server = runtime.server(name.as_str()).map_err(Failure::unexpected)?;
    let Some(status) = fleet::settled(&server, &[list], until).await else {
        return Err(server_ready::late(&server, &[list], &deadline));
    };
    match (status.state, status.list(list)) {
        (StateName::Connected, ListState::Failed(fault)) => {
            Err(Failure::listing_failed(name.as_str(), fault))
        }
        (StateName::Connected, _) => Ok(Some(server.catalog())),
        (StateName::Disabled, _) => Ok(None),
        _ => Err(server_ready::unreachable(&server, &status)),
    }
}

fn listed<'a>(
    list: ListKind,
    server: &'a ServerName,
    catalog: &'a ServerCatalog,
) -> Vec<Listed<'a>> {
    let items: Vec<Item<'a>> = match list {
        ListKind::Tools => catalog.tools.iter().map(Item::Tool).collect(),
        ListKind::Prompts => catalog.prompts.iter().map(Item::Prompt).collect(),
        ListKind::Resources => catalog.resources.iter().map(Item::Resource).collect(),
        ListKind::Templates => {
            let templates = catalog.resource_templates.iter();
            templates.map(Item::Template).collect()
        }
    };
    let listed = items.into_iter().map(|item| Listed {
        server: server.as_str(),
        exposed_name: match &item {
            Item::Tool(tool) => Some(exposed_name(server, &tool.name)),
            _ => None,
        },
        item,
    });
    listed.collect()
}

fn table(list: ListKind, listed: &[Listed<'_>]) -> Table {
    let mut table = match list {
        ListKind::Tools => Table::new(["SERVER", "TOOL", "DESCRIPTION"]),
        ListKind::Prompts => Table::new(["SERVER", "PROMPT", "ARGUMENTS", "DESCRIPTION"]),
        ListKind::Resources => Table::new(["SERVER", "URI", "NAME", "TYPE", "DESCRIPTION"]),
        ListKind::Templates => Table::new(["SERVER", "TEMPLATE", "NAME", "TYPE", "DESCRIPTION"]),
    };
    for Listed { server, item, .. } in listed {
        let server = (*server).to_owned();
        match item {
            Item::Tool(tool) => table.row([
                server,
                tool.name.to_string(),
                headline(tool.description.as_deref()),
            ]),
            Item::Prompt(prompt) => table.row([
                server,
                prompt.name.clone(),
                arguments(prompt),
                headline(prompt.description.as_deref()),
            ]),
            Item::Resource(resource) => table.row([
                server,
                resource.uri.clone(),
                resource.name.clone(),
                resource.mime_type.clone().unwrap_or_default(),
                headline(resource.description.as_deref()),
            ]),
            Item::Template(template) => table.row([
                server,
                template.uri_template.clone(),
                template.name.clone(),
                template.mime_type.clone().unwrap_or_default(),
                headline(template.description.as_deref()),
            ]),
        }
    }
    table
}

/// The arguments of a prompt; optional ones are in brackets.
fn arguments(prompt: &Prompt) -> String {
    let arguments = prompt.arguments.iter().flatten();
    let shown = arguments.map(|argument| match argument.required {
        Some(true) => argument.name.clone(),
        _ => format!("[{}]", argument.name),
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// The first paragraph of a description as one line, cut at [`MAX_DESCRIPTION`].
fn headline(description: Option<&str>) -> String {
    let lines = description.unwrap_or_default().trim().lines();
    let paragraph = lines.map(str::trim).take_while(|line| !line.is_empty());
    cut(&paragraph.collect::<Vec<_>>().join(" "), MAX_DESCRIPTION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_its_first_paragraph() {
        let text = "Finds things,\n  all of them.\n\nArgs:\n  q: what";
        assert_eq!(headline(Some(text)), "Finds things, all of them.");
        assert_eq!(headline(None), "");
        assert!(headline(Some(&"long ".repeat(100))).ends_with('…'));
    }
}

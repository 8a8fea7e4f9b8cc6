//! `tools`, `prompts`, `resources` and `templates`: what the servers offer.

use std::sync::Arc;

use mcpvisor::rmcp::model::{Prompt, Resource, ResourceTemplate, Tool};
use mcpvisor::{ListKind, ListState, Runtime, ServerCatalog, ServerName, StateName, exposed_name};
use serde::Serialize;
use tokio::time::Instant;

use crate::config::source::Source;
use crate::config::unusable_entry;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::output::{Output, Table, cut};
use crate::request::deadlines::Deadline;
use crate::request::single_request;

/// A description is cut here in the table, in columns; the JSON has all of it.
const MAX_DESCRIPTION: usize = 240;

/// Which list.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Tools,
    Prompts,
    Resources,
    Templates,
}

impl Kind {
    fn list(self) -> ListKind {
        match self {
            Self::Tools => ListKind::Tools,
            Self::Prompts => ListKind::Prompts,
            Self::Resources => ListKind::Resources,
            Self::Templates => ListKind::Templates,
        }
    }
}

/// How long the servers are waited for.
#[derive(Debug, Clone, Copy)]
struct Wait {
    deadline: Deadline,
    until: Instant,
}

/// One item, in the protocol's own shape, with its server.
#[derive(Debug, Serialize)]
struct Listed<'a> {
    server: &'a str,
    /// The name of a tool among those of all servers.
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
    kind: Kind,
    source: &Source,
    server: Option<&str>,
    deadline: Deadline,
    output: &Output,
) -> Result<Exit, Failure> {
    let mut config = source.read_to_start()?;
    if let Some(server) = server {
        config = fleet::only(config, server)?;
        if config.servers.iter().any(|server| !server.enabled) {
            return Err(Failure::disabled(server));
        }
    }
    fleet::warn(&config, output);
    // Without a server that can be asked there is no answer, only what was said just now.
    let nobody = config.servers.is_empty()
        && unusable_entry::of(&config)
            .iter()
            .any(|entry| !entry.is_off());
    let wait = Wait {
        deadline,
        until: deadline.ready_until(&config),
    };
    fleet::with(config, deadline, output, async |runtime| {
        let catalogs = catalogs(runtime, kind.list(), wait, output).await?;
        let listed: Vec<Listed<'_>> = catalogs
            .iter()
            .flat_map(|(name, catalog)| listed(kind, name, catalog))
            .collect();
        if output.json() {
            output.document(&listed)?;
        } else {
            output.table(&table(kind, &listed))?;
        }
        if matches!(kind, Kind::Tools) {
            tell_held(runtime, output);
        }
        Ok(if nobody { Exit::Usage } else { Exit::Ok })
    })
    .await
}

/// Tools that are held back are in no list, so who misses one is told where it is.
fn tell_held(runtime: &Runtime, output: &Output) {
    for status in runtime.status() {
        let name = status.name.as_str();
        if let Some(held) = single_request::held(name, status.held) {
            output.warning(&format!("{name}: {held}"));
        }
    }
}

/// The catalogs of all servers that have one. A server without one is a warning beside others, and
/// a failure alone.
async fn catalogs(
    runtime: &Runtime,
    list: ListKind,
    wait: Wait,
    output: &Output,
) -> Result<Vec<(ServerName, Arc<ServerCatalog>)>, Failure> {
    let mut catalogs = Vec::new();
    let mut failures = Vec::new();
    for name in runtime.servers() {
        match catalog(runtime, &name, list, wait).await {
            Ok(Some(catalog)) => catalogs.push((name, catalog)),
            Ok(None) => {}
            Err(failure) => failures.push(failure),
        }
    }
    let alone = if catalogs.is_empty() {
        failures.pop()
    } else {
        None
    };
    for failure in failures {
        output.partly(&failure);
    }
    alone.map_or(Ok(catalogs), Err)
}

/// The catalog of one server, in which this list is of now; a disabled one has none, and that is how
/// it should be. How its other lists are does not matter.
async fn catalog(
    runtime: &Runtime,
    name: &ServerName,
    list: ListKind,
    wait: Wait,
) -> Result<Option<Arc<ServerCatalog>>, Failure> {
    let server = runtime
        .server(name.as_str())
        .map_err(|error| Failure::unexpected(error.to_string()))?;
    let Some(status) = fleet::settled(&server, &[list], wait.until).await else {
        let status = server.status();
        let (late, hints) = match status.state {
            StateName::Connected => (format!("did not list its {list}"), String::new()),
            _ => (
                "did not connect".to_owned(),
                single_request::hints_of(&server, &status),
            ),
        };
        let message = format!("{name} {late} {}{hints}", wait.deadline.words());
        return Err(Failure::late(name.as_str(), message, &wait.deadline));
    };
    match (status.state, status.list(list)) {
        (StateName::Connected, ListState::Failed(fault)) => {
            Err(Failure::listing_failed(name.as_str(), fault))
        }
        (StateName::Connected, _) => Ok(Some(server.catalog())),
        (StateName::Disabled, _) => Ok(None),
        _ => Err(single_request::unreachable(&server, &status)),
    }
}

fn listed<'a>(kind: Kind, server: &'a ServerName, catalog: &'a ServerCatalog) -> Vec<Listed<'a>> {
    let items: Vec<Item<'a>> = match kind {
        Kind::Tools => catalog.tools.iter().map(Item::Tool).collect(),
        Kind::Prompts => catalog.prompts.iter().map(Item::Prompt).collect(),
        Kind::Resources => catalog.resources.iter().map(Item::Resource).collect(),
        Kind::Templates => {
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

fn table(kind: Kind, listed: &[Listed<'_>]) -> Table {
    let mut table = match kind {
        Kind::Tools => Table::new(["SERVER", "TOOL", "DESCRIPTION"]),
        Kind::Prompts => Table::new(["SERVER", "PROMPT", "ARGUMENTS", "DESCRIPTION"]),
        Kind::Resources => Table::new(["SERVER", "URI", "NAME", "TYPE", "DESCRIPTION"]),
        Kind::Templates => Table::new(["SERVER", "TEMPLATE", "NAME", "TYPE", "DESCRIPTION"]),
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

/// The arguments of a prompt; those that may be left out are in brackets.
fn arguments(prompt: &Prompt) -> String {
    let arguments = prompt.arguments.iter().flatten();
    let shown = arguments.map(|argument| match argument.required {
        Some(true) => argument.name.clone(),
        _ => format!("[{}]", argument.name),
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// The first paragraph of a description as one line, at most [`MAX_DESCRIPTION`] columns of it.
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

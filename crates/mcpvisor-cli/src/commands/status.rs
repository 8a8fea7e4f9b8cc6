//! `status`: the state of every server, once each has one worth showing.

use mcpvisor::{ListKind, ListState, Runtime, ServerStatus, StateName};
use serde::Serialize;
use tokio::time::Instant;

use crate::config::source::Source;
use crate::config::unusable_entry::{self, LeftOut};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::output::hints;
use crate::output::{Output, Table, state_color};
use crate::request::deadlines::Deadline;
use crate::request::single_request;

/// A narrower terminal shows the name, the state, the tools and the note alone.
const ROOM: usize = 70;

/// A server of the config, whether its entry can be used or not.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Server<'a> {
    Running(&'a ServerStatus),
    LeftOut(LeftOut<'a>),
}

pub(super) async fn run(
    source: &Source,
    deadline: Deadline,
    output: &Output,
) -> Result<Exit, Failure> {
    let config = source.read_to_start()?;
    fleet::warn(&config, output);
    let entries = config.clone();
    let until = deadline.ready_until(&config);
    fleet::with(config, deadline, output, async |runtime| {
        let status = settled(runtime, until).await?;
        let within = deadline.words();
        let left_out = unusable_entry::of(&entries)
            .into_iter()
            .map(Server::LeftOut);
        let all = status.iter().map(Server::Running).chain(left_out);
        let all: Vec<Server<'_>> = all.collect();
        if output.json() {
            output.document(&all)?;
        } else {
            output.table(&table(&all, &within))?;
        }
        Ok(Exit::Ok)
    })
    .await
}

/// The status of all servers, each when it settled or when the time was up.
async fn settled(runtime: &Runtime, until: Instant) -> Result<Vec<ServerStatus>, Failure> {
    for name in runtime.servers() {
        let server = runtime
            .server(name.as_str())
            .map_err(|error| Failure::unexpected(error.to_string()))?;
        fleet::settled(&server, &ListKind::ALL, until).await;
    }
    let here = |mut status: ServerStatus| {
        status.action = hints::of(&status);
        // The command ends before another attempt.
        status.retry_at = None;
        status
    };
    Ok(runtime.status().into_iter().map(here).collect())
}

/// The servers, of which some did not answer within this time.
fn table(all: &[Server<'_>], within: &str) -> Table {
    let mut table = Table::new([
        "NAME",
        "STATE",
        "GEN",
        "TOOLS",
        "PROMPTS",
        "RESOURCES",
        "TRANSPORT",
        "SERVER",
        "NOTE",
    ])
    .colored(1, state_color)
    .roomy(ROOM, &[2, 4, 5, 6, 7]);
    for server in all {
        table.row(match server {
            Server::Running(status) => row(status, within),
            Server::LeftOut(entry) => [
                entry.name.to_owned(),
                entry.state().to_owned(),
                "0".to_owned(),
                "-".to_owned(),
                "-".to_owned(),
                "-".to_owned(),
                String::new(),
                String::new(),
                entry.note(),
            ],
        });
    }
    table
}

fn row(status: &ServerStatus, within: &str) -> [String; 9] {
    let server = status.server.as_ref();
    [
        status.name.to_string(),
        status.state.to_string(),
        status.generation.to_string(),
        counted(status.tools, status.list(ListKind::Tools)),
        counted(status.prompts, status.list(ListKind::Prompts)),
        counted(status.resources, status.list(ListKind::Resources)),
        status.transport.to_owned(),
        server.map_or_else(String::new, |server| {
            format!("{} {}", server.name, server.version)
        }),
        note(status, within),
    ]
}

/// A number that is not confirmed on the present connection has a question mark; where nothing was
/// ever listed there is no number.
fn counted(count: usize, list: &ListState) -> String {
    match (list, count) {
        (ListState::Fresh | ListState::Missing, count) => count.to_string(),
        (_, 0) => "-".to_owned(),
        (_, count) => format!("{count}?"),
    }
}

/// What went wrong, and what to do.
fn note(status: &ServerStatus, within: &str) -> String {
    let fault = status.last_error.as_ref().map(ToString::to_string);
    let late = match (status.state, single_request::pending(status)) {
        (StateName::Connecting, _) => Some(format!("no answer {within}")),
        (_, Some(list)) => Some(format!("{list} not listed {within}")),
        _ => None,
    };
    let strays = single_request::strays(status).filter(|_| status.state != StateName::Connected);
    let held = single_request::held(status.name.as_str(), status.held);
    let findings = single_request::findings(status.name.as_str(), status.findings);
    let parts = [late, fault, strays, status.action.clone(), held, findings];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

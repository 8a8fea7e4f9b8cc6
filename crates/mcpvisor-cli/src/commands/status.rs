//! `status`: the state of every server, once its connect succeeded or failed.

use mcpvisor::{ListKind, ListState, Runtime, ServerStatus, StateName};
use tokio::time::Instant;

use crate::exit::Exit;
use crate::failure::{Failure, join_sentences};
use crate::fleet;
use crate::invocation::Invocation;
use crate::output::server_notes::{self, Note};
use crate::output::{
    Table, TextFormat, after_command, state_color, status_action, with_action_text,
};

/// Terminals narrower than this show name, state, tools and note only.
const FULL_WIDTH: usize = 70;

pub(super) async fn run(invocation: &Invocation<'_>) -> Result<Exit, Failure> {
    let Invocation {
        deadline, output, ..
    } = invocation;
    let config = invocation.source()?.read_to_start()?;
    fleet::warn(&config, output);
    let unusable = config.unusable_servers();
    let until = deadline.ready_until(&config);
    fleet::with_all_instances(config, invocation, async |runtime| {
        let mut servers = settled(runtime, until).await?;
        servers.extend(unusable);
        let servers: Vec<ServerStatus> = servers.into_iter().map(final_status).collect();
        output.result(&servers, || render(&servers, &deadline.describe()))
    })
    .await
}

/// The status of all servers, once each settled or the time is up.
async fn settled(runtime: &Runtime, until: Instant) -> Result<Vec<ServerStatus>, Failure> {
    for name in runtime.servers() {
        let server = runtime.server(name.as_str()).map_err(Failure::unexpected)?;
        fleet::settled(&server, &ListKind::ALL, until).await;
    }
    // The further instances of pools.
    runtime.settled(until.duration_since(Instant::now())).await;
    Ok(runtime.status())
}

/// A status without the next attempt, which would come after the command.
fn final_status(mut status: ServerStatus) -> ServerStatus {
    status.retry_at = None;
    let action = after_command(&status);
    with_action_text(status, action)
}

fn render(servers: &[ServerStatus], within: &str) -> String {
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
    .only_if_wide(FULL_WIDTH, &[2, 4, 5, 6, 7]);
    for status in servers {
        table.row(row(status, within));
    }
    table.render(TextFormat::of_stdout())
}

fn row(status: &ServerStatus, within: &str) -> [String; 9] {
    let server = status.server.as_ref();
    [
        server_notes::instance_name(status),
        status.state.to_string(),
        status.generation.to_string(),
        count(status.tools, status.list(ListKind::Tools)),
        count(status.prompts, status.list(ListKind::Prompts)),
        count(status.resources, status.list(ListKind::Resources)),
        status.transport.to_owned(),
        server.map_or_else(String::new, |server| {
            format!("{} {}", server.name, server.version)
        }),
        note(status, within),
    ]
}

/// A count that is not confirmed on the present connection ends with a question mark. A list that was
/// never fetched has no count.
fn count(count: usize, list: &ListState) -> String {
    match (list, count) {
        (ListState::Fresh | ListState::Missing, count) => count.to_string(),
        (_, 0) => "-".to_owned(),
        (_, count) => format!("{count}?"),
    }
}

/// What went wrong, and what to do.
fn note(status: &ServerStatus, within: &str) -> String {
    let fault = status.last_error.as_ref().map(ToString::to_string);
    let late = match (status.state, server_notes::pending_list(status)) {
        (StateName::Connecting, _) => Some(format!("no answer {within}")),
        (_, Some(list)) => Some(format!("{list} not listed {within}")),
        _ => None,
    };
    let strays = server_notes::stray_lines(status).filter(|_| status.state != StateName::Connected);
    let ambiguous = server_notes::ambiguous_requests(status);
    let name = status.name.as_str();
    let unsaved = server_notes::unsaved_login(status).map(Note::into_sentence);
    let held = server_notes::held_tools(name, status.held).map(Note::into_sentence);
    let findings = server_notes::findings(name, status.findings).map(Note::into_sentence);
    let problems: Vec<String> = [late, fault, strays, ambiguous]
        .into_iter()
        .flatten()
        .collect();
    let problems = Some(problems.join("; ")).filter(|problems| !problems.is_empty());
    let action = status_action(status);
    join_sentences([problems, action, unsaved, held, findings])
}

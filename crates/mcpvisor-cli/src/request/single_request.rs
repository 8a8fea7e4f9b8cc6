//! What the commands for one request share: which server, and whether it is there.

use std::cell::Cell;
use std::sync::Arc;

use mcpvisor::{
    Config, FaultClass, ListKind, ListState, Runtime, ServerCatalog, ServerHandle, ServerStatus,
    StateName, may_expose,
};

use crate::exit::Exit;
use crate::failure::{self, Failure};
use crate::fleet;
use crate::output::suggest_command;
use crate::request::deadlines::RequestDeadlines;
use crate::request::target::{NoTarget, Target};

/// So many lines of stderr say enough.
const MAX_STDERR_LINES: usize = 5;

/// The server and the tool (or the prompt) that are meant; `what` is its noun and its command.
pub(crate) fn target<'w>(
    config: &'w Config,
    words: &'w [String],
    what: &str,
) -> Result<Target<'w>, Failure> {
    let configured = |name: &str| {
        config
            .servers
            .iter()
            .any(|server| server.name.as_str() == name)
    };
    let left_out = |name: &str| {
        config
            .problems
            .iter()
            .any(|p| p.server.as_deref() == Some(name))
    };
    let (noun, command) = match what {
        "prompt" => ("prompt", "prompt"),
        _ => ("tool", "call"),
    };
    let read = Target::parse(words, |name| configured(name) || left_out(name));
    if let (Err(NoTarget::NoServer(_)), "call", Some(target)) =
        (&read, command, exposed(config, words))
    {
        return Ok(target);
    }
    read.map_err(|reason| match reason {
        NoTarget::NoTool(server) => {
            let name = noun.to_uppercase();
            let message = format!("which {noun} of {server}? write: {command} {server} {name}");
            Failure::usage(message).at(server)
        }
        NoTarget::Ambiguous(readings) => {
            let readings: Vec<String> = readings
                .iter()
                .map(|(server, tool)| format!("{server} {tool}"))
                .collect();
            let readings = readings.join("\", \"");
            Failure::usage(format!(
                "that can mean \"{readings}\"; write it with a space"
            ))
        }
        NoTarget::NoServer(server) => fleet::not_there(config, server),
    })
}

/// The target of a word that is the exposed name of a tool: there the server's name may be altered.
/// Which tool it is, the server's list tells.
fn exposed<'w>(config: &'w Config, words: &'w [String]) -> Option<Target<'w>> {
    let (word, rest) = words.split_first()?;
    let mut servers = config.servers.iter().map(|server| &server.name);
    let server = servers.find(|server| may_expose(server, word))?;
    Some(Target {
        server: server.as_str(),
        tool: word,
        exposed: Some(word),
        rest,
    })
}

/// One request of a command: of whom, what, and whether it may have been sent. Whoever interrupts it
/// is told.
#[derive(Debug)]
pub(crate) struct PendingRequest<'w> {
    server: &'w str,
    method: &'static str,
    sent: Cell<bool>,
}

impl<'w> PendingRequest<'w> {
    pub(crate) fn new(server: &'w str, method: &'static str) -> Self {
        Self {
            server,
            method,
            sent: Cell::new(false),
        }
    }

    /// From now on the server may have seen it.
    pub(crate) fn sent(&self) {
        self.sent.set(true);
    }

    /// The time was up before it could be sent.
    pub(crate) fn too_late(&self, message: String) -> Failure {
        Failure {
            sent: Some(self.sent.get()),
            ..Failure::deadline(message).at(self.server)
        }
    }

    pub(crate) fn interrupted(&self) -> Failure {
        Failure::interrupted_at(self.server, self.method, self.sent.get())
    }
}

pub(crate) fn server(runtime: &Runtime, name: &str) -> Result<ServerHandle, Failure> {
    runtime
        .server(name)
        .map_err(|error| Failure::unknown_server(error.to_string()))
}

/// What a server that is there offers of one list.
pub(crate) enum Offer {
    /// The catalog, in which this list is of the present connection.
    Listed(Arc<ServerCatalog>),
    /// The list cannot be fetched, and this is why.
    Unlisted(Failure),
    /// The request says by itself that it cannot be sent, and what to do.
    Refused,
}

/// Waits for a server and for one of its lists, and for no other: a list that nobody needs may be
/// broken.
pub(crate) async fn offer(
    server: &ServerHandle,
    list: ListKind,
    deadlines: &RequestDeadlines,
) -> Result<Offer, Failure> {
    let status = there(server, &[list], deadlines).await?;
    Ok(match (status.state, status.list(list)) {
        (StateName::Connected, ListState::Failed(fault)) => {
            Offer::Unlisted(Failure::listing_failed(server.name().as_str(), fault))
        }
        (StateName::Connected, _) => Offer::Listed(server.catalog()),
        _ => Offer::Refused,
    })
}

/// Waits for a server and for these of its lists. What comes is connected, or refuses by itself.
pub(crate) async fn there(
    server: &ServerHandle,
    lists: &[ListKind],
    deadlines: &RequestDeadlines,
) -> Result<ServerStatus, Failure> {
    let name = server.name().as_str();
    let Some(status) = fleet::settled(server, lists, deadlines.ready_until()).await else {
        return Err(late(server, lists, deadlines));
    };
    match status.state {
        StateName::Disabled => Err(Failure::disabled(name)),
        StateName::Connected | StateName::PermanentlyFailed => Ok(status),
        _ => Err(unreachable(server, &status)),
    }
}

/// A server whose attempt failed. Of a silent one it is said what it showed of itself.
pub(crate) fn unreachable(server: &ServerHandle, status: &ServerStatus) -> Failure {
    let mut failure = Failure::unreachable(status);
    let class = status.last_error.as_ref().map(|fault| fault.class);
    if class == Some(FaultClass::Timeout) {
        failure.message.push_str(&hints_of(server, status));
    }
    failure
}

/// What a server did not do in time, and what it did instead.
fn late(server: &ServerHandle, lists: &[ListKind], deadlines: &RequestDeadlines) -> Failure {
    let (name, status) = (server.name().as_str(), server.status());
    let pending = lists.iter().find(|list| !status.list(**list).is_settled());
    match (status.state, pending) {
        (StateName::Connected, Some(list)) => {
            deadlines.too_late(name, &format!("list its {list}"), "")
        }
        _ => deadlines.too_late(name, "connect", &hints_of(server, &status)),
    }
}

/// What to say of a server that wrote something else than messages.
pub(crate) fn strays(status: &ServerStatus) -> Option<String> {
    match (status.transport, status.strays) {
        ("stdio", 1) => Some("it wrote 1 non-protocol line to stdout".to_owned()),
        ("stdio", lines @ 2..) => Some(format!("it wrote {lines} non-protocol lines to stdout")),
        _ => None,
    }
}

/// The list that a connected server did not fetch yet.
pub(crate) fn pending(status: &ServerStatus) -> Option<ListKind> {
    let mut lists = ListKind::ALL.into_iter();
    lists.find(|list| status.state == StateName::Connected && !status.list(*list).is_settled())
}

/// What a silent server showed of itself.
pub(crate) fn hints_of(server: &ServerHandle, status: &ServerStatus) -> String {
    let mut hints = strays(status).map_or_else(String::new, |strays| format!("; {strays}"));
    let stderr = server.stderr_tail();
    let lines: Vec<&str> = stderr.trim_end().lines().collect();
    let last = &lines[lines.len().saturating_sub(MAX_STDERR_LINES)..];
    if !last.is_empty() {
        hints.push_str(&format!("; its stderr ends with: {}", last.join("\n")));
    }
    hints
}

/// A request that was not sent because a person has to authorize has an exit code of its own.
pub(crate) fn refine(failure: Failure, server: &ServerHandle) -> Failure {
    let status = server.status();
    if failure.exit == Exit::Unreachable && failure::needs_authorization(&status) {
        return Failure::unreachable(&status);
    }
    failure
}

/// What to say of tools that a server holds back.
pub(crate) fn held(server: &str, count: usize) -> Option<String> {
    let tools = match count {
        0 => return None,
        1 => "1 tool is held back until a person approves it".to_owned(),
        count => format!("{count} tools are held back until a person approves them"),
    };
    let see = suggest_command(&["approve", server, "--list"]);
    Some(format!("{tools}; see: {see}"))
}

/// What to say of what should be looked at in a server's catalog.
pub(crate) fn findings(server: &str, count: usize) -> Option<String> {
    let things = match count {
        0 => return None,
        1 => "1 thing in what it lists should be looked at".to_owned(),
        count => format!("{count} things in what it lists should be looked at"),
    };
    Some(format!(
        "{things}; see: {}",
        suggest_command(&["doctor", server])
    ))
}

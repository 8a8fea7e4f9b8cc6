//! Notes on a server beside its state: stray output, unsaved logins, held-back tools, findings.

use mcpvisor::{Event, ListKind, ServerHandle, ServerStatus, StateName};

use super::{action_text, suggest_command};

/// Lines of stderr in a message.
const MAX_STDERR_LINES: usize = 5;

/// The name of a server, with the number of a further instance, and its client: `files#3 (planner)`.
pub(crate) fn instance_name(status: &ServerStatus) -> String {
    numbered(
        status.name.as_str(),
        status.instance,
        status.client.as_deref(),
    )
}

/// The same for the source of an event; empty for an event of the fleet.
pub(crate) fn event_source(event: &Event) -> String {
    let name = event.server.as_ref().map(|server| server.as_str());
    name.map_or_else(String::new, |name| {
        numbered(name, event.instance, event.client.as_deref())
    })
}

fn numbered(name: &str, instance: u32, client: Option<&str>) -> String {
    let number = match instance {
        0 => String::new(),
        number => format!("#{number}"),
    };
    let client = client.map_or_else(String::new, |client| format!(" ({client})"));
    format!("{name}{number}{client}")
}

/// A server that wrote to stdout something else than messages.
pub(crate) fn stray_lines(status: &ServerStatus) -> Option<String> {
    match (status.transport, status.strays) {
        ("stdio", 1) => Some("it wrote 1 non-protocol line to stdout".to_owned()),
        ("stdio", lines @ 2..) => Some(format!("it wrote {lines} non-protocol lines to stdout")),
        _ => None,
    }
}

/// The list that a connected server has not fetched yet.
pub(crate) fn pending_list(status: &ServerStatus) -> Option<ListKind> {
    let mut lists = ListKind::ALL.into_iter();
    lists.find(|list| status.state == StateName::Connected && !status.list(*list).is_settled())
}

/// The output of a server that did not answer, to be appended to a message.
pub(crate) fn startup_clues(server: &ServerHandle, status: &ServerStatus) -> String {
    let mut clues = stray_lines(status).map_or_else(String::new, |lines| format!("; {lines}"));
    let stderr = server.stderr_tail();
    let lines: Vec<&str> = stderr.trim_end().lines().collect();
    let last = &lines[lines.len().saturating_sub(MAX_STDERR_LINES)..];
    if !last.is_empty() {
        clues.push_str(&format!("; its stderr ends with: {}", last.join("\n")));
    }
    clues
}

/// A note, and the command that shows more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) text: String,
    pub(crate) action: String,
}

impl Note {
    pub(crate) fn into_sentence(self) -> String {
        format!("{}. {}", self.text, self.action)
    }
}

/// A login that exists only in memory.
pub(crate) fn unsaved_login(status: &ServerStatus) -> Option<Note> {
    let unsaved = status.unsaved_login.as_ref()?;
    Some(Note {
        text: format!("the renewed login could not be saved ({})", unsaved.problem),
        action: action_text(status.name.as_str(), &unsaved.action),
    })
}

/// Requests of the server that were declined because several clients may have caused them. The action
/// of the status says what to do.
pub(crate) fn ambiguous_requests(status: &ServerStatus) -> Option<String> {
    let requests = match status.ambiguous_requests {
        0 => return None,
        1 => "1 request of the server was".to_owned(),
        count => format!("{count} requests of the server were"),
    };
    let why = "calls of several clients may have caused it";
    Some(format!("{requests} declined, because {why}"))
}

/// Tools that wait for approval.
pub(crate) fn held_tools(server: &str, count: usize) -> Option<Note> {
    let text = match count {
        0 => return None,
        1 => "1 tool is held back until you approve it".to_owned(),
        count => format!("{count} tools are held back until you approve them"),
    };
    let command = suggest_command(&["approve", server, "--list"]);
    let action = format!("Run `{command}`.");
    Some(Note { text, action })
}

/// Findings in the catalog.
pub(crate) fn findings(server: &str, count: usize) -> Option<Note> {
    let text = match count {
        0 => return None,
        1 => "1 finding in its catalog".to_owned(),
        count => format!("{count} findings in its catalog"),
    };
    let action = format!("Run `{}`.", suggest_command(&["doctor", server]));
    Some(Note { text, action })
}

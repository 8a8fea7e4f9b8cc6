//! `get`: one config entry, without starting its server.

use mcpvisor::ServerConfig;
use mcpvisor::config::{Fact, Review};
use serde::Serialize;

use crate::config::source::{self, Source};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::invocation::Invocation;
use crate::output::printable;

/// Facts of the review that have their own row.
const ROWS: [&str; 6] = [
    "transport",
    "enabled",
    "start",
    "scope",
    "annotations",
    "pinned",
];

/// A configured server without its secrets: only the names of variables and headers.
#[derive(Debug, Serialize)]
struct Entry {
    name: String,
    config: String,
    transport: &'static str,
    /// The command line or the URL.
    reached: String,
    /// The same in parts, with the names of variables and headers.
    facts: Vec<Fact>,
    enabled: bool,
    required: bool,
    start: &'static str,
    /// Idle time before it sleeps; `None` for never.
    sleeps_after_ms: Option<u64>,
    /// `shared` or `client`.
    scope: &'static str,
    /// The connections at once, if each client has its own.
    max_connections: Option<usize>,
    instances: usize,
    affinity: bool,
    pin: bool,
    annotations_trusted: bool,
    tools_allowed: Vec<String>,
    tools_denied: Vec<String>,
    connect_timeout_ms: u64,
    call_timeout_ms: u64,
    idle_timeout_ms: u64,
    reconnect_attempts: u32,
    reconnect_within_ms: u64,
    max_in_flight: usize,
    max_waiting: usize,
}

pub(super) fn run(name: &str, invocation: &Invocation<'_>) -> Result<Exit, Failure> {
    let source = invocation.source()?;
    let text = source.text()?;
    let config = fleet::only(source::parse(&text)?, name)?;
    let review = Review::of(&text).map_err(Failure::unreadable)?;
    fleet::warn(&config, &invocation.output);
    let Some(server) = config.servers.first() else {
        return Err(fleet::unknown_server(&config, name));
    };
    let entry = Entry::of(server, &review, &source);
    invocation.output.result(&entry, || entry.render())
}

impl Entry {
    fn of(server: &ServerConfig, review: &Review, source: &Source) -> Self {
        let settings = &server.settings;
        let connections = &settings.connections;
        let per_client = connections.is_per_client();
        let reviewed = review.server(server.name.as_str());
        let facts = reviewed.map(|it| it.facts.clone()).unwrap_or_default();
        let facts: Vec<Fact> = facts
            .into_iter()
            .filter(|fact| !ROWS.contains(&fact.label.as_str()))
            .collect();
        Self {
            name: server.name.to_string(),
            config: source.path().display().to_string(),
            transport: server.transport.label(),
            reached: facts
                .first()
                .map(|fact| fact.value.clone())
                .unwrap_or_default(),
            facts,
            enabled: server.enabled,
            required: server.required,
            start: if settings.rest.lazy { "lazy" } else { "eager" },
            sleeps_after_ms: settings.sleep_after().map(ms),
            scope: match per_client {
                true => "client",
                false => "shared",
            },
            max_connections: per_client.then_some(connections.max_connections),
            instances: connections.instances,
            affinity: connections.affinity,
            pin: server.pin,
            annotations_trusted: settings.retry.trusted,
            tools_allowed: server.tools.allow.clone(),
            tools_denied: server.tools.deny.clone(),
            connect_timeout_ms: ms(settings.timeouts.connect),
            call_timeout_ms: ms(settings.timeouts.call),
            idle_timeout_ms: ms(settings.timeouts.idle),
            reconnect_attempts: settings.budget.attempts,
            reconnect_within_ms: ms(settings.budget.within),
            max_in_flight: settings.admission.in_flight,
            max_waiting: settings.admission.waiting,
        }
    }

    /// Which connections it has.
    fn connections(&self) -> String {
        match (self.max_connections, self.instances) {
            (Some(max), _) => format!("one for each client, at most {max} at once"),
            (None, 1) => "one for all clients".to_owned(),
            (None, instances) if self.affinity => {
                format!("{instances} instances; a client stays on one")
            }
            (None, instances) => format!("{instances} instances"),
        }
    }

    fn render(&self) -> String {
        let yes_no = |flag: bool| if flag { "yes" } else { "no" }.to_owned();
        let tools = match (self.tools_allowed.as_slice(), self.tools_denied.as_slice()) {
            ([], []) => "all".to_owned(),
            ([], denied) => format!("all but {}", denied.join(", ")),
            (allowed, []) => allowed.join(", "),
            (allowed, denied) => format!("{}, but not {}", allowed.join(", "), denied.join(", ")),
        };
        let sleeps = self.sleeps_after_ms.map_or("never".to_owned(), seconds);
        let facts = self.facts.iter();
        let facts = facts.map(|fact| (fact.label.as_str(), fact.value.clone()));
        let before = [
            ("name", self.name.clone()),
            ("config", self.config.clone()),
            ("transport", self.transport.to_owned()),
        ];
        let after = [
            ("enabled", yes_no(self.enabled)),
            ("required", yes_no(self.required)),
            ("start", self.start.to_owned()),
            ("sleeps after", sleeps),
            ("connections", self.connections()),
            (
                "annotations",
                match self.annotations_trusted {
                    true => "trusted",
                    false => "not trusted",
                }
                .to_owned(),
            ),
            ("pinned", yes_no(self.pin)),
            ("tools", tools),
            ("connect timeout", seconds(self.connect_timeout_ms)),
            ("call timeout", seconds(self.call_timeout_ms)),
            ("idle timeout", seconds(self.idle_timeout_ms)),
            (
                "reconnects",
                format!(
                    "{} within {}",
                    self.reconnect_attempts,
                    seconds(self.reconnect_within_ms)
                ),
            ),
            (
                "calls at once",
                format!("{}, {} waiting", self.max_in_flight, self.max_waiting),
            ),
        ];
        let rows = before.into_iter().chain(facts).chain(after);
        rows.map(|(name, value)| format!("{name:<16} {}\n", printable(&value)))
            .collect()
    }
}

fn ms(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn seconds(ms: u64) -> String {
    if ms.is_multiple_of(1_000) {
        format!("{} s", ms / 1_000)
    } else {
        format!("{ms} ms")
    }
}

//! `get`: one entry of the config, starting nothing.

use mcpvisor::{ServerConfig, StartMode};
use serde::Serialize;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::output::{Output, printable};
use crate::source::Source;

/// One configured server. What may hold a secret is not shown: of arguments the number, of the
/// environment and of headers the names.
#[derive(Debug, Serialize)]
struct Entry {
    name: String,
    config: String,
    transport: &'static str,
    /// How it is reached, as far as it can be shown.
    reached: String,
    enabled: bool,
    required: bool,
    start: &'static str,
    /// After this time without a call; never if there is none.
    sleeps_after_ms: Option<u64>,
    pin: bool,
    trusted: bool,
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

pub(super) fn run(source: &Source, name: &str, output: &Output) -> Result<Exit, Failure> {
    let config = fleet::only(source.read()?, name)?;
    fleet::warn(&config, output);
    let Some(server) = config.servers.first() else {
        return Err(fleet::not_there(&config, name));
    };
    let entry = Entry::of(server, source);
    if output.json() {
        output.document(&entry)?;
    } else {
        output.text(&entry.render())?;
    }
    Ok(Exit::Ok)
}

impl Entry {
    fn of(server: &ServerConfig, source: &Source) -> Self {
        let settings = &server.settings;
        Self {
            name: server.name.to_string(),
            config: source.path().display().to_string(),
            transport: server.transport.label(),
            reached: server.transport.to_string(),
            enabled: server.enabled,
            required: server.required,
            start: match server.start {
                StartMode::Lazy => "lazy",
                _ => "eager",
            },
            sleeps_after_ms: server.sleep_after.map(ms),
            pin: server.pin,
            trusted: settings.retry.trusted,
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

    fn render(&self) -> String {
        let word = |flag: bool| if flag { "yes" } else { "no" }.to_owned();
        let tools = match (self.tools_allowed.as_slice(), self.tools_denied.as_slice()) {
            ([], []) => "all".to_owned(),
            ([], denied) => format!("all but {}", denied.join(", ")),
            (allowed, []) => allowed.join(", "),
            (allowed, denied) => format!("{}, but not {}", allowed.join(", "), denied.join(", ")),
        };
        let sleeps = self.sleeps_after_ms.map_or("never".to_owned(), seconds);
        let rows = [
            ("name", self.name.clone()),
            ("config", self.config.clone()),
            ("transport", self.transport.to_owned()),
            ("reached", self.reached.clone()),
            ("enabled", word(self.enabled)),
            ("required", word(self.required)),
            ("start", self.start.to_owned()),
            ("sleeps after", sleeps),
            ("trusted", word(self.trusted)),
            ("pinned", word(self.pin)),
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
        let lines = rows.map(|(name, value)| format!("{name:<16} {}\n", printable(&value)));
        lines.concat()
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

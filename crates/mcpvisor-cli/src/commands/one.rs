//! What the commands for one request share: which server, until when, and whether it is there.

use std::sync::Arc;
use std::time::Duration;

use mcpvisor::{Config, Runtime, ServerCatalog, ServerHandle, StateName};
use tokio::time::Instant;

use crate::exit::Exit;
use crate::failure::{self, Failure};
use crate::fleet;
use crate::target::{NoTarget, Target};

/// The server and the tool (or the prompt) that are meant; `what` is its noun and its command.
pub(super) fn target<'w>(
    config: &Config,
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
    Target::read(words, |name| configured(name) || left_out(name)).map_err(|reason| match reason {
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

/// When the command is over: as it was told, or as the server's entry says.
pub(super) fn until(config: &Config, timeout: Option<Duration>) -> Instant {
    let patience = timeout.or_else(|| config.servers.first().map(|s| s.settings.timeouts.call));
    Instant::now() + patience.unwrap_or_default()
}

/// The time that is left. Errors show it, and nobody reads nanoseconds.
pub(super) fn left(until: Instant) -> Duration {
    let left = until.saturating_duration_since(Instant::now());
    Duration::from_millis(u64::try_from(left.as_millis()).unwrap_or(u64::MAX))
}

pub(super) fn server(runtime: &Runtime, name: &str) -> Result<ServerHandle, Failure> {
    runtime
        .server(name)
        .map_err(|error| Failure::unknown_server(error.to_string()))
}

/// The catalog of a server, once it is connected. Without one the server is asked without it.
pub(super) async fn catalog(
    server: &ServerHandle,
    until: Instant,
) -> Result<Option<Arc<ServerCatalog>>, Failure> {
    let name = server.name().as_str();
    let Some(status) = fleet::settled(server, until).await else {
        let message = format!("{name} did not connect in time; allow more with --timeout");
        return Err(Failure::deadline(message).at(name));
    };
    match status.state {
        StateName::Connected if status.is_ready() => Ok(Some(server.catalog())),
        StateName::Disabled => Err(Failure::disabled(name)),
        // The request says by itself that it cannot be sent, and what to do.
        StateName::Connected | StateName::PermanentlyFailed => Ok(None),
        _ => Err(Failure::unreachable(&status)),
    }
}

/// A request that was not sent because a person has to authorize has an exit code of its own.
pub(super) fn refine(failure: Failure, server: &ServerHandle) -> Failure {
    let status = server.status();
    if failure.exit == Exit::Unreachable && failure::needs_authorization(&status) {
        return Failure::unreachable(&status);
    }
    failure
}

/// What to say of tools that a server holds back.
pub(super) fn held(server: &str, count: usize) -> Option<String> {
    let tools = match count {
        0 => return None,
        1 => "1 tool is held back until a person approves it".to_owned(),
        count => format!("{count} tools are held back until a person approves them"),
    };
    Some(format!("{tools}; see: mcpvisor approve {server} --list"))
}

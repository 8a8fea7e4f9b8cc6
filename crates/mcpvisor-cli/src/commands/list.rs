//! `list`: the configured servers, without starting them.

use mcpvisor::{Fault, ServerConfig, ServerStatus, StateName};
use serde::Serialize;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::invocation::Invocation;
use crate::output::{Table, TextFormat, after_command};

/// A configured server, without its command and environment, which may hold secrets.
#[derive(Debug, Serialize)]
struct Listed<'a> {
    name: &'a str,
    /// `None` if the entry cannot be used.
    transport: Option<&'static str>,
    enabled: bool,
    required: bool,
    #[serde(flatten)]
    unusable: Option<Unusable<'a>>,
}

/// Why an entry cannot be used.
#[derive(Debug, Serialize)]
struct Unusable<'a> {
    state: StateName,
    last_error: Option<&'a Fault>,
    action: Option<String>,
}

pub(super) fn run(invocation: &Invocation<'_>) -> Result<Exit, Failure> {
    let config = invocation.source()?.read()?;
    fleet::warn(&config, &invocation.output);
    let unusable = config.unusable_servers();
    let listed = config.servers.iter().map(Listed::configured);
    let listed = listed.chain(unusable.iter().map(Listed::unusable));
    let listed: Vec<Listed<'_>> = listed.collect();
    invocation.output.result(&listed, || render(&listed))
}

fn render(listed: &[Listed<'_>]) -> String {
    let mut table = Table::new(["NAME", "TRANSPORT", "ENABLED", "REQUIRED"]);
    let yes_no = |flag| if flag { "yes" } else { "no" }.to_owned();
    for server in listed {
        table.row([
            server.name.to_owned(),
            server.transport.unwrap_or("-").to_owned(),
            match &server.unusable {
                Some(entry) if entry.state != StateName::Disabled => "unusable".to_owned(),
                _ => yes_no(server.enabled),
            },
            yes_no(server.required),
        ]);
    }
    table.render(TextFormat::of_stdout())
}

/// Prints the names, for shell completions. Names contain no line breaks or control characters.
pub(super) fn names(invocation: &Invocation<'_>) -> Result<Exit, Failure> {
    let config = invocation.source()?.read()?;
    let names = config.servers.iter();
    let names: String = names.map(|server| format!("{}\n", server.name)).collect();
    invocation.output.text(&names)?;
    Ok(Exit::Ok)
}

impl<'a> Listed<'a> {
    fn configured(server: &'a ServerConfig) -> Self {
        Self {
            name: server.name.as_str(),
            transport: Some(server.transport.label()),
            enabled: server.enabled,
            required: server.required,
            unusable: None,
        }
    }

    fn unusable(status: &'a ServerStatus) -> Self {
        Self {
            name: status.name.as_str(),
            transport: None,
            enabled: false,
            required: false,
            unusable: Some(Unusable {
                state: status.state,
                last_error: status.last_error.as_ref(),
                action: after_command(status),
            }),
        }
    }
}

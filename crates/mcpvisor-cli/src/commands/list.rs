//! `list`: what is configured, starting nothing.

use mcpvisor::ServerConfig;
use serde::Serialize;

use crate::config::source::Source;
use crate::config::unusable_entry::{self, Fault, LeftOut};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::output::{Output, Table};

/// One configured server. Neither its command nor its environment is shown: they may hold secrets.
#[derive(Debug, Serialize)]
struct Listed<'a> {
    name: &'a str,
    /// Nothing if nobody knows.
    transport: Option<&'static str>,
    enabled: bool,
    required: bool,
    /// Of an entry that cannot be used.
    #[serde(flatten)]
    unusable: Option<Unusable<'a>>,
}

#[derive(Debug, Serialize)]
struct Unusable<'a> {
    state: &'static str,
    last_error: Fault<'a>,
    action: String,
}

pub(super) fn run(source: &Source, output: &Output) -> Result<Exit, Failure> {
    let config = source.read()?;
    fleet::warn(&config, output);
    let left_out = unusable_entry::of(&config);
    let listed = config.servers.iter().map(Listed::of);
    let listed = listed.chain(left_out.iter().map(Listed::unusable));
    let listed: Vec<Listed<'_>> = listed.collect();
    if output.json() {
        output.document(&listed)?;
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(["NAME", "TRANSPORT", "ENABLED", "REQUIRED"]);
    let word = |flag| if flag { "yes" } else { "no" }.to_owned();
    for server in &listed {
        table.row([
            server.name.to_owned(),
            server.transport.unwrap_or("-").to_owned(),
            match &server.unusable {
                Some(entry) if entry.state != "disabled" => "unusable".to_owned(),
                _ => word(server.enabled),
            },
            word(server.required),
        ]);
    }
    output.table(&table)?;
    Ok(Exit::Ok)
}

/// The names alone, for the completions of a shell. They are harmless there: no name holds a line
/// break or a control character.
pub(super) fn names(source: &Source, output: &Output) -> Result<Exit, Failure> {
    let config = source.read()?;
    let names = config.servers.iter();
    let names: String = names.map(|server| format!("{}\n", server.name)).collect();
    output.text(&names)?;
    Ok(Exit::Ok)
}

impl<'a> Listed<'a> {
    fn of(server: &'a ServerConfig) -> Self {
        Self {
            name: server.name.as_str(),
            transport: Some(server.transport.label()),
            enabled: server.enabled,
            required: server.required,
            unusable: None,
        }
    }

    fn unusable(entry: &LeftOut<'a>) -> Self {
        Self {
            name: entry.name,
            transport: None,
            enabled: false,
            required: false,
            unusable: Some(Unusable {
                state: entry.state(),
                last_error: entry.fault(),
                action: entry.action(),
            }),
        }
    }
}

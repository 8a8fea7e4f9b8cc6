//! `list`: what is configured, starting nothing.

use mcpvisor::ServerConfig;
use serde::Serialize;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::output::{Output, Table};
use crate::source::Source;

/// One configured server. Neither its command nor its environment is shown: they may hold secrets.
#[derive(Debug, Serialize)]
struct Listed<'a> {
    name: &'a str,
    transport: &'static str,
    enabled: bool,
    required: bool,
}

pub(super) fn run(source: &Source, output: &Output) -> Result<Exit, Failure> {
    let config = source.read()?;
    fleet::warn(&config, output);
    let listed: Vec<Listed<'_>> = config.servers.iter().map(Listed::of).collect();
    if output.json() {
        output.document(&listed)?;
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(["NAME", "TRANSPORT", "ENABLED", "REQUIRED"]);
    let word = |flag| if flag { "yes" } else { "no" }.to_owned();
    for server in &listed {
        table.row([
            server.name.to_owned(),
            server.transport.to_owned(),
            word(server.enabled),
            word(server.required),
        ]);
    }
    output.table(&table)?;
    Ok(Exit::Ok)
}

impl<'a> Listed<'a> {
    fn of(server: &'a ServerConfig) -> Self {
        Self {
            name: server.name.as_str(),
            transport: server.transport.label(),
            enabled: server.enabled,
            required: server.required,
        }
    }
}

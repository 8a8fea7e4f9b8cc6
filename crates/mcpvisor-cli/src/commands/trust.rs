//! `trust`: lets the commands of a found config run, from now on and until it is edited.

use std::path::Path;

use mcpvisor::config::Trust;
use serde_json::json;

use crate::args::TrustArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::output::{Output, Table, printable};
use crate::source::Source;
use crate::state;

pub(super) fn run(
    wish: &TrustArgs,
    named: Option<&Path>,
    output: &Output,
) -> Result<Exit, Failure> {
    let store = state::trust().ok_or_else(|| {
        Failure::config("there is no folder to keep that in; set HOME or MCPVISOR_STATE_DIR")
    })?;
    let failed = |error: std::io::Error| {
        Failure::unexpected(format!("cannot use the list of trusted configs: {error}"))
    };
    if wish.list {
        let trusted = store.list().map_err(failed)?;
        let trusted = trusted
            .iter()
            .map(|one| (one.path.display().to_string(), one.fingerprint.clone()));
        return list(trusted.collect(), output);
    }
    let source = Source::locate(named)?;
    if wish.forget {
        let known = store.distrust(source.path()).map_err(failed)?;
        let said = if known {
            "is no longer trusted"
        } else {
            "was not trusted"
        };
        return say(&source, said, false, output);
    }
    let text = source.text()?;
    // What cannot be read is no config, and nobody should trust it.
    let config =
        mcpvisor::Config::from_source(&text).map_err(|error| Failure::unreadable(&error))?;
    fleet::warn(&config, output);
    let before = store.check(&text);
    store.trust(&text).map_err(failed)?;
    if !output.json() {
        for server in &config.servers {
            let line = format!("  {}: {}", server.name, server.transport);
            output.text(&printable(&line))?;
        }
    }
    let said = match before {
        Trust::Trusted => "was trusted already",
        Trust::Changed => "is trusted again, as it is now",
        _ => "is trusted, as it is now",
    };
    say(&source, said, true, output)
}

fn say(source: &Source, said: &str, trusted: bool, output: &Output) -> Result<Exit, Failure> {
    let path = source.path();
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let path = path.display().to_string();
    if output.json() {
        output.document(&json!({ "path": path, "trusted": trusted }))?;
    } else {
        output.text(&printable(&format!("{path} {said}")))?;
    }
    Ok(Exit::Ok)
}

fn list(trusted: Vec<(String, String)>, output: &Output) -> Result<Exit, Failure> {
    if output.json() {
        let all = trusted.iter();
        let all = all.map(|(path, sha256)| json!({ "path": path, "sha256": sha256 }));
        output.document(&all.collect::<Vec<_>>())?;
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(["CONFIG", "SHA-256"]);
    for (path, sha256) in trusted {
        table.row([path, sha256.chars().take(12).collect()]);
    }
    output.table(&table)?;
    Ok(Exit::Ok)
}

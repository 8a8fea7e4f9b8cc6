//! `completions` and `man`, generated from the command line.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use serde_json::json;

use crate::args::Args;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;

pub(super) fn completions(shell: Shell, output: &Output) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut visible_commands(), "mcpvisor", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if shell == Shell::Bash {
        script = with_servers(&script);
    }
    let document = json!({ "shell": shell.to_string(), "script": script });
    output.result(&document, || script)
}

/// Registers our own function, which completes server names, and options only after a dash. It falls
/// back to the generated one.
fn with_servers(script: &str) -> String {
    let registered = script.replace("complete -F _mcpvisor -o", "complete -F _mcpvisor_words -o");
    format!("{}{registered}", include_str!("completions.bash"))
}

/// The command line without hidden commands.
fn visible_commands() -> clap::Command {
    let all = Args::command();
    let commands = all.get_subcommands();
    let commands = commands.filter(|command| !command.is_hide_set()).cloned();
    clap::Command::new("mcpvisor")
        .version(env!("CARGO_PKG_VERSION"))
        .args(all.get_arguments().cloned())
        .subcommands(commands)
}

/// Writes one page for the program, and one for each visible command.
pub(super) fn man(folder: &Path, output: &Output) -> Result<Exit, Failure> {
    let failed = |error: std::io::Error| {
        let folder = folder.display();
        Failure::unexpected(format!("cannot write manual pages to {folder}: {error}"))
    };
    std::fs::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(Args::command(), folder).map_err(failed)?;
    if output.json() {
        output.document(&json!({ "folder": folder.display().to_string() }))?;
    }
    Ok(Exit::Ok)
}

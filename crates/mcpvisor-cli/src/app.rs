//! Parses the command line and runs the command.

use std::ffi::OsStr;
use std::io::IsTerminal;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ColorChoice, CommandFactory, FromArgMatches};

use crate::args::{Args, Command};
use crate::demo::builtin;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{ColorMode, Output, is_dumb, remember_config};
use crate::{commands, logging};

/// Runs the command that the process was started with.
pub(crate) fn run() -> Exit {
    let args = match parse() {
        Ok(args) => args,
        Err(error) => return refuse(without_hidden(error)),
    };
    if let Command::BuiltinServer(server) = args.command {
        return builtin::run(server);
    }
    if !args.command.is_screen() || !std::io::stderr().is_terminal() || is_dumb() {
        logging::start(args.verbose);
    }
    let output = Output::new(args.json);
    remember_config(args.config.as_deref());
    match tokio::runtime::Runtime::new() {
        Ok(runtime) => {
            let exit = runtime.block_on(commands::run(args, &output));
            // The fleet is down. Remaining blocking threads must not delay the exit.
            runtime.shutdown_background();
            exit
        }
        Err(error) => output.failure(&Failure::unexpected(error)),
    }
}

/// Reads the command line. Help and errors are colored where our own lines are: clap by itself would
/// color them on a terminal that obeys nothing too, wherever it finds a variable `CI`.
fn parse() -> Result<Args, clap::Error> {
    let colored = [ColorMode::of_stdout(), ColorMode::of_stderr()].contains(&ColorMode::Colored);
    let choice = if colored {
        ColorChoice::Auto
    } else {
        ColorChoice::Never
    };
    let mut command = Args::command().color(choice);
    let mut matches = command.try_get_matches_from_mut(std::env::args_os())?;
    Args::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// Help and version are results; everything else is a usage error.
fn refuse(error: clap::Error) -> Exit {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        let _ = error.print();
        return Exit::Ok;
    }
    // Parsing failed, so `--json` has to be found in the raw arguments.
    let json = std::env::args_os()
        .take_while(|arg| arg != OsStr::new("--"))
        .any(|arg| arg == OsStr::new("--json"));
    if json {
        return Output::new(true).failure(&Failure::usage(in_one_line(&error)));
    }
    let _ = error.print();
    Exit::Usage
}

/// The error without the usage, as one line.
fn in_one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text.split("\n\nUsage:").next().unwrap_or_default();
    let text = text.split("\n\nFor more").next().unwrap_or_default();
    let text = text.strip_prefix("error: ").unwrap_or(text);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Removes hidden commands from lists and suggestions.
fn without_hidden(mut error: clap::Error) -> clap::Error {
    let hidden: Vec<String> = Args::command()
        .get_subcommands()
        .filter(|command| command.is_hide_set())
        .map(|command| command.get_name().to_owned())
        .collect();
    for kind in [
        ContextKind::ValidSubcommand,
        ContextKind::SuggestedSubcommand,
    ] {
        let names = match error.get(kind) {
            Some(ContextValue::Strings(names)) => names.clone(),
            Some(ContextValue::String(name)) => vec![name.clone()],
            _ => continue,
        };
        let shown: Vec<String> = names
            .into_iter()
            .filter(|name| !hidden.contains(name))
            .collect();
        match shown.is_empty() {
            true => drop(error.remove(kind)),
            false => drop(error.insert(kind, ContextValue::Strings(shown))),
        }
    }
    error
}

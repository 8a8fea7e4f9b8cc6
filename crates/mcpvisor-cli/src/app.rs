//! From the command line to an exit code.
//!
//! What each command does is in [`crate::commands`].

use std::ffi::OsStr;
use std::io::IsTerminal;

use clap::Parser;
use clap::error::ErrorKind;

use crate::args::{Args, Command};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;
use crate::{builtin, commands, logging};

/// Runs the command that the process was started with.
pub(crate) fn run() -> Exit {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return refuse(&error),
    };
    if let Command::BuiltinServer(server) = args.command {
        return builtin::run(server);
    }
    if !args.command.is_screen() || !std::io::stderr().is_terminal() {
        logging::start(args.verbose);
    }
    let output = Output::new(args.json);
    match tokio::runtime::Runtime::new() {
        Ok(runtime) => {
            let exit = runtime.block_on(commands::run(args, &output));
            // The fleet is down by now; nothing that is left may hold up the end.
            runtime.shutdown_background();
            exit
        }
        Err(error) => output.failure(&Failure::unexpected(error.to_string())),
    }
}

/// Help and version are answers, everything else is a wrong use.
fn refuse(error: &clap::Error) -> Exit {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            return Exit::Ok;
        }
        _ => {}
    }
    // The arguments were not understood, so the wish for JSON has to be looked for.
    let json = std::env::args_os()
        .take_while(|arg| arg != OsStr::new("--"))
        .any(|arg| arg == OsStr::new("--json"));
    if json {
        let text = error.render().to_string();
        let line = text.lines().next().unwrap_or_default();
        let message = line.strip_prefix("error: ").unwrap_or(line).to_owned();
        return Output::new(true).failure(&Failure::usage(message));
    }
    let _ = error.print();
    Exit::Usage
}

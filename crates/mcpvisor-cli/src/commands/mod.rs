//! The commands, one per file. Each gives an exit code or a failure.

mod call;
mod list;
mod status;
mod tools;

use crate::args::{Args, Command};
use crate::demo;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet::Source;
use crate::output::Output;

/// Runs a command and shows its failure.
pub(crate) async fn run(args: Args, output: &Output) -> Exit {
    match dispatch(args, output).await {
        Ok(exit) => exit,
        Err(failure) => output.failure(&failure),
    }
}

async fn dispatch(args: Args, output: &Output) -> Result<Exit, Failure> {
    let timeout = args.timeout;
    let source = || Source::locate(args.config.as_deref());
    match args.command {
        Command::Demo(wish) => demo::run(&wish, output).await,
        Command::List => list::run(&source()?, output),
        Command::Status => status::run(&source()?, timeout, output).await,
        Command::Tools { server } => {
            tools::run(&source()?, server.as_deref(), timeout, output).await
        }
        Command::Call(call) => call::run(&source()?, &call, timeout, output).await,
        // It speaks MCP on stdout, so it runs before any of this.
        Command::BuiltinServer(_) => Ok(Exit::Usage),
    }
}

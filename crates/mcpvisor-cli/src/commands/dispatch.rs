//! Dispatches the parsed command line to its command.

use super::catalog::{self, Kind};
use super::{
    approve, call, completions, conformance, doctor, get, list, prompt, read, status, trust, watch,
};
use crate::args::{Args, Command};
use crate::config::source::Source;
use crate::demo;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;
use crate::request::deadlines::Deadline;

/// Runs a command, and prints its failure.
pub(crate) async fn run(args: Args, output: &Output) -> Exit {
    match dispatch(args, output).await {
        Ok(exit) => exit,
        Err(failure) => failure.show_once(output).exit,
    }
}

async fn dispatch(args: Args, output: &Output) -> Result<Exit, Failure> {
    let deadline = Deadline::new(args.timeout);
    let source = || Source::locate(args.config.as_deref());
    let listed = async |kind, server: Option<String>| {
        catalog::run(kind, &source()?, server.as_deref(), deadline, output).await
    };
    match args.command {
        Command::Demo(demo) => demo::run(&demo, output).await,
        Command::List => list::run(&source()?, output),
        Command::Get { name } => get::run(&source()?, &name, output),
        Command::Status(status) if status.watch => watch::run(&source()?, output).await,
        Command::Status(_) => status::run(&source()?, deadline, output).await,
        Command::Tools(of) => listed(Kind::Tools, of.server).await,
        Command::Prompts(of) => listed(Kind::Prompts, of.server).await,
        Command::Resources(of) => listed(Kind::Resources, of.server).await,
        Command::Templates(of) => listed(Kind::Templates, of.server).await,
        Command::Call(call) => call::run(&source()?, &call, deadline, output).await,
        Command::Prompt(prompt) => prompt::run(&source()?, &prompt, deadline, output).await,
        Command::Read(read) => read::run(&source()?, &read, deadline, output).await,
        Command::Trust(trust) => trust::run(&trust, args.config.as_deref(), output),
        Command::Approve(approve) => approve::run(&source()?, &approve, deadline, output).await,
        Command::Doctor(of) => {
            let named = args.config.as_deref();
            doctor::run(named, of.server.as_deref(), deadline, output).await
        }
        Command::Completions { shell } => completions::completions(shell, output),
        Command::ServerNames => list::names(&source()?, output),
        Command::Man { folder } => completions::man(&folder, output),
        Command::ConformanceClient { url } => conformance::run(&url).await,
        // Handled earlier, because it speaks MCP on stdout.
        Command::BuiltinServer(_) => Ok(Exit::Usage),
    }
}

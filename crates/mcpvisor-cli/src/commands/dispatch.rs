//! Dispatches the parsed command line to its command.

use mcpvisor::ListKind;

use super::{
    approve, auth, call, catalog, completions, conformance, doctor, get, list, login, logout,
    prompt, read, status, tasks, trust, watch,
};
use crate::args::{Args, Command};
use crate::demo;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::invocation::Invocation;
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
    let invocation = Invocation {
        config: args.config.as_deref(),
        deadline: Deadline::new(args.timeout),
        output: *output,
    };
    let listed = async |list, server: Option<String>| {
        catalog::run(list, server.as_deref(), &invocation).await
    };
    match args.command {
        Command::Demo(demo) => demo::run(&demo, output).await,
        Command::List => list::run(&invocation),
        Command::Get { name } => get::run(&name, &invocation),
        Command::Status { watch: true } => watch::run(&invocation).await,
        Command::Status { watch: false } => status::run(&invocation).await,
        Command::Tools(of) => listed(ListKind::Tools, of.server).await,
        Command::Prompts(of) => listed(ListKind::Prompts, of.server).await,
        Command::Resources(of) => listed(ListKind::Resources, of.server).await,
        Command::Templates(of) => listed(ListKind::Templates, of.server).await,
        Command::Call(call) => call::run(&call, &invocation).await,
        Command::Tasks(tasks) => tasks::run(&tasks, &invocation).await,
        Command::Prompt(prompt) => prompt::run(&prompt, &invocation).await,
        Command::Read(read) => read::run(&read, &invocation).await,
        Command::Trust(trust) => trust::run(&trust, &invocation),
        Command::Approve(approve) => approve::run(&approve, &invocation).await,
        Command::Login(login) => login::run(&login, &invocation).await,
        Command::Logout(logout) => logout::run(&logout, &invocation).await,
        Command::Auth => auth::run(&invocation).await,
        Command::Doctor(of) => doctor::run(of.server.as_deref(), &invocation).await,
        Command::Completions { shell } => completions::completions(shell, output),
        Command::ServerNames => list::names(&invocation),
        Command::Man { folder } => completions::man(&folder, output),
        Command::ConformanceClient { url } => conformance::run(&url).await,
        // Handled earlier, because it speaks MCP on stdout.
        Command::BuiltinServer(_) => Ok(Exit::Usage),
    }
}

//! The command line, as it is written.
//!
//! What the words mean is decided elsewhere: [`crate::target`], [`crate::arguments`].

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::builtin::BuiltinServer;

const AFTER_HELP: &str = "\
Exit codes:
  0    ok
  1    wrong use, or something unexpected
  3    authorization needed
  4    server unreachable, or the call was not sent
  5    the tool failed or does not exist
  6    outcome unknown: the call was sent and its answer is lost
  7    deadline
  130  interrupted";

/// Drive a supervised fleet of MCP servers.
#[derive(Debug, Parser)]
#[command(name = "mcpvisor", version, after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The config with the servers ("mcpServers", as JSON)
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Print one JSON document on stdout, errors as JSON on stderr
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// The deadline of the command's requests, connecting included, such as 10s
    #[arg(long, global = true, value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,

    /// Log more, on stderr (-v, -vv, -vvv; RUST_LOG says it more precisely)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show how a fleet survives: built-in servers crash and recover under load
    Demo(DemoArgs),
    /// List what is configured, starting nothing
    List,
    /// Show the state of every server
    Status,
    /// List the tools of all servers, or of one
    Tools {
        /// Only this server
        server: Option<String>,
    },
    /// Call one tool
    #[command(override_usage = "mcpvisor call [OPTIONS] SERVER TOOL [KEY=VALUE]...")]
    Call(CallArgs),
    /// Be one of the demo's servers, on stdin and stdout
    #[command(hide = true)]
    BuiltinServer(BuiltinServer),
}

#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// No colours
    #[arg(long)]
    pub(crate) plain: bool,

    /// Shorter pauses between the acts
    #[arg(long, hide = true)]
    pub(crate) fast: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CallArgs {
    /// SERVER TOOL or SERVER.TOOL, then KEY=VALUE (typed by the tool's schema) or KEY:=JSON
    #[arg(required = true, value_name = "WORDS")]
    pub(crate) words: Vec<String>,

    /// All arguments as one JSON object; "-" reads it from stdin
    #[arg(long, value_name = "JSON|-", allow_hyphen_values = true)]
    pub(crate) args: Option<String>,
}

fn duration(text: &str) -> Result<Duration, String> {
    mcpvisor::config::parse_duration(text).map_err(|problem| problem.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }

    #[test]
    fn options_may_stand_anywhere() {
        let args = Args::parse_from([
            "mcpvisor",
            "call",
            "a",
            "b",
            "k=v",
            "--json",
            "--timeout",
            "2s",
        ]);
        assert!(args.json);
        assert_eq!(args.timeout, Some(Duration::from_secs(2)));
        let Command::Call(call) = args.command else {
            panic!("call expected");
        };
        assert_eq!(call.words, ["a", "b", "k=v"]);
    }
}

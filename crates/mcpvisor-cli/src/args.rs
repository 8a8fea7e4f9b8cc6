//! The command line, as it is written.
//!
//! What the words mean is decided elsewhere: [`crate::request::target`], [`crate::request::arguments`].

mod examples;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::demo::builtin::BuiltinServer;

/// Drive a supervised fleet of MCP servers.
#[derive(Debug, Parser)]
#[command(name = "mcpvisor", version, after_help = examples::EXIT_CODES)]
pub(crate) struct Args {
    /// The config with the servers ("mcpServers"); else the one of this folder, or of the user
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
    #[command(after_help = examples::DEMO)]
    Demo(DemoArgs),
    /// List what is configured, starting nothing
    #[command(after_help = examples::LIST)]
    List,
    /// Show one entry of the config, starting nothing
    #[command(after_help = examples::GET)]
    Get {
        /// Which server
        name: String,
    },
    /// Show the state of every server
    #[command(after_help = examples::STATUS)]
    Status(StatusArgs),
    /// List the tools of all servers, or of one
    #[command(after_help = examples::TOOLS)]
    Tools(OneServer),
    /// List the prompts of all servers, or of one
    #[command(after_help = examples::PROMPTS)]
    Prompts(OneServer),
    /// List the resources of all servers, or of one
    #[command(after_help = examples::RESOURCES)]
    Resources(OneServer),
    /// List the templates of resources of all servers, or of one
    #[command(after_help = examples::TEMPLATES)]
    Templates(OneServer),
    /// Call one tool
    #[command(
        override_usage = "mcpvisor call [OPTIONS] SERVER TOOL [KEY=VALUE]...",
        after_help = examples::CALL
    )]
    Call(CallArgs),
    /// Get one prompt
    #[command(
        override_usage = "mcpvisor prompt [OPTIONS] SERVER NAME [KEY=VALUE]...",
        after_help = examples::PROMPT
    )]
    Prompt(PromptArgs),
    /// Read one resource
    #[command(after_help = examples::READ)]
    Read(ReadArgs),
    /// Let the commands of the config in this folder run
    #[command(after_help = examples::TRUST)]
    Trust(TrustArgs),
    /// Release tools that are held back because their definition changed
    #[command(after_help = examples::APPROVE)]
    Approve(ApproveArgs),
    /// Check config, commands, servers and machine, and say what to do
    #[command(after_help = examples::DOCTOR)]
    Doctor(OneServer),
    /// Print the completions for a shell
    #[command(after_help = examples::COMPLETIONS)]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print the names of the servers, one per line, for shell completions
    #[command(hide = true)]
    ServerNames,
    /// Write the manual pages into a folder
    #[command(hide = true)]
    Man {
        /// Where to; it is made if it is not there
        folder: PathBuf,
    },
    /// Be the client that the protocol's conformance suite drives
    #[command(hide = true)]
    ConformanceClient {
        /// The suite's server
        url: String,
    },
    /// Be one of the demo's servers, on stdin and stdout
    #[command(hide = true)]
    BuiltinServer(BuiltinServer),
}

impl Command {
    /// Whether it may draw a live screen, which log lines on the same terminal would tear.
    pub(crate) fn is_screen(&self) -> bool {
        match self {
            Self::Demo(demo) => !demo.plain,
            Self::Status(status) => status.watch,
            _ => false,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// One line per event instead of the live screen, without colors
    #[arg(long)]
    pub(crate) plain: bool,

    /// What chooses the faults of a long demo; the summary names it
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// About how long it takes: shorter pauses, or more faults
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: Option<u64>,

    /// Shorter pauses between the acts
    #[arg(long, hide = true)]
    pub(crate) fast: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// A live screen; with --json one JSON line per change
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct OneServer {
    /// Only this server
    pub(crate) server: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ApproveArgs {
    /// Which server
    pub(crate) name: String,

    /// Only this tool; else all that are held back
    pub(crate) tool: Option<String>,

    /// Only show what is held back, and what differs
    #[arg(long)]
    pub(crate) list: bool,

    /// Only if the tool is still as --list showed it, with this hash
    #[arg(long, requires = "tool")]
    pub(crate) hash: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TrustArgs {
    /// Show which configs are trusted
    #[arg(long, conflicts_with = "forget")]
    pub(crate) list: bool,

    /// Revoke trust
    #[arg(long)]
    pub(crate) forget: bool,

    /// Do not ask
    #[arg(long, short, conflicts_with_all = ["list", "forget"])]
    pub(crate) yes: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CallArgs {
    /// SERVER TOOL or SERVER.TOOL, then KEY=VALUE (typed by the tool's schema) or KEY:=JSON
    #[arg(required = true, value_name = "WORDS")]
    pub(crate) words: Vec<String>,

    /// All arguments as one JSON object; "-" reads it from stdin, "@FILE" from a file
    #[arg(long, value_name = "JSON|-|@FILE", allow_hyphen_values = true)]
    pub(crate) args: Option<String>,

    #[command(flatten)]
    pub(crate) out: OutArgs,

    #[command(flatten)]
    pub(crate) input: InputArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PromptArgs {
    /// SERVER NAME or SERVER.NAME, then KEY=VALUE
    #[arg(required = true, value_name = "WORDS")]
    pub(crate) words: Vec<String>,

    #[command(flatten)]
    pub(crate) out: OutArgs,

    #[command(flatten)]
    pub(crate) input: InputArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReadArgs {
    /// Which server
    pub(crate) server: String,

    /// The resource's address, as "resources" lists it or a template makes it
    pub(crate) uri: String,

    #[command(flatten)]
    pub(crate) out: OutArgs,

    #[command(flatten)]
    pub(crate) input: InputArgs,
}

/// Whether a server may ask the person at the terminal.
#[derive(Debug, clap::Args)]
pub(crate) struct InputArgs {
    /// Decline whatever the server asks, instead of asking at the terminal
    #[arg(long)]
    pub(crate) no_input: bool,
}

/// What becomes of content that is no text.
#[derive(Debug, clap::Args)]
pub(crate) struct OutArgs {
    /// Save images, audio and other binary content in this folder; nothing is overwritten
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = mcpvisor::config::parse_duration(text).map_err(|problem| problem.to_string())?;
    match duration.is_zero() {
        true => Err("it must be longer than 0".to_owned()),
        false => Ok(duration),
    }
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

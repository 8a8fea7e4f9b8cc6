//! The command line.
//!
//! The words of `call` and `prompt` are parsed in [`crate::request`].

mod examples;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::demo::builtin::BuiltinServer;

/// Drive a supervised fleet of MCP servers.
#[derive(Debug, Parser)]
#[command(name = "mcpvisor", version, after_help = examples::EXIT_CODES)]
pub(crate) struct Args {
    /// Config file with "mcpServers" [default: found in this folder, then in the user's config folder]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Print one JSON document on stdout, errors as JSON on stderr
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Deadline for requests, connecting included, such as 10s
    #[arg(long, global = true, value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,

    /// Log more to stderr (-v, -vv, -vvv; RUST_LOG takes precedence)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run built-in servers that crash and recover under load
    #[command(after_help = examples::DEMO)]
    Demo(DemoArgs),
    /// List the configured servers without starting them
    #[command(after_help = examples::LIST)]
    List,
    /// Show one config entry without starting the server
    #[command(after_help = examples::GET)]
    Get {
        /// Server name
        name: String,
    },
    /// Show the state of every server
    #[command(after_help = examples::STATUS)]
    Status {
        /// Show a live screen; with --json, print one JSON line per change
        #[arg(long)]
        watch: bool,
    },
    /// List the tools of all servers or of one
    #[command(after_help = examples::TOOLS)]
    Tools(OneServer),
    /// List the prompts of all servers or of one
    #[command(after_help = examples::PROMPTS)]
    Prompts(OneServer),
    /// List the resources of all servers or of one
    #[command(after_help = examples::RESOURCES)]
    Resources(OneServer),
    /// List the resource templates of all servers or of one
    #[command(after_help = examples::TEMPLATES)]
    Templates(OneServer),
    /// Call a tool
    #[command(
        override_usage = "mcpvisor call [OPTIONS] SERVER TOOL [KEY=VALUE]...",
        after_help = examples::CALL
    )]
    Call(CallArgs),
    /// List, await or cancel the tasks that `call --task` started
    #[command(args_conflicts_with_subcommands = true, after_help = examples::TASKS)]
    Tasks(TasksArgs),
    /// Get a prompt
    #[command(
        override_usage = "mcpvisor prompt [OPTIONS] SERVER NAME [KEY=VALUE]...",
        after_help = examples::PROMPT
    )]
    Prompt(PromptArgs),
    /// Read a resource
    #[command(after_help = examples::READ)]
    Read(ReadArgs),
    /// Trust the config in this folder, so that its commands may run
    #[command(after_help = examples::TRUST)]
    Trust(TrustArgs),
    /// Approve tools that are held back because their definition changed
    #[command(after_help = examples::APPROVE)]
    Approve(ApproveArgs),
    /// Log in to a server
    #[command(after_help = examples::LOGIN)]
    Login(LoginArgs),
    /// Remove a login, and revoke its tokens
    #[command(after_help = examples::LOGOUT)]
    Logout(LogoutArgs),
    /// List the logins of all servers, without their tokens
    #[command(after_help = examples::AUTH)]
    Auth,
    /// Check config, commands, servers and machine
    #[command(after_help = examples::DOCTOR)]
    Doctor(OneServer),
    /// Print shell completions
    #[command(after_help = examples::COMPLETIONS)]
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
    /// Print server names, one per line, for shell completions
    #[command(hide = true)]
    ServerNames,
    /// Write manual pages
    #[command(hide = true)]
    Man {
        /// Output folder; created if missing
        folder: PathBuf,
    },
    /// Run as the client of the protocol's conformance suite
    #[command(hide = true)]
    ConformanceClient {
        /// URL of the suite's server
        url: String,
    },
    /// Run one of the demo's servers on stdin and stdout
    #[command(hide = true)]
    BuiltinServer(BuiltinServer),
}

impl Command {
    /// Whether it may draw a live screen. Log lines on the same terminal would corrupt it.
    pub(crate) fn is_screen(&self) -> bool {
        match self {
            Self::Demo(demo) => !demo.plain,
            Self::Status { watch } => *watch,
            _ => false,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Print one line per event, without colors, instead of the live screen
    #[arg(long)]
    pub(crate) plain: bool,

    /// Seed of the random faults of a long demo; shown in the summary
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Approximate length in seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: Option<u64>,

    /// Shorten the pauses between acts
    #[arg(long, hide = true)]
    pub(crate) fast: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct OneServer {
    /// Server name [default: all]
    pub(crate) server: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ApproveArgs {
    /// Server name
    pub(crate) name: String,

    /// Tool name [default: all that are held back]
    pub(crate) tool: Option<String>,

    /// List held-back tools and their changes without approving
    #[arg(long)]
    pub(crate) list: bool,

    /// Approve only the definition with this hash, as shown by --list
    #[arg(long, requires = "tool")]
    pub(crate) hash: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LoginArgs {
    /// Server name
    pub(crate) name: String,

    /// Only print the URL
    #[arg(long)]
    pub(crate) no_browser: bool,

    /// Log in with a code on another device
    #[arg(long)]
    pub(crate) device: bool,

    /// Account, for a server that is used with several
    #[arg(long, value_name = "NAME")]
    pub(crate) account: Option<String>,

    /// Request this scope too; may be repeated
    #[arg(long = "scope", value_name = "SCOPE")]
    pub(crate) scopes: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LogoutArgs {
    /// Server name
    pub(crate) name: String,

    /// Account [default: that of the config]
    #[arg(long, value_name = "NAME")]
    pub(crate) account: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TrustArgs {
    /// List trusted configs
    #[arg(long, conflicts_with = "forget")]
    pub(crate) list: bool,

    /// Revoke trust
    #[arg(long)]
    pub(crate) forget: bool,

    /// Skip the confirmation
    #[arg(long, short, conflicts_with_all = ["list", "forget"])]
    pub(crate) yes: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CallArgs {
    /// SERVER TOOL or SERVER.TOOL, then KEY=VALUE (typed by the schema) or KEY:=JSON
    #[arg(required = true, value_name = "WORDS")]
    pub(crate) words: Vec<String>,

    /// Arguments as a JSON object; "-" reads stdin, "@FILE" reads a file
    #[arg(long, value_name = "JSON|-|@FILE", allow_hyphen_values = true)]
    pub(crate) args: Option<String>,

    /// Read the resources that the result links to, and include their contents
    #[arg(long, conflicts_with = "task")]
    pub(crate) follow: bool,

    /// Start the call as a task, print its id and return; see `mcpvisor tasks`
    #[arg(long)]
    pub(crate) task: bool,

    #[command(flatten)]
    pub(crate) options: RequestOptions,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TasksArgs {
    /// Server name [default: all]
    pub(crate) server: Option<String>,

    #[command(subcommand)]
    pub(crate) action: Option<TaskAction>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TaskAction {
    /// Wait for the result of a task
    Await {
        #[command(flatten)]
        task: TaskId,

        #[command(flatten)]
        options: RequestOptions,
    },
    /// Cancel a task at its server
    Cancel {
        #[command(flatten)]
        task: TaskId,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct TaskId {
    /// Task id, as `call --task` printed it
    #[arg(value_name = "ID", allow_hyphen_values = true)]
    pub(crate) id: String,

    /// Server of the task [default: the one whose task was kept]
    #[arg(long, value_name = "NAME")]
    pub(crate) server: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PromptArgs {
    /// SERVER NAME or SERVER.NAME, then KEY=VALUE
    #[arg(required = true, value_name = "WORDS")]
    pub(crate) words: Vec<String>,

    #[command(flatten)]
    pub(crate) options: RequestOptions,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReadArgs {
    /// Server name
    pub(crate) server: String,

    /// Resource URI, from `resources` or a template
    pub(crate) uri: String,

    #[command(flatten)]
    pub(crate) options: RequestOptions,
}

/// Where the files of a result go, and whether servers may ask questions at the terminal.
#[derive(Debug, clap::Args)]
pub(crate) struct RequestOptions {
    /// Save images, audio and resources in this folder; existing files are kept
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Decline all questions of the server
    #[arg(long)]
    pub(crate) no_input: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = mcpvisor::config::parse_duration(text).map_err(|problem| problem.to_string())?;
    match duration.is_zero() {
        true => Err("must be longer than 0".to_owned()),
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

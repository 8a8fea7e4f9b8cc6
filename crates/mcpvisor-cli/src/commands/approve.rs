//! `approve`: approves tools that are held back because their definition changed.

use mcpvisor::{ControlError, HeldTool, ListKind};
use serde_json::{Value, json};

use crate::args::ApproveArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::invocation::Invocation;
use crate::output::{TextFormat, printable, quote_server_line, suggest_command, suggest_name};
use crate::request::deadlines::RequestDeadlines;
use crate::request::server_ready::{self, Listing};

/// Digits of a hash that are shown and required.
const HASH_DIGITS: usize = 32;

pub(super) async fn run(args: &ApproveArgs, invocation: &Invocation<'_>) -> Result<Exit, Failure> {
    let config = fleet::only(invocation.source()?.read_to_start()?, &args.name)?;
    fleet::warn(&config, &invocation.output);
    let pinned = config.servers.iter().all(|server| server.pin);
    if !pinned {
        let message = format!(
            "{0} is not pinned, so no tool is held back. Set \"pin\": true in its entry.",
            args.name
        );
        return Err(Failure::usage(message).with_server(&args.name));
    }
    let deadlines = RequestDeadlines::new(&config, invocation.deadline);
    fleet::with(config, invocation, async |runtime| {
        let server = server_ready::server(runtime, &args.name)?;
        match server_ready::listing(&server, ListKind::Tools, &deadlines).await? {
            Listing::Available(_) => {}
            Listing::Failed(failure) => return Err(failure),
            Listing::NotConnected => return Err(Failure::unreachable(&server.status())),
        }
        let held = runtime.held(&args.name).map_err(Failure::unknown_server)?;
        let chosen = chosen(&held, args)?;
        let mut approved = Vec::new();
        for held in chosen.iter().filter(|_| !args.list) {
            // Approves the definition that is shown, even if the server changed it since.
            let hash = held.hash();
            let released = runtime.approve_definition(&args.name, &held.tool, &hash);
            released.await.map_err(|error| match error {
                ControlError::NotHeld { .. } => changed_again(held, args),
                error => Failure::unexpected(error),
            })?;
            approved.push(held.tool.clone());
        }
        let document = document(&args.name, &chosen, &approved);
        let render = || render(&args.name, &chosen, &approved, args.list);
        invocation.output.result(&document, render)
    })
    .await
}

/// The named tool, or all that are held back.
fn chosen<'h>(held: &'h [HeldTool], args: &ApproveArgs) -> Result<Vec<&'h HeldTool>, Failure> {
    let Some(wanted) = &args.tool else {
        return Ok(held.iter().collect());
    };
    if let Some(found) = held.iter().find(|held| held.tool == *wanted) {
        return match &args.hash {
            Some(hash) if !args.list && !matches_hash(hash, found) => {
                Err(changed_again(found, args))
            }
            _ => Ok(vec![found]),
        };
    }
    let names = held.iter().map(|held| held.tool.as_str());
    let hint = suggest_name(wanted, names).unwrap_or_else(|| {
        let list = suggest_command(&["approve", &args.name, "--list"]);
        format!(". Run `{list}`.")
    });
    let message = format!("{} holds back no tool {wanted:?}{hint}", args.name);
    Err(Failure::unknown_tool(message).with_server(&args.name))
}

/// The hash as shown. A server controls both definitions, so a few digits would be easy to forge.
fn short_hash(held: &HeldTool) -> String {
    let hash = held.hash();
    let digits = hash.strip_prefix("sha256:").unwrap_or(&hash);
    digits.chars().take(HASH_DIGITS).collect()
}

/// Whether a short or whole hash matches the offered definition.
fn matches_hash(hash: &str, held: &HeldTool) -> bool {
    let hash = hash.strip_prefix("sha256:").unwrap_or(hash);
    let hash = hash.to_ascii_lowercase();
    let whole = held.hash();
    let whole = whole.strip_prefix("sha256:").unwrap_or(&whole);
    hash.len() >= HASH_DIGITS && whole.starts_with(&hash)
}

/// The definition is not the one with the given hash.
fn changed_again(held: &HeldTool, args: &ApproveArgs) -> Failure {
    let message = format!(
        "{} offers another definition of {:?} (hash {}), so it was not approved. Run `{}`.",
        args.name,
        held.tool,
        short_hash(held),
        suggest_command(&["approve", &args.name, "--list"])
    );
    Failure::held_back(message).with_server(&args.name)
}

/// The changes of a tool, or the whole definition of a new one.
fn describe(held: &HeldTool, format: TextFormat) -> String {
    let name = printable(&held.tool);
    let mut text = format!("{name}: {}\n  hash {}\n", held.reason, short_hash(held));
    for change in &held.diff {
        text.push_str(&quote_server_line(&change.to_string(), format));
    }
    if held.diff.is_empty() {
        let definition = format!("{:#}", held.offered);
        text.extend(
            definition
                .lines()
                .map(|line| quote_server_line(line, format)),
        );
    }
    text
}

fn document(server: &str, held: &[&HeldTool], approved: &[String]) -> Value {
    let with_hash = |held: &&HeldTool| {
        let mut document = json!(held);
        document["hash"] = json!(held.hash());
        document
    };
    let held: Vec<_> = held.iter().map(with_hash).collect();
    json!({ "server": server, "held": held, "approved": approved })
}

fn render(server: &str, held: &[&HeldTool], approved: &[String], listed: bool) -> String {
    let format = TextFormat::of_stdout();
    let mut text: String = held.iter().map(|held| describe(held, format)).collect();
    text.push_str(&match (held.len(), listed) {
        (0, _) => format!("{server} holds back no tools.\n"),
        (_, true) => format!(
            "Approve with `{}`, or exactly these definitions with `{}`.\n",
            suggest_command(&["approve", server, "[TOOL]"]),
            suggest_command(&["approve", server, "TOOL", "--hash", "HASH"])
        ),
        (_, false) => format!("Approved {}.\n", printable(&approved.join(", "))),
    });
    text
}

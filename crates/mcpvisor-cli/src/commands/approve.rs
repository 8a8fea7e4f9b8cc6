//! `approve`: approves tools that are held back because their definition changed.

use mcpvisor::config::nearest_name;
use mcpvisor::{ControlError, HeldTool, ListKind};
use serde_json::json;

use crate::args::ApproveArgs;
use crate::config::source::Source;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::output::{Output, TextFormat, printable, quote_server_line, suggest_command};
use crate::request::deadlines::{Deadline, RequestDeadlines};
use crate::request::server_ready::{self, Listing};

/// Digits of a hash that are shown and required.
const HASH_DIGITS: usize = 32;

pub(super) async fn run(
    source: &Source,
    args: &ApproveArgs,
    deadline: Deadline,
    output: &Output,
) -> Result<Exit, Failure> {
    let config = fleet::only(source.read_to_start()?, &args.name)?;
    fleet::warn(&config, output);
    let pinned = config.servers.iter().all(|server| server.pin);
    if !pinned {
        let message = format!(
            "{0} is not pinned, so no tool is held back. Set \"pin\": true in its entry.",
            args.name
        );
        return Err(Failure::usage(message).with_server(&args.name));
    }
    let deadlines = RequestDeadlines::new(&config, deadline);
    fleet::with(config, deadline, output, async |runtime| {
        let server = server_ready::server(runtime, &args.name)?;
        match server_ready::listing(&server, ListKind::Tools, &deadlines).await? {
            Listing::Available(_) => {}
            Listing::Failed(failure) => return Err(failure),
            Listing::NotConnected => return Err(Failure::unreachable(&server.status())),
        }
        let held = runtime
            .held(&args.name)
            .map_err(|error| Failure::unknown_server(error.to_string()))?;
        let chosen = chosen(&held, args)?;
        let mut approved = Vec::new();
        for held in chosen.iter().filter(|_| !args.list) {
            // Approves the definition that is shown, even if the server changed it since.
            let hash = held.hash();
            let released = runtime.approve_definition(&args.name, &held.tool, &hash);
            let released = released.await;
            released.map_err(|error| not_approved(error, held, args))?;
            approved.push(held.tool.clone());
        }
        show(&args.name, &chosen, &approved, args.list, output)?;
        Ok(Exit::Ok)
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
    let hint = match nearest_name(wanted, names) {
        Some(near) => format!(" (did you mean {near:?}?)"),
        None => {
            let list = suggest_command(&["approve", &args.name, "--list"]);
            format!(". Run `{list}`.")
        }
    };
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

fn not_approved(error: ControlError, held: &HeldTool, args: &ApproveArgs) -> Failure {
    match error {
        ControlError::NotHeld { .. } => changed_again(held, args),
        error => Failure::unexpected(error.to_string()),
    }
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

fn show(
    server: &str,
    held: &[&HeldTool],
    approved: &[String],
    listed: bool,
    output: &Output,
) -> Result<(), Failure> {
    if output.json() {
        let with_hash = |held: &&HeldTool| {
            let mut document = json!(held);
            document["hash"] = json!(held.hash());
            document
        };
        let held: Vec<_> = held.iter().map(with_hash).collect();
        return output.document(&json!({ "server": server, "held": held, "approved": approved }));
    }
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
    output.text(&text)
}

//! `approve`: releases tools that were held back because their definition changed.

use mcpvisor::{ControlError, HeldTool, ListKind};
use serde_json::json;

use crate::args::ApproveArgs;
use crate::config::source::Source;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::output::suggest_command;
use crate::output::{Output, TextFormat, printable, quote_server_line};
use crate::request::deadlines::Deadline;
use crate::request::deadlines::RequestDeadlines;
use crate::request::server_ready::{self, Listing};
use mcpvisor::config::nearest_name;

/// So many digits of a hash are shown, and needed.
const HASH_DIGITS: usize = 32;

pub(super) async fn run(
    source: &Source,
    wish: &ApproveArgs,
    deadline: Deadline,
    output: &Output,
) -> Result<Exit, Failure> {
    let config = fleet::only(source.read_to_start()?, &wish.name)?;
    fleet::warn(&config, output);
    let pinned = config.servers.iter().all(|server| server.pin);
    if !pinned {
        let message = format!(
            "{} has no \"pin\": true in its entry, so none of its tools is held back",
            wish.name
        );
        return Err(Failure::usage(message).with_server(&wish.name));
    }
    let deadlines = RequestDeadlines::new(&config, deadline);
    fleet::with(config, deadline, output, async |runtime| {
        let server = server_ready::server(runtime, &wish.name)?;
        match server_ready::listing(&server, ListKind::Tools, &deadlines).await? {
            Listing::Available(_) => {}
            Listing::Failed(failure) => return Err(failure),
            Listing::NotConnected => return Err(Failure::unreachable(&server.status())),
        }
        let held = runtime
            .held(&wish.name)
            .map_err(|error| Failure::unknown_server(error.to_string()))?;
        let chosen = chosen(&held, wish)?;
        let mut approved = Vec::new();
        for held in chosen.iter().filter(|_| !wish.list) {
            // What is shown is what is approved, though the server may change it meanwhile.
            let hash = held.hash();
            let released = runtime.approve_definition(&wish.name, &held.tool, &hash);
            let released = released.await;
            released.map_err(|error| not_approved(error, held, wish))?;
            approved.push(held.tool.clone());
        }
        show(&wish.name, &chosen, &approved, wish.list, output)?;
        Ok(Exit::Ok)
    })
    .await
}

/// The tools that are meant: one, or all that are held back.
fn chosen<'h>(held: &'h [HeldTool], wish: &ApproveArgs) -> Result<Vec<&'h HeldTool>, Failure> {
    let Some(wanted) = &wish.tool else {
        return Ok(held.iter().collect());
    };
    if let Some(found) = held.iter().find(|held| held.tool == *wanted) {
        return match &wish.hash {
            Some(hash) if !wish.list && !is_hash(hash, found) => Err(another(found, wish)),
            _ => Ok(vec![found]),
        };
    }
    let names = held.iter().map(|held| held.tool.as_str());
    let hint = match nearest_name(wanted, names) {
        Some(near) => format!("; did you mean {near:?}?"),
        None => format!("; see: mcpvisor approve {} --list", wish.name),
    };
    let message = format!("{} holds back no tool {wanted:?}{hint}", wish.name);
    Err(Failure::unknown_tool(message).with_server(&wish.name))
}

/// The hash as it is shown. A server makes both the definition that is looked at and the one that is
/// not, so a few digits would soon fit both.
fn short(held: &HeldTool) -> String {
    let hash = held.hash();
    let digits = hash.strip_prefix("sha256:").unwrap_or(&hash);
    digits.chars().take(HASH_DIGITS).collect()
}

/// Whether a hash, short or whole, is that of the definition that is offered.
fn is_hash(hash: &str, held: &HeldTool) -> bool {
    let hash = hash.strip_prefix("sha256:").unwrap_or(hash);
    let hash = hash.to_ascii_lowercase();
    let whole = held.hash();
    let whole = whole.strip_prefix("sha256:").unwrap_or(&whole);
    hash.len() >= HASH_DIGITS && whole.starts_with(&hash)
}

/// A definition that nobody has looked at.
fn another(held: &HeldTool, wish: &ApproveArgs) -> Failure {
    let message = format!(
        "{} offers {:?} with another definition, whose hash is {}; it is not approved; look at it \
         with: {}",
        wish.name,
        held.tool,
        short(held),
        suggest_command(&["approve", &wish.name, "--list"])
    );
    Failure::held_back(message).with_server(&wish.name)
}

fn not_approved(error: ControlError, held: &HeldTool, wish: &ApproveArgs) -> Failure {
    match error {
        ControlError::NotHeld { .. } => another(held, wish),
        error => Failure::unexpected(error.to_string()),
    }
}

/// What a person has to look at: what differs, or the whole definition if nothing is known of it.
fn described(held: &HeldTool, screen: TextFormat) -> String {
    let name = printable(&held.tool);
    let mut text = format!("{name}: {}\n  hash {}\n", held.reason, short(held));
    for change in &held.diff {
        text.push_str(&quote_server_line(&change.to_string(), screen));
    }
    if held.diff.is_empty() {
        let definition = format!("{:#}", held.offered);
        text.extend(
            definition
                .lines()
                .map(|line| quote_server_line(line, screen)),
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
    let screen = TextFormat::of_stdout();
    let mut text: String = held.iter().map(|held| described(held, screen)).collect();
    text.push_str(&match (held.len(), listed) {
        (0, _) => format!("{server} holds back no tool\n"),
        (_, true) => format!(
            "release them with: {}, or only as they are shown here with: {}\n",
            suggest_command(&["approve", server, "[TOOL]"]),
            suggest_command(&["approve", server, "TOOL", "--hash", "HASH"])
        ),
        (_, false) => format!("approved: {}\n", printable(&approved.join(", "))),
    });
    output.text(&text)
}

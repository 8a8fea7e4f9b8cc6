//! `approve`: releases tools that were held back because their definition changed.

use std::time::Duration;

use mcpvisor::HeldTool;
use serde_json::json;

use super::one;
use crate::args::ApproveArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::nearest::nearest;
use crate::output::{Output, printable};
use crate::source::Source;

pub(super) async fn run(
    source: &Source,
    wish: &ApproveArgs,
    timeout: Option<Duration>,
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
        return Err(Failure::usage(message).at(&wish.name));
    }
    let until = one::until(&config, timeout);
    fleet::with(config, async |runtime| {
        let server = one::server(runtime, &wish.name)?;
        if one::catalog(&server, until).await?.is_none() {
            return Err(Failure::unreachable(&server.status()));
        }
        let held = runtime
            .held(&wish.name)
            .map_err(|error| Failure::unknown_server(error.to_string()))?;
        let chosen = chosen(&held, wish)?;
        let mut approved = Vec::new();
        if !wish.list && !chosen.is_empty() {
            let released = runtime.approve(&wish.name, wish.tool.as_deref()).await;
            approved = released.map_err(|error| Failure::unexpected(error.to_string()))?;
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
        return Ok(vec![found]);
    }
    let names = held.iter().map(|held| held.tool.as_str());
    let hint = match nearest(wanted, names) {
        Some(near) => format!("; did you mean {near:?}?"),
        None => format!("; see: mcpvisor approve {} --list", wish.name),
    };
    let message = format!("{} holds back no tool {wanted:?}{hint}", wish.name);
    Err(Failure::unknown_tool(message).at(&wish.name))
}

fn show(
    server: &str,
    held: &[&HeldTool],
    approved: &[String],
    listed: bool,
    output: &Output,
) -> Result<(), Failure> {
    if output.json() {
        return output.document(&json!({ "server": server, "held": held, "approved": approved }));
    }
    let mut text = String::new();
    for tool in held {
        text.push_str(&format!("{}: {}\n", printable(&tool.tool), tool.reason));
        for change in &tool.diff {
            text.push_str(&format!("  {}\n", printable(&change.to_string())));
        }
    }
    text.push_str(&match (held.len(), listed) {
        (0, _) => format!("{server} holds back no tool\n"),
        (_, true) => format!("release them with: mcpvisor approve {server} [TOOL]\n"),
        (_, false) => format!("approved: {}\n", printable(&approved.join(", "))),
    });
    output.text(&text)
}

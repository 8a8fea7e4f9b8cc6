//! `call`: calls one tool.

use mcpvisor::config::nearest_name;
use mcpvisor::rmcp::model::CallToolResult;
use mcpvisor::{ListKind, ServerCatalog, ServerHandle, exposed_name};
use serde_json::{Map, Value};

use crate::args::CallArgs;
use crate::config::source::Source;
use crate::exit::Exit;
use crate::failure::{Failure, join_sentences};
use crate::fleet;
use crate::output::{Attachments, Output, content, printable_lines, suggest_command};
use crate::request::args_input;
use crate::request::arguments::{self, Arguments};
use crate::request::deadlines::{Deadline, RequestDeadlines};
use crate::request::server_ready::{self, Listing};
use crate::request::single_request::{Context, PendingRequest, Prepared, SingleRequest};
use crate::request::target::{self, Target, TargetKind};

pub(super) async fn run(
    source: &Source,
    args: &CallArgs,
    deadline: Deadline,
    output: &Output,
) -> Result<Exit, Failure> {
    let config = source.read_to_start()?;
    let target = target::resolve(&config, &args.words, TargetKind::Tool)?;
    let config = fleet::only(config.clone(), target.server)?;
    fleet::warn(&config, output);
    let pending = PendingRequest::new(target.server, "tools/call");
    let whole = match &args.args {
        Some(text) => Some(args_input::read_object(text, deadline, &pending).await?),
        None => None,
    };
    let arguments = Arguments::parse(target.rest, whole.as_deref()).map_err(Failure::usage)?;
    let request = SingleRequest {
        config,
        pending: &pending,
        attachments: Attachments::new(args.out.out.as_deref(), target.tool)?,
        no_input: args.input.no_input,
        deadline,
        output,
    };
    let prepare = async |context: Context<'_>| prepare(context, &target, arguments).await;
    request.run(prepare, show).await
}

/// The call, once the server is connected and the arguments match the tool's schema.
async fn prepare(
    context: Context<'_>,
    target: &Target<'_>,
    arguments: Arguments,
) -> Result<Prepared<CallToolResult>, Failure> {
    let server = context.server;
    let found = find_tool(server, target, &arguments, context.deadlines).await;
    let held = context.runtime.held(target.server).unwrap_or_default();
    let mut held = held.iter();
    if let Some(held) = held.find(|held| matches_target(server, target, &held.tool)) {
        let reason = held.reason.to_string();
        return Err(Failure::tool_held_back(target.server, &held.tool, &reason));
    }
    let (tool, schema) = found?;
    let arguments = arguments.checked(&tool, &schema).map_err(|problem| {
        let message = format!("{}.{tool}: {problem}", target.server);
        Failure::invalid_arguments(message).with_server(target.server)
    })?;
    let usage = (!schema.is_empty()).then(|| arguments::usage(&tool, &schema));
    let request = server.call_tool(tool, Value::Object(arguments));
    Ok(Prepared {
        request: request.on_progress(context.progress),
        usage,
    })
}

/// The tool and its schema, once the server has listed its tools. If they cannot be listed, only
/// arguments that need no schema are sent.
async fn find_tool(
    server: &ServerHandle,
    target: &Target<'_>,
    arguments: &Arguments,
    deadlines: &RequestDeadlines,
) -> Result<(String, Map<String, Value>), Failure> {
    let catalog = match server_ready::listing(server, ListKind::Tools, deadlines).await? {
        Listing::Available(catalog) => catalog,
        Listing::Failed(failure) if arguments.need_types() => return Err(untyped(failure)),
        Listing::Failed(_) | Listing::NotConnected => {
            return Ok((target.tool.to_owned(), Map::new()));
        }
    };
    let mut tools = catalog.tools.iter();
    let tool = match catalog.tool(target.tool) {
        Some(tool) => Some(tool),
        None => tools.find(|tool| matches_target(server, target, &tool.name)),
    };
    match tool {
        Some(tool) => Ok((tool.name.to_string(), tool.input_schema.as_ref().clone())),
        None => Err(unknown_tool(server, &catalog, target.tool)),
    }
}

/// Whether the target names this tool, by its own or its exposed name.
fn matches_target(server: &ServerHandle, target: &Target<'_>, tool: &str) -> bool {
    let exposed = || exposed_name(server.name(), tool);
    tool == target.tool || target.exposed == Some(exposed().as_str())
}

/// Without a schema every `KEY=VALUE` would be a string, so the call is not sent.
fn untyped(failure: Failure) -> Failure {
    let action = "Use KEY:=JSON or --args, which need no schema.".to_owned();
    Failure {
        message: join_sentences([Some(failure.message), Some(action)]),
        ..failure
    }
}

/// A tool that is hidden by a filter or does not exist.
fn unknown_tool(server: &ServerHandle, catalog: &ServerCatalog, tool: &str) -> Failure {
    let name = server.name().as_str();
    let names = catalog.tools.iter().map(|tool| tool.name.as_ref());
    let near = nearest_name(tool, names).map(|near| format!(" (did you mean {near:?}?)"));
    if let Some(hidden) = server.hidden(tool) {
        let mut failure = Failure::from(hidden);
        failure.message.push_str(&near.unwrap_or_default());
        return failure;
    }
    let hint = near.unwrap_or_else(|| {
        let tools = suggest_command(&["tools", name]);
        format!(". Run `{tools}` to list its tools.")
    });
    Failure::unknown_tool(format!("{name} has no tool {tool:?}{hint}")).with_server(name)
}

fn show(
    result: &CallToolResult,
    attachments: &Attachments,
    output: &Output,
) -> Result<Exit, Failure> {
    let blocks = result.content.iter();
    let text = blocks.map(|block| content::block(block, attachments));
    let mut text: Vec<String> = text.collect();
    if output.json() {
        output.document(result)?;
    } else {
        if let (true, Some(structured)) = (text.is_empty(), &result.structured_content) {
            text.push(printable_lines(&format!("{structured:#}")));
        }
        output.text(&text.join("\n"))?;
    }
    Ok(match result.is_error {
        Some(true) => Exit::Failed,
        _ => Exit::Ok,
    })
}

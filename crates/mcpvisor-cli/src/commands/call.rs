//! `call`: calls one tool.

mod links;

use std::io::Write;

use mcpvisor::rmcp::model::CallToolResult;
use mcpvisor::{
    CallError, ListKind, Request, ServerCatalog, ServerHandle, TaskStart, exposed_name,
};
use serde::Serialize;
use serde_json::{Map, Value};

use self::links::Followed;
use crate::args::CallArgs;
use crate::exit::Exit;
use crate::failure::{Failure, join_sentences};
use crate::fleet;
use crate::invocation::Invocation;
use crate::output::{
    Attachments, content, printable, printable_lines, suggest_command, suggest_name,
};
use crate::request::args_input;
use crate::request::arguments::{self, Arguments};
use crate::request::deadlines::RequestDeadlines;
use crate::request::server_ready::{self, Listing};
use crate::request::single_request::{Context, PendingRequest, Prepared, Sending, SingleRequest};
use crate::request::target::{self, Target, TargetKind};

pub(super) async fn run(args: &CallArgs, invocation: &Invocation<'_>) -> Result<Exit, Failure> {
    let config = invocation.source()?.read_to_start()?;
    let target = target::resolve(&config, &args.words, TargetKind::Tool)?;
    let config = fleet::only(config.clone(), target.server)?;
    fleet::warn(&config, &invocation.output);
    let pending = PendingRequest::new(target.server, "tools/call");
    let whole = match &args.args {
        Some(text) => Some(args_input::read_object(text, invocation.deadline, &pending).await?),
        None => None,
    };
    let arguments = Arguments::parse(target.rest, whole.as_deref()).map_err(Failure::usage)?;
    let request = SingleRequest::new(config, &pending, &args.options, target.tool)?;
    let prepare = async |context: Context<'_>| prepare(context, &target, arguments).await;
    if args.task {
        return request
            .run_with(invocation, prepare, start_task, render_start)
            .await;
    }
    if args.follow {
        let output = invocation.output;
        let render = move |followed: &Followed, attachments: &Attachments| {
            followed.render(attachments, &output)
        };
        return request
            .run_with(invocation, prepare, links::follow, render)
            .await;
    }
    request.run(invocation, prepare, render).await
}

/// A call that was started as a task, or answered at once. As JSON: the task, or the result.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Started {
    Task {
        server: String,
        task: String,
        tool: Option<String>,
        kept: bool,
    },
    Answered(Box<CallToolResult>),
}

async fn start_task(
    request: Request<CallToolResult>,
    _: &Sending<'_>,
) -> Result<Started, CallError> {
    Ok(match request.as_task().keep().await? {
        TaskStart::Started(task) => Started::Task {
            server: task.server().name().to_string(),
            task: task.id().to_owned(),
            tool: task.tool().map(str::to_owned),
            kept: task.is_kept(),
        },
        TaskStart::Answered(result) => Started::Answered(Box::new(result)),
    })
}

fn render_start(started: &Started, attachments: &Attachments) -> (String, Exit) {
    match started {
        Started::Answered(result) => render(result, attachments),
        Started::Task {
            server, task, kept, ..
        } => {
            let mut stderr = std::io::stderr().lock();
            let next = suggest_command(&match kept {
                true => vec!["tasks", "await", task],
                // Without a state folder the id names no server.
                false => vec!["tasks", "await", task, "--server", server],
            });
            let _ = writeln!(
                stderr,
                "Started. Run `{}` for the result.",
                printable(&next)
            );
            (printable(task), Exit::Ok)
        }
    }
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
    let near = suggest_name(tool, names);
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

pub(super) fn render(result: &CallToolResult, attachments: &Attachments) -> (String, Exit) {
    let blocks = result.content.iter();
    let lines = blocks.map(|block| content::block(block, attachments));
    show(result, lines.collect())
}

/// The lines of a result, or its structured content if it has no others, and its exit code.
fn show(result: &CallToolResult, mut lines: Vec<String>) -> (String, Exit) {
    if let (true, Some(structured)) = (lines.is_empty(), &result.structured_content) {
        lines.push(printable_lines(&format!("{structured:#}")));
    }
    let exit = match result.is_error {
        Some(true) => Exit::Failed,
        _ => Exit::Ok,
    };
    (lines.join("\n"), exit)
}

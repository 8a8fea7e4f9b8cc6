//! `call`: one call of one tool, with one honest outcome.

use mcpvisor::rmcp::model::{CallToolResult, ErrorCode};
use mcpvisor::{CallError, HeldTool, ListKind, Runtime, ServerCatalog, ServerHandle, exposed_name};
use serde_json::{Map, Value};

use crate::args::CallArgs;
use crate::config::source::Source;
use crate::elicit::Prompter;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::output::content;
use crate::output::nearest;
use crate::output::progress::{Progress, SharedBar};
use crate::output::suggest_command;
use crate::output::{Attachments, Output, printable_lines};
use crate::request::args_input;
use crate::request::arguments::{self, Arguments};
use crate::request::deadlines::Deadline;
use crate::request::deadlines::RequestDeadlines;
use crate::request::single_request::{self, Offer, PendingRequest};
use crate::request::target::Target;

pub(super) async fn run(
    source: &Source,
    call: &CallArgs,
    deadline: Deadline,
    output: &Output,
) -> Result<Exit, Failure> {
    let config = source.read_to_start()?;
    let target = single_request::target(&config, &call.words, "tool")?;
    let config = fleet::only(config.clone(), target.server)?;
    fleet::warn(&config, output);
    let pending = PendingRequest::new(target.server, "tools/call");
    let whole = match &call.args {
        Some(text) => Some(args_input::read_object(text, deadline, &pending).await?),
        None => None,
    };
    let arguments = Arguments::parse(target.rest, whole.as_deref()).map_err(Failure::usage)?;
    let attachments = Attachments::new(call.out.out.as_deref(), target.tool)?;
    let deadlines = RequestDeadlines::new(&config, deadline);
    let bar = SharedBar::default();
    let person = Prompter::new(&bar, !call.input.no_input);
    let interrupted = || pending.interrupted();
    fleet::with_callbacks(
        config,
        deadline,
        output,
        person.callbacks(),
        interrupted,
        async |runtime| {
            let (progress, sink) = Progress::new(output, &bar, runtime.events());
            let Ready {
                server,
                tool,
                schema,
                arguments,
            } = ready(runtime, &target, arguments, &deadlines).await?;
            let request = server
                .call_tool(tool, Value::Object(arguments))
                .on_progress(sink);
            let request = deadlines.terms(request, person.is_there());
            pending.sent();
            let answer = progress.during(request.into_future()).await;
            let answer = answer.map_err(|error| deadlines.in_their_words(error));
            let result = answer.map_err(|error| explained(error, &schema, &server))?;
            let failed = result.is_error == Some(true);
            let output = *output;
            attachments
                .aside(move |attachments| show(&result, attachments, &output))
                .await?;
            Ok(if failed { Exit::Failed } else { Exit::Ok })
        },
    )
    .await
}

/// A call that can be sent.
struct Ready {
    server: ServerHandle,
    /// By the name that its server gives it.
    tool: String,
    schema: Map<String, Value>,
    arguments: Map<String, Value>,
}

/// The server when it is connected, the tool's schema, and the arguments that fit it.
async fn ready(
    runtime: &Runtime,
    target: &Target<'_>,
    arguments: Arguments,
    deadlines: &RequestDeadlines,
) -> Result<Ready, Failure> {
    let server = single_request::server(runtime, target.server)?;
    let found = found(&server, target, &arguments, deadlines).await;
    let held = runtime.held(target.server).unwrap_or_default();
    let (tool, schema) = match held
        .iter()
        .find(|held| is_meant(&server, target, &held.tool))
    {
        Some(held) => return Err(held_back(target, held)),
        None => found?,
    };
    let arguments = arguments.checked(&tool, &schema).map_err(|problem| {
        let message = format!("{tool} of {}: {problem}", target.server);
        Failure::invalid_arguments(message).at(target.server)
    })?;
    Ok(Ready {
        server,
        tool,
        schema,
        arguments,
    })
}

/// The tool that is meant and its schema, once the server has listed its tools. If they cannot be
/// listed, what a word means is not known: then only what needs no schema is sent.
async fn found(
    server: &ServerHandle,
    target: &Target<'_>,
    arguments: &Arguments,
    deadlines: &RequestDeadlines,
) -> Result<(String, Map<String, Value>), Failure> {
    let catalog = match single_request::offer(server, ListKind::Tools, deadlines).await? {
        Offer::Listed(catalog) => catalog,
        Offer::Unlisted(failure) if arguments.need_types() => return Err(untyped(failure)),
        Offer::Unlisted(_) | Offer::Refused => return Ok((target.tool.to_owned(), Map::new())),
    };
    let mut tools = catalog.tools.iter();
    let tool = match catalog.tool(target.tool) {
        Some(tool) => Some(tool),
        None => tools.find(|tool| is_meant(server, target, &tool.name)),
    };
    match tool {
        Some(tool) => Ok((tool.name.to_string(), tool.input_schema.as_ref().clone())),
        None => Err(missing(server, &catalog, target.tool)),
    }
}

/// Whether a tool is meant: by its own name, or by the one that it is exposed with.
fn is_meant(server: &ServerHandle, target: &Target<'_>, tool: &str) -> bool {
    let exposed = || exposed_name(server.name(), tool);
    tool == target.tool || target.exposed == Some(exposed().as_str())
}

/// Words without a schema would all be texts, which is not what was meant.
fn untyped(mut failure: Failure) -> Failure {
    failure.message.push_str(
        "; so KEY=VALUE has no type and was not sent: write KEY:=JSON or --args, which need none",
    );
    failure
}

/// A tool that a person has to look at first.
fn held_back(target: &Target<'_>, held: &HeldTool) -> Failure {
    let (server, tool) = (target.server, &held.tool);
    let approve = suggest_command(&["approve", server, tool]);
    let message = format!(
        "{server} holds {tool:?} back: {}; look at it, then: {approve}",
        held.reason
    );
    Failure::held_back(message).at(server)
}

/// A tool that is not in the catalog: a filter hides it, or it is not there.
fn missing(server: &ServerHandle, catalog: &ServerCatalog, tool: &str) -> Failure {
    let name = server.name().as_str();
    let names = catalog.tools.iter().map(|tool| tool.name.as_ref());
    let near = nearest(tool, names).map(|near| format!("did you mean {near:?}?"));
    if let Some(hidden) = server.hidden(tool) {
        let mut failure = Failure::from(hidden);
        if let Some(near) = near {
            failure.message.push_str(&format!("; {near}"));
        }
        return failure;
    }
    let hint = near.unwrap_or_else(|| format!("see: {}", suggest_command(&["tools", name])));
    Failure::unknown_tool(format!("{name} has no tool {tool:?}; {hint}")).at(name)
}

/// A server that did not like the arguments is answered with what it said it takes.
fn explained(error: CallError, schema: &Map<String, Value>, server: &ServerHandle) -> Failure {
    let about_arguments = matches!(
        &error,
        CallError::Answered { error, .. } if error.code == ErrorCode::INVALID_PARAMS
    );
    let mut failure = single_request::refine(error.into(), server);
    if about_arguments && !schema.is_empty() {
        let usage = arguments::usage("", schema);
        failure.message.push_str(&format!("\nUsage:{usage}"));
    }
    failure
}

fn show(
    result: &CallToolResult,
    attachments: &Attachments,
    output: &Output,
) -> Result<(), Failure> {
    let blocks = result.content.iter();
    let mut text: Vec<String> = blocks
        .map(|block| content::block(block, attachments))
        .collect();
    if output.json() {
        return output.document(result);
    }
    if let (true, Some(structured)) = (text.is_empty(), &result.structured_content) {
        text.push(printable_lines(&format!("{structured:#}")));
    }
    output.text(&text.join("\n"))
}

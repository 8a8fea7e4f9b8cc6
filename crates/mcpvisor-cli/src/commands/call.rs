//! `call`: one call of one tool, with one honest outcome.

use std::time::Duration;

use mcpvisor::rmcp::model::{CallToolResult, ErrorCode};
use mcpvisor::{CallError, HeldTool, Runtime, ServerCatalog, ServerHandle};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::{given, one};
use crate::args::CallArgs;
use crate::arguments::{self, Arguments};
use crate::content;
use crate::elicit::Person;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::nearest::nearest;
use crate::output::{Output, Saved, printable_lines};
use crate::progress::{Progress, Voice};
use crate::source::Source;
use crate::target::Target;

pub(super) async fn run(
    source: &Source,
    call: &CallArgs,
    timeout: Option<Duration>,
    output: &Output,
) -> Result<Exit, Failure> {
    let config = source.read_to_start()?;
    let target = one::target(&config, &call.words, "tool")?;
    let config = fleet::only(config, target.server)?;
    fleet::warn(&config, output);
    let begun = Instant::now();
    let whole = match &call.args {
        Some(text) => Some(given::whole(text, timeout).await?),
        None => None,
    };
    let arguments = Arguments::read(target.rest, whole.as_deref()).map_err(Failure::usage)?;
    let saved = Saved::new(call.out.out.as_deref(), target.tool)?;
    let timeout = timeout.map(|timeout| timeout.saturating_sub(begun.elapsed()));
    let until = one::until(&config, timeout);
    let voice = Voice::default();
    let person = Person::new(&voice, !call.input.no_input);
    fleet::with_callbacks(config, person.callbacks(), async |runtime| {
        let (progress, sink) = Progress::new(output, &voice, runtime.events());
        let ready = ready(runtime, &target, arguments, until).await?;
        let (server, schema, call_arguments) = ready;
        let mut request = server
            .call_tool(target.tool, Value::Object(call_arguments))
            .deadline(one::left(until))
            .on_progress(sink);
        if person.is_there() {
            // People think, and the server is silent meanwhile.
            request = request.idle_timeout(one::left(until));
        }
        let answer = progress.during(request.into_future()).await;
        let result = answer.map_err(|error| explained(error, &schema, &server))?;
        let failed = result.is_error == Some(true);
        let output = *output;
        saved
            .aside(move |saved| show(&result, saved, &output))
            .await?;
        Ok(if failed { Exit::Failed } else { Exit::Ok })
    })
    .await
}

/// The server when it is connected, the tool's schema, and the arguments that fit it.
async fn ready(
    runtime: &Runtime,
    target: &Target<'_>,
    arguments: Arguments,
    until: Instant,
) -> Result<(ServerHandle, Map<String, Value>, Map<String, Value>), Failure> {
    let server = one::server(runtime, target.server)?;
    let schema = schema(&server, target.tool, until).await;
    let held = runtime.held(target.server).unwrap_or_default();
    let schema = match held.iter().find(|held| held.tool == target.tool) {
        Some(held) => return Err(held_back(target, held)),
        None => schema?,
    };
    let arguments = arguments.fitting(&schema).map_err(|problem| {
        let message = format!("{} of {}: {problem}", target.tool, target.server);
        Failure::invalid_arguments(message).at(target.server)
    })?;
    Ok((server, schema, arguments))
}

/// The schema of the tool, once the server is connected. Without a catalog there is none, and the
/// server is asked without it.
async fn schema(
    server: &ServerHandle,
    tool: &str,
    until: Instant,
) -> Result<Map<String, Value>, Failure> {
    let Some(catalog) = one::catalog(server, until).await? else {
        return Ok(Map::new());
    };
    match catalog.tool(tool) {
        Some(tool) => Ok(tool.input_schema.as_ref().clone()),
        None => Err(unknown_tool(server.name().as_str(), &catalog, tool)),
    }
}

/// A tool that a person has to look at first.
fn held_back(target: &Target<'_>, held: &HeldTool) -> Failure {
    let Target { server, tool, .. } = target;
    let message = format!(
        "{server} holds {tool:?} back: {}; look at it, then: mcpvisor approve {server} {tool}",
        held.reason
    );
    Failure::held_back(message).at(server)
}

fn unknown_tool(server: &str, catalog: &ServerCatalog, tool: &str) -> Failure {
    let names = catalog.tools.iter().map(|tool| tool.name.as_ref());
    let hint = match nearest(tool, names) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("see: mcpvisor tools {server}"),
    };
    Failure::unknown_tool(format!("{server} has no tool {tool:?}; {hint}")).at(server)
}

/// A server that did not like the arguments is answered with what it said it takes.
fn explained(error: CallError, schema: &Map<String, Value>, server: &ServerHandle) -> Failure {
    let about_arguments = matches!(
        &error,
        CallError::Answered { error, .. } if error.code == ErrorCode::INVALID_PARAMS
    );
    let mut failure = one::refine(error.into(), server);
    if about_arguments && !schema.is_empty() {
        let takes = arguments::takes(schema);
        failure.message.push_str(&format!("\nit takes: {takes}"));
    }
    failure
}

fn show(result: &CallToolResult, saved: &Saved, output: &Output) -> Result<(), Failure> {
    let blocks = result.content.iter();
    let mut text: Vec<String> = blocks.map(|block| content::block(block, saved)).collect();
    if output.json() {
        return output.document(result);
    }
    if let (true, Some(structured)) = (text.is_empty(), &result.structured_content) {
        text.push(printable_lines(&format!("{structured:#}")));
    }
    output.text(&text.join("\n"))
}

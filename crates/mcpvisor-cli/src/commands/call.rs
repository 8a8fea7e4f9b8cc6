//! `call`: one call of one tool, with one honest outcome.

use std::io::Read;
use std::time::Duration;

use mcpvisor::rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use mcpvisor::{Config, Runtime, ServerCatalog, ServerHandle, StateName};
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::args::CallArgs;
use crate::arguments::Arguments;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet::{self, Source};
use crate::nearest::nearest;
use crate::output::{Output, printable, printable_lines};
use crate::target::{NoTarget, Target};

/// No more is read from stdin for `--args -`.
const MAX_STDIN: u64 = 16 * 1024 * 1024;

/// What is shown for content that a newer protocol may bring.
const UNKNOWN: &str = "[content of an unknown kind]";

pub(super) async fn run(
    source: &Source,
    call: &CallArgs,
    timeout: Option<Duration>,
    output: &Output,
) -> Result<Exit, Failure> {
    let config = source.read_to_start()?;
    let target = target(&config, &call.words)?;
    let whole = call.args.as_deref().map(whole).transpose()?;
    let arguments = Arguments::read(target.rest, whole.as_deref()).map_err(Failure::usage)?;
    let config = fleet::only(config, target.server)?;
    fleet::warn(&config, output);
    let patience = timeout.or_else(|| config.servers.first().map(|s| s.settings.timeouts.call));
    let until = Instant::now() + patience.unwrap_or_default();
    fleet::with(config, async |runtime| {
        let result = perform(runtime, &target, arguments, until).await?;
        show(&result, output)?;
        let failed = result.is_error == Some(true);
        Ok(if failed { Exit::Failed } else { Exit::Ok })
    })
    .await
}

/// The server and the tool that are meant.
fn target<'w>(config: &Config, words: &'w [String]) -> Result<Target<'w>, Failure> {
    let configured = |name: &str| {
        config
            .servers
            .iter()
            .any(|server| server.name.as_str() == name)
    };
    let left_out = |name: &str| {
        config
            .problems
            .iter()
            .any(|p| p.server.as_deref() == Some(name))
    };
    Target::read(words, |name| configured(name) || left_out(name)).map_err(|reason| match reason {
        NoTarget::NoTool(server) => {
            Failure::usage(format!("which tool of {server}? write: call {server} TOOL")).at(server)
        }
        NoTarget::Ambiguous(readings) => {
            let readings: Vec<String> = readings
                .iter()
                .map(|(server, tool)| format!("{server} {tool}"))
                .collect();
            let readings = readings.join("\", \"");
            Failure::usage(format!(
                "that can mean \"{readings}\"; write it with a space"
            ))
        }
        NoTarget::NoServer(server) => fleet::not_there(config, server),
    })
}

/// The object of `--args`, from the command line or from stdin.
fn whole(text: &str) -> Result<String, Failure> {
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut text = String::new();
    std::io::stdin()
        .take(MAX_STDIN)
        .read_to_string(&mut text)
        .map_err(|error| Failure::usage(format!("cannot read --args from stdin: {error}")))?;
    Ok(text)
}

async fn perform(
    runtime: &Runtime,
    target: &Target<'_>,
    arguments: Arguments,
    until: Instant,
) -> Result<CallToolResult, Failure> {
    let server = runtime
        .server(target.server)
        .map_err(|error| Failure::unknown_server(error.to_string()))?;
    let schema = schema(&server, target.tool, until).await?;
    let arguments = arguments.typed(&schema).map_err(Failure::usage)?;
    let left = until.saturating_duration_since(Instant::now());
    // Errors show the deadline, and nobody reads nanoseconds.
    let left = Duration::from_millis(u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
    let call = server
        .call_tool(target.tool, Value::Object(arguments))
        .deadline(left);
    call.await.map_err(|error| refine(error.into(), &server))
}

/// The schema of the tool, once the server is connected. Without a catalog there is none, and the
/// server is asked without it.
async fn schema(
    server: &ServerHandle,
    tool: &str,
    until: Instant,
) -> Result<Map<String, Value>, Failure> {
    let name = server.name().as_str();
    let Some(status) = fleet::settled(server, until).await else {
        let message = format!("{name} did not connect in time; allow more with --timeout");
        return Err(Failure::deadline(message).at(name));
    };
    match status.state {
        StateName::Connected if status.is_ready() => known(&server.catalog(), tool)
            .ok_or_else(|| unknown_tool(name, &server.catalog(), tool)),
        // The call says by itself that it cannot be sent, and what to do.
        StateName::Connected | StateName::Disabled | StateName::PermanentlyFailed => Ok(Map::new()),
        _ => Err(Failure::unreachable(&status)),
    }
}

fn known(catalog: &ServerCatalog, tool: &str) -> Option<Map<String, Value>> {
    catalog
        .tool(tool)
        .map(|tool| tool.input_schema.as_ref().clone())
}

fn unknown_tool(server: &str, catalog: &ServerCatalog, tool: &str) -> Failure {
    let names = catalog.tools.iter().map(|tool| tool.name.as_ref());
    let hint = match nearest(tool, names) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("see: mcpvisor tools {server}"),
    };
    Failure::unknown_tool(format!("{server} has no tool {tool:?}; {hint}")).at(server)
}

/// A call that was not sent because a person has to authorize has an exit code of its own.
fn refine(failure: Failure, server: &ServerHandle) -> Failure {
    let status = server.status();
    if failure.exit == Exit::Unreachable && crate::failure::needs_authorization(&status) {
        return Failure::unreachable(&status);
    }
    failure
}

fn show(result: &CallToolResult, output: &Output) -> Result<(), Failure> {
    if output.json() {
        return output.document(result);
    }
    let mut text: Vec<String> = result.content.iter().map(block).collect();
    if let (true, Some(structured)) = (text.is_empty(), &result.structured_content) {
        text.push(printable_lines(&format!("{structured:#}")));
    }
    output.text(&text.join("\n"))
}

/// One block of a result; what is no text is described.
fn block(block: &ContentBlock) -> String {
    let described = |kind: &str, mime: &str, data: &str| {
        printable(&format!(
            "[{kind} {mime}, {} characters of base64]",
            data.len()
        ))
    };
    match block {
        ContentBlock::Text(text) => printable_lines(&text.text),
        ContentBlock::Image(image) => described("image", &image.mime_type, &image.data),
        ContentBlock::Audio(audio) => described("audio", &audio.mime_type, &audio.data),
        ContentBlock::ResourceLink(link) => printable(&format!("[resource {}]", link.uri)),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => printable_lines(text),
            ResourceContents::BlobResourceContents { uri, blob, .. } => {
                described("resource", uri, blob)
            }
            _ => UNKNOWN.to_owned(),
        },
        _ => UNKNOWN.to_owned(),
    }
}

//! `prompt`: gets one prompt.

use mcpvisor::rmcp::model::{GetPromptResult, Prompt};
use mcpvisor::{ListKind, ServerCatalog};
use serde_json::Value;

use crate::args::PromptArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::invocation::Invocation;
use crate::output::{Attachments, ColorMode, content, paint, suggest_command, suggest_name};
use crate::request::arguments::Arguments;
use crate::request::server_ready::{self, Listing};
use crate::request::single_request::{Context, PendingRequest, Prepared, SingleRequest};
use crate::request::target::{self, Target, TargetKind};

pub(super) async fn run(args: &PromptArgs, invocation: &Invocation<'_>) -> Result<Exit, Failure> {
    let config = invocation.source()?.read_to_start()?;
    let target = target::resolve(&config, &args.words, TargetKind::Prompt)?;
    let arguments = Arguments::parse(target.rest, None).map_err(Failure::usage)?;
    let config = fleet::only(config.clone(), target.server)?;
    fleet::warn(&config, &invocation.output);
    let pending = PendingRequest::new(target.server, "prompts/get");
    let request = SingleRequest::new(config, &pending, &args.options, target.tool)?;
    let prepare = async |context: Context<'_>| prepare(context, &target, arguments).await;
    request.run(invocation, prepare, render).await
}

/// The request, once the server is connected. A prompt has no schema, so without a list the server
/// decides whether the prompt exists.
async fn prepare(
    context: Context<'_>,
    target: &Target<'_>,
    arguments: Arguments,
) -> Result<Prepared<GetPromptResult>, Failure> {
    let server = context.server;
    let listing = server_ready::listing(server, ListKind::Prompts, context.deadlines).await?;
    if let Listing::Available(catalog) = listing {
        let Some(prompt) = catalog.prompt(target.tool) else {
            return Err(unknown_prompt(target, &catalog));
        };
        check_required(target, prompt, &arguments)?;
    }
    let arguments = arguments.texts().map_err(Failure::usage)?;
    let arguments = match arguments.is_empty() {
        true => Value::Null,
        false => Value::Object(arguments),
    };
    Ok(Prepared {
        request: server.get_prompt(target.tool, arguments),
        usage: None,
    })
}

fn unknown_prompt(target: &Target<'_>, catalog: &ServerCatalog) -> Failure {
    let (server, name) = (target.server, target.tool);
    let names = catalog.prompts.iter().map(|prompt| prompt.name.as_str());
    let hint = suggest_name(name, names).unwrap_or_else(|| {
        let prompts = suggest_command(&["prompts", server]);
        format!(". Run `{prompts}` to list its prompts.")
    });
    Failure::unknown_prompt(format!("{server} has no prompt {name:?}{hint}")).with_server(server)
}

/// Checks required arguments before anything is sent.
fn check_required(
    target: &Target<'_>,
    prompt: &Prompt,
    arguments: &Arguments,
) -> Result<(), Failure> {
    let all = prompt.arguments.iter().flatten();
    let (required, optional): (Vec<_>, Vec<_>) =
        all.partition(|argument| argument.required == Some(true));
    let missing = required.iter().map(|argument| argument.name.as_str());
    let missing: Vec<&str> = missing.filter(|name| !arguments.has(name)).collect();
    let missing = match missing.as_slice() {
        [] => return Ok(()),
        [name] => format!("missing argument: {name}"),
        names => format!("missing arguments: {}", names.join(", ")),
    };
    let required = required.iter().map(|it| format!(" {}=TEXT", it.name));
    let optional = optional.iter().map(|it| format!(" [{}=TEXT]", it.name));
    let usage: String = required.chain(optional).collect();
    let (server, name) = (target.server, target.tool);
    let message = format!("{server}.{name}: {missing}. Usage: {name}{usage}");
    Err(Failure::invalid_arguments(message).with_server(server))
}

/// The messages, each under its role.
fn render(result: &GetPromptResult, attachments: &Attachments) -> (String, Exit) {
    let mut text = Vec::new();
    for message in &result.messages {
        let role = format!("{:?}:", message.role).to_lowercase();
        let role = paint(ColorMode::of_stdout(), "2", &role);
        let content = content::block(&message.content, attachments);
        text.push(format!("{role}\n{content}"));
    }
    (text.join("\n"), Exit::Ok)
}

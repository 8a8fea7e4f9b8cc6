//! `prompt`: one prompt, filled in by its server.

use mcpvisor::rmcp::model::{GetPromptResult, Prompt};
use mcpvisor::{ListKind, ServerCatalog, ServerHandle};
use serde_json::Value;

use crate::args::PromptArgs;
use crate::config::source::Source;
use crate::elicit::Prompter;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::output::content;
use crate::output::nearest;
use crate::output::progress::SharedBar;
use crate::output::suggest_command;
use crate::output::{Attachments, ColorMode, Output, paint};
use crate::request::arguments::Arguments;
use crate::request::deadlines::Deadline;
use crate::request::deadlines::RequestDeadlines;
use crate::request::single_request::{self, Offer, PendingRequest};
use crate::request::target::Target;

pub(super) async fn run(
    source: &Source,
    prompt: &PromptArgs,
    deadline: Deadline,
    output: &Output,
) -> Result<Exit, Failure> {
    let config = source.read_to_start()?;
    let target = single_request::target(&config, &prompt.words, "prompt")?;
    let arguments = Arguments::parse(target.rest, None).map_err(Failure::usage)?;
    let config = fleet::only(config.clone(), target.server)?;
    fleet::warn(&config, output);
    let attachments = Attachments::new(prompt.out.out.as_deref(), target.tool)?;
    let deadlines = RequestDeadlines::new(&config, deadline);
    let person = Prompter::new(&SharedBar::default(), !prompt.input.no_input);
    let pending = PendingRequest::new(target.server, "prompts/get");
    let interrupted = || pending.interrupted();
    fleet::with_callbacks(
        config,
        deadline,
        output,
        person.callbacks(),
        interrupted,
        async |runtime| {
            let server = single_request::server(runtime, target.server)?;
            let arguments = ready(&server, &target, arguments, &deadlines).await?;
            let request = server.get_prompt(target.tool, arguments);
            let request = deadlines.terms(request, person.is_there());
            pending.sent();
            let result = request.await;
            let result = result.map_err(|error| deadlines.in_their_words(error));
            let result = result.map_err(|error| single_request::refine(error.into(), &server))?;
            let output = *output;
            attachments
                .aside(move |attachments| show(&result, attachments, &output))
                .await?;
            Ok(Exit::Ok)
        },
    )
    .await
}

/// The arguments, once the server is there. A prompt has no schema, its arguments are texts: where the
/// prompts cannot be listed, the server decides what exists.
async fn ready(
    server: &ServerHandle,
    target: &Target<'_>,
    arguments: Arguments,
    deadlines: &RequestDeadlines,
) -> Result<Value, Failure> {
    if let Offer::Listed(catalog) =
        single_request::offer(server, ListKind::Prompts, deadlines).await?
    {
        let Some(prompt) = catalog.prompt(target.tool) else {
            return Err(unknown(target, &catalog));
        };
        check(target, prompt, &arguments)?;
    }
    let arguments = arguments.texts().map_err(Failure::usage)?;
    Ok(match arguments.is_empty() {
        true => Value::Null,
        false => Value::Object(arguments),
    })
}

fn unknown(target: &Target<'_>, catalog: &ServerCatalog) -> Failure {
    let (server, name) = (target.server, target.tool);
    let names = catalog.prompts.iter().map(|prompt| prompt.name.as_str());
    let hint = match nearest(name, names) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("see: {}", suggest_command(&["prompts", server])),
    };
    Failure::unknown_prompt(format!("{server} has no prompt {name:?}; {hint}")).at(server)
}

/// What a prompt needs is known, so a server need not be asked in vain.
fn check(target: &Target<'_>, prompt: &Prompt, arguments: &Arguments) -> Result<(), Failure> {
    let required = prompt.arguments.iter().flatten();
    let required = required.filter(|argument| argument.required == Some(true));
    let missing = required.filter(|argument| !arguments.has(&argument.name));
    let missing: Vec<String> = missing
        .map(|argument| format!("{:?}", argument.name))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let message = format!(
        "the prompt {:?} of {} needs {}; write KEY=VALUE",
        target.tool,
        target.server,
        missing.join(" and ")
    );
    Err(Failure::invalid_arguments(message).at(target.server))
}

/// The messages, each under its role.
fn show(
    result: &GetPromptResult,
    attachments: &Attachments,
    output: &Output,
) -> Result<(), Failure> {
    let mut text = Vec::new();
    for message in &result.messages {
        let role = format!("{:?}:", message.role).to_lowercase();
        let content = content::block(&message.content, attachments);
        text.push(format!(
            "{}\n{content}",
            paint(ColorMode::of_stdout(), "2", &role)
        ));
    }
    if output.json() {
        return output.document(result);
    }
    output.text(&text.join("\n"))
}

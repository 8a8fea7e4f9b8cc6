//! `prompt`: one prompt, filled in by its server.

use std::time::Duration;

use mcpvisor::rmcp::model::{GetPromptResult, Prompt};
use mcpvisor::{Runtime, ServerCatalog};
use serde_json::Value;
use tokio::time::Instant;

use super::one;
use crate::args::PromptArgs;
use crate::arguments::Arguments;
use crate::content;
use crate::elicit::Person;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::nearest::nearest;
use crate::output::{Output, Saved, Tty, paint};
use crate::progress::Voice;
use crate::source::Source;
use crate::target::Target;

pub(super) async fn run(
    source: &Source,
    prompt: &PromptArgs,
    timeout: Option<Duration>,
    output: &Output,
) -> Result<Exit, Failure> {
    let config = source.read_to_start()?;
    let target = one::target(&config, &prompt.words, "prompt")?;
    let arguments = Arguments::read(target.rest, None).map_err(Failure::usage)?;
    let config = fleet::only(config, target.server)?;
    fleet::warn(&config, output);
    let saved = Saved::new(prompt.out.out.as_deref(), target.tool)?;
    let until = one::until(&config, timeout);
    let person = Person::new(&Voice::default(), !prompt.input.no_input);
    fleet::with_callbacks(config, person.callbacks(), async |runtime| {
        let result = perform(runtime, &target, arguments, until).await?;
        let output = *output;
        saved
            .aside(move |saved| show(&result, saved, &output))
            .await?;
        Ok(Exit::Ok)
    })
    .await
}

async fn perform(
    runtime: &Runtime,
    target: &Target<'_>,
    arguments: Arguments,
    until: Instant,
) -> Result<GetPromptResult, Failure> {
    let server = one::server(runtime, target.server)?;
    if let Some(catalog) = one::catalog(&server, until).await? {
        let Some(prompt) = catalog.prompt(target.tool) else {
            return Err(unknown(target, &catalog));
        };
        check(target, prompt, &arguments)?;
    }
    // A prompt has no schema: its arguments are texts.
    let arguments = arguments.texts().map_err(Failure::usage)?;
    let arguments = match arguments.is_empty() {
        true => Value::Null,
        false => Value::Object(arguments),
    };
    let request = server.get_prompt(target.tool, arguments);
    let result = request.deadline(one::left(until)).await;
    result.map_err(|error| one::refine(error.into(), &server))
}

fn unknown(target: &Target<'_>, catalog: &ServerCatalog) -> Failure {
    let (server, name) = (target.server, target.tool);
    let names = catalog.prompts.iter().map(|prompt| prompt.name.as_str());
    let hint = match nearest(name, names) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("see: mcpvisor prompts {server}"),
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
fn show(result: &GetPromptResult, saved: &Saved, output: &Output) -> Result<(), Failure> {
    let mut text = Vec::new();
    for message in &result.messages {
        let role = format!("{:?}:", message.role).to_lowercase();
        let content = content::block(&message.content, saved);
        text.push(format!(
            "{}\n{content}",
            paint(Tty::of_stdout(), "2", &role)
        ));
    }
    if output.json() {
        return output.document(result);
    }
    output.text(&text.join("\n"))
}

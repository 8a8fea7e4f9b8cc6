//! `prompt`: one prompt, filled in by its server.

use mcpvisor::rmcp::model::{GetPromptResult, Prompt};
use mcpvisor::{ListKind, ServerCatalog, ServerHandle};
use serde_json::Value;

use super::one::{self, Errand, Offer};
use super::patience::Patience;
use crate::again::again;
use crate::args::PromptArgs;
use crate::arguments::Arguments;
use crate::content;
use crate::deadline::Deadline;
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
    deadline: Deadline,
    output: &Output,
) -> Result<Exit, Failure> {
    let config = source.read_to_start()?;
    let target = one::target(&config, &prompt.words, "prompt")?;
    let arguments = Arguments::read(target.rest, None).map_err(Failure::usage)?;
    let config = fleet::only(config.clone(), target.server)?;
    fleet::warn(&config, output);
    let saved = Saved::new(prompt.out.out.as_deref(), target.tool)?;
    let patience = Patience::new(&config, deadline);
    let person = Person::new(&Voice::default(), !prompt.input.no_input);
    let errand = Errand::new(target.server, "prompts/get");
    let interrupted = || errand.interrupted();
    fleet::with_callbacks(
        config,
        deadline,
        output,
        person.callbacks(),
        interrupted,
        async |runtime| {
            let server = one::server(runtime, target.server)?;
            let arguments = ready(&server, &target, arguments, &patience).await?;
            let request = server.get_prompt(target.tool, arguments);
            let request = patience.terms(request, person.is_there());
            errand.sent();
            let result = request.await;
            let result = result.map_err(|error| patience.in_their_words(error));
            let result = result.map_err(|error| one::refine(error.into(), &server))?;
            let output = *output;
            saved
                .aside(move |saved| show(&result, saved, &output))
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
    patience: &Patience,
) -> Result<Value, Failure> {
    if let Offer::Listed(catalog) = one::offer(server, ListKind::Prompts, patience).await? {
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
        None => format!("see: {}", again(&["prompts", server])),
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

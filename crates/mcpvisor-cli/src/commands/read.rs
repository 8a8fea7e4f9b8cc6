//! `read`: one resource.

use mcpvisor::rmcp::model::ReadResourceResult;

use super::one::{self, Errand};
use super::patience::Patience;
use crate::args::ReadArgs;
use crate::content;
use crate::deadline::Deadline;
use crate::elicit::Person;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::output::{Output, Saved};
use crate::progress::Voice;
use crate::source::Source;

pub(super) async fn run(
    source: &Source,
    read: &ReadArgs,
    deadline: Deadline,
    output: &Output,
) -> Result<Exit, Failure> {
    let config = fleet::only(source.read_to_start()?, &read.server)?;
    fleet::warn(&config, output);
    let saved = Saved::new(read.out.out.as_deref(), "resource")?;
    let patience = Patience::new(&config, deadline);
    let person = Person::new(&Voice::default(), !read.input.no_input);
    let errand = Errand::new(&read.server, "resources/read");
    let interrupted = || errand.interrupted();
    fleet::with_callbacks(
        config,
        deadline,
        output,
        person.callbacks(),
        interrupted,
        async |runtime| {
            let server = one::server(runtime, &read.server)?;
            // Templates make addresses that no list has, so the server decides what exists.
            one::there(&server, &[], &patience).await?;
            let request = patience.terms(server.read_resource(&read.uri), person.is_there());
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

fn show(result: &ReadResourceResult, saved: &Saved, output: &Output) -> Result<(), Failure> {
    let contents = result.contents.iter();
    let text = contents.map(|contents| content::resource(contents, saved));
    let text: Vec<String> = text.collect();
    if output.json() {
        return output.document(result);
    }
    output.text(&text.join("\n"))
}

//! `read`: one resource.

use mcpvisor::rmcp::model::ReadResourceResult;

use crate::args::ReadArgs;
use crate::config::source::Source;
use crate::elicit::Prompter;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::output::content;
use crate::output::progress::SharedBar;
use crate::output::{Attachments, Output};
use crate::request::deadlines::Deadline;
use crate::request::deadlines::RequestDeadlines;
use crate::request::single_request::{self, PendingRequest};

pub(super) async fn run(
    source: &Source,
    read: &ReadArgs,
    deadline: Deadline,
    output: &Output,
) -> Result<Exit, Failure> {
    let config = fleet::only(source.read_to_start()?, &read.server)?;
    fleet::warn(&config, output);
    let attachments = Attachments::new(read.out.out.as_deref(), "resource")?;
    let deadlines = RequestDeadlines::new(&config, deadline);
    let person = Prompter::new(&SharedBar::default(), !read.input.no_input);
    let pending = PendingRequest::new(&read.server, "resources/read");
    let interrupted = || pending.interrupted();
    fleet::with_callbacks(
        config,
        deadline,
        output,
        person.callbacks(),
        interrupted,
        async |runtime| {
            let server = single_request::server(runtime, &read.server)?;
            // Templates make addresses that no list has, so the server decides what exists.
            single_request::there(&server, &[], &deadlines).await?;
            let request = deadlines.terms(server.read_resource(&read.uri), person.is_there());
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

fn show(
    result: &ReadResourceResult,
    attachments: &Attachments,
    output: &Output,
) -> Result<(), Failure> {
    let contents = result.contents.iter();
    let text = contents.map(|contents| content::resource(contents, attachments));
    let text: Vec<String> = text.collect();
    if output.json() {
        return output.document(result);
    }
    output.text(&text.join("\n"))
}

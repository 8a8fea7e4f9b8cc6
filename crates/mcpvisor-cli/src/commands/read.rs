//! `read`: reads one resource.

use mcpvisor::rmcp::model::ReadResourceResult;

use crate::args::ReadArgs;
use crate::config::source::Source;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::output::{Attachments, Output, content};
use crate::request::deadlines::Deadline;
use crate::request::server_ready;
use crate::request::single_request::{Context, PendingRequest, Prepared, SingleRequest};

pub(super) async fn run(
    source: &Source,
    args: &ReadArgs,
    deadline: Deadline,
    output: &Output,
) -> Result<Exit, Failure> {
    let config = fleet::only(source.read_to_start()?, &args.server)?;
    fleet::warn(&config, output);
    let pending = PendingRequest::new(&args.server, "resources/read");
    let request = SingleRequest {
        config,
        pending: &pending,
        attachments: Attachments::new(args.out.out.as_deref(), "resource")?,
        no_input: args.input.no_input,
        deadline,
        output,
    };
    let prepare = async |context: Context<'_>| {
        // Templates produce URIs that are in no list, so no list is needed.
        server_ready::ready(context.server, &[], context.deadlines).await?;
        Ok(Prepared {
            request: context.server.read_resource(&args.uri),
            usage: None,
        })
    };
    request.run(prepare, show).await
}

fn show(
    result: &ReadResourceResult,
    attachments: &Attachments,
    output: &Output,
) -> Result<Exit, Failure> {
    let contents = result.contents.iter();
    let text = contents.map(|contents| content::resource(contents, attachments));
    let text: Vec<String> = text.collect();
    if output.json() {
        output.document(result)?;
    } else {
        output.text(&text.join("\n"))?;
    }
    Ok(Exit::Ok)
}

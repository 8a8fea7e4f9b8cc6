//! `read`: reads one resource.

use mcpvisor::rmcp::model::ReadResourceResult;

use crate::args::ReadArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::invocation::Invocation;
use crate::output::{Attachments, content};
use crate::request::server_ready;
use crate::request::single_request::{Context, PendingRequest, Prepared, SingleRequest};

pub(super) async fn run(args: &ReadArgs, invocation: &Invocation<'_>) -> Result<Exit, Failure> {
    let config = fleet::only(invocation.source()?.read_to_start()?, &args.server)?;
    fleet::warn(&config, &invocation.output);
    let pending = PendingRequest::new(&args.server, "resources/read");
    let request = SingleRequest::new(config, &pending, &args.options, "resource")?;
    let prepare = async |context: Context<'_>| {
        // Templates produce URIs that are in no list, so no list is needed.
        server_ready::ready(context.server, &[], context.deadlines).await?;
        Ok(Prepared {
            request: context.server.read_resource(&args.uri),
            usage: None,
        })
    };
    request.run(invocation, prepare, render).await
}

fn render(result: &ReadResourceResult, attachments: &Attachments) -> (String, Exit) {
    let contents = result.contents.iter();
    let text = contents.map(|contents| content::resource(contents, attachments));
    (text.collect::<Vec<_>>().join("\n"), Exit::Ok)
}

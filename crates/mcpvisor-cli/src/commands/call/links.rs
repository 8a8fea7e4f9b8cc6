//! `call --follow`: reads the resources that a result links to.

use mcpvisor::rmcp::model::{CallToolResult, ReadResourceResult};
use mcpvisor::{CallError, Request, raw_definition};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Attachments, Output, content};
use crate::request::single_request::Sending;

/// Links of one result that are read; further ones are only shown.
const MAX_LINKS: usize = 64;

/// A result, and what its links name.
#[derive(Debug)]
pub(super) struct Followed {
    result: CallToolResult,
    /// The read of each link, by the position of its block.
    reads: Vec<(usize, Result<ReadResourceResult, CallError>)>,
}

/// Sends the call, then reads the resources that its result links to, one after the other.
pub(super) async fn follow(
    request: Request<CallToolResult>,
    sending: &Sending<'_>,
) -> Result<Followed, CallError> {
    let result = request.await?;
    let mut reads = Vec::new();
    let blocks = result.content.iter().enumerate();
    let links = blocks.filter_map(|(at, block)| Some((at, block.as_resource_link()?)));
    for (at, link) in links.take(MAX_LINKS) {
        let read = sending.server.read_link(link);
        let read = sending.deadlines.apply(read, false).await;
        reads.push((at, read.map_err(|it| sending.deadlines.restore_timeout(it))));
    }
    Ok(Followed { result, reads })
}

impl Followed {
    /// Renders the result with the contents of each link behind it. Fails if one cannot be read.
    pub(super) fn render(&self, attachments: &Attachments, output: &Output) -> (String, Exit) {
        let mut lines = Vec::new();
        let mut reads = self.reads.iter().peekable();
        let mut failed = false;
        let mut unread = 0_usize;
        for (at, block) in self.result.content.iter().enumerate() {
            lines.push(content::block(block, attachments));
            let Some(link) = block.as_resource_link() else {
                continue;
            };
            match reads.next_if(|read| read.0 == at) {
                Some((_, Ok(read))) => {
                    let contents = read.contents.iter();
                    lines.extend(contents.map(|it| content::resource(it, attachments)));
                }
                Some((_, Err(error))) => {
                    failed = true;
                    let failure = Failure::from(error.clone());
                    let message = format!("cannot read {}: {}", link.uri, failure.message);
                    output.partial_failure(&Failure { message, ..failure });
                }
                None => unread += 1,
            }
        }
        if unread > 0 {
            failed = true;
            let message = format!("only the first {MAX_LINKS} links were read, {unread} were not");
            output.partial_failure(&Failure::links_not_read(message));
        }
        let (text, exit) = super::show(&self.result, lines);
        match failed {
            true => (text, Exit::Failed),
            false => (text, exit),
        }
    }
}

/// The result with an embedded resource behind each link, for each of its contents.
impl Serialize for Followed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut result = raw_definition(&self.result);
        if let Some(Value::Array(blocks)) = result.get_mut("content") {
            for (at, read) in self.reads.iter().rev() {
                let Ok(read) = read else { continue };
                let contents = match raw_definition(read)["contents"].take() {
                    Value::Array(contents) => contents,
                    _ => Vec::new(),
                };
                let embedded = contents.into_iter();
                let embedded = embedded.map(|it| json!({ "type": "resource", "resource": it }));
                let behind = at + 1;
                blocks.splice(behind..behind, embedded);
            }
        }
        result.serialize(serializer)
    }
}

//! Renders results of servers as text. Binary content is saved or described, and embedded resources
//! are saved if there is a folder for them.

use mcpvisor::FileContent;
use mcpvisor::rmcp::model::{ContentBlock, ResourceContents};

use crate::output::{Attachments, printable, printable_lines};

/// Shown for content types of newer protocol versions.
pub(super) const UNKNOWN: &str = "[unsupported content]";

/// Renders one block of a result.
pub(crate) fn block(block: &ContentBlock, attachments: &Attachments) -> String {
    let media = |kind: &str, mime: &str| {
        let what = printable(&format!("{kind} {mime}"));
        attachments.describe(&what, FileContent::of_block(block))
    };
    match block {
        ContentBlock::Text(text) => printable_lines(&text.text),
        ContentBlock::Image(image) => media("image", &image.mime_type),
        ContentBlock::Audio(audio) => media("audio", &audio.mime_type),
        ContentBlock::ResourceLink(link) => printable(&format!("[resource {}]", link.uri)),
        ContentBlock::Resource(embedded) => resource(&embedded.resource, attachments),
        _ => UNKNOWN.to_owned(),
    }
}

/// Renders the contents of a resource.
pub(crate) fn resource(contents: &ResourceContents, attachments: &Attachments) -> String {
    let (uri, mime) = match contents {
        ResourceContents::TextResourceContents { text, .. } if !attachments.is_saving() => {
            return printable_lines(text);
        }
        ResourceContents::TextResourceContents { uri, mime_type, .. }
        | ResourceContents::BlobResourceContents { uri, mime_type, .. } => (uri, mime_type),
        _ => return UNKNOWN.to_owned(),
    };
    let what = match mime {
        Some(mime) => format!("resource {uri} {mime}"),
        None => format!("resource {uri}"),
    };
    attachments.describe(&printable(&what), FileContent::of_resource(contents))
}

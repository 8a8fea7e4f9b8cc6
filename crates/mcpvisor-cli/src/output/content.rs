//! Renders results of servers as text. Binary content is saved or described.

use mcpvisor::rmcp::model::{ContentBlock, ResourceContents};

use crate::output::{Attachments, printable, printable_lines};

/// Shown for content types of newer protocol versions.
const UNKNOWN: &str = "[unsupported content]";

/// Renders one block of a result.
pub(crate) fn block(block: &ContentBlock, attachments: &Attachments) -> String {
    match block {
        ContentBlock::Text(text) => printable_lines(&text.text),
        ContentBlock::Image(image) => {
            attachments.content("image", Some(&image.mime_type), None, &image.data)
        }
        ContentBlock::Audio(audio) => {
            attachments.content("audio", Some(&audio.mime_type), None, &audio.data)
        }
        ContentBlock::ResourceLink(link) => printable(&format!("[resource {}]", link.uri)),
        ContentBlock::Resource(embedded) => resource(&embedded.resource, attachments),
        _ => UNKNOWN.to_owned(),
    }
}

/// Renders the contents of a resource.
pub(crate) fn resource(contents: &ResourceContents, attachments: &Attachments) -> String {
    match contents {
        ResourceContents::TextResourceContents { text, .. } => printable_lines(text),
        ResourceContents::BlobResourceContents {
            uri,
            mime_type,
            blob,
            ..
        } => {
            let kind = printable(&format!("resource {uri}"));
            attachments.content(&kind, mime_type.as_deref(), Some(uri), blob)
        }
        _ => UNKNOWN.to_owned(),
    }
}

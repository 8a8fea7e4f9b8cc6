//! Tool results as text.

use rmcp::model::{CallToolResult, ContentBlock, Resource, ResourceContents};

use super::{Bounded, ModelText};

/// Text is unmodified; images, audio and binary resources become one line each, with type and size.
/// The structured content is used if there is no text. A result that the tool marked as an error
/// starts with a line that says so.
///
/// ```
/// use mcpvisor::for_model::ModelText;
/// use mcpvisor::rmcp::model::{CallToolResult, ContentBlock};
///
/// let result = CallToolResult::error(vec![ContentBlock::text("no such file: a.txt")]);
/// assert_eq!(result.model_text(), "The tool reported an error:\nno such file: a.txt");
/// ```
impl ModelText for CallToolResult {
    fn model_text_within(&self, limit: usize) -> String {
        let mut text = Bounded::new(limit);
        if self.is_error == Some(true) {
            text.push("The tool reported an error:");
        }
        for block in &self.content {
            text.line();
            push_block(&mut text, block);
        }
        if let Some(structured) = &self.structured_content
            && !self.content.iter().any(has_text)
        {
            text.line();
            text.push(&structured.to_string());
        }
        if text.is_empty() {
            text.push("(no output)");
        }
        text.finish()
    }
}

fn has_text(block: &ContentBlock) -> bool {
    match block {
        ContentBlock::Text(text) => !text.text.is_empty(),
        ContentBlock::Resource(embedded) => {
            matches!(
                embedded.resource,
                ResourceContents::TextResourceContents { .. }
            )
        }
        _ => false,
    }
}

fn push_block(text: &mut Bounded, block: &ContentBlock) {
    match block {
        ContentBlock::Text(block) => text.push(&block.text),
        ContentBlock::Image(image) => push_binary(text, "image", &image.mime_type, &image.data),
        ContentBlock::Audio(audio) => push_binary(text, "audio", &audio.mime_type, &audio.data),
        ContentBlock::Resource(embedded) => push_resource(text, &embedded.resource),
        ContentBlock::ResourceLink(link) => push_link(text, link),
        _ => text.push("[content of an unknown kind]"),
    }
}

fn push_resource(text: &mut Bounded, resource: &ResourceContents) {
    match resource {
        ResourceContents::TextResourceContents {
            uri,
            mime_type,
            text: contents,
            ..
        } => {
            let kind = mime_type.as_deref().unwrap_or("text");
            let size = contents.len();
            text.push(&format!("[resource {uri}: {kind}, {size} bytes]\n"));
            text.push(contents);
        }
        ResourceContents::BlobResourceContents {
            uri,
            mime_type,
            blob,
            ..
        } => {
            let kind = mime_type.as_deref().unwrap_or("binary");
            push_binary(text, &format!("resource {uri}"), kind, blob);
        }
        _ => text.push("[resource of an unknown kind]"),
    }
}

fn push_binary(text: &mut Bounded, what: &str, kind: &str, base64: &str) {
    let size = decoded_size(base64);
    text.push(&format!("[{what}: {kind}, {size} bytes]"));
}

fn push_link(text: &mut Bounded, link: &Resource) {
    text.push(&format!("[link to resource {} ({})", link.uri, link.name));
    if let Some(kind) = &link.mime_type {
        text.push(&format!(": {kind}"));
    }
    if let Some(size) = link.size {
        text.push(&format!(", {size} bytes"));
    }
    text.push("]");
}

/// The decoded size, computed without decoding.
fn decoded_size(base64: &str) -> usize {
    let padding = base64
        .bytes()
        .rev()
        .take_while(|byte| *byte == b'=')
        .count();
    (base64.len() - padding) * 3 / 4
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result(value: serde_json::Value) -> CallToolResult {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn every_kind_of_content_is_text_or_one_line() {
        let result = result(json!({
            "content": [
                { "type": "text", "text": "first" },
                { "type": "image", "mimeType": "image/png", "data": "aGVsbG8=" },
                { "type": "audio", "mimeType": "audio/wav", "data": "aGVsbG8h" },
                { "type": "resource", "resource": { "uri": "file:///a", "text": "inside" } },
                { "type": "resource", "resource": {
                    "uri": "file:///b", "mimeType": "application/zip", "blob": "aGVsbG8=" } },
                { "type": "resource_link", "uri": "file:///c", "name": "c", "size": 12 },
                { "type": "text", "text": "last" },
            ],
            "structuredContent": { "unused": true },
        }));
        assert_eq!(
            result.model_text(),
            "first\n\
             [image: image/png, 5 bytes]\n\
             [audio: audio/wav, 6 bytes]\n\
             [resource file:///a: text, 6 bytes]\ninside\n\
             [resource file:///b: application/zip, 5 bytes]\n\
             [link to resource file:///c (c), 12 bytes]\n\
             last"
        );
    }

    #[test]
    fn structured_content_is_used_where_there_is_no_text() {
        let structured = json!({ "sum": 3 });
        let alone = result(json!({ "content": [], "structuredContent": structured }));
        assert_eq!(alone.model_text(), r#"{"sum":3}"#);
        let image = json!({ "type": "image", "mimeType": "image/png", "data": "aGVsbG8=" });
        let beside = result(json!({ "content": [image], "structuredContent": structured }));
        assert_eq!(
            beside.model_text(),
            "[image: image/png, 5 bytes]\n{\"sum\":3}"
        );
        let nothing = result(json!({ "content": [] }));
        assert_eq!(nothing.model_text(), "(no output)");
    }

    #[test]
    fn an_error_of_the_tool_says_so_and_a_long_one_is_cut() {
        let failed = result(json!({
            "content": [{ "type": "text", "text": "x".repeat(100_000) }],
            "isError": true,
        }));
        let text = failed.model_text_within(1_000);
        assert!(text.starts_with("The tool reported an error:\nxxx"));
        assert!(text.ends_with(" of 100028 bytes are shown]"), "{text}");
        assert!(text.len() <= 1_000);
    }
}

//! The members of definitions and results that rmcp's types model.

/// What is known of an object.
pub(super) struct Known(&'static [(&'static str, Member)]);

/// What is known of a member.
#[derive(Clone, Copy)]
pub(super) enum Member {
    /// Kept by rmcp as it is.
    Whole,
    /// Kept as a number of single precision.
    Single,
    /// An object with unknown members of its own.
    Object(&'static Known),
    /// A list of such objects.
    List(&'static Known),
    /// A block of content, whose known members depend on its kind.
    Block,
    /// A list of such blocks.
    Blocks,
}

use Member::{Block, Blocks, List, Object, Single, Whole};

impl Known {
    pub(super) fn member(&self, name: &str) -> Option<Member> {
        let mut members = self.0.iter();
        members.find(|(known, _)| *known == name).map(|it| it.1)
    }
}

/// What is known of a kind of content; `None` if rmcp does not know the kind.
pub(super) fn content(kind: &str) -> Option<&'static Known> {
    match kind {
        "text" => Some(&TEXT),
        "image" | "audio" => Some(&MEDIA),
        "resource" => Some(&EMBEDDED),
        "resource_link" => Some(&RESOURCE),
        _ => None,
    }
}

const ICON: Known = Known(&[
    ("src", Whole),
    ("mimeType", Whole),
    ("sizes", Whole),
    ("theme", Whole),
]);

/// The annotations of content and resources.
const ANNOTATIONS: Known = Known(&[
    ("audience", Whole),
    ("priority", Single),
    ("lastModified", Whole),
]);

const TOOL_ANNOTATIONS: Known = Known(&[
    ("title", Whole),
    ("readOnlyHint", Whole),
    ("destructiveHint", Whole),
    ("idempotentHint", Whole),
    ("openWorldHint", Whole),
]);

const TOOL: Known = Known(&[
    ("name", Whole),
    ("title", Whole),
    ("description", Whole),
    ("inputSchema", Whole),
    ("outputSchema", Whole),
    ("annotations", Object(&TOOL_ANNOTATIONS)),
    ("icons", List(&ICON)),
    ("_meta", Whole),
]);

const PROMPT_ARGUMENT: Known = Known(&[
    ("name", Whole),
    ("title", Whole),
    ("description", Whole),
    ("required", Whole),
]);

const PROMPT: Known = Known(&[
    ("name", Whole),
    ("title", Whole),
    ("description", Whole),
    ("arguments", List(&PROMPT_ARGUMENT)),
    ("icons", List(&ICON)),
    ("_meta", Whole),
]);

const RESOURCE: Known = Known(&[
    ("uri", Whole),
    ("name", Whole),
    ("title", Whole),
    ("description", Whole),
    ("mimeType", Whole),
    ("size", Whole),
    ("icons", List(&ICON)),
    ("annotations", Object(&ANNOTATIONS)),
    ("_meta", Whole),
]);

const TEMPLATE: Known = Known(&[
    ("uriTemplate", Whole),
    ("name", Whole),
    ("title", Whole),
    ("description", Whole),
    ("mimeType", Whole),
    ("icons", List(&ICON)),
    ("annotations", Object(&ANNOTATIONS)),
    ("_meta", Whole),
]);

const TEXT: Known = Known(&[
    ("text", Whole),
    ("annotations", Object(&ANNOTATIONS)),
    ("_meta", Whole),
]);

const MEDIA: Known = Known(&[
    ("data", Whole),
    ("mimeType", Whole),
    ("annotations", Object(&ANNOTATIONS)),
    ("_meta", Whole),
]);

const EMBEDDED: Known = Known(&[
    ("resource", Object(&CONTENTS)),
    ("annotations", Object(&ANNOTATIONS)),
    ("_meta", Whole),
]);

/// The contents of a resource: text, or base64.
const CONTENTS: Known = Known(&[
    ("uri", Whole),
    ("mimeType", Whole),
    ("text", Whole),
    ("blob", Whole),
    ("_meta", Whole),
]);

const MESSAGE: Known = Known(&[("role", Whole), ("content", Block)]);

const CAPABILITIES: Known = Known(&[
    ("experimental", Whole),
    ("extensions", Whole),
    ("logging", Whole),
    ("completions", Whole),
    ("prompts", Whole),
    ("resources", Whole),
    ("tools", Whole),
]);

pub(super) const INITIALIZE: Known = Known(&[
    ("protocolVersion", Whole),
    ("capabilities", Object(&CAPABILITIES)),
    ("serverInfo", Whole),
    ("instructions", Whole),
    ("_meta", Whole),
]);

/// The page of a list. Only its items keep unknown members.
pub(super) struct Page {
    pub(super) list: &'static str,
    pub(super) items: &'static Known,
}

pub(super) const TOOLS: Page = page("tools", &TOOL);
pub(super) const PROMPTS: Page = page("prompts", &PROMPT);
pub(super) const RESOURCES: Page = page("resources", &RESOURCE);
pub(super) const TEMPLATES: Page = page("resourceTemplates", &TEMPLATE);

const fn page(list: &'static str, items: &'static Known) -> Page {
    Page { list, items }
}

pub(super) const CALL_RESULT: Known = Known(&[
    ("resultType", Whole),
    ("content", Blocks),
    ("structuredContent", Whole),
    ("isError", Whole),
    ("_meta", Whole),
]);

pub(super) const PROMPT_RESULT: Known = Known(&[
    ("resultType", Whole),
    ("description", Whole),
    ("messages", List(&MESSAGE)),
    ("_meta", Whole),
]);

pub(super) const READ_RESULT: Known = Known(&[
    ("resultType", Whole),
    ("ttlMs", Whole),
    ("cacheScope", Whole),
    ("contents", List(&CONTENTS)),
    ("_meta", Whole),
]);

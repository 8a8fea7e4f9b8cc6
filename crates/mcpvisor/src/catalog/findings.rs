//! Finds suspicious text in the lists of a server.
//!
//! A finding changes nothing by itself: the item stays in the catalog.

use std::fmt;

use mcpvisor_core::ListKind;
use mcpvisor_core::suspicion::{self, MAX_FINDINGS, Suspicion};
use rmcp::model::{Prompt, Resource, ResourceTemplate, Tool};
use serde::Serialize;
use serde_json::Value;

/// Findings of one server; further ones are dropped.
const MAX_PER_SERVER: usize = 256;

/// Depth to which schemas are scanned.
const MAX_DEPTH: usize = 64;

/// Something in a catalog that a person should review.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// The list of the item.
    pub list: &'static str,
    /// The name or URI of the item.
    pub item: String,
    /// What was found.
    pub kind: FindingKind,
}

/// The kinds of findings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FindingKind {
    /// A text contains a character that hides or reorders parts of it.
    Suspicious {
        /// Which text: `name`, `title`, `description`, `input schema`, …
        field: &'static str,
        /// What kind of character.
        suspicion: Suspicion,
        /// The character's code point, as `U+202E`.
        character: String,
    },
    /// The server lists two items of this name; the first one is used.
    Duplicate,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { list, item, kind } = self;
        match kind {
            FindingKind::Suspicious {
                field,
                suspicion,
                character,
            } => write!(
                f,
                "{list}: the {field} of {item:?} has {suspicion} ({character})"
            ),
            FindingKind::Duplicate => write!(f, "{list}: {item:?} is listed twice"),
        }
    }
}

/// Collects the findings of one catalog.
#[derive(Debug, Default)]
pub(super) struct Findings(pub(super) Vec<Finding>);

impl Findings {
    pub(super) fn duplicate(&mut self, list: ListKind, item: &str) {
        self.add(Finding {
            list: list.as_str(),
            item: item.to_owned(),
            kind: FindingKind::Duplicate,
        });
    }

    fn add(&mut self, finding: Finding) {
        if self.0.len() < MAX_PER_SERVER {
            self.0.push(finding);
        }
    }

    pub(super) fn tool(&mut self, tool: &Tool) {
        let mut item = Item::new(self, ListKind::Tools, &tool.name);
        item.text("name", &tool.name);
        item.maybe("title", tool.title.as_deref());
        item.maybe("description", tool.description.as_deref());
        if let Some(annotations) = &tool.annotations {
            item.maybe("title", annotations.title.as_deref());
        }
        item.object("input schema", &tool.input_schema, 0);
        if let Some(schema) = &tool.output_schema {
            item.object("output schema", schema, 0);
        }
    }

    pub(super) fn prompt(&mut self, prompt: &Prompt) {
        let mut item = Item::new(self, ListKind::Prompts, &prompt.name);
        item.text("name", &prompt.name);
        item.maybe("title", prompt.title.as_deref());
        item.maybe("description", prompt.description.as_deref());
        for argument in prompt.arguments.iter().flatten() {
            item.text("argument", &argument.name);
            item.maybe("argument", argument.description.as_deref());
        }
    }

    pub(super) fn resource(&mut self, resource: &Resource) {
        let mut item = Item::new(self, ListKind::Resources, &resource.uri);
        item.text("address", &resource.uri);
        item.text("name", &resource.name);
        item.maybe("title", resource.title.as_deref());
        item.maybe("description", resource.description.as_deref());
    }

    pub(super) fn template(&mut self, template: &ResourceTemplate) {
        let mut item = Item::new(self, ListKind::Templates, &template.uri_template);
        item.text("address", &template.uri_template);
        item.text("name", &template.name);
        item.maybe("title", template.title.as_deref());
        item.maybe("description", template.description.as_deref());
    }
}

/// The scan of one item.
struct Item<'a> {
    findings: &'a mut Findings,
    list: ListKind,
    name: &'a str,
    /// Findings that may still be added.
    left: usize,
}

impl<'a> Item<'a> {
    fn new(findings: &'a mut Findings, list: ListKind, name: &'a str) -> Self {
        Self {
            findings,
            list,
            name,
            left: MAX_FINDINGS,
        }
    }

    fn maybe(&mut self, field: &'static str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(field, text);
        }
    }

    fn text(&mut self, field: &'static str, text: &str) {
        for (suspicion, character) in suspicion::suspicious_chars(text).take(self.left) {
            self.left -= 1;
            self.findings.add(Finding {
                list: self.list.as_str(),
                item: self.name.to_owned(),
                kind: FindingKind::Suspicious {
                    field,
                    suspicion,
                    character: format!("U+{:04X}", u32::from(character)),
                },
            });
        }
    }

    fn object(
        &mut self,
        field: &'static str,
        object: &serde_json::Map<String, Value>,
        depth: usize,
    ) {
        for (key, value) in object {
            self.text(field, key);
            self.value(field, value, depth + 1);
        }
    }

    fn value(&mut self, field: &'static str, value: &Value, depth: usize) {
        if self.left == 0 || depth > MAX_DEPTH {
            return;
        }
        match value {
            Value::String(text) => self.text(field, text),
            Value::Array(items) => {
                for item in items {
                    self.value(field, item, depth + 1);
                }
            }
            Value::Object(object) => self.object(field, object, depth),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

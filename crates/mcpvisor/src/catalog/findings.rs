//! What a person should look at in what a server says of itself.
//!
//! A finding changes nothing by itself: the item stays in the catalog, and the finding beside it.

use std::fmt;

use mcpvisor_core::ListKind;
use mcpvisor_core::suspicion::{self, MAX_FINDINGS, Suspicion};
use rmcp::model::{Prompt, Resource, ResourceTemplate, Tool};
use serde::Serialize;
use serde_json::Value;

/// Findings of one server that are kept; the rest is more of the same.
const MAX_IN_ALL: usize = 256;

/// How deep the schemas of a tool are looked into.
const MAX_DEPTH: usize = 64;

/// Something in a catalog that a person should look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// The list that it is in.
    pub list: &'static str,
    /// The item's name, or its address.
    pub item: String,
    /// What was found.
    pub kind: FindingKind,
}

/// The kinds of findings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FindingKind {
    /// A text has a character that makes it mean something else than it shows.
    Suspicious {
        /// Which text: `name`, `title`, `description`, `input schema`, …
        field: &'static str,
        /// What kind of character.
        suspicion: Suspicion,
        /// The character's code point, as `U+202E`.
        character: String,
    },
    /// The server lists two items of this name; the first one counts.
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
pub(super) struct Findings(Vec<Finding>);

impl Findings {
    pub(super) fn take(self) -> Vec<Finding> {
        self.0
    }

    pub(super) fn duplicate(&mut self, list: ListKind, item: &str) {
        self.add(Finding {
            list: list.as_str(),
            item: item.to_owned(),
            kind: FindingKind::Duplicate,
        });
    }

    fn add(&mut self, finding: Finding) {
        if self.0.len() < MAX_IN_ALL {
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

/// One item that is looked at.
struct Item<'a> {
    findings: &'a mut Findings,
    list: ListKind,
    name: &'a str,
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

//! Members of definitions and results that rmcp's types do not model.
//!
//! The decoder keeps them in the `_meta` of the definition or of the result, under one key of our
//! own. So they stay with it in catalogs, views and the cache. They have the shape of the value that
//! they belong to: a list has one item for each of its items.

mod collector;
mod decoding;
mod known;

use rmcp::model::{
    CallToolResult, GetPromptResult, InitializeResult, JsonObject, MetaObject, Prompt,
    ReadResourceResult, Resource, ResourceTemplate, Tool,
};
use serde::Serialize;
use serde_json::Value;

pub(crate) use self::decoding::from_value;
#[cfg(any(feature = "stream", feature = "http"))]
pub(crate) use self::decoding::{Whole, from_text};

/// The key in `_meta` under which members are kept that rmcp's types do not model.
pub const UNKNOWN_FIELDS: &str = "io.github.mcpvisor/unknown-fields";

/// A definition or a result that has a `_meta`.
pub(crate) trait HasMeta {
    fn meta_mut(&mut self) -> &mut Option<MetaObject>;
}

macro_rules! has_meta {
    ($($definition:ty),* $(,)?) => {$(
        impl HasMeta for $definition {
            fn meta_mut(&mut self) -> &mut Option<MetaObject> {
                &mut self.meta
            }
        }
    )*};
}

has_meta!(
    Tool,
    Prompt,
    Resource,
    ResourceTemplate,
    InitializeResult,
    CallToolResult,
    GetPromptResult,
    ReadResourceResult,
);

/// Keeps these members with a definition, in place of any that the server put there itself.
pub(crate) fn keep(definition: &mut impl HasMeta, unknown: JsonObject) {
    let meta = definition.meta_mut();
    if let Some(meta) = meta {
        meta.remove(UNKNOWN_FIELDS);
    }
    if !unknown.is_empty() {
        let meta = meta.get_or_insert_default();
        meta.insert(UNKNOWN_FIELDS.to_owned(), Value::Object(unknown));
    }
}

/// The members that are kept with a definition.
pub(crate) fn kept(meta: Option<&MetaObject>) -> Option<&JsonObject> {
    meta?.get(UNKNOWN_FIELDS)?.as_object()
}

/// A tool, prompt, resource, template or result as the server sent it, with the members that rmcp's
/// type does not model, and with content of kinds that it does not know. In the type, such content is
/// a text: `[unsupported content: video]`. Members that are null may be missing.
///
/// ```
/// use mcpvisor::{UNKNOWN_FIELDS, raw_definition};
/// use serde_json::json;
///
/// let kept = json!({ UNKNOWN_FIELDS: { "execution": { "taskSupport": "optional" } } });
/// let tool = json!({ "name": "build", "inputSchema": {}, "_meta": kept });
/// let tool: mcpvisor::rmcp::model::Tool = serde_json::from_value(tool).unwrap();
/// let raw = raw_definition(&tool);
/// assert_eq!(raw["execution"]["taskSupport"], "optional");
/// assert_eq!(raw.get("_meta"), None);
/// ```
pub fn raw_definition(definition: &impl Serialize) -> Value {
    let (mut raw, unknown) = split(definition);
    if let Some(unknown) = unknown {
        merge(&mut raw, unknown);
    }
    raw
}

/// A definition without the members that rmcp's type does not model.
pub(crate) fn known_definition(definition: &impl Serialize) -> Value {
    split(definition).0
}

/// A definition as JSON, and its unknown members.
fn split(definition: &impl Serialize) -> (Value, Option<Value>) {
    // As text, because a number of single precision is written with the digits that it was read
    // from: 0.6, not 0.6000000238.
    let text = serde_json::to_string(definition).unwrap_or_default();
    let mut known: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
    let meta = known.get_mut("_meta").and_then(Value::as_object_mut);
    let Some(meta) = meta else {
        return (known, None);
    };
    let unknown = meta.remove(UNKNOWN_FIELDS);
    let is_empty = meta.is_empty();
    if unknown.is_some()
        && is_empty
        && let Some(members) = known.as_object_mut()
    {
        members.remove("_meta");
    }
    (known, unknown)
}

/// Adds members to a value. Objects and lists of equal length are merged, a number takes the place of
/// the same number in single precision, and everything else is added only where it is missing.
fn merge(value: &mut Value, more: Value) {
    match (&mut *value, more) {
        // Content of an unknown kind, which a text stands in for.
        (Value::Object(members), Value::Object(more))
            if members.contains_key("type") && more.contains_key("type") =>
        {
            *value = Value::Object(more);
        }
        (Value::Object(members), Value::Object(more)) => {
            for (name, more) in more {
                match members.get_mut(&name) {
                    Some(known) => merge(known, more),
                    None => drop(members.insert(name, more)),
                }
            }
        }
        (Value::Array(items), Value::Array(more)) if items.len() == more.len() => {
            let pairs = items.iter_mut().zip(more);
            pairs.for_each(|(item, more)| merge(item, more));
        }
        (Value::Number(known), Value::Number(exact)) => *known = exact,
        _ => {}
    }
}

#[cfg(test)]
mod tests;

//! Members of a definition that rmcp's types do not model.
//!
//! The decoder keeps them in the `_meta` of the definition, under one key of our own. So they stay
//! with it in catalogs, views and the cache.

use rmcp::model::{
    InitializeResult, JsonObject, MetaObject, Prompt, Resource, ResourceTemplate, Tool,
};
use serde::Serialize;
use serde_json::Value;

/// The key in `_meta` under which members are kept that rmcp's types do not model.
pub const UNKNOWN_FIELDS: &str = "io.github.mcpvisor/unknown-fields";

/// A definition that has a `_meta`.
pub(crate) trait HasMeta {
    fn meta_mut(&mut self) -> &mut Option<MetaObject>;
}

macro_rules! has_meta {
    ($($definition:ty),*) => {$(
        impl HasMeta for $definition {
            fn meta_mut(&mut self) -> &mut Option<MetaObject> {
                &mut self.meta
            }
        }
    )*};
}

has_meta!(Tool, Prompt, Resource, ResourceTemplate, InitializeResult);

/// Keeps these members with a definition, in place of any that the server put there itself.
#[cfg(any(feature = "stream", feature = "http"))]
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

/// A tool, prompt, resource or template as the server sent it, with the members that rmcp's type
/// does not model.
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
    let mut known = serde_json::to_value(definition).unwrap_or_default();
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

/// Adds members to a value. Objects are merged, everything else is added only where it is missing.
fn merge(value: &mut Value, more: Value) {
    let (Value::Object(members), Value::Object(more)) = (value, more) else {
        return;
    };
    for (name, more) in more {
        match members.get_mut(&name) {
            Some(known) => merge(known, more),
            None => drop(members.insert(name, more)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_raw_definition_has_all_members_and_only_the_servers_own_metadata() {
        let kept = json!({ "execution": {}, "annotations": { "cost": 3 }, "name": "other" });
        let tool = json!({
            "name": "a",
            "inputSchema": {},
            "annotations": { "readOnlyHint": true },
            "_meta": { "ui": 1, UNKNOWN_FIELDS: kept },
        });
        let tool: Tool = serde_json::from_value(tool).unwrap();
        let expected = json!({
            "name": "a",
            "inputSchema": {},
            "annotations": { "readOnlyHint": true, "cost": 3 },
            "_meta": { "ui": 1 },
            "execution": {},
        });
        assert_eq!(raw_definition(&tool), expected);
        let plain = json!({ "name": "a", "inputSchema": {}, "_meta": {} });
        let tool: Tool = serde_json::from_value(plain.clone()).unwrap();
        assert_eq!(raw_definition(&tool), plain);
    }
}

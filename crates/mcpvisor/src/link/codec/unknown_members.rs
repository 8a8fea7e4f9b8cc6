//! Collects the members of definitions that rmcp's types drop.
//!
//! A second pass over the text, which skips what is known. Only a few servers send more.

use std::fmt;

use rmcp::model::{
    InitializeResult, JsonObject, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult,
};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::unknown_fields::{HasMeta, keep};

/// The members of an object that rmcp models; those of some are objects to look into.
type Members = &'static [(&'static str, Option<&'static Known>)];

/// What is known of an object.
struct Known(Members);

const ANNOTATIONS: Known = Known(&[
    ("title", None),
    ("readOnlyHint", None),
    ("destructiveHint", None),
    ("idempotentHint", None),
    ("openWorldHint", None),
]);

const TOOL: Known = Known(&[
    ("name", None),
    ("title", None),
    ("description", None),
    ("inputSchema", None),
    ("outputSchema", None),
    ("annotations", Some(&ANNOTATIONS)),
    ("icons", None),
    ("_meta", None),
]);

const PROMPT: Known = Known(&[
    ("name", None),
    ("title", None),
    ("description", None),
    ("arguments", None),
    ("icons", None),
    ("_meta", None),
]);

const RESOURCE: Known = Known(&[
    ("uri", None),
    ("name", None),
    ("title", None),
    ("description", None),
    ("mimeType", None),
    ("size", None),
    ("icons", None),
    ("annotations", None),
    ("_meta", None),
]);

const TEMPLATE: Known = Known(&[
    ("uriTemplate", None),
    ("name", None),
    ("title", None),
    ("description", None),
    ("mimeType", None),
    ("icons", None),
    ("annotations", None),
    ("_meta", None),
]);

const CAPABILITIES: Known = Known(&[
    ("experimental", None),
    ("extensions", None),
    ("logging", None),
    ("completions", None),
    ("prompts", None),
    ("resources", None),
    ("tools", None),
]);

const INITIALIZE: Known = Known(&[
    ("protocolVersion", None),
    ("capabilities", Some(&CAPABILITIES)),
    ("serverInfo", None),
    ("instructions", None),
    ("_meta", None),
]);

/// A result whose definitions keep the members that rmcp drops.
pub(super) trait KeepUnknown {
    /// Adds the unknown members of this text, from which the result was decoded.
    fn keep_unknown(&mut self, text: &str);
}

macro_rules! pages {
    ($($page:ty: $list:ident as $name:literal of $known:ident),* $(,)?) => {$(
        impl KeepUnknown for $page {
            fn keep_unknown(&mut self, text: &str) {
                let known = List { name: $name, items: &$known };
                keep_each(&mut self.$list, items(text, known));
            }
        }
    )*};
}

pages!(
    ListToolsResult: tools as "tools" of TOOL,
    ListPromptsResult: prompts as "prompts" of PROMPT,
    ListResourcesResult: resources as "resources" of RESOURCE,
    ListResourceTemplatesResult: resource_templates as "resourceTemplates" of TEMPLATE,
);

impl KeepUnknown for InitializeResult {
    fn keep_unknown(&mut self, text: &str) {
        let mut reader = serde_json::Deserializer::from_str(text);
        keep(
            self,
            (&INITIALIZE).deserialize(&mut reader).unwrap_or_default(),
        );
    }
}

fn keep_each(definitions: &mut [impl HasMeta], unknown: Vec<JsonObject>) {
    for (definition, unknown) in definitions.iter_mut().zip(unknown) {
        keep(definition, unknown);
    }
}

fn items(text: &str, list: List) -> Vec<JsonObject> {
    let mut reader = serde_json::Deserializer::from_str(text);
    list.deserialize(&mut reader).unwrap_or_default()
}

/// One list of a page.
#[derive(Clone, Copy)]
struct List {
    name: &'static str,
    items: &'static Known,
}

impl<'de> DeserializeSeed<'de> for List {
    type Value = Vec<JsonObject>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for List {
    type Value = Vec<JsonObject>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a page of a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut page: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        while let Some(name) = page.next_key::<String>()? {
            if name == self.name {
                found = page.next_value_seed(Items(self.items))?;
            } else {
                page.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

struct Items(&'static Known);

impl<'de> DeserializeSeed<'de> for Items {
    type Value = Vec<JsonObject>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Items {
    type Value = Vec<JsonObject>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        while let Some(unknown) = list.next_element_seed(self.0)? {
            found.push(unknown);
        }
        Ok(found)
    }
}

/// Reads the unknown members of an object; none of any other value.
impl<'de> DeserializeSeed<'de> for &'static Known {
    type Value = JsonObject;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<JsonObject, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &'static Known {
    type Value = JsonObject;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a definition")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<JsonObject, A::Error> {
        let mut unknown = JsonObject::new();
        while let Some(name) = members.next_key::<std::borrow::Cow<'_, str>>()? {
            match self.0.iter().find(|(known, _)| *known == name) {
                None => drop(unknown.insert(name.into_owned(), members.next_value()?)),
                Some((_, None)) => drop(members.next_value::<IgnoredAny>()?),
                Some((_, Some(inner))) => {
                    let inner = members.next_value_seed(*inner)?;
                    if !inner.is_empty() {
                        unknown.insert(name.into_owned(), Value::Object(inner));
                    }
                }
            }
        }
        Ok(unknown)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<JsonObject, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(JsonObject::new())
    }

    fn visit_bool<E>(self, _: bool) -> Result<JsonObject, E> {
        Ok(JsonObject::new())
    }

    fn visit_i64<E>(self, _: i64) -> Result<JsonObject, E> {
        Ok(JsonObject::new())
    }

    fn visit_u64<E>(self, _: u64) -> Result<JsonObject, E> {
        Ok(JsonObject::new())
    }

    fn visit_f64<E>(self, _: f64) -> Result<JsonObject, E> {
        Ok(JsonObject::new())
    }

    fn visit_str<E>(self, _: &str) -> Result<JsonObject, E> {
        Ok(JsonObject::new())
    }

    fn visit_unit<E>(self) -> Result<JsonObject, E> {
        Ok(JsonObject::new())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::unknown_fields::{UNKNOWN_FIELDS, kept, raw_definition};

    fn decoded(page: &Value) -> ListToolsResult {
        let text = page.to_string();
        let mut decoded: ListToolsResult = serde_json::from_str(&text).unwrap();
        decoded.keep_unknown(&text);
        decoded
    }

    #[test]
    fn unknown_members_stay_with_their_tool() {
        let tools = json!([
            { "name": "plain", "inputSchema": { "type": "object" } },
            {
                "name": "long",
                "inputSchema": { "type": "object", "x-any": 1 },
                "execution": { "taskSupport": "required" },
                "annotations": { "title": "Long", "cost": [1, 2] },
            },
            { "name": "null", "inputSchema": {}, "annotations": null, "vendor": null },
        ]);
        let page = decoded(&json!({ "nextCursor": "a", "tools": tools, "more": {} }));
        assert_eq!(page.tools[0].meta, None);
        for (number, tool) in page.tools.iter().enumerate().take(2) {
            assert_eq!(raw_definition(tool), tools[number], "as the server sent it");
        }
        assert_eq!(raw_definition(&page.tools[2])["vendor"], Value::Null);
    }

    #[test]
    fn a_server_cannot_pass_off_members_as_unknown_ones() {
        let meta = json!({ UNKNOWN_FIELDS: { "execution": { "taskSupport": "required" } } });
        let tool = json!({ "name": "a", "inputSchema": {}, "_meta": meta });
        let page = decoded(&json!({ "tools": [tool] }));
        assert_eq!(kept(page.tools[0].meta.as_ref()), None);
    }

    #[test]
    fn unknown_capabilities_are_kept() {
        let text = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": { "tools": {}, "tasks": { "list": {} } },
            "serverInfo": { "name": "a", "version": "1" },
        })
        .to_string();
        let mut info: InitializeResult = serde_json::from_str(&text).unwrap();
        info.keep_unknown(&text);
        let unknown = kept(info.meta.as_ref()).unwrap();
        assert_eq!(
            Value::Object(unknown.clone()),
            json!({ "capabilities": { "tasks": { "list": {} } } })
        );
    }
}

//! Decodes definitions and results with the members that rmcp's types drop.

use rmcp::model::{
    CallToolResult, GetPromptResult, InitializeResult, JsonObject, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, ReadResourceResult,
};
use serde::Deserializer;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{collector, keep, known};

/// The longest kind that a stand-in names, in characters.
const MAX_KIND: usize = 64;

/// A result that keeps the members that rmcp drops.
pub(crate) trait Whole: DeserializeOwned {
    /// The unknown members of the value that it is decoded from.
    fn unknown<'de>(value: impl Deserializer<'de>) -> Value;

    /// Keeps them, in place of any that the server put there itself.
    fn keep_unknown(&mut self, unknown: Value);
}

macro_rules! pages {
    ($($page:ty: $list:ident of $known:ident),* $(,)?) => {$(
        impl Whole for $page {
            fn unknown<'de>(value: impl Deserializer<'de>) -> Value {
                Value::Array(collector::items(&known::$known, value))
            }

            fn keep_unknown(&mut self, unknown: Value) {
                let mut unknown = match unknown {
                    Value::Array(items) => items.into_iter(),
                    _ => Vec::new().into_iter(),
                };
                for definition in &mut self.$list {
                    keep(definition, unknown.next().map(object).unwrap_or_default());
                }
            }
        }
    )*};
}

macro_rules! results {
    ($($result:ty: $known:ident),* $(,)?) => {$(
        impl Whole for $result {
            fn unknown<'de>(value: impl Deserializer<'de>) -> Value {
                Value::Object(collector::members(&known::$known, value))
            }

            fn keep_unknown(&mut self, unknown: Value) {
                keep(self, object(unknown));
            }
        }
    )*};
}

pages!(
    ListToolsResult: tools of TOOLS,
    ListPromptsResult: prompts of PROMPTS,
    ListResourcesResult: resources of RESOURCES,
    ListResourceTemplatesResult: resource_templates of TEMPLATES,
);

results!(
    InitializeResult: INITIALIZE,
    CallToolResult: CALL_RESULT,
    GetPromptResult: PROMPT_RESULT,
    ReadResourceResult: READ_RESULT,
);

fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(members) => members,
        _ => JsonObject::new(),
    }
}

/// Decodes a text.
pub(crate) fn from_text<R: Whole>(text: &str) -> serde_json::Result<R> {
    let decoded = serde_json::from_str::<R>(text);
    if decoded.is_ok() && is_plain(text) {
        return decoded;
    }
    let unknown = R::unknown(&mut serde_json::Deserializer::from_str(text));
    let mut result = match decoded {
        Ok(result) => result,
        Err(problem) if has_stand_ins(&unknown) => {
            let value = serde_json::from_str(text)?;
            with_stand_ins(value, &unknown).map_err(|_| problem)?
        }
        Err(problem) => return Err(problem),
    };
    result.keep_unknown(unknown);
    Ok(result)
}

/// Whether a text is the result of most tools: one block of text, and perhaps `isError`. It has no
/// unknown members, so the second pass over it can be omitted.
fn is_plain(text: &str) -> bool {
    let Some(mut rest) = text.strip_prefix(r#"{"content":[{"type":"text","text":""#) else {
        return false;
    };
    // The end of the string.
    loop {
        let mut bytes = rest.bytes();
        let Some(at) = bytes.position(|byte| matches!(byte, b'"' | b'\\')) else {
            return false;
        };
        let is_end = rest.as_bytes()[at] == b'"';
        // A character follows a backslash, and only ASCII is valid there.
        let Some(next) = rest.get(at + if is_end { 1 } else { 2 }..) else {
            return false;
        };
        rest = next;
        if is_end {
            break;
        }
    }
    matches!(
        rest,
        "}]}" | r#"}],"isError":false}"# | r#"}],"isError":true}"#
    )
}

/// Decodes a value.
pub(crate) fn from_value<R: Whole>(value: Value) -> serde_json::Result<R> {
    let unknown = R::unknown(&value);
    let mut result: R = with_stand_ins(value, &unknown)?;
    result.keep_unknown(unknown);
    Ok(result)
}

/// Decodes a value whose content of unknown kinds is replaced by text.
fn with_stand_ins<R: Whole>(mut value: Value, unknown: &Value) -> serde_json::Result<R> {
    replace_unknown_content(&mut value, unknown);
    serde_json::from_value(value)
}

/// Whether there may be content of unknown kinds.
fn has_stand_ins(unknown: &Value) -> bool {
    match unknown {
        Value::Object(members) => {
            members.contains_key("type") || members.values().any(has_stand_ins)
        }
        Value::Array(items) => items.iter().any(has_stand_ins),
        _ => false,
    }
}

/// Replaces content of unknown kinds by a text, because rmcp would refuse the whole result.
fn replace_unknown_content(value: &mut Value, unknown: &Value) {
    match (&mut *value, unknown) {
        (Value::Object(_), Value::Object(members)) if members.contains_key("type") => {
            let kind = match &members["type"] {
                Value::String(kind) => kind.chars().take(MAX_KIND).collect(),
                other => other.to_string().chars().take(MAX_KIND).collect::<String>(),
            };
            *value = json!({ "type": "text", "text": format!("[unsupported content: {kind}]") });
        }
        (Value::Object(members), Value::Object(unknown)) => {
            for (name, unknown) in unknown {
                if let Some(value) = members.get_mut(name) {
                    replace_unknown_content(value, unknown);
                }
            }
        }
        (Value::Array(items), Value::Array(unknown)) => {
            let pairs = items.iter_mut().zip(unknown);
            pairs.for_each(|(item, unknown)| replace_unknown_content(item, unknown));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_single_block_of_text_is_plain() {
        for plain in [
            r#"{"content":[{"type":"text","text":"x"}]}"#,
            r#"{"content":[{"type":"text","text":""}],"isError":true}"#,
            r#"{"content":[{"type":"text","text":"a\"}],b\\"}],"isError":false}"#,
        ] {
            assert!(is_plain(plain), "{plain}");
            assert!(
                serde_json::from_str::<CallToolResult>(plain).is_ok(),
                "{plain}"
            );
        }
        for other in [
            r#"{"content":[{"type":"text","text":"x","lang":"de"}]}"#,
            r#"{"content":[{"type":"text","text":"x"}],"more":1}"#,
            r#"{"content":[{"type":"text","text":"x"}],"isError":true,"more":1}"#,
            r#"{"content":[{"type":"text","text":"x\"}]}"#,
            r#"{"content":[{"type":"text","text":"x\"#,
            r#"{"content":[{"type":"text","text":"x\ä"#,
            r#"{"content":[{"type":"video","text":"x"}]}"#,
        ] {
            assert!(!is_plain(other), "{other}");
        }
    }
}

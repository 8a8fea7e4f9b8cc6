//! Parses a word as the value that a JSON Schema expects.
//!
//! Schemas come from servers and may be anything. Words of unsupported schemas are strings.

use std::cell::Cell;

use serde_json::{Map, Value};

use super::exact_integers;

/// Depth of references and alternatives, so that cycles end.
const MAX_DEPTH: usize = 8;

/// Schema parts visited for one word, so that nested alternatives end.
const MAX_PARTS: usize = 1_000;

/// A part of a schema, with the document that its references point into.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schema<'s> {
    document: &'s Map<String, Value>,
    part: Option<&'s Value>,
    depth: usize,
    /// Parts that may still be visited.
    parts: &'s Cell<usize>,
    /// The word matches, but would be rounded.
    rounded: &'s Cell<bool>,
}

/// The word matches, but would not be sent as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rounded;

impl<'s> Schema<'s> {
    /// Parses a word as the type of this argument, else as a string.
    pub(super) fn read_argument(
        document: &Map<String, Value>,
        key: &str,
        word: &str,
    ) -> Result<Value, Rounded> {
        let part = document.get("properties").and_then(|all| all.get(key));
        let (parts, rounded) = (Cell::new(MAX_PARTS), Cell::new(false));
        let schema = Schema {
            document,
            part,
            depth: 0,
            parts: &parts,
            rounded: &rounded,
        };
        match schema.try_read(word) {
            Some(value) => Ok(value),
            None if rounded.get() => Err(Rounded),
            None => Ok(Value::String(word.to_owned())),
        }
    }

    fn try_read(&self, word: &str) -> Option<Value> {
        let part = self.part?.as_object()?;
        let left = self.parts.get().checked_sub(1)?;
        self.parts.set(left);
        if self.depth >= MAX_DEPTH {
            return None;
        }
        if let Some(reference) = part.get("$ref").and_then(Value::as_str) {
            return self.resolve(reference)?.try_read(word);
        }
        if let Some(values) = part.get("enum").and_then(Value::as_array) {
            return values.iter().find(|value| is_written(value, word)).cloned();
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            if let Some(choices) = part.get(key).and_then(Value::as_array) {
                return choices
                    .iter()
                    .find_map(|choice| self.inner(choice).try_read(word));
            }
        }
        match part.get("type") {
            Some(Value::String(kind)) => self.read_as(kind, word),
            // If strings are allowed, a word is a string.
            Some(Value::Array(kinds)) if kinds.iter().any(|kind| kind == "string") => None,
            Some(Value::Array(kinds)) => kinds
                .iter()
                .filter_map(Value::as_str)
                .find_map(|kind| self.read_as(kind, word)),
            _ => None,
        }
    }

    fn read_as(&self, kind: &str, word: &str) -> Option<Value> {
        match kind {
            "string" => Some(Value::String(word.to_owned())),
            "array" => self.read_list(word),
            _ => {
                let mut value: Value = serde_json::from_str(word).ok()?;
                if let ("integer", Some(whole)) = (kind, whole(&value)) {
                    value = whole.into();
                }
                let fits = match kind {
                    "integer" => value.is_i64() || value.is_u64(),
                    "number" => value.is_number(),
                    "boolean" => value.is_boolean(),
                    "object" => value.is_object(),
                    "null" => value.is_null(),
                    _ => false,
                };
                value = Some(value).filter(|_| fits)?;
                self.exactly(word).then_some(value)
            }
        }
    }

    /// Whether a JSON word is sent as written; sets `rounded` otherwise.
    fn exactly(&self, word: &str) -> bool {
        let exact = exact_integers::too_large(word).is_none();
        self.rounded.set(self.rounded.get() || !exact);
        exact
    }

    /// A list is written as JSON or as a single item.
    fn read_list(&self, word: &str) -> Option<Value> {
        if let Ok(list @ Value::Array(_)) = serde_json::from_str(word) {
            return self.exactly(word).then_some(list);
        }
        let items = Self {
            part: self.part?.get("items"),
            depth: self.depth + 1,
            ..*self
        };
        let item = match items.try_read(word) {
            None if self.rounded.get() => return None,
            None => Value::String(word.to_owned()),
            Some(item) => item,
        };
        Some(Value::Array(vec![item]))
    }

    fn inner(&self, part: &'s Value) -> Self {
        Self {
            part: Some(part),
            depth: self.depth + 1,
            ..*self
        }
    }

    /// A reference into the same document, such as `#/$defs/Size`.
    fn resolve(&self, reference: &str) -> Option<Self> {
        let mut steps = reference.strip_prefix("#/")?.split('/');
        let first = self.document.get(steps.next()?)?;
        let part = steps.try_fold(first, |part, step| part.get(step))?;
        Some(self.inner(part))
    }
}

/// The integer value of a float such as 5.0, which JSON Schema counts as an integer.
fn whole(value: &Value) -> Option<i64> {
    /// Up to here every integer is exact in an `f64`.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let number = value.as_f64().filter(|_| value.is_f64())?;
    (number.fract() == 0.0 && number.abs() <= EXACT).then_some(number as i64)
}

/// Whether a word denotes an enum value.
fn is_written(value: &Value, word: &str) -> bool {
    match value {
        Value::String(text) => text == word,
        other => serde_json::from_str::<Value>(word).is_ok_and(|written| written == *other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn reads(schema: Value, word: &str, expected: Value) {
        let document = json!({
            "properties": { "key": schema },
            "$defs": { "Size": { "type": "integer" }, "Loop": { "$ref": "#/$defs/Loop" } },
        });
        let read = Schema::read_argument(document.as_object().unwrap(), "key", word);
        assert_eq!(read, Ok(expected));
    }

    #[test]
    fn integers_that_would_be_rounded_are_rejected_unless_strings_are_allowed() {
        let large = "12345678901234567890123";
        let (object, list) = (format!(r#"{{"id":{large}}}"#), format!("[{large}]"));
        for (schema, word) in [
            (json!({"type": "number"}), large),
            (json!({"type": "object"}), object.as_str()),
            (json!({"type": "array"}), list.as_str()),
            (json!({"type": "array", "items": {"type": "number"}}), large),
            (
                json!({"anyOf": [{"type": "number"}, {"type": "null"}]}),
                large,
            ),
        ] {
            let document = json!({ "properties": { "key": schema } });
            let read = Schema::read_argument(document.as_object().unwrap(), "key", word);
            assert_eq!(read, Err(Rounded), "{document} {word}");
        }
        let either = json!({"anyOf": [{"type": "number"}, {"type": "string"}]});
        reads(either, large, json!(large));
        let texts = json!({"type": "array", "items": {"type": "string"}});
        reads(texts, large, json!([large]));
        reads(json!({"type": "number"}), "1e30", json!(1e30));
    }

    #[test]
    fn a_word_is_parsed_as_the_type_of_the_schema() {
        reads(json!({"type": "string"}), "5", json!("5"));
        reads(json!({"type": "integer"}), "5", json!(5));
        reads(json!({"type": "integer"}), "5.0", json!(5));
        reads(json!({"type": "integer"}), "5.5", json!("5.5"));
        reads(
            json!({"type": "integer"}),
            "99999999999999999999",
            json!("99999999999999999999"),
        );
        reads(json!({"type": "number"}), "-1.5", json!(-1.5));
        reads(json!({"type": "boolean"}), "true", json!(true));
        reads(json!({"type": "object"}), r#"{"a":1}"#, json!({"a": 1}));
        reads(json!({"type": "array"}), "[1]", json!([1]));
        reads(
            json!({"type": "array", "items": {"type": "number"}}),
            "2",
            json!([2]),
        );
    }

    #[test]
    fn references_choices_and_enumerations_are_followed() {
        reads(json!({"$ref": "#/$defs/Size"}), "5", json!(5));
        reads(
            json!({"anyOf": [{"type": "null"}, {"type": "integer"}]}),
            "5",
            json!(5),
        );
        reads(json!({"type": ["integer", "null"]}), "null", json!(null));
        reads(json!({"type": ["string", "integer"]}), "5", json!("5"));
        reads(json!({"enum": [1, 2, "auto"]}), "2", json!(2));
    }

    #[test]
    fn cyclic_alternatives_end() {
        let again = vec![json!({"$ref": "#/properties/key"}); 100];
        // Without a limit these are 100 ^ 4 parts.
        reads(json!({"anyOf": again}), "5", json!("5"));
    }

    #[test]
    fn a_word_of_an_unsupported_schema_is_a_string() {
        reads(json!({"type": "integer"}), "many", json!("many"));
        reads(json!({"type": "boolean"}), "yes", json!("yes"));
        reads(json!({"$ref": "https://example.com/s"}), "5", json!("5"));
        reads(json!({"$ref": "#/$defs/Loop"}), "5", json!("5"));
        reads(json!(true), "5", json!("5"));
        reads(json!({}), "5", json!("5"));
    }
}

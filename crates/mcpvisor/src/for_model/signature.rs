//! The signature of a tool: one line that shows its parameters and their types.

use rmcp::model::{JsonObject, Tool};
use serde_json::Value;

/// Parameters that a signature shows; `…` stands for the others.
const MAX_PARAMETERS: usize = 32;

/// Bytes of the longest signature; a longer one is cut and ends in `…`.
const MAX_SIGNATURE: usize = 1_024;

/// Values of an enumeration that are listed instead of their type.
const MAX_VALUES: usize = 6;

/// Bytes of the longest value of an enumeration that is listed.
const MAX_VALUE: usize = 32;

/// Schemas that are read for the type of one parameter, with its items, alternatives and references.
const MAX_SCHEMAS: usize = 32;

/// The signature of a tool. Required parameters come first, in the order in which the schema
/// requires them; optional ones follow with a `?`. The type is `any` where the schema does not
/// determine it.
///
/// ```
/// use mcpvisor::for_model::signature;
/// use mcpvisor::rmcp::model::Tool;
/// use serde_json::json;
///
/// let tool: Tool = serde_json::from_value(json!({
///     "name": "read_text_file",
///     "inputSchema": {
///         "type": "object",
///         "properties": {
///             "head": { "type": "integer" },
///             "path": { "type": "string" },
///             "encodings": { "type": "array", "items": { "enum": ["utf-8", "latin-1"] } },
///         },
///         "required": ["path"],
///     },
/// }))?;
/// assert_eq!(
///     signature(&tool),
///     r#"read_text_file(path: string, encodings?: ("utf-8" | "latin-1")[], head?: integer)"#
/// );
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn signature(tool: &Tool) -> String {
    signature_as(&tool.name, &tool.input_schema)
}

/// The signature of a tool under another name.
pub(super) fn signature_as(name: &str, schema: &JsonObject) -> String {
    let properties = schema.get("properties").and_then(Value::as_object);
    let required = schema.get("required").and_then(Value::as_array);
    let required: Vec<&str> = required
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let of = |name: &str| {
        properties
            .and_then(|it| it.get(name))
            .unwrap_or(&Value::Null)
    };
    let first = required.iter().map(|name| (*name, "", of(name)));
    let optional = properties.into_iter().flatten();
    let optional = optional.filter(|(name, _)| !required.contains(&name.as_str()));
    let optional = optional.map(|(name, schema)| (name.as_str(), "?", schema));
    let mut text = identifier(name) + "(";
    for (at, (name, mark, parameter)) in first.chain(optional).enumerate() {
        if at > 0 {
            text.push_str(", ");
        }
        if at == MAX_PARAMETERS || text.len() > MAX_SIGNATURE {
            text.push('…');
            break;
        }
        let mut types = Types {
            root: schema,
            schemas_left: MAX_SCHEMAS,
        };
        let kind = types.type_of(parameter);
        text.push_str(&format!("{}{mark}: {kind}", identifier(name)));
    }
    if text.len() >= MAX_SIGNATURE {
        text.truncate(super::start(&text, MAX_SIGNATURE - "…)".len()).len());
        text.push('…');
    }
    text.push(')');
    text
}

/// A name as it is, or in quotes if it has other characters than those of identifiers.
fn identifier(name: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-.$".contains(c);
    match !name.is_empty() && name.chars().all(is_plain) {
        true => name.to_owned(),
        false => Value::from(name).to_string(),
    }
}

/// Reads the type of one parameter.
struct Types<'s> {
    root: &'s JsonObject,
    schemas_left: usize,
}

impl<'s> Types<'s> {
    /// The type that a schema describes.
    fn type_of(&mut self, schema: &'s Value) -> String {
        let any = || "any".to_owned();
        let Some(object) = schema.as_object().filter(|_| self.schemas_left > 0) else {
            return any();
        };
        self.schemas_left -= 1;
        if let Some(target) = object.get("$ref").and_then(Value::as_str) {
            return resolve(target, self.root).map_or_else(any, |it| self.type_of(it));
        }
        if let Some(values) = literals(object) {
            return values;
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(Value::Array(alternatives)) = object.get(key) {
                return union(alternatives.iter().map(|it| self.type_of(it)));
            }
        }
        match object.get("type") {
            Some(Value::String(name)) => self.named_type(name, object),
            Some(Value::Array(names)) => {
                let names = names.iter().filter_map(Value::as_str);
                union(names.map(|name| self.named_type(name, object)))
            }
            _ if object.contains_key("properties") => "object".to_owned(),
            _ if object.contains_key("items") => self.named_type("array", object),
            _ => any(),
        }
    }

    fn named_type(&mut self, name: &str, object: &'s JsonObject) -> String {
        match name {
            "string" | "integer" | "number" | "boolean" | "object" | "null" => name.to_owned(),
            "array" => {
                let items = object.get("items").unwrap_or(&Value::Null);
                match self.type_of(items) {
                    kind if kind.contains(" | ") => format!("({kind})[]"),
                    kind => kind + "[]",
                }
            }
            _ => "any".to_owned(),
        }
    }
}

/// The only values that a schema allows, if they are few and short.
fn literals(object: &JsonObject) -> Option<String> {
    let values = match (object.get("enum"), object.get("const")) {
        (Some(Value::Array(values)), _) => values.as_slice(),
        (_, Some(value)) => std::slice::from_ref(value),
        _ => return None,
    };
    let texts: Vec<String> = values.iter().map(Value::to_string).collect();
    let is_short = |text: &String| text.len() <= MAX_VALUE && !text.contains(['{', '[', '|']);
    let fits = (1..=MAX_VALUES).contains(&texts.len()) && texts.iter().all(is_short);
    match (fits, values.first()) {
        (true, _) => Some(texts.join(" | ")),
        // The schema often leaves out the type of its values.
        (false, Some(Value::String(_))) => Some("string".to_owned()),
        _ => None,
    }
}

/// The alternatives, each once; `any` if there are many.
fn union(kinds: impl Iterator<Item = String>) -> String {
    let mut different: Vec<String> = Vec::new();
    for kind in kinds {
        // The alternatives of the items of an array stay together.
        let separator = if kind.contains('(') { "\0" } else { " | " };
        for part in kind.split(separator) {
            if !different.iter().any(|known| known == part) {
                different.push(part.to_owned());
            }
        }
        if kind == "any" || different.len() > MAX_VALUES + 1 {
            return "any".to_owned();
        }
    }
    match different.is_empty() {
        true => "any".to_owned(),
        false => different.join(" | "),
    }
}

/// The target of a reference within the schema.
fn resolve<'s>(target: &str, root: &'s JsonObject) -> Option<&'s Value> {
    let path = target.strip_prefix("#/")?;
    let (first, rest) = path.split_once('/')?;
    let unescaped = rest.replace("~1", "/").replace("~0", "~");
    root.get(first)?.as_object()?.get(&unescaped)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(schema: Value) -> String {
        signature_as("f", schema.as_object().unwrap())
    }

    fn kind(parameter: Value) -> String {
        let defs = json!({ "Point": { "type": "object" }, "Me": { "$ref": "#/$defs/Me" } });
        let text = of(json!({ "properties": { "a": parameter }, "$defs": defs }));
        text["f(a?: ".len()..text.len() - 1].to_owned()
    }

    #[test]
    fn required_parameters_come_first_in_their_order() {
        let properties = json!({ "a": {}, "b": { "type": "string" }, "z": { "type": "number" } });
        assert_eq!(
            of(json!({ "properties": properties, "required": ["z", "b", "gone"] })),
            "f(z: number, b: string, gone: any, a?: any)"
        );
        assert_eq!(of(json!({})), "f()");
        assert_eq!(of(json!({ "properties": [], "required": "a" })), "f()");
    }

    #[test]
    fn types_are_those_of_the_schema() {
        for (schema, expected) in [
            (
                json!({ "type": "array", "items": { "type": "string" } }),
                "string[]",
            ),
            (json!({ "type": "array" }), "any[]"),
            (json!({ "type": ["string", "null"] }), "string | null"),
            (
                json!({ "type": "array", "items": { "type": ["string", "null"] } }),
                "(string | null)[]",
            ),
            (
                json!({ "type": "string", "enum": ["asc", "desc"] }),
                "\"asc\" | \"desc\"",
            ),
            (
                json!({ "type": "string", "enum": ["a", "b", "c", "d", "e", "f", "g"] }),
                "string",
            ),
            (json!({ "enum": ["x".repeat(100)] }), "string"),
            (json!({ "const": 5 }), "5"),
            (
                json!({ "anyOf": [{ "type": "integer" }, { "type": "null" }] }),
                "integer | null",
            ),
            (json!({ "oneOf": [{ "type": "integer" }, {}] }), "any"),
            (
                json!({ "anyOf": [
                    { "items": { "type": ["string", "null"] } },
                    { "items": { "type": ["integer", "null"] } },
                    { "type": ["null", "string"] },
                    { "type": "string" },
                ] }),
                "(string | null)[] | (integer | null)[] | null | string",
            ),
            (json!({ "$ref": "#/$defs/Point" }), "object"),
            (json!({ "$ref": "#/$defs/Me" }), "any"),
            (json!({ "$ref": "http://example.com" }), "any"),
            (json!({ "properties": {} }), "object"),
            (json!({ "items": { "type": "integer" } }), "integer[]"),
            (json!({ "type": "\u{1b}[31m" }), "any"),
            (json!(true), "any"),
        ] {
            assert_eq!(kind(schema.clone()), expected, "{schema}");
        }
    }

    #[test]
    fn names_with_other_characters_are_quoted() {
        let odd = json!({ "properties": { "a b\n": { "type": "string" }, "名前": {} } });
        assert_eq!(of(odd), "f(\"a b\\n\"?: string, 名前?: any)");
    }

    #[test]
    fn a_signature_is_bounded_whatever_the_schema() {
        let many: JsonObject = (0..1_000)
            .map(|number| (format!("p{number}"), json!({})))
            .collect();
        let text = of(json!({ "properties": many }));
        assert!(text.ends_with(", …)") && text.len() < 500, "{text}");
        let long: JsonObject = (0..30)
            .map(|number| ("p".repeat(100 + number), json!({})))
            .collect();
        let text = of(json!({ "properties": long }));
        assert!(
            text.ends_with("…)") && text.len() <= MAX_SIGNATURE,
            "{text}"
        );
        let text = of(json!({ "required": ["é".repeat(5_000)] }));
        assert!(
            text.ends_with("…)") && text.len() <= MAX_SIGNATURE,
            "{}",
            text.len()
        );
        let deep = (0..1_000).fold(
            json!({}),
            |inner, _| json!({ "anyOf": [inner, { "type": "null" }] }),
        );
        assert_eq!(kind(deep), "any");
        // Each of 30 definitions refers twice to the next one.
        let defs: JsonObject = (0..30)
            .map(|number| {
                let next = json!({ "type": "array", "items": { "$ref": format!("#/$defs/{}", number + 1) } });
                (number.to_string(), json!({ "anyOf": [next, next] }))
            })
            .collect();
        let text = of(json!({ "$defs": defs, "properties": { "a": { "$ref": "#/$defs/0" } } }));
        assert!(text.len() < 200, "{text}");
    }
}

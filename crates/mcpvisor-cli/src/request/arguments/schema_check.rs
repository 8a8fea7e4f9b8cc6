//! Whether arguments fit a tool's schema, as far as a person can be told in a line.
//!
//! Only what is plain is checked: what is missing, of the wrong type, or not among the choices.
//! Everything else is the server's business.

use serde_json::{Map, Value};

use crate::output::nearest;

/// So many arguments are named in the short form of a schema.
const MAX_NAMED: usize = 20;

/// So many choices of one argument are named.
const MAX_CHOICES: usize = 8;

/// What does not fit, one short sentence each. `exact` are keys that were written as JSON: whoever
/// writes `KEY:=JSON` means it.
pub(super) fn problems(
    arguments: &Map<String, Value>,
    exact: &[String],
    schema: &Map<String, Value>,
) -> Vec<String> {
    let mut problems = Vec::new();
    let properties = schema.get("properties").and_then(Value::as_object);
    for name in required(schema) {
        if !arguments.contains_key(name) {
            problems.push(format!("{name:?} is missing"));
        }
    }
    for (key, value) in arguments.iter().filter(|(key, _)| !exact.contains(key)) {
        match properties.and_then(|properties| properties.get(key)) {
            Some(part) => problems.extend(misfit(key, value, part)),
            None if schema.get("additionalProperties") == Some(&Value::Bool(false)) => {
                let known = properties
                    .into_iter()
                    .flat_map(Map::keys)
                    .map(String::as_str);
                let hint = nearest(key, known);
                let hint =
                    hint.map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
                problems.push(format!("{key:?} is unknown{hint}"));
            }
            None => {}
        }
    }
    problems
}

/// The schema in short: `text: string, [count: integer], [mode: "a"|"b"]`; what is in brackets may
/// be left out.
pub(crate) fn usage(schema: &Map<String, Value>) -> String {
    let properties = schema.get("properties").and_then(Value::as_object);
    let required: Vec<&str> = required(schema).collect();
    let mut parts: Vec<(bool, String)> = Vec::new();
    for (name, part) in properties.into_iter().flatten() {
        let needed = required.contains(&name.as_str());
        let shown = match kind(part) {
            Some(kind) => format!("{name}: {kind}"),
            None => name.clone(),
        };
        parts.push((!needed, if needed { shown } else { format!("[{shown}]") }));
    }
    // What is needed comes first, else the order is the schema's.
    parts.sort_by_key(|(optional, _)| *optional);
    let more = parts.len().saturating_sub(MAX_NAMED);
    let mut shown: Vec<String> = parts
        .into_iter()
        .take(MAX_NAMED)
        .map(|(_, part)| part)
        .collect();
    if more > 0 {
        shown.push(format!("{more} more"));
    }
    if shown.is_empty() {
        return "no arguments".to_owned();
    }
    shown.join(", ")
}

fn required(schema: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let names = schema.get("required").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str)
}

/// What a value should be, in a word.
fn kind(part: &Value) -> Option<String> {
    if let Some(choices) = part.get("enum").and_then(Value::as_array) {
        let mut shown: Vec<String> = choices
            .iter()
            .take(MAX_CHOICES)
            .map(Value::to_string)
            .collect();
        if choices.len() > MAX_CHOICES {
            shown.push("…".to_owned());
        }
        return Some(shown.join("|"));
    }
    match part.get("type")? {
        Value::String(kind) => Some(kind.clone()),
        Value::Array(kinds) => {
            let kinds: Vec<&str> = kinds.iter().filter_map(Value::as_str).collect();
            Some(kinds.join(" or "))
        }
        _ => None,
    }
}

fn misfit(key: &str, value: &Value, part: &Value) -> Option<String> {
    let fits = match (part.get("enum"), part.get("type")) {
        (Some(Value::Array(choices)), _) => choices.contains(value),
        (_, Some(Value::String(kind))) => is(value, kind),
        (_, Some(Value::Array(kinds))) => {
            let mut kinds = kinds.iter().filter_map(Value::as_str);
            kinds.any(|kind| is(value, kind))
        }
        _ => true,
    };
    let wanted = kind(part).filter(|_| !fits)?;
    Some(format!("{key:?} must be {wanted}, not {value}"))
}

/// Whether a value is of a type; one that nobody knows fits everything.
fn is(value: &Value, kind: &str) -> bool {
    match kind {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(whole),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "null" => value.is_null(),
        _ => true,
    }
}

fn whole(number: f64) -> bool {
    number.fract() == 0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Map<String, Value> {
        let schema = json!({
            "properties": {
                "text": { "type": "string" },
                "count": { "type": "integer" },
                "mode": { "enum": ["fast", "slow"] },
                "size": { "type": ["number", "null"] },
                "any": {},
            },
            "required": ["text"],
            "additionalProperties": false,
        });
        schema.as_object().unwrap().clone()
    }

    fn problems(arguments: Value, exact: &[&str]) -> Vec<String> {
        let exact: Vec<String> = exact.iter().map(|key| (*key).to_owned()).collect();
        super::problems(arguments.as_object().unwrap(), &exact, &schema())
    }

    #[test]
    fn what_fits_has_no_problems() {
        let good = json!({ "text": "a", "count": 2.0, "mode": "fast", "size": null, "any": [] });
        assert_eq!(problems(good, &[]), [""; 0]);
    }

    #[test]
    fn what_does_not_fit_says_which() {
        assert_eq!(
            problems(
                json!({ "count": "x", "mode": "x", "size": "x", "txt": 1 }),
                &[]
            ),
            [
                "\"text\" is missing",
                "\"count\" must be integer, not \"x\"",
                "\"mode\" must be \"fast\"|\"slow\", not \"x\"",
                "\"size\" must be number or null, not \"x\"",
                "\"txt\" is unknown; did you mean \"text\"?",
            ]
        );
    }

    #[test]
    fn what_was_written_as_json_is_meant() {
        assert_eq!(
            problems(json!({ "text": 1, "new": 2 }), &["text", "new"]),
            [""; 0]
        );
    }

    #[test]
    fn a_schema_in_short_begins_with_what_is_needed() {
        assert_eq!(
            usage(&schema()),
            "text: string, [any], [count: integer], [mode: \"fast\"|\"slow\"], [size: number or null]"
        );
        assert_eq!(usage(&Map::new()), "no arguments");
    }
}

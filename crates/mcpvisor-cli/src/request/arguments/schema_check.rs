//! Checks arguments against a tool's schema: missing, unknown, wrong type, not in the enum.
//!
//! The server checks everything else.

use serde_json::{Map, Value};

use crate::output::suggest_name;

/// Arguments named in a usage line.
const MAX_NAMED: usize = 20;

/// Enum values named for one argument.
const MAX_CHOICES: usize = 8;

/// The problems of the arguments. Keys in `exact` were written as `KEY:=JSON` and are not checked.
pub(super) fn problems(
    arguments: &Map<String, Value>,
    exact: &[String],
    schema: &Map<String, Value>,
) -> Vec<String> {
    let mut problems = Vec::new();
    let properties = schema.get("properties").and_then(Value::as_object);
    let missing = required(schema).filter(|name| !arguments.contains_key(*name));
    let missing: Vec<&str> = missing.collect();
    match missing.as_slice() {
        [] => {}
        [name] => problems.push(format!("missing argument: {name}")),
        names => problems.push(format!("missing arguments: {}", names.join(", "))),
    }
    for (key, value) in arguments.iter().filter(|(key, _)| !exact.contains(key)) {
        match properties.and_then(|properties| properties.get(key)) {
            Some(part) => problems.extend(type_problem(key, value, part)),
            None if schema.get("additionalProperties") == Some(&Value::Bool(false)) => {
                let known = properties
                    .into_iter()
                    .flat_map(Map::keys)
                    .map(String::as_str);
                let hint = suggest_name(key, known).unwrap_or_default();
                problems.push(format!("unknown argument {key:?}{hint}"));
            }
            None => {}
        }
    }
    problems
}

/// The usage of a tool, such as `order text=STRING [count=INT] [mode="a"|"b"]`; arguments in brackets
/// are optional.
pub(crate) fn usage(tool: &str, schema: &Map<String, Value>) -> String {
    let properties = schema.get("properties").and_then(Value::as_object);
    let required: Vec<&str> = required(schema).collect();
    let mut parts: Vec<(bool, String)> = Vec::new();
    for (name, part) in properties.into_iter().flatten() {
        let needed = required.contains(&name.as_str());
        let kind = kind(part).map_or_else(|| "VALUE".to_owned(), |kind| placeholder(&kind));
        let shown = format!("{name}={kind}");
        parts.push((!needed, if needed { shown } else { format!("[{shown}]") }));
    }
    // Required arguments come first.
    parts.sort_by_key(|(optional, _)| *optional);
    let more = parts.len().saturating_sub(MAX_NAMED);
    let mut shown: Vec<String> = parts
        .into_iter()
        .take(MAX_NAMED)
        .map(|(_, part)| part)
        .collect();
    if more > 0 {
        shown.push(format!("({more} more)"));
    }
    shown.insert(0, tool.to_owned());
    shown.join(" ")
}

/// A type as a placeholder of the usage; enum values stay as they are.
fn placeholder(kind: &str) -> String {
    match kind {
        "integer" => "INT".to_owned(),
        "number" => "NUM".to_owned(),
        "boolean" => "BOOL".to_owned(),
        _ if kind.contains('"') => kind.to_owned(),
        kind => kind.to_uppercase().replace(" OR ", "|"),
    }
}

fn required(schema: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let names = schema.get("required").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str)
}

/// The expected type or enum values.
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

fn type_problem(key: &str, value: &Value, part: &Value) -> Option<String> {
    let fits = match (part.get("enum"), part.get("type")) {
        (Some(Value::Array(choices)), _) => choices.contains(value),
        (_, Some(Value::String(kind))) => is(value, kind),
        (_, Some(Value::Array(kinds))) => {
            let mut kinds = kinds.iter().filter_map(Value::as_str);
            kinds.any(|kind| is(value, kind))
        }
        _ => true,
    };
    let expected = kind(part).filter(|_| !fits)?;
    Some(format!("{key:?} must be {expected}, not {value}"))
}

/// Whether a value is of a type. Any value fits an unknown type.
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
    fn valid_arguments_have_no_problems() {
        let good = json!({ "text": "a", "count": 2.0, "mode": "fast", "size": null, "any": [] });
        assert_eq!(problems(good, &[]), [""; 0]);
    }

    #[test]
    fn each_problem_names_its_argument() {
        assert_eq!(
            problems(
                json!({ "count": "x", "mode": "x", "size": "x", "txt": 1 }),
                &[]
            ),
            [
                "missing argument: text",
                "\"count\" must be integer, not \"x\"",
                "\"mode\" must be \"fast\"|\"slow\", not \"x\"",
                "\"size\" must be number or null, not \"x\"",
                "unknown argument \"txt\" (did you mean \"text\"?)",
            ]
        );
    }

    #[test]
    fn json_arguments_are_not_checked() {
        assert_eq!(
            problems(json!({ "text": 1, "new": 2 }), &["text", "new"]),
            [""; 0]
        );
    }

    #[test]
    fn the_usage_begins_with_required_arguments() {
        assert_eq!(
            usage("order", &schema()),
            "order text=STRING [any=VALUE] [count=INT] [mode=\"fast\"|\"slow\"] [size=NUMBER|NULL]"
        );
        assert_eq!(usage("ping", &Map::new()), "ping");
    }

    #[test]
    fn missing_arguments_are_listed_together() {
        let schema = json!({ "required": ["i", "f"] });
        let missing = super::problems(&Map::new(), &[], schema.as_object().unwrap());
        assert_eq!(missing, ["missing arguments: i, f"]);
    }
}

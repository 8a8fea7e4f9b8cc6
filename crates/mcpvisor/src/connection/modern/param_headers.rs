//! Arguments of tools that also travel as headers, in the modern era over HTTP.
//!
//! A tool's schema marks such an argument with `x-mcp-header`. A tool whose marks are invalid must
//! not be used at all. Sending the headers is left to the link.

use std::collections::BTreeMap;
use std::sync::Arc;

use rmcp::model::{CallToolRequest, JsonObject, Tool};
use serde_json::Value;

use crate::link::RequestHeaders;

/// The member of a schema that names the header.
const MARK: &str = "x-mcp-header";

/// What the name of every such header begins with.
const PREFIX: &str = "Mcp-Param-";

/// The arguments of each tool that are headers too.
#[derive(Debug, Default)]
pub(in crate::connection) struct ParamHeaders {
    by_tool: BTreeMap<String, Vec<Marked>>,
}

/// One marked argument.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Marked {
    /// Where the argument is, from the outermost object on.
    path: Vec<String>,
    header: String,
}

impl ParamHeaders {
    /// Learns the marks of the listed tools. Those whose marks are invalid are taken out, and named
    /// with the reason.
    pub(in crate::connection) fn learn(&mut self, tools: &mut Vec<Tool>) -> Vec<(String, String)> {
        let mut dropped = Vec::new();
        tools.retain(|tool| match marks(&tool.input_schema) {
            Ok(marked) if marked.is_empty() => {
                self.by_tool.remove(tool.name.as_ref());
                true
            }
            Ok(marked) => {
                self.by_tool.insert(tool.name.to_string(), marked);
                true
            }
            Err(problem) => {
                self.by_tool.remove(tool.name.as_ref());
                dropped.push((tool.name.to_string(), problem));
                false
            }
        });
        dropped
    }

    /// Gives a call the headers of its arguments.
    pub(in crate::connection) fn mark(&self, call: &mut CallToolRequest) {
        let Some(marked) = self.by_tool.get(call.params.name.as_ref()) else {
            call.extensions.remove::<RequestHeaders>();
            return;
        };
        let arguments = call.params.arguments.as_ref();
        let headers = marked.iter().filter_map(|mark| {
            let value = argument(arguments?, &mark.path)?;
            Some((format!("{PREFIX}{}", mark.header), text(value)?))
        });
        let headers = RequestHeaders(headers.collect());
        call.extensions.insert(headers);
    }
}

/// Whether a call that meant a tool as it was may go to the one of its name that is listed now. Other
/// marks only say how the same arguments travel; where tools are pinned, a person approves those too.
/// What was not known when the call was sent cannot have changed.
pub(in crate::connection) fn is_meant(
    was: Option<&Tool>,
    now: Option<&Tool>,
    pinned: bool,
) -> bool {
    match (was, now) {
        (Some(was), Some(now)) if pinned => was == now,
        (Some(was), Some(now)) => was == now || unmarked(was) == unmarked(now),
        (None, Some(_)) => !pinned,
        (_, None) => false,
    }
}

/// The tool without its marks.
fn unmarked(tool: &Tool) -> Tool {
    let mut tool = tool.clone();
    unmark(Arc::make_mut(&mut tool.input_schema));
    tool
}

fn unmark(schema: &mut JsonObject) {
    schema.remove(MARK);
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for property in properties.into_iter().flatten() {
        if let Value::Object(schema) = property.1 {
            unmark(schema);
        }
    }
}

fn argument<'a>(arguments: &'a JsonObject, path: &[String]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter()
        .try_fold(arguments.get(first)?, |value, name| value.get(name))
}

/// The marks of a schema, or why they are invalid.
fn marks(schema: &JsonObject) -> Result<Vec<Marked>, String> {
    let mut found = Vec::new();
    if schema.contains_key(MARK) {
        return Err(format!("{MARK} is on the schema itself, not on a property"));
    }
    walk(schema, &mut Vec::new(), true, &mut found)?;
    let mut names: Vec<String> = found.iter().map(|it| it.header.to_lowercase()).collect();
    names.sort_unstable();
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(format!("two properties have the same {MARK}"));
    }
    Ok(found)
}

/// Looks through a schema. A mark counts only on a property that is reached by properties alone:
/// nobody can say where the others are in the arguments.
fn walk(
    schema: &JsonObject,
    path: &mut Vec<String>,
    reachable: bool,
    found: &mut Vec<Marked>,
) -> Result<(), String> {
    if let Some(header) = schema.get(MARK) {
        if !reachable {
            return Err(format!("{MARK} is not on a plain property"));
        }
        found.push(marked(schema, header, path)?);
    }
    for (key, value) in schema {
        match key.as_str() {
            "properties" => {
                for (name, property) in value.as_object().into_iter().flatten() {
                    path.push(name.clone());
                    walk_into(property, path, reachable, found)?;
                    path.pop();
                }
            }
            "$defs" | "definitions" | "dependentSchemas" | "patternProperties" => {
                for schema in value.as_object().into_iter().flatten() {
                    walk_into(schema.1, path, false, found)?;
                }
            }
            // Values, not schemas.
            "default" | "const" | "enum" | "examples" | MARK => {}
            _ => walk_into(value, path, false, found)?,
        }
    }
    Ok(())
}

fn walk_into(
    value: &Value,
    path: &mut Vec<String>,
    reachable: bool,
    found: &mut Vec<Marked>,
) -> Result<(), String> {
    match value {
        Value::Object(schema) => walk(schema, path, reachable, found),
        Value::Array(schemas) => schemas
            .iter()
            .try_for_each(|schema| walk_into(schema, path, false, found)),
        _ => Ok(()),
    }
}

fn marked(schema: &JsonObject, header: &Value, path: &[String]) -> Result<Marked, String> {
    let name = path.join(".");
    let header = header
        .as_str()
        .filter(|header| !header.is_empty() && header.bytes().all(is_token))
        .ok_or_else(|| format!("the {MARK} of {name} is no name of a header"))?;
    match schema.get("type").and_then(Value::as_str) {
        Some("string" | "integer" | "boolean") => Ok(Marked {
            path: path.to_vec(),
            header: header.to_owned(),
        }),
        _ => Err(format!(
            "{name} has an {MARK}, but is no string, integer or boolean"
        )),
    }
}

/// The characters of a header's name.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// A value as text. How a header carries it is the link's business.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::CallToolRequestParams;
    use serde_json::json;

    use super::*;

    fn tool(name: &str, schema: Value) -> Tool {
        let schema = schema.as_object().unwrap().clone();
        Tool::new(name.to_owned(), "", Arc::new(schema))
    }

    fn headers(schema: Value, arguments: Value) -> Vec<(String, String)> {
        let mut known = ParamHeaders::default();
        let dropped = known.learn(&mut vec![tool("t", schema)]);
        assert_eq!(dropped, []);
        let params =
            CallToolRequestParams::new("t").with_arguments(arguments.as_object().unwrap().clone());
        let mut call = CallToolRequest::new(params);
        known.mark(&mut call);
        call.extensions.get::<RequestHeaders>().unwrap().0.clone()
    }

    #[test]
    fn marked_arguments_are_headers_too() {
        let schema = json!({ "type": "object", "properties": {
            "region": { "type": "string", "x-mcp-header": "Region" },
            "limit": { "type": "integer", "x-mcp-header": "Limit" },
            "dry": { "type": "boolean", "x-mcp-header": "Dry" },
            "absent": { "type": "string", "x-mcp-header": "Absent" },
            "where": { "type": "object", "properties": {
                "zone": { "type": "string", "x-mcp-header": "Zone" },
            } },
            "plain": { "type": "string" },
            "nothing": { "type": "string", "x-mcp-header": "Nothing" },
        } });
        let arguments = json!({
            "region": "eu", "limit": 7, "dry": true, "plain": "x", "where": { "zone": "b" },
            "nothing": null,
        });
        let mut sent = headers(schema, arguments);
        sent.sort();
        let expected = [
            ("Dry", "true"),
            ("Limit", "7"),
            ("Region", "eu"),
            ("Zone", "b"),
        ];
        let expected =
            expected.map(|(name, value)| (format!("Mcp-Param-{name}"), value.to_owned()));
        assert_eq!(sent, expected);
    }

    #[test]
    fn a_tool_with_other_marks_alone_is_the_same_where_nobody_approves_it() {
        let marked = |mark: &str, kind: &str| {
            let zone = json!({ "type": kind, "x-mcp-header": mark });
            let place = json!({ "type": "object", "properties": { "zone": zone } });
            tool(
                "t",
                json!({ "type": "object", "properties": { "where": place } }),
            )
        };
        let was = marked("Zone", "string");
        let other = marked("Area", "string");
        let changed = marked("Zone", "integer");
        for (now, loose, pinned) in [
            (Some(&was), true, true),
            (Some(&other), true, false),
            (Some(&changed), false, false),
            (None, false, false),
        ] {
            assert_eq!(is_meant(Some(&was), now, false), loose);
            assert_eq!(is_meant(Some(&was), now, true), pinned);
        }
        assert!(is_meant(None, Some(&was), false), "nothing was known");
        assert!(!is_meant(None, Some(&was), true), "nothing was approved");
    }

    #[test]
    fn tools_with_invalid_marks_are_dropped_and_the_others_stay() {
        let property =
            |property: Value| json!({ "type": "object", "properties": { "a": property } });
        let invalid = [
            property(json!({ "type": "string", "x-mcp-header": "" })),
            property(json!({ "type": "string", "x-mcp-header": 7 })),
            property(json!({ "type": "string", "x-mcp-header": "two words" })),
            property(json!({ "type": "string", "x-mcp-header": "grün" })),
            property(json!({ "type": "array", "x-mcp-header": "A" })),
            property(json!({ "type": "object", "x-mcp-header": "A" })),
            property(json!({ "type": "number", "x-mcp-header": "A" })),
            property(
                json!({ "type": "array", "items": { "type": "string", "x-mcp-header": "A" } }),
            ),
            json!({ "type": "object", "x-mcp-header": "A" }),
            json!({ "type": "object", "properties": {
                "a": { "type": "string", "x-mcp-header": "Same" },
                "b": { "type": "string", "x-mcp-header": "same" },
            } }),
            json!({ "type": "object", "$defs": { "a": { "type": "string", "x-mcp-header": "A" } } }),
        ];
        for schema in invalid {
            let mut tools = vec![
                tool("good", json!({ "type": "object" })),
                tool("bad", schema.clone()),
            ];
            let dropped = ParamHeaders::default().learn(&mut tools);
            assert_eq!(dropped.len(), 1, "{schema}");
            assert_eq!(tools.len(), 1);
            assert_eq!(tools[0].name, "good");
        }
        let value = property(json!({ "type": "object", "default": { "x-mcp-header": 1 } }));
        assert_eq!(marks(value.as_object().unwrap()), Ok(Vec::new()));
    }
}

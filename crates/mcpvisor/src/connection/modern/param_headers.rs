//! Tool arguments that are also sent as HTTP headers, in the modern era.
//!
//! The schema of a tool names the header of an argument with `x-mcp-header`. A tool with an invalid
//! header name must not be used. The link sends the headers.

use std::collections::BTreeMap;
use std::sync::Arc;

use rmcp::model::{ClientRequest, GetExtensions, JsonObject, Tool};
use serde_json::Value;

use crate::link::{RequestHeaders, tool_arguments, tool_name};

/// The schema keyword that names the header.
const KEYWORD: &str = "x-mcp-header";

/// The prefix of every such header.
const PREFIX: &str = "Mcp-Param-";

/// The header parameters of each tool.
#[derive(Debug, Default)]
pub(super) struct ParamHeaders {
    by_tool: BTreeMap<String, Vec<HeaderParam>>,
}

/// One argument that is also a header.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HeaderParam {
    /// The path of the argument, from the outermost object.
    path: Vec<String>,
    header: String,
}

impl ParamHeaders {
    /// Learns the header parameters of the listed tools. Removes tools with invalid ones and
    /// returns their names and problems.
    pub(super) fn update(&mut self, tools: &mut Vec<Tool>) -> Vec<(String, String)> {
        let mut removed = Vec::new();
        tools.retain(|tool| match header_params(&tool.input_schema) {
            Ok(params) if params.is_empty() => {
                self.by_tool.remove(tool.name.as_ref());
                true
            }
            Ok(params) => {
                self.by_tool.insert(tool.name.to_string(), params);
                true
            }
            Err(problem) => {
                self.by_tool.remove(tool.name.as_ref());
                removed.push((tool.name.to_string(), problem));
                false
            }
        });
        removed
    }

    /// Sets the headers of a call from its arguments.
    pub(super) fn set_headers(&self, call: &mut ClientRequest) {
        let Some(params) = tool_name(call).and_then(|name| self.by_tool.get(name)) else {
            call.extensions_mut().remove::<RequestHeaders>();
            return;
        };
        let arguments = tool_arguments(call);
        let headers = params.iter().filter_map(|param| {
            let value = argument(arguments?, &param.path)?;
            Some((format!("{PREFIX}{}", param.header), header_text(value)?))
        });
        let headers = RequestHeaders(headers.collect());
        call.extensions_mut().insert(headers);
    }
}

/// Whether a call that was sent for one definition of a tool may be sent for the current one. Other
/// headers only change how the same arguments are sent, but pinned tools must be equal in every
/// part. A tool that was unknown when the call was sent cannot have changed.
pub(super) fn is_same_tool(before: Option<&Tool>, now: Option<&Tool>, pinned: bool) -> bool {
    match (before, now) {
        (Some(before), Some(now)) if pinned => before == now,
        (Some(before), Some(now)) => {
            before == now || without_headers(before) == without_headers(now)
        }
        (None, Some(_)) => !pinned,
        (_, None) => false,
    }
}

/// The tool without its header names.
fn without_headers(tool: &Tool) -> Tool {
    let mut tool = tool.clone();
    remove_headers(Arc::make_mut(&mut tool.input_schema));
    tool
}

fn remove_headers(schema: &mut JsonObject) {
    schema.remove(KEYWORD);
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for property in properties.into_iter().flatten() {
        if let Value::Object(schema) = property.1 {
            remove_headers(schema);
        }
    }
}

fn argument<'a>(arguments: &'a JsonObject, path: &[String]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter()
        .try_fold(arguments.get(first)?, |value, name| value.get(name))
}

/// The header parameters of a schema, or why they are invalid.
fn header_params(schema: &JsonObject) -> Result<Vec<HeaderParam>, String> {
    let mut found = Vec::new();
    if schema.contains_key(KEYWORD) {
        return Err(format!(
            "{KEYWORD} is on the schema itself, not on a property"
        ));
    }
    walk(schema, &mut Vec::new(), true, &mut found)?;
    let mut names: Vec<String> = found.iter().map(|it| it.header.to_lowercase()).collect();
    names.sort_unstable();
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(format!("two properties have the same {KEYWORD}"));
    }
    Ok(found)
}

/// Searches a schema. A header is valid only on a property that is reached through properties
/// alone: the path of any other argument is not known.
fn walk(
    schema: &JsonObject,
    path: &mut Vec<String>,
    reachable: bool,
    found: &mut Vec<HeaderParam>,
) -> Result<(), String> {
    if let Some(header) = schema.get(KEYWORD) {
        if !reachable {
            return Err(format!("{KEYWORD} is not on a plain property"));
        }
        found.push(header_param(schema, header, path)?);
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
            "default" | "const" | "enum" | "examples" | KEYWORD => {}
            _ => walk_into(value, path, false, found)?,
        }
    }
    Ok(())
}

fn walk_into(
    value: &Value,
    path: &mut Vec<String>,
    reachable: bool,
    found: &mut Vec<HeaderParam>,
) -> Result<(), String> {
    match value {
        Value::Object(schema) => walk(schema, path, reachable, found),
        Value::Array(schemas) => schemas
            .iter()
            .try_for_each(|schema| walk_into(schema, path, false, found)),
        _ => Ok(()),
    }
}

fn header_param(
    schema: &JsonObject,
    header: &Value,
    path: &[String],
) -> Result<HeaderParam, String> {
    let name = path.join(".");
    let header = header
        .as_str()
        .filter(|header| !header.is_empty() && header.bytes().all(is_token))
        .ok_or_else(|| format!("the {KEYWORD} of {name} is not a header name"))?;
    match schema.get("type").and_then(Value::as_str) {
        Some("string" | "integer" | "boolean") => Ok(HeaderParam {
            path: path.to_vec(),
            header: header.to_owned(),
        }),
        _ => Err(format!(
            "{name} has an {KEYWORD}, but is not a string, integer or boolean"
        )),
    }
}

/// Whether a header name may contain this byte.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// A value as text. The link encodes it for the header.
fn header_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{CallToolRequest, CallToolRequestParams};
    use serde_json::json;

    use super::*;

    fn tool(name: &str, schema: Value) -> Tool {
        let schema = schema.as_object().unwrap().clone();
        Tool::new(name.to_owned(), "", Arc::new(schema))
    }

    fn headers(schema: Value, arguments: Value) -> Vec<(String, String)> {
        let mut known = ParamHeaders::default();
        let removed = known.update(&mut vec![tool("t", schema)]);
        assert_eq!(removed, []);
        let params =
            CallToolRequestParams::new("t").with_arguments(arguments.as_object().unwrap().clone());
        let mut call = CallToolRequest::new(params).into();
        known.set_headers(&mut call);
        call.extensions().get::<RequestHeaders>().unwrap().0.clone()
    }

    #[test]
    fn header_parameters_are_sent_as_headers() {
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
    fn a_tool_with_other_headers_is_the_same_unless_it_is_pinned() {
        let with_header = |header: &str, kind: &str| {
            let zone = json!({ "type": kind, "x-mcp-header": header });
            let place = json!({ "type": "object", "properties": { "zone": zone } });
            tool(
                "t",
                json!({ "type": "object", "properties": { "where": place } }),
            )
        };
        let before = with_header("Zone", "string");
        let other = with_header("Area", "string");
        let changed = with_header("Zone", "integer");
        for (now, loose, pinned) in [
            (Some(&before), true, true),
            (Some(&other), true, false),
            (Some(&changed), false, false),
            (None, false, false),
        ] {
            assert_eq!(is_same_tool(Some(&before), now, false), loose);
            assert_eq!(is_same_tool(Some(&before), now, true), pinned);
        }
        assert!(
            is_same_tool(None, Some(&before), false),
            "nothing was known"
        );
        assert!(
            !is_same_tool(None, Some(&before), true),
            "nothing was approved"
        );
    }

    #[test]
    fn tools_with_invalid_headers_are_removed_and_the_others_stay() {
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
            let removed = ParamHeaders::default().update(&mut tools);
            assert_eq!(removed.len(), 1, "{schema}");
            assert_eq!(tools.len(), 1);
            assert_eq!(tools[0].name, "good");
        }
        let value = property(json!({ "type": "object", "default": { "x-mcp-header": 1 } }));
        assert_eq!(header_params(value.as_object().unwrap()), Ok(Vec::new()));
    }
}

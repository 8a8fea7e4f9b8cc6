//! A tool for a model in as much detail as it needs, and an estimate of what that costs.

use std::str::FromStr;

use mcpvisor_core::words::is_unspaced;
use serde_json::{Value, json};

use super::signature::signature_as;
use super::{described, start};
use crate::catalog::FleetTool;

/// Bytes of the longest description beside a signature.
const MAX_SUMMARY: usize = 200;

/// How much a model gets to know about a tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Detail {
    /// The exposed name.
    Name,
    /// The name with parameters and types, and the start of the description.
    #[default]
    Signature,
    /// The whole description and the schemas.
    Schema,
}

impl Detail {
    /// The name of a level: `name`, `signature` or `schema`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Signature => "signature",
            Self::Schema => "schema",
        }
    }
}

/// There is no level of detail of this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no level of detail {0:?}; use \"name\", \"signature\" or \"schema\"")]
pub struct UnknownDetail(String);

impl FromStr for Detail {
    type Err = UnknownDetail;

    fn from_str(name: &str) -> Result<Self, UnknownDetail> {
        let levels = [Self::Name, Self::Signature, Self::Schema];
        let level = levels.into_iter().find(|level| level.as_str() == name);
        level.ok_or_else(|| UnknownDetail(name.to_owned()))
    }
}

/// A tool as JSON, under its [exposed](FleetTool::exposed) name: `{"name"}`; `{"name", "signature",
/// "description"}`; or `{"name", "description", "input_schema", "output_schema"}`. What the tool
/// does not have is left out.
pub fn tool_json(tool: &FleetTool, detail: Detail) -> Value {
    match detail {
        Detail::Name => json!({ "name": tool.exposed() }),
        Detail::Signature => {
            let mut json = json!({ "name": tool.exposed(), "signature": exposed_signature(tool) });
            if let Some(summary) = summary(tool) {
                json["description"] = summary.into();
            }
            json
        }
        Detail::Schema => {
            let mut json = Value::Object(described(tool, "input_schema"));
            if let Some(schema) = &tool.definition().output_schema {
                json["output_schema"] = Value::Object(schema.as_ref().clone());
            }
            json
        }
    }
}

/// A tool as text: its exposed name; its signature with the start of its description, on one line;
/// or its [JSON](tool_json).
///
/// ```no_run
/// # fn example(catalog: &mcpvisor::FleetCatalog) {
/// use mcpvisor::for_model::{self, Detail};
///
/// for found in catalog.search("read file", 10) {
///     // files__read_text_file(path: string, head?: integer): Reads a file as text.
///     println!("{}", for_model::tool_text(&found.tool, Detail::Signature));
/// }
/// # }
/// ```
pub fn tool_text(tool: &FleetTool, detail: Detail) -> String {
    match detail {
        Detail::Name => tool.exposed().to_owned(),
        Detail::Signature => match summary(tool) {
            Some(summary) => format!("{}: {summary}", exposed_signature(tool)),
            None => exposed_signature(tool),
        },
        Detail::Schema => tool_json(tool, detail).to_string(),
    }
}

fn exposed_signature(tool: &FleetTool) -> String {
    signature_as(tool.exposed(), &tool.definition().input_schema)
}

/// The first line of the description, or the title.
fn summary(tool: &FleetTool) -> Option<String> {
    let definition = tool.definition();
    let description = definition.description.as_deref();
    let lines = description.into_iter().flat_map(str::lines);
    let mut lines = lines.chain(definition.title.as_deref()).map(str::trim);
    let line = lines.find(|line| !line.is_empty())?;
    Some(shorten(line, MAX_SUMMARY))
}

/// The start of a text, at most `limit` bytes; it ends in `…` if it was cut.
pub(crate) fn shorten(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    start(text, limit - "…".len()).trim_end().to_owned() + "…"
}

/// Roughly how many tokens the definition of a tool takes in a request to a model.
///
/// It counts the JSON of name, description and schema: four ASCII characters per token, two of other
/// alphabets, and three tokens for four characters of scripts without spaces, such as Chinese. For
/// the 117 tools of GitHub's server that is 12 % above OpenAI's `o200k_base` in total, and 2 % to
/// 29 % for most of them. Other models count differently, so use it to compare and to budget, not to bill.
///
/// ```no_run
/// # use mcpvisor::{Client, FleetCatalog, for_model};
/// # use std::sync::Arc;
/// /// The whole catalog if it is small, else the tools that search it.
/// fn offered(agent: &Client) -> Arc<FleetCatalog> {
///     let catalog = agent.catalog();
///     let tokens: usize = catalog.tools().map(for_model::estimated_tokens).sum();
///     if tokens < 10_000 { catalog } else { agent.meta_tools() }
/// }
/// ```
pub fn estimated_tokens(tool: &FleetTool) -> usize {
    let text = Value::Object(described(tool, "input_schema")).to_string();
    let quarters: usize = text.chars().map(quarter_tokens).sum();
    quarters.div_ceil(4)
}

/// What a character counts, in quarters of a token.
fn quarter_tokens(c: char) -> usize {
    match c {
        _ if c.is_ascii() => 1,
        _ if is_unspaced(c) => 3,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use mcpvisor_core::ServerName;
    use rmcp::model::Tool;

    use super::*;
    use crate::catalog::FleetCatalog;

    fn tool(tool: Value) -> FleetTool {
        let tool: Tool = serde_json::from_value(tool).unwrap();
        let catalog = FleetCatalog::of(&ServerName::new("files").unwrap(), vec![tool]);
        catalog.tools().next().unwrap().clone()
    }

    fn read() -> FleetTool {
        tool(json!({
            "name": "read",
            "description": "\n  Reads a file.\nUse it often.",
            "inputSchema": { "properties": { "path": { "type": "string" } }, "required": ["path"] },
            "outputSchema": { "type": "object" },
        }))
    }

    #[test]
    fn each_level_adds_to_the_one_before() {
        let read = read();
        assert_eq!(
            tool_json(&read, Detail::Name),
            json!({ "name": "files__read" })
        );
        assert_eq!(tool_text(&read, Detail::Name), "files__read");
        assert_eq!(
            tool_json(&read, Detail::Signature),
            json!({
                "name": "files__read",
                "signature": "files__read(path: string)",
                "description": "Reads a file.",
            })
        );
        assert_eq!(
            tool_text(&read, Detail::Signature),
            "files__read(path: string): Reads a file."
        );
        let whole = json!({
            "name": "files__read",
            "description": "\n  Reads a file.\nUse it often.",
            "input_schema": {
                "type": "object",
                "properties": { "path": { "type": "string" } },
                "required": ["path"],
            },
            "output_schema": { "type": "object" },
        });
        assert_eq!(tool_json(&read, Detail::Schema), whole);
        assert_eq!(tool_text(&read, Detail::Schema), whole.to_string());
    }

    #[test]
    fn a_title_stands_in_for_a_description_and_a_long_one_is_cut() {
        let titled = tool(json!({ "name": "a", "title": "Title", "inputSchema": {} }));
        assert_eq!(tool_text(&titled, Detail::Signature), "files__a(): Title");
        let bare = tool(json!({ "name": "a", "description": " ", "inputSchema": {} }));
        assert_eq!(tool_text(&bare, Detail::Signature), "files__a()");
        let long = json!({ "name": "a", "description": "é".repeat(1_000), "inputSchema": {} });
        let text = tool_text(&tool(long), Detail::Signature);
        assert!(text.ends_with("é…") && text.len() <= 220, "{text}");
    }

    #[test]
    fn levels_are_named() {
        for level in [Detail::Name, Detail::Signature, Detail::Schema] {
            assert_eq!(level.as_str().parse(), Ok(level));
        }
        assert!("all".parse::<Detail>().is_err());
    }

    /// The count of OpenAI's `o200k_base` for the same JSON is 83 and 32.
    #[test]
    fn tokens_are_estimated_from_the_length_of_the_definition() {
        let ascii = tool(json!({
            "name": "create_issue",
            "description": "Create a new issue in a GitHub repository with a title and optional body.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "body": { "description": "Issue body content (optional)", "type": "string" },
                    "owner": { "description": "Repository owner", "type": "string" },
                    "title": { "description": "Issue title", "type": "string" },
                },
                "required": ["owner", "title"],
            },
        }));
        assert_eq!(estimated_tokens(&ascii), 96);
        let chinese = json!({ "name": "read", "description": "读取文件内容并返回文本。支持指定编码", "inputSchema": {} });
        assert_eq!(estimated_tokens(&tool(chinese)), 36);
    }
}

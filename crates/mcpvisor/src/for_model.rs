//! Formats tools as JSON, and results and errors as text, for a language model.
//!
//! The model gets the tools of a catalog in the format of its API and calls one by its exposed
//! name. It reads the outcome, success or error, as text:
//!
//! ```no_run
//! use mcpvisor::Runtime;
//! use mcpvisor::for_model::{self, ModelText};
//! use serde_json::Value;
//!
//! /// The `tools` of a request to a model.
//! fn tools(runtime: &Runtime) -> Vec<Value> {
//!     for_model::openai_tools(&runtime.catalog()) // or: anthropic_tools
//! }
//!
//! /// The content of the message that answers a tool call of the model's.
//! async fn answer(runtime: &Runtime, tool: &str, arguments: Value) -> String {
//!     match runtime.call(tool, arguments) {
//!         Ok(request) => request.await.model_text(),
//!         Err(unknown) => unknown.model_text(),
//!     }
//! }
//! ```
//!
//! A catalog that is too large for a request is offered by search instead: [`Client::meta_tools`].
//! [`estimated_tokens`] tells when.
//!
//! Descriptions and results are unmodified server text: treat them as untrusted input. Errors state
//! in one or two sentences what is known and whether a retry makes sense. They contain no stderr of
//! a child process ([`CallError::stderr`](crate::CallError::stderr)) and no secret of a config. A
//! secret that the server repeats in its own answer is not removed.
//!
//! [`Client::meta_tools`]: crate::Client::meta_tools

mod detail;
mod error;
#[cfg(test)]
mod fuzz;
mod result;
mod signature;

use rmcp::model::JsonObject;
use serde_json::{Value, json};

pub(crate) use self::detail::shorten;
pub use self::detail::{Detail, UnknownDetail, estimated_tokens, tool_json, tool_text};
pub use self::signature::signature;

use crate::api::error::UnknownTool;
use crate::catalog::{FleetCatalog, FleetTool};

/// The default length limit for model text, in bytes.
pub const TEXT_LIMIT: usize = 32 * 1024;

/// The smallest limit of [`ModelText::model_text_within`]. It leaves room for the truncation note.
pub const LEAST_TEXT_LIMIT: usize = 256;

/// Text for a model.
///
/// Implemented for tool results, for call errors, and for a `Result` of both.
pub trait ModelText {
    /// The text, at most `limit` bytes; a lower limit than [`LEAST_TEXT_LIMIT`] is raised to it.
    /// Longer text is truncated and ends with a note about it.
    fn model_text_within(&self, limit: usize) -> String;

    /// The text, at most [`TEXT_LIMIT`] bytes.
    fn model_text(&self) -> String {
        self.model_text_within(TEXT_LIMIT)
    }
}

impl<T: ModelText, E: ModelText> ModelText for Result<T, E> {
    fn model_text_within(&self, limit: usize) -> String {
        match self {
            Ok(result) => result.model_text_within(limit),
            Err(error) => error.model_text_within(limit),
        }
    }
}

/// The model called a tool that does not exist.
impl ModelText for UnknownTool {
    fn model_text_within(&self, limit: usize) -> String {
        let mut text = Bounded::new(limit);
        text.push("There is no tool named ");
        text.push(&format!("{:?}", self.name));
        text.push(". Use one of the tools that you were given, by its exact name.");
        text.finish()
    }
}

/// A tool in the format of OpenAI's function calling: `{"type": "function", "function": {"name",
/// "description", "parameters"}}`. The name is the [exposed](FleetTool::exposed) one, and the
/// parameters are always an object schema.
pub fn openai_tool(tool: &FleetTool) -> Value {
    let function = described(tool, "parameters");
    json!({ "type": "function", "function": function })
}

/// All tools of a catalog, each as an [`openai_tool`], ordered by their exposed names. The order is
/// stable, so that the prompt cache of a model survives a reconnect: [`FleetCatalog::revision`].
pub fn openai_tools(catalog: &FleetCatalog) -> Vec<Value> {
    ordered(catalog).map(openai_tool).collect()
}

/// A tool in the format of Anthropic's Messages API: `{"name", "description", "input_schema"}`. The
/// name is the [exposed](FleetTool::exposed) one, and the schema is always an object schema.
pub fn anthropic_tool(tool: &FleetTool) -> Value {
    Value::Object(described(tool, "input_schema"))
}

/// All tools of a catalog, each as an [`anthropic_tool`], in the order of [`openai_tools`].
pub fn anthropic_tools(catalog: &FleetCatalog) -> Vec<Value> {
    ordered(catalog).map(anthropic_tool).collect()
}

fn ordered(catalog: &FleetCatalog) -> impl Iterator<Item = &FleetTool> {
    let mut tools: Vec<&FleetTool> = catalog.tools().collect();
    tools.sort_unstable_by_key(|tool| tool.exposed());
    tools.into_iter()
}

fn described(tool: &FleetTool, schema: &str) -> JsonObject {
    let definition = tool.definition();
    let title = || definition.title.as_deref();
    let description = definition.description.as_deref().or_else(title);
    let mut described = JsonObject::new();
    described.insert("name".to_owned(), tool.exposed().into());
    if let Some(description) = description.filter(|text| !text.is_empty()) {
        described.insert("description".to_owned(), description.into());
    }
    let object = object_schema(&definition.input_schema);
    described.insert(schema.to_owned(), Value::Object(object));
    described
}

/// The schema of a tool's arguments, forced to be an object schema: model APIs reject a schema
/// without `type: object` or without `properties`.
fn object_schema(schema: &JsonObject) -> JsonObject {
    let mut schema = schema.clone();
    if schema.get("type").and_then(Value::as_str) != Some("object") {
        schema.insert("type".to_owned(), "object".into());
    }
    if !schema.get("properties").is_some_and(Value::is_object) {
        schema.insert("properties".to_owned(), json!({}));
    }
    schema
}

/// A text with a length limit that counts the bytes it dropped.
struct Bounded {
    text: String,
    limit: usize,
    /// The total length, including dropped bytes.
    length: usize,
}

impl Bounded {
    fn new(limit: usize) -> Self {
        Self {
            text: String::new(),
            limit: limit.max(LEAST_TEXT_LIMIT),
            length: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.length == 0
    }

    fn push(&mut self, part: &str) {
        self.length += part.len();
        let room = self.limit.saturating_sub(self.text.len());
        self.text.push_str(start(part, room));
    }

    /// Starts a new line, unless the text is empty.
    fn line(&mut self) {
        if !self.is_empty() {
            self.push("\n");
        }
    }

    fn finish(mut self) -> String {
        if self.length <= self.limit {
            return self.text;
        }
        let note = |shown: usize| format!("\n[cut: {shown} of {} bytes are shown]", self.length);
        // Reserve room for the note at its longest.
        let shown = start(&self.text, self.limit - note(self.limit).len()).len();
        let note = note(shown);
        self.text.truncate(shown);
        self.text.push_str(&note);
        self.text
    }
}

/// The start of a text, at most `limit` bytes.
fn start(text: &str, limit: usize) -> &str {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mcpvisor_core::ServerName;
    use rmcp::model::Tool;

    use super::*;
    use crate::catalog::{CatalogMerger, ServerCatalog};

    fn catalog(tools: Vec<Tool>) -> Arc<FleetCatalog> {
        let merger = Arc::new(CatalogMerger::default());
        let listed = ServerCatalog {
            tools: tools.into(),
            ..ServerCatalog::default()
        };
        merger.update(&ServerName::new("git hub").unwrap(), Arc::new(listed));
        merger.catalog()
    }

    fn schema(value: Value) -> JsonObject {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_tool_has_both_shapes_under_its_exposed_name() {
        let parameters = json!({
            "type": "object",
            "properties": { "q": { "type": "string" } },
            "required": ["q"],
        });
        let tools = vec![Tool::new(
            "search",
            "Finds code.",
            schema(parameters.clone()),
        )];
        let catalog = catalog(tools);
        let exposed = catalog.tools().next().unwrap().exposed().to_owned();
        assert_eq!(
            openai_tools(&catalog),
            [json!({
                "type": "function",
                "function": {
                    "name": exposed, "description": "Finds code.", "parameters": parameters,
                },
            })]
        );
        assert_eq!(
            anthropic_tools(&catalog),
            [json!({ "name": exposed, "description": "Finds code.", "input_schema": parameters })]
        );
    }

    #[test]
    fn tools_for_a_model_are_ordered_by_name_whatever_the_order_of_the_server() {
        let names = |tools: [&'static str; 3]| -> Vec<String> {
            let tools = tools.map(|name| Tool::new(name, "", JsonObject::new()));
            let tools = anthropic_tools(&catalog(tools.into()));
            tools.iter().map(|tool| tool["name"].to_string()).collect()
        };
        assert_eq!(names(["b", "c", "a"]), names(["a", "b", "c"]));
        assert!(names(["b", "c", "a"]).is_sorted());
    }

    #[test]
    fn the_schema_is_that_of_an_object_whatever_the_server_says() {
        for said in [
            json!({}),
            json!({ "type": "string" }),
            json!({ "type": ["object", "null"], "properties": [] }),
            json!({ "type": "object", "properties": null }),
        ] {
            let tool = Tool::new("bare", "", schema(said));
            let catalog = catalog(vec![tool]);
            let bare = anthropic_tool(catalog.tools().next().unwrap());
            let object = json!({ "type": "object", "properties": {} });
            assert_eq!(bare["input_schema"], object);
            assert!(bare.get("description").is_none());
        }
    }

    #[test]
    fn a_title_stands_in_for_a_description() {
        let mut tool = Tool::new("bare", "", JsonObject::new());
        tool.description = None;
        tool.title = Some("Bare".to_owned());
        let catalog = catalog(vec![tool]);
        let bare = openai_tool(catalog.tools().next().unwrap());
        assert_eq!(bare["function"]["description"], "Bare");
    }

    #[test]
    fn a_long_text_is_cut_between_characters_and_says_how_much_is_shown() {
        for limit in [LEAST_TEXT_LIMIT, 1_000, 1_001, 1_002] {
            let mut text = Bounded::new(limit);
            for _ in 0..2_000 {
                text.push("é€");
            }
            let text = text.finish();
            assert!(text.len() <= limit && text.len() > limit - 8, "{limit}");
            assert!(text.ends_with(" of 10000 bytes are shown]"), "{text}");
        }
        let mut fits = Bounded::new(LEAST_TEXT_LIMIT);
        fits.push(&"x".repeat(LEAST_TEXT_LIMIT));
        assert_eq!(fits.finish(), "x".repeat(LEAST_TEXT_LIMIT));
    }

    #[test]
    fn a_name_that_a_model_made_up_is_answered_with_what_to_do() {
        let unknown = UnknownTool {
            name: "made\nup".to_owned(),
        };
        assert_eq!(
            unknown.model_text(),
            "There is no tool named \"made\\nup\". Use one of the tools that you were given, by its exact name."
        );
    }
}

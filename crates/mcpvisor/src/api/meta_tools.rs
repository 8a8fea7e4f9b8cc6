//! The runtime's own tools, with which a model searches and calls the tools of a large fleet.
//!
//! They belong to no server: a client answers them itself, under the reserved server name. All of
//! them see the fleet as their client does, and a call through them is a call of the client.

mod answers;
#[cfg(test)]
mod fuzz;

use std::sync::Arc;

use mcpvisor_core::names::SEPARATOR;
use mcpvisor_core::{RESERVED_SERVER_NAME, ServerName};
use rmcp::model::{CallToolResult, JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

use crate::api::client::Client;
use crate::api::request::Request;
use crate::catalog::FleetCatalog;
use crate::for_model::Detail;

/// Tools that one search returns, unless the model asks for another number.
const DEFAULT_LIMIT: usize = 10;

/// Tools that one search returns at most.
const MAX_LIMIT: usize = 50;

/// Tools that are described at once.
const MAX_NAMES: usize = 20;

/// One of the runtime's own tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetaTool {
    /// Finds tools by what they do.
    SearchTools,
    /// Returns the definitions of tools.
    DescribeTools,
    /// Calls a tool.
    CallTool,
    /// Lists the servers.
    ListServers,
}

/// The definitions of all meta-tools. They never change, so that a model's prompt cache survives
/// every change of the fleet.
pub(crate) fn catalog() -> Arc<FleetCatalog> {
    let tools = MetaTool::ALL.map(MetaTool::definition);
    Arc::new(FleetCatalog::of(&ServerName::reserved(), tools.into()))
}

impl MetaTool {
    const ALL: [Self; 4] = [
        Self::SearchTools,
        Self::DescribeTools,
        Self::CallTool,
        Self::ListServers,
    ];

    /// The meta-tool of this exposed name.
    pub(crate) fn of(exposed: &str) -> Option<Self> {
        let name = exposed.strip_prefix(RESERVED_SERVER_NAME)?;
        let name = name.strip_prefix(SEPARATOR)?;
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::SearchTools => "search_tools",
            Self::DescribeTools => "describe_tools",
            Self::CallTool => "call_tool",
            Self::ListServers => "list_servers",
        }
    }

    fn definition(self) -> Tool {
        let tool = Tool::new(self.name(), self.description(), self.schema());
        match self {
            Self::CallTool => tool,
            Self::SearchTools | Self::DescribeTools | Self::ListServers => {
                tool.with_annotations(ToolAnnotations::new().read_only(true))
            }
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::SearchTools => {
                "Finds tools by what they do. Many more tools are available than you were given: \
                 search before you say that something cannot be done. Returns the best matches \
                 with their exact names and parameters. Call them with call_tool."
            }
            Self::DescribeTools => {
                "Returns the full descriptions of tools and the JSON Schemas of their arguments. \
                 Use it before a call if the signature from search_tools is not enough."
            }
            Self::CallTool => "Calls a tool that search_tools found, and returns its result.",
            Self::ListServers => {
                "Lists the servers that provide tools: their state, how many tools each has, and \
                 what it is for. A sleeping server starts when one of its tools is called."
            }
        }
    }

    fn schema(self) -> JsonObject {
        let (properties, required) = match self {
            Self::SearchTools => (
                json!({
                    "query": {
                        "type": "string",
                        "description": "A few words for the task, such as \"create issue\", or the name of a tool or server",
                    },
                    "limit": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": MAX_LIMIT,
                        "default": DEFAULT_LIMIT,
                        "description": "How many tools to return",
                    },
                    "detail": {
                        "type": "string",
                        "enum": [Detail::Name.as_str(), Detail::Signature.as_str(), Detail::Schema.as_str()],
                        "default": Detail::default().as_str(),
                        "description": "How much to return of each tool: its name; its parameters and a short description; or everything",
                    },
                }),
                vec!["query"],
            ),
            Self::DescribeTools => (
                json!({
                    "names": {
                        "type": "array",
                        "items": { "type": "string" },
                        "minItems": 1,
                        "maxItems": MAX_NAMES,
                        "description": "The exact names of tools, as search_tools returns them",
                    },
                }),
                vec!["names"],
            ),
            Self::CallTool => (
                json!({
                    "name": {
                        "type": "string",
                        "description": "The exact name of the tool, as search_tools returns it",
                    },
                    "arguments": {
                        "type": "object",
                        "description": "The arguments of the tool",
                    },
                }),
                vec!["name"],
            ),
            Self::ListServers => (json!({}), Vec::new()),
        };
        let mut schema = JsonObject::new();
        schema.insert("type".to_owned(), "object".into());
        schema.insert("properties".to_owned(), properties);
        schema.insert("required".to_owned(), required.into());
        schema
    }

    /// Calls the meta-tool for a client.
    pub(crate) fn call(self, client: &Client, arguments: Value) -> Request<CallToolResult> {
        match self {
            Self::SearchTools => answer(client, move |it| search_tools(it, &arguments)),
            Self::DescribeTools => answer(client, move |it| describe_tools(it, &arguments)),
            Self::CallTool => call_tool(client, arguments),
            Self::ListServers => answer(client, |it| Ok(answers::servers(it))),
        }
    }
}

/// An answer without a server. Computed on a blocking thread, because the first search of a large
/// fleet takes a while. An error is a result that the model reads.
fn answer(
    client: &Client,
    answer: impl FnOnce(&Client) -> Result<CallToolResult, String> + Send + 'static,
) -> Request<CallToolResult> {
    let client = client.clone();
    Request::local(async move {
        let answered = tokio::task::spawn_blocking(move || answer(&client)).await;
        let answered = answered.unwrap_or_else(|_| Err("The request failed.".to_owned()));
        Ok(answered.unwrap_or_else(|problem| answers::error(&problem)))
    })
}

/// The same request as a direct call of the tool, unless there is surely no such tool.
fn call_tool(client: &Client, mut arguments: Value) -> Request<CallToolResult> {
    let Some(name) = arguments["name"].as_str().map(str::to_owned) else {
        let problem = "\"name\" is missing. Write {\"name\": \"…\", \"arguments\": {…}} with a \
                       name that search_tools returned.";
        return answer(client, |_| Err(problem.to_owned()));
    };
    if let Some(tool) = MetaTool::of(&name) {
        let problem = format!("Call {} directly, not with call_tool.", tool.name());
        return answer(client, |_| Err(problem));
    }
    let arguments = arguments["arguments"].take();
    client.call_listed(&name, arguments).unwrap_or_else(|| {
        answer(client, move |client| {
            Err(answers::unknown_tool(&client.catalog(), &name))
        })
    })
}

fn search_tools(client: &Client, arguments: &Value) -> Result<CallToolResult, String> {
    let query = arguments["query"].as_str().map(str::trim);
    let query = query
        .filter(|query| !query.is_empty())
        .ok_or("\"query\" is missing. Write {\"query\": \"…\"} with a few words for the task.")?;
    let limit = match &arguments["limit"] {
        Value::Null => DEFAULT_LIMIT,
        limit => limit
            .as_u64()
            .ok_or("\"limit\" must be a whole number from 1 to 50.")? as usize,
    };
    let detail = match &arguments["detail"] {
        Value::Null => Ok(Detail::default()),
        detail => detail.as_str().unwrap_or_default().parse(),
    };
    let detail = detail.map_err(|_| "\"detail\" must be \"name\", \"signature\" or \"schema\".")?;
    let limit = limit.clamp(1, MAX_LIMIT);
    Ok(answers::found(&client.catalog(), query, limit, detail))
}

fn describe_tools(client: &Client, arguments: &Value) -> Result<CallToolResult, String> {
    let names = arguments["names"].as_array().into_iter().flatten();
    let names: Option<Vec<&str>> = names.map(Value::as_str).collect();
    let names = names.unwrap_or_default();
    if !(1..=MAX_NAMES).contains(&names.len()) {
        return Err(format!(
            "Write {{\"names\": [\"…\"]}} with 1 to {MAX_NAMES} names that search_tools returned."
        ));
    }
    answers::described(&client.catalog(), &names)
}

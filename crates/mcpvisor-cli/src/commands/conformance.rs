//! The client of the protocol's conformance suite.
//!
//! It connects to the suite's server with the public API, calls everything that the server offers, and
//! exits. The suite passes further instructions in the environment.

mod authorization;

use std::collections::BTreeMap;
use std::time::Duration;

use mcpvisor::rmcp::model::{ElicitResult, ElicitationAction, JsonObject, ProtocolVersion, Tool};
use mcpvisor::{Callbacks, Runtime, ServerConfig, ServerHandle, Transport};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::failure::Failure;

/// The scenario.
const SCENARIO: &str = "MCP_CONFORMANCE_SCENARIO";
/// The protocol version of the scenario.
const VERSION: &str = "MCP_CONFORMANCE_PROTOCOL_VERSION";
/// Further instructions, as JSON.
const CONTEXT: &str = "MCP_CONFORMANCE_CONTEXT";

/// The name of the suite's server.
const SERVER: &str = "suite";

/// Limit for connecting and for each request; the suite allows 30 s per scenario.
const TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Context {
    tool_calls: Vec<ToolCall>,
}

#[derive(Debug, Deserialize)]
struct ToolCall {
    name: String,
    #[serde(default)]
    arguments: JsonObject,
}

pub(crate) async fn run(url: &str) -> Result<Exit, Failure> {
    let runtime = Runtime::builder()
        .server(server(url)?)
        .callbacks(callbacks())
        .start()
        .await
        .map_err(Failure::unexpected)?;
    let used = authorization::retried(&runtime, || use_all(&runtime)).await;
    runtime.shutdown(Duration::from_secs(5)).await;
    used.map(|()| Exit::Ok)
}

fn server(url: &str) -> Result<ServerConfig, Failure> {
    let transport = Transport::http(url).auth(authorization::config(context()?));
    let mut server = ServerConfig::new(SERVER, transport).map_err(Failure::unexpected)?;
    if let Ok(version) = std::env::var(VERSION) {
        let version: ProtocolVersion = serde_json::from_value(json!(version))
            .map_err(|error| Failure::usage(format!("{VERSION}: {error}")))?;
        server.protocol = Some(version);
    }
    Ok(server)
}

/// The instructions of the suite.
fn context<T: DeserializeOwned>() -> Result<T, Failure> {
    let context = std::env::var(CONTEXT).unwrap_or_else(|_| "{}".to_owned());
    serde_json::from_str(&context).map_err(|error| Failure::usage(format!("{CONTEXT}: {error}")))
}

/// Callbacks that accept everything.
fn callbacks() -> Callbacks {
    Callbacks::new()
        .elicitation_form(|ask| async move {
            let mut content = ask.params.with_defaults(JsonObject::new());
            let schema = serde_json::to_value(&ask.params.schema).unwrap_or_default();
            for (name, value) in required(&schema) {
                content.entry(name).or_insert(value);
            }
            Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content.into()))
        })
        .elicitation_url(|_| async { Ok(ElicitResult::new(ElicitationAction::Accept)) })
        .roots(|_| async { Ok(Vec::new()) })
}

/// Calls the tools that the suite names, or all.
async fn use_all(runtime: &Runtime) -> Result<(), Failure> {
    authorization::ready(runtime).await?;
    let server = runtime.server(SERVER).map_err(Failure::unexpected)?;
    let context: Context = context()?;
    match std::env::var(SCENARIO).as_deref() {
        Ok("json-schema-2020-12-preservation") => return return_schema(&server).await,
        // Its tools can only be listed.
        Ok("json-schema-ref-no-deref") => return Ok(()),
        _ => {}
    }
    let calls: Vec<(String, JsonObject)> = if context.tool_calls.is_empty() {
        let tools = server.catalog();
        let tools = tools.tools.iter();
        tools
            .map(|tool| (tool.name.to_string(), arguments(tool)))
            .collect()
    } else {
        let calls = context.tool_calls.into_iter();
        calls.map(|call| (call.name, call.arguments)).collect()
    };
    // All at once: each call must get its own answer.
    let calls: Vec<_> = calls
        .into_iter()
        .map(|(name, arguments)| {
            let call = server.call_tool(name, arguments).deadline(TIMEOUT);
            tokio::spawn(call.into_future())
        })
        .collect();
    for call in calls {
        call.await.map_err(Failure::unexpected)??;
    }
    read_all(&server).await
}

async fn read_all(server: &ServerHandle) -> Result<(), Failure> {
    let catalog = server.catalog();
    for resource in catalog.resources.iter() {
        let read = server.read_resource(resource.uri.clone());
        read.deadline(TIMEOUT).await?;
    }
    for prompt in catalog.prompts.iter() {
        let wanted = prompt.arguments.iter().flatten();
        let arguments: BTreeMap<_, _> = wanted.map(|it| (it.name.clone(), "text")).collect();
        let get = server.get_prompt(prompt.name.clone(), json!(arguments));
        get.deadline(TIMEOUT).await?;
    }
    Ok(())
}

/// Sends a tool's schema back as received.
async fn return_schema(server: &ServerHandle) -> Result<(), Failure> {
    let catalog = server.catalog();
    let echo = |tool: &&Tool| {
        tool.input_schema
            .get("properties")
            .is_some_and(|it| it["schema"].is_object())
    };
    let echo = catalog.tools.iter().find(echo);
    let rich = catalog
        .tools
        .iter()
        .find(|tool| tool.input_schema.contains_key("$schema"));
    let (Some(echo), Some(rich)) = (echo, rich) else {
        return Err(Failure::unexpected("the suite's tools are missing"));
    };
    let arguments = json!({ "schema": Value::Object((*rich.input_schema).clone()) });
    server.call_tool(echo.name.to_string(), arguments).await?;
    Ok(())
}

/// A value of the right type for every argument.
fn arguments(tool: &Tool) -> JsonObject {
    required(&Value::Object((*tool.input_schema).clone())).collect()
}

fn required(schema: &Value) -> impl Iterator<Item = (String, Value)> + use<> {
    let properties = schema["properties"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    properties.into_iter().map(|(name, property)| {
        let value = match property["type"].as_str() {
            Some("integer" | "number") => json!(5),
            Some("boolean") => json!(true),
            Some("array") => json!([]),
            Some("object") => json!({}),
            _ => json!("text"),
        };
        (name, value)
    })
}

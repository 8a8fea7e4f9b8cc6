//! What is different in 2026-07-28: what every request says of itself, the one that listens, lists
//! with a time to live, and arguments that are headers too.

use std::io;

use serde_json::{Value, json};

use super::control::Shared;
use super::exchange::{Asked, event};
use super::streams::{EVENTS, follow};
use super::wire::{Request, Wire};
use crate::stdio_server::tools::definition;

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// JSON-RPC: the parameters are wrong.
const INVALID_PARAMS: i32 = -32602;
/// The protocol: what the headers say is not what the body says.
pub(super) const HEADER_MISMATCH: i32 = -32020;

/// The tool whose argument is a header too.
pub(super) const MARKED: &str = "marked";

/// The code for what is wrong with a request, and the same for people.
pub(super) fn complaint(
    shared: &Shared,
    request: &Request,
    asked: &Asked,
) -> Option<(i32, String)> {
    let meta = &asked.params["_meta"];
    let missing = [VERSION, CAPABILITIES, CLIENT_INFO]
        .into_iter()
        .find(|name| meta[name].is_null());
    if let Some(name) = missing {
        return Some((INVALID_PARAMS, format!("{} without {name}", asked.method)));
    }
    let marked = format!("mcp-param-{}", shared.mark().to_ascii_lowercase());
    let expected = [
        ("mcp-protocol-version", meta[VERSION].as_str()),
        ("mcp-method", Some(asked.method.as_str())),
        ("mcp-name", name(asked)),
        ("mcp-session-id", None),
        (marked.as_str(), marked_argument(asked)),
    ];
    expected.into_iter().find_map(|(header, expected)| {
        let told = request.header(header);
        let wrong = format!("{}: {header} is {told:?}, not {expected:?}", asked.method);
        (told != expected).then_some((HEADER_MISMATCH, wrong))
    })
}

/// What a request is about.
fn name(asked: &Asked) -> Option<&str> {
    match asked.method.as_str() {
        "tools/call" | "prompts/get" => asked.params["name"].as_str(),
        "resources/read" => asked.params["uri"].as_str(),
        _ => None,
    }
}

fn marked_argument(asked: &Asked) -> Option<&str> {
    let argument = asked.arguments()["region"].as_str();
    argument.filter(|_| asked.tool() == MARKED)
}

/// The tool whose argument is a header of this name too.
fn marked_tool(mark: &str) -> Value {
    let mut tool = definition(MARKED, "{region}: an argument that is a header too", false);
    let region = json!({ "type": "string", "x-mcp-header": mark });
    tool["inputSchema"]["properties"] = json!({ "region": region });
    tool
}

/// Gives the result of a list what only this revision has.
pub(super) fn dress(shared: &Shared, asked: &Asked, result: &mut Value) {
    if !asked.method.ends_with("/list") {
        return;
    }
    result["ttlMs"] = json!(shared.ttl_ms());
    result["cacheScope"] = json!("private");
    if let Some(tools) = result["tools"].as_array_mut() {
        let ask = "{rounds}: asks so often before it answers";
        tools.push(definition("ask", ask, true));
        tools.push(marked_tool(&shared.mark()));
    }
}

/// Tells of changes until the client leaves or the stream is ended.
pub(super) async fn listen(wire: &mut Wire, shared: &Shared, asked: &Asked) -> io::Result<()> {
    let mut told = shared.streams();
    let meta = json!({ SUBSCRIPTION: asked.id });
    let params = json!({ "notifications": asked.params["notifications"], "_meta": meta });
    let method = "notifications/subscriptions/acknowledged";
    let acknowledged = json!({ "jsonrpc": "2.0", "method": method, "params": params });
    wire.begin(200, EVENTS).await?;
    wire.chunk(event(&acknowledged.to_string()).as_bytes())
        .await?;
    follow(wire, &mut told).await?;
    let result = json!({ "resultType": "complete", "_meta": meta });
    let over = json!({ "jsonrpc": "2.0", "id": asked.id, "result": result });
    wire.chunk(event(&over.to_string()).as_bytes()).await?;
    wire.end().await
}

//! The differences in 2026-07-28: request metadata, the listening request, lists with a time to
//! live, and arguments that are mirrored in headers.

use std::io;

use serde_json::{Value, json};

use super::control::Shared;
use super::exchange::{RpcRequest, event};
use super::streams::{EVENTS, follow};
use super::wire::{Request, Wire};
use crate::stdio_server::tools::definition;

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// JSON-RPC: invalid parameters.
const INVALID_PARAMS: i32 = -32602;
/// The protocol: headers and body differ.
pub(super) const HEADER_MISMATCH: i32 = -32020;

/// The tool whose argument is mirrored in a header.
pub(super) const HEADER_TOOL: &str = "with_header";

/// The error code and text for an invalid request.
pub(super) fn complaint(
    shared: &Shared,
    request: &Request,
    rpc: &RpcRequest,
) -> Option<(i32, String)> {
    let meta = &rpc.params["_meta"];
    let missing = [VERSION, CAPABILITIES, CLIENT_INFO]
        .into_iter()
        .find(|name| meta[name].is_null());
    if let Some(name) = missing {
        return Some((INVALID_PARAMS, format!("{} without {name}", rpc.method)));
    }
    let header = format!("mcp-param-{}", shared.param_header().to_ascii_lowercase());
    let expected = [
        ("mcp-protocol-version", meta[VERSION].as_str()),
        ("mcp-method", Some(rpc.method.as_str())),
        ("mcp-name", name(rpc)),
        ("mcp-session-id", None),
        (header.as_str(), header_argument(rpc)),
    ];
    expected.into_iter().find_map(|(header, expected)| {
        let commands = request.header(header);
        let wrong = format!("{}: {header} is {commands:?}, not {expected:?}", rpc.method);
        (commands != expected).then_some((HEADER_MISMATCH, wrong))
    })
}

/// The name of the tool, prompt or resource in a request.
fn name(rpc: &RpcRequest) -> Option<&str> {
    match rpc.method.as_str() {
        "tools/call" | "prompts/get" => rpc.params["name"].as_str(),
        "resources/read" => rpc.params["uri"].as_str(),
        "tasks/get" | "tasks/update" | "tasks/cancel" => rpc.params["taskId"].as_str(),
        _ => None,
    }
}

fn header_argument(rpc: &RpcRequest) -> Option<&str> {
    let argument = rpc.arguments()["region"].as_str();
    argument.filter(|_| rpc.tool() == HEADER_TOOL)
}

/// A tool whose argument is mirrored in this header.
fn header_tool(mark: &str) -> Value {
    let mut tool = definition(
        HEADER_TOOL,
        "{region}: an argument that is a header too",
        false,
    );
    let region = json!({ "type": "string", "x-mcp-header": mark });
    tool["inputSchema"]["properties"] = json!({ "region": region });
    tool
}

/// Adds the fields of this revision to the result of a list.
pub(super) fn add_modern_fields(shared: &Shared, rpc: &RpcRequest, result: &mut Value) {
    if !rpc.method.ends_with("/list") {
        return;
    }
    result["ttlMs"] = json!(shared.ttl_ms());
    result["cacheScope"] = json!("private");
    if let Some(tools) = result["tools"].as_array_mut() {
        let ask = "{rounds}: asks so often before it answers";
        tools.push(definition("ask", ask, true));
        tools.push(header_tool(&shared.param_header()));
    }
}

/// Sends change notifications until the client disconnects or the stream is ended.
pub(super) async fn listen(wire: &mut Wire, shared: &Shared, rpc: &RpcRequest) -> io::Result<()> {
    let mut commands = shared.streams();
    let meta = json!({ SUBSCRIPTION: rpc.id });
    let params = json!({ "notifications": rpc.params["notifications"], "_meta": meta });
    let method = "notifications/subscriptions/acknowledged";
    let acknowledged = json!({ "jsonrpc": "2.0", "method": method, "params": params });
    wire.begin(200, EVENTS).await?;
    wire.chunk(event(&acknowledged.to_string()).as_bytes())
        .await?;
    follow(wire, &mut commands).await?;
    let result = json!({ "resultType": "complete", "_meta": meta });
    let over = json!({ "jsonrpc": "2.0", "id": rpc.id, "result": result });
    wire.chunk(event(&over.to_string()).as_bytes()).await?;
    wire.end().await
}

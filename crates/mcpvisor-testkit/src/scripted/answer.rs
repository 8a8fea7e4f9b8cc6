//! The replies of an ordinary server, given the lists of its script.
//!
//! Nothing here waits, sends or misbehaves: that is part of [`super::Behaviour`].

use rmcp::model::{
    CallToolResult, CompleteResult, CompletionInfo, ErrorCode, ErrorData, GetPromptResult,
    InitializeResult, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
    ListToolsResult, PromptMessage, ProtocolVersion, ReadResourceResult, ResourceContents, Role,
    ServerResult,
};
use serde_json::{Value, json};

use super::record::Incoming;
use super::script::{Listing, Script};

/// One page of a listing as its result type.
macro_rules! page {
    ($listing:expr, $params:expr, $result:ident) => {
        page(&$listing, $params).map(|(items, next_cursor)| {
            let mut result = $result::with_all_items(items);
            result.next_cursor = next_cursor;
            result.into()
        })
    };
}

pub(super) fn ordinary(script: &Script, incoming: &Incoming) -> Result<ServerResult, ErrorData> {
    let params = &incoming.params;
    match incoming.method.as_str() {
        "initialize" => Ok(initialize(script, params)),
        "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" => {
            Ok(ServerResult::empty(()))
        }
        "tools/list" => page!(script.tools, params, ListToolsResult),
        "prompts/list" => page!(script.prompts, params, ListPromptsResult),
        "resources/list" => page!(script.resources, params, ListResourcesResult),
        "resources/templates/list" => page!(script.templates, params, ListResourceTemplatesResult),
        "tools/call" => call(script, params),
        "prompts/get" => Ok(GetPromptResult::new(vec![PromptMessage::new_text(
            Role::User,
            text(params, "name"),
        )])
        .into()),
        "resources/read" => {
            let uri = text(params, "uri");
            let contents = ResourceContents::text(format!("contents of {uri}"), uri);
            Ok(ReadResourceResult::new(vec![contents]).into())
        }
        "completion/complete" => Ok(complete(params)),
        method => Err(ErrorData::new(
            ErrorCode::METHOD_NOT_FOUND,
            format!("no method {method}"),
            None,
        )),
    }
}

fn initialize(script: &Script, params: &Value) -> ServerResult {
    let asked = serde_json::from_value(params["protocolVersion"].clone());
    let version = script.protocol.clone().or(asked.ok());
    InitializeResult::new(script.claimed_capabilities())
        .with_server_info(script.info.clone())
        .with_protocol_version(version.unwrap_or(ProtocolVersion::LATEST_WITH_INITIALIZE))
        .into()
}

fn call(script: &Script, params: &Value) -> Result<ServerResult, ErrorData> {
    let name = text(params, "name");
    if !script.knows_tool(&name) {
        return Err(ErrorData::invalid_params(format!("no tool {name}"), None));
    }
    let arguments = params.get("arguments").cloned().unwrap_or(json!({}));
    Ok(CallToolResult::structured(arguments).into())
}

fn complete(params: &Value) -> ServerResult {
    let start = text(&params["argument"], "value");
    let mut completion = CompletionInfo::default();
    completion.values = vec![format!("{start}…")];
    CompleteResult::new(completion).into()
}

fn page<T: Clone>(
    listing: &Listing<T>,
    params: &Value,
) -> Result<(Vec<T>, Option<String>), ErrorData> {
    if let Listing::Unsupported = listing {
        return Err(ErrorData::new(
            ErrorCode::METHOD_NOT_FOUND,
            "no such list",
            None,
        ));
    }
    listing
        .page(params["cursor"].as_str())
        .ok_or_else(|| ErrorData::invalid_params("no such cursor", None))
}

fn text(params: &Value, name: &str) -> String {
    params[name].as_str().unwrap_or_default().to_owned()
}

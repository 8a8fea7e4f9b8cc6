//! A model in front of a large catalog: instead of 300 definitions it gets four tools with which it
//! searches, reads and calls the others. The model here follows a script.
//!
//! `cargo run -p mcpvisor --example tool_search`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use mcpvisor::for_model::{self, ModelText};
use mcpvisor::rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig as ServerInfo, Tool,
};
use mcpvisor::rmcp::service::RequestContext;
use mcpvisor::rmcp::{ErrorData, RoleServer, ServerHandler};
use mcpvisor::{Client, FleetCatalog, Runtime, ServerConfig, Transport};
use serde_json::{Value, json};

/// Tokens that this program spends on the definitions of tools.
const TOKEN_BUDGET: usize = 2_000;

/// A service with a tool for every pair of a verb and a noun.
#[derive(Clone)]
struct Office {
    nouns: [&'static str; 10],
}

const VERBS: [&str; 10] = [
    "create", "read", "update", "delete", "list", "search", "send", "archive", "share", "print",
];

impl ServerHandler for Office {
    fn get_info(&self) -> ServerInfo {
        ServerInfo::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let pairs = VERBS
            .iter()
            .flat_map(|verb| self.nouns.map(|noun| (*verb, noun)));
        let tool = |(verb, noun): (&str, &str)| {
            let schema = json!({
                "type": "object",
                "properties": { noun: { "type": "string" }, "notify": { "type": "boolean" } },
                "required": [noun],
            });
            let schema = schema.as_object().cloned().unwrap_or_default();
            let description = format!("Use this to {verb} a {noun} of the company.");
            Tool::new(format!("{verb}_{noun}"), description, schema)
        };
        Ok(ListToolsResult::with_all_items(pairs.map(tool).collect()))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let done = format!("{} {}: done", call.name, json!(call.arguments));
        Ok(CallToolResult::success(vec![ContentBlock::text(done)]).into())
    }
}

fn office(
    name: &str,
    nouns: [&'static str; 10],
) -> Result<ServerConfig, mcpvisor::InvalidServerName> {
    ServerConfig::new(name, Transport::in_process(Office { nouns }))
}

fn tokens(catalog: &FleetCatalog) -> usize {
    catalog.tools().map(for_model::estimated_tokens).sum()
}

/// Runs one call of the model and returns the text that it reads.
async fn answer(agent: &Client, tool: &str, arguments: Value) -> String {
    match agent.call(tool, arguments) {
        Ok(request) => request.deadline(Duration::from_secs(5)).await.model_text(),
        Err(unknown) => unknown.model_text(),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let sales = [
        "invoice", "order", "customer", "offer", "price", "discount", "lead", "contract", "refund",
        "quote",
    ];
    let staff = [
        "employee", "salary", "shift", "holiday", "team", "badge", "course", "review", "laptop",
        "desk",
    ];
    let store = [
        "item", "shelf", "parcel", "supplier", "pallet", "truck", "route", "label", "batch",
        "count",
    ];
    let runtime = Runtime::builder()
        .server(office("sales", sales)?)
        .server(office("staff", staff)?)
        .server(office("store", store)?)
        .start()
        .await?;
    runtime.ready(Duration::from_secs(5)).await?;

    // This agent must not see salaries, however it looks for them.
    let agent = runtime.client("agent").tools(["!*salary*"]).build();
    let catalog = agent.catalog();
    let offered = match tokens(&catalog) <= TOKEN_BUDGET {
        true => agent.catalog(),
        false => agent.meta_tools(),
    };
    println!(
        "{} tools take about {} tokens; offered are {} tools of about {} tokens",
        catalog.tool_count(),
        tokens(&catalog),
        offered.tool_count(),
        tokens(&offered),
    );
    // The `tools` of the request to the model. They are the same in every turn.
    assert_eq!(for_model::anthropic_tools(&offered).len(), 4);

    let create = json!({ "name": "sales__create_refund", "arguments": { "refund": "42" } });
    let script = [
        ("mcpvisor__list_servers", json!({})),
        (
            "mcpvisor__search_tools",
            json!({ "query": "create a refund", "limit": 3 }),
        ),
        (
            "mcpvisor__describe_tools",
            json!({ "names": ["sales__create_refund"] }),
        ),
        ("mcpvisor__call_tool", create),
        (
            "mcpvisor__call_tool",
            json!({ "name": "sales__make_refund" }),
        ),
        ("mcpvisor__search_tools", json!({ "query": "salary" })),
    ];
    for (tool, arguments) in script {
        println!("\n{tool} {arguments}");
        println!("{}", answer(&agent, tool, arguments).await);
    }

    // A program can search as well, without a model.
    let found = agent.catalog().search("print parcel label", 2);
    let names: Vec<&str> = found.iter().map(|it| it.tool.exposed()).collect();
    println!("\n{names:?}");
    assert_eq!(names.len(), 2);

    runtime.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

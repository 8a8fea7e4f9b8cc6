//! Programs that embed the runtime, written as users would write them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use mcpvisor::for_model::{self, ModelText};
use mcpvisor::rmcp::model::{CallToolResult, ContentBlock};
use mcpvisor::rmcp::{ErrorData, ServerHandler, tool, tool_handler, tool_router};
use mcpvisor::{
    EventKind, EventsError, Runtime, ServerConfig, ServerHandle, ServerName, StateName, Transport,
};
use serde_json::json;
use tokio::task::JoinSet;

/// Timeout for every step.
const DEADLINE: Duration = Duration::from_secs(30);

#[derive(Clone)]
struct Greeter;

#[tool_router]
impl Greeter {
    #[tool(description = "Says hello")]
    async fn hello(&self) -> Result<CallToolResult, ErrorData> {
        Ok(CallToolResult::success(vec![ContentBlock::text("hello")]))
    }

    #[tool(description = "Never answers")]
    async fn wait(&self) -> Result<CallToolResult, ErrorData> {
        std::future::pending().await
    }
}

#[tool_handler]
impl ServerHandler for Greeter {}

fn greeter(name: &str) -> ServerConfig {
    ServerConfig::new(name, Transport::in_process(Greeter)).unwrap()
}

async fn started() -> (Runtime, ServerHandle) {
    let runtime = Runtime::builder().server(greeter("greeter"));
    let runtime = runtime.start().await.unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    let server = runtime.server("greeter").unwrap();
    (runtime, server)
}

async fn in_time<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(DEADLINE, future).await.unwrap()
}

#[tokio::test]
async fn requests_go_into_combinators_as_they_are() {
    let (runtime, server) = started().await;
    let names = ["hello", "hello", "hello"];

    let all = join_all(names.iter().map(|name| server.call_tool(*name, json!({})))).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");

    let (one, other) = tokio::join!(server.call_tool("hello", json!({})), server.ping());
    assert!(one.is_ok() && other.is_ok());

    let mut unordered: FuturesUnordered<_> = names
        .map(|name| server.call_tool(name, json!({})))
        .into_iter()
        .collect();
    while let Some(answer) = unordered.next().await {
        answer.unwrap();
    }

    let mut tasks = JoinSet::new();
    tasks.spawn(server.call_tool("hello", json!({})).deadline(DEADLINE));
    tasks.join_next().await.unwrap().unwrap().unwrap();

    // A request that is polled in a loop resumes and is sent only once.
    let mut waiting = server.call_tool("wait", json!({}));
    for _ in 0..3 {
        tokio::select! {
            answer = &mut waiting => panic!("{answer:?}"),
            answer = server.call_tool("hello", json!({})) => drop(answer.unwrap()),
        }
    }
    // The actor counts the calls, so the status may lag behind.
    let in_flight = async |count| {
        while server.status().in_flight != count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    in_time(in_flight(1)).await;
    drop(waiting);
    in_time(in_flight(0)).await;
    runtime.shutdown(DEADLINE).await;
}

/// A service that must not miss events during the start.
#[tokio::test]
async fn the_events_of_the_start_are_all_there() {
    let builder = Runtime::builder().server(greeter("a")).server(greeter("b"));
    let mut events = builder.events();
    let mut also = builder.events();
    let runtime = builder.start().await.unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    runtime.shutdown(DEADLINE).await;
    let (mut version, mut connected) = (0, 0);
    loop {
        match in_time(events.recv()).await {
            Ok(event) => {
                version += 1;
                assert_eq!(event.version, version, "gapless from the first");
                assert_eq!(in_time(also.recv()).await.unwrap().version, version);
                let up = StateName::Connected;
                connected += usize::from(
                    matches!(event.kind, EventKind::StateChanged { to, .. } if to == up),
                );
            }
            Err(EventsError::Closed) => break,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(connected, 2);
}

#[tokio::test]
async fn a_reader_of_events_hears_of_a_runtime_that_does_not_start() {
    let builder = Runtime::builder()
        .server(greeter("twice"))
        .server(greeter("twice"));
    let mut events = builder.events();
    builder.start().await.unwrap_err();
    assert_eq!(
        in_time(events.recv()).await.unwrap_err(),
        EventsError::Closed
    );
}

#[tokio::test]
async fn a_server_is_named_by_text_or_by_its_name() {
    let (runtime, _) = started().await;
    let name: ServerName = runtime.servers().remove(0);
    let text = String::from("greeter");
    assert!(runtime.server(&name).is_ok());
    assert!(runtime.server(name.clone()).is_ok());
    assert!(runtime.server(&text).is_ok());
    assert!(runtime.server(text.clone()).is_ok());
    assert!(runtime.server(text.as_str()).is_ok());
    let client = runtime.client("agent").build();
    assert!(client.server(&name).is_ok() && client.server("greeter").is_ok());
    let catalog = runtime.catalog();
    assert!(catalog.server(&name).is_some() && catalog.server("greeter").is_some());
    runtime.reconnect(&name).await.unwrap();
    runtime.disable(&name).await.unwrap();
    runtime.enable(name.clone()).await.unwrap();
    assert!(runtime.held(&name).unwrap().is_empty());
    assert!(runtime.approve(&name, None).await.unwrap().is_empty());
    runtime.remove(&name).await.unwrap();
    assert!(runtime.server(&name).is_err());
}

/// Agents that offer the available tools to their models and follow changes.
#[tokio::test]
async fn agents_follow_the_catalog() {
    let (runtime, server) = started().await;
    let agent = runtime.client("agent").tools(["*__hello"]).build();
    let mut fleet = runtime.catalog_changes();
    let mut seen = agent.catalog_changes();
    let mut alone = server.catalog_changes();
    assert_eq!(fleet.seen().tool_count(), 2);
    assert_eq!(seen.seen().tool_count(), 1);
    assert_eq!(alone.seen().tools.len(), 2);

    runtime.add(greeter("other")).await.unwrap();
    assert_eq!(in_time(fleet.changed()).await.unwrap().tool_count(), 4);
    let offered = in_time(seen.changed()).await.unwrap();
    let calls = offered
        .tools()
        .map(|tool| agent.call(tool.exposed(), json!({})).unwrap());
    let answers = join_all(calls).await;
    assert!(answers.iter().all(|answer| answer.model_text() == "hello"));

    // A reconnect with the same lists is not a change; nor is a change of another server.
    runtime.reconnect("greeter").await.unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    for changed in [fleet.changed(), seen.changed()] {
        assert!(futures_util::FutureExt::now_or_never(changed).is_none());
    }
    assert!(futures_util::FutureExt::now_or_never(alone.changed()).is_none());

    runtime.disable("greeter").await.unwrap();
    assert_eq!(in_time(alone.changed()).await.unwrap().tools.len(), 0);
    assert_eq!(in_time(fleet.changed()).await.unwrap().tool_count(), 2);
    assert_eq!(in_time(seen.changed()).await.unwrap().tool_count(), 1);

    runtime.remove("greeter").await.unwrap();
    assert!(in_time(alone.changed()).await.is_none(), "it is gone");

    // A subscription does not keep the runtime alive and ends with it.
    drop((runtime, server, agent));
    let ended = async { while fleet.changed().await.is_some() {} };
    in_time(ended).await;
    let ended = async { while seen.changed().await.is_some() {} };
    in_time(ended).await;
}

/// A model gets tools, makes mistakes, and reads the outcomes of its calls.
#[tokio::test]
async fn a_model_reads_what_came_of_its_calls() {
    let (runtime, _) = started().await;
    let tools = for_model::anthropic_tools(&runtime.catalog());
    assert_eq!(tools[0]["name"], "greeter__hello");
    assert_eq!(tools[0]["input_schema"]["type"], "object");
    let answer = async |tool: &str, arguments| match runtime.call(tool, arguments) {
        Ok(request) => request
            .deadline(Duration::from_millis(200))
            .await
            .model_text(),
        Err(unknown) => unknown.model_text(),
    };
    assert_eq!(answer("greeter__hello", json!({})).await, "hello");
    assert_eq!(
        answer("greeter_hello", json!({})).await,
        "There is no tool named \"greeter_hello\". Use one of the tools that you were given, by its exact name."
    );
    assert_eq!(
        answer("greeter__hello", json!(["not", "an", "object"])).await,
        "The request to greeter is not valid: the arguments of a tool are an object, not an array; write {\"name\": value}. The request did not run; correct the arguments, then retry it."
    );
    assert_eq!(
        answer("greeter__wait", json!({})).await,
        "greeter did not answer within 200ms. The request may or may not have run; check whether it took effect before you retry it."
    );
    runtime.disable("greeter").await.unwrap();
    assert_eq!(
        answer("greeter__hello", json!({})).await,
        "greeter is switched off. The request did not run; do not retry it."
    );
}

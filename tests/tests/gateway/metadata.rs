//! `_meta` in both directions, extensions, and content of every kind.

use std::sync::{Arc, Mutex};

use mcpvisor::rmcp::model::{
    ArgumentInfo, CompleteRequestParams, ElicitResult, ElicitationAction, LoggingLevel, Reference,
    RequestMetaObject,
};
use mcpvisor::{Callbacks, RequestKey, Runtime, ServerHandle};
use serde_json::{Map, Value, json};

use crate::fleet::DEADLINE;
use crate::peer::{Answer, Peer, plain};
use crate::started;

const KEY: &str = "io.example/key";

fn meta() -> RequestMetaObject {
    let mut meta = RequestMetaObject::new();
    meta.insert(KEY.to_owned(), json!({ "deep": [1] }));
    meta
}

/// Answers every request with a result that has metadata.
fn with_meta(_: &Peer, method: &str, _: &Value) -> Answer {
    let mut result = match method {
        "tools/list" => json!({ "tools": [] }),
        "prompts/list" => json!({ "prompts": [] }),
        "resources/list" => json!({ "resources": [] }),
        "resources/templates/list" => json!({ "resourceTemplates": [] }),
        "tools/call" => json!({ "content": [] }),
        "prompts/get" => json!({ "messages": [] }),
        "resources/read" => json!({ "contents": [] }),
        "completion/complete" => json!({ "completion": { "values": [] } }),
        _ => return Answer::Default,
    };
    result["_meta"] = json!({ KEY: ["back", null] });
    Answer::Result(result)
}

#[tokio::test]
async fn every_request_and_every_result_has_its_metadata() {
    for peer in [Peer::legacy(with_meta), Peer::modern(with_meta)] {
        let (_runtime, a) = started(&peer).await;
        let mut results = Vec::new();
        macro_rules! send {
            ($($request:expr),* $(,)?) => {$(
                let result = $request.meta(meta()).deadline(DEADLINE).await.unwrap();
                results.push(serde_json::to_value(result.meta).unwrap());
            )*};
        }
        let argument = ArgumentInfo::new("a", "b");
        let complete = CompleteRequestParams::new(Reference::for_prompt("p"), argument);
        send!(
            a.list_tools(None),
            a.list_prompts(None),
            a.list_resources(None),
            a.list_resource_templates(None),
            a.call_tool("echo", Value::Null),
            a.get_prompt("p", Value::Null),
            a.read_resource("a:b"),
            a.complete(complete),
        );
        for result in results {
            assert_eq!(result, json!({ KEY: ["back", null] }));
        }
        a.ping().meta(meta()).await.unwrap();
        let mut methods = vec![
            "tools/list",
            "prompts/list",
            "resources/list",
            "resources/templates/list",
            "tools/call",
            "prompts/get",
            "resources/read",
            "completion/complete",
        ];
        if peer.is_legacy() {
            a.subscribe("a:b").meta(meta()).await.unwrap();
            a.unsubscribe("a:b").meta(meta()).await.unwrap();
            a.set_log_level(LoggingLevel::Debug)
                .meta(meta())
                .await
                .unwrap();
            methods.extend([
                "ping",
                "resources/subscribe",
                "resources/unsubscribe",
                "logging/setLevel",
            ]);
        }
        for method in methods {
            let sent = peer.params(method).pop().unwrap();
            assert_eq!(sent["_meta"][KEY], json!({ "deep": [1] }), "{method}");
        }
    }
}

/// Records the key and the metadata of every question.
type Asked = Arc<Mutex<Vec<(Option<RequestKey>, Map<String, Value>)>>>;

fn recording(asked: &Asked) -> Callbacks {
    let asked = Arc::clone(asked);
    Callbacks::new().elicitation_form(move |incoming| {
        let asked = Arc::clone(&asked);
        async move {
            asked.lock().unwrap().push((incoming.cause, incoming.meta));
            Ok(ElicitResult::new(ElicitationAction::Decline))
        }
    })
}

fn question() -> Value {
    json!({ "method": "elicitation/create", "params": {
        "mode": "form",
        "message": "Who?",
        "requestedSchema": { "type": "object", "properties": {} },
        "_meta": { KEY: 7 },
    } })
}

/// Asks before it answers a call, in the way of its era.
fn asking(peer: &Peer, method: &str, params: &Value) -> Answer {
    if method != "tools/call" {
        return Answer::Default;
    }
    if !peer.is_legacy() {
        return match params["inputResponses"].is_null() {
            true => Answer::Result(json!({
                "resultType": "input_required",
                "inputRequests": { "who": question() },
            })),
            false => Answer::Default,
        };
    }
    let mut request = question();
    request["jsonrpc"] = "2.0".into();
    request["id"] = "q1".into();
    peer.send(request);
    // The answer to the question ends the call.
    Answer::WhenAnswered("q1")
}

async fn asked_by(
    callbacks: impl FnOnce(&Asked) -> Callbacks,
    peer: &Peer,
    call: impl AsyncFnOnce(&ServerHandle) -> Option<RequestKey>,
) {
    let asked = Asked::default();
    let runtime = Runtime::builder().server(peer.config("a"));
    let runtime = runtime.callbacks(callbacks(&asked)).start().await.unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    let key = call(&runtime.server("a").unwrap()).await;
    assert!(key.is_some());
    let asked = asked.lock().unwrap();
    let meta = Map::from_iter([(KEY.to_owned(), json!(7))]);
    assert_eq!(*asked, [(key, meta)]);
}

#[tokio::test]
async fn a_question_shows_its_metadata_and_the_request_that_caused_it() {
    for peer in [Peer::legacy(asking), Peer::modern(asking)] {
        asked_by(recording, &peer, async |a| {
            let other = a.ping();
            let request = a.call_tool("echo", Value::Null);
            let key = request.key();
            assert_ne!(key, other.key(), "each request has its own");
            request.deadline(DEADLINE).await.unwrap();
            key
        })
        .await;
    }
}

#[tokio::test]
async fn keys_are_unique_within_the_runtime() {
    let peers = [Peer::legacy(plain), Peer::modern(plain)];
    let runtime = Runtime::builder();
    let runtime = runtime
        .server(peers[0].config("a"))
        .server(peers[1].config("b"));
    let runtime = runtime.start().await.unwrap();
    let handles = [runtime.server("a").unwrap(), runtime.server("b").unwrap()];
    let agent = runtime.client("agent").build();
    let mut keys: Vec<_> = (0..50).map(|n| handles[n % 2].ping().key()).collect();
    keys.extend((0..50).map(|_| agent.server("a").unwrap().ping().key()));
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 100);
    let search = agent.call("mcpvisor__search_tools", json!({ "query": "a" }));
    assert_eq!(search.unwrap().key(), None, "no server answers it");
}

#[tokio::test]
async fn extensions_are_declared_and_those_of_the_server_are_readable() {
    let settings = json!({ "mimeTypes": ["text/html;profile=mcp-app"] });
    for peer in [Peer::legacy(plain), Peer::modern(plain)] {
        let runtime = Runtime::builder()
            .server(peer.config("a"))
            .extension("io.modelcontextprotocol/ui", settings.clone())
            .extension("io.example/bare", Value::Null)
            .start()
            .await
            .unwrap();
        runtime.ready(DEADLINE).await.unwrap();
        let agent = runtime
            .client("agent")
            .callbacks(recording(&Asked::default()));
        let handles = [
            runtime.server("a").unwrap(),
            agent.build().server("a").unwrap(),
        ];
        for a in &handles {
            a.call_tool("echo", Value::Null).await.unwrap();
            assert_eq!(a.extensions()["io.example/theirs"]["depth"], 2);
        }
        let declared: Vec<Value> = match peer.is_legacy() {
            true => vec![peer.params("initialize").pop().unwrap()["capabilities"].clone()],
            false => {
                let calls = peer.params("tools/call").into_iter();
                let name = "io.modelcontextprotocol/clientCapabilities";
                calls.map(|call| call["_meta"][name].clone()).collect()
            }
        };
        for capabilities in declared {
            let extensions = &capabilities["extensions"];
            assert_eq!(extensions["io.modelcontextprotocol/ui"], settings);
            assert_eq!(extensions["io.example/bare"], json!({}));
        }
    }
}

/// Content of every kind, with metadata and annotations.
fn content() -> Value {
    let meta = json!({ "io.example/a": [1], "ui": { "resourceUri": "ui://a/view" } });
    let annotations = json!({ "audience": ["user"], "priority": 0.5 });
    json!([
        { "type": "text", "text": "a", "annotations": annotations, "_meta": meta },
        { "type": "image", "data": "AA==", "mimeType": "image/png", "annotations": annotations,
          "_meta": meta },
        { "type": "audio", "data": "AA==", "mimeType": "audio/wav", "annotations": annotations,
          "_meta": meta },
        { "type": "resource_link", "uri": "ui://a/view", "name": "view", "title": "View",
          "description": "d", "mimeType": "text/html;profile=mcp-app", "size": 7,
          "annotations": annotations, "_meta": meta },
        { "type": "resource", "resource": { "uri": "ui://a/view",
          "mimeType": "text/html;profile=mcp-app", "text": "<p>", "_meta": meta },
          "annotations": annotations, "_meta": meta },
        { "type": "resource", "resource": { "uri": "a:b", "blob": "AA==", "_meta": meta },
          "annotations": annotations, "_meta": meta },
    ])
}

fn contents() -> Value {
    let ui = json!({ "csp": { "connectDomains": ["https://a.example"] } });
    json!([
        { "uri": "ui://a/view", "mimeType": "text/html;profile=mcp-app", "text": "<p>",
          "_meta": { "ui": ui } },
        { "uri": "ui://a/icon", "mimeType": "image/png", "blob": "AA==", "_meta": { "ui": ui } },
    ])
}

fn apps(_: &Peer, method: &str, params: &Value) -> Answer {
    let ui = json!({ "ui": { "resourceUri": "ui://a/view", "visibility": ["model", "app"] } });
    match method {
        "tools/list" => Answer::Result(json!({ "tools": [
            { "name": "echo", "inputSchema": { "type": "object" }, "_meta": ui },
        ] })),
        "tools/call" => Answer::Result(json!({
            "content": content(), "structuredContent": { "a": [1.5, null] }, "isError": false,
            "_meta": ui,
        })),
        "resources/read" => {
            assert_eq!(params["uri"], "ui://a/view");
            Answer::Result(json!({ "contents": contents(), "_meta": ui }))
        }
        _ => Answer::Default,
    }
}

#[tokio::test]
async fn content_of_every_kind_and_apps_pass_untouched() {
    for peer in [Peer::legacy(apps), Peer::modern(apps)] {
        let (_runtime, a) = started(&peer).await;
        let call = a.call_tool("echo", Value::Null).await.unwrap();
        let call = serde_json::to_value(call).unwrap();
        assert_eq!(call["content"], content());
        assert_eq!(call["_meta"]["ui"]["resourceUri"], "ui://a/view");
        let raw = a.raw_request("tools/call", Some(json!({ "name": "echo" })));
        assert_eq!(raw.await.unwrap()["content"], content());
        let read = a.read_resource("ui://a/view").await.unwrap();
        assert_eq!(serde_json::to_value(read).unwrap()["contents"], contents());
        let catalog = a.catalog();
        let tool = serde_json::to_value(catalog.tool("echo").unwrap()).unwrap();
        assert_eq!(tool["_meta"]["ui"]["visibility"], json!(["model", "app"]));
    }
}

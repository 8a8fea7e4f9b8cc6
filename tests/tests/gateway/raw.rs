//! Raw requests and notifications.

use std::sync::atomic::{AtomicBool, Ordering};

use mcpvisor::rmcp::model::{ElicitResult, ElicitationAction};
use mcpvisor::{CallError, Callbacks, Known, NotifyError, RetryPolicy, Runtime, StateName};
use mcpvisor_testkit::scripted::{Script, ScriptedServer};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::fleet::{DEADLINE, reaches, server};
use crate::peer::{Answer, Peer, plain};
use crate::started;

/// A result with members that rmcp does not know, at every level.
fn odd_result() -> Value {
    json!({
        "content": [{ "type": "text", "text": "a", "x-new": [1] }],
        "structuredContent": { "a": 1 },
        "isError": false,
        "_meta": { "io.example/a": { "b": null } },
        "future": { "deep": [true] },
    })
}

fn odd(_: &Peer, method: &str, _: &Value) -> Answer {
    match method {
        "tools/call" | "com.example/any" | "prompts/get" => Answer::Result(odd_result()),
        _ => Answer::Default,
    }
}

/// What was sent, without what the runtime adds.
fn without_own_meta(mut params: Value) -> Value {
    let meta = params["_meta"].as_object_mut().unwrap();
    meta.remove("progressToken").expect("a token of ours");
    meta.retain(|name, _| !name.starts_with("io.modelcontextprotocol/"));
    params
}

#[tokio::test]
async fn parameters_and_results_travel_unchanged_in_both_eras() {
    for peer in [Peer::legacy(odd), Peer::modern(odd)] {
        let (_runtime, handle) = started(&peer).await;
        for method in ["tools/call", "com.example/any", "prompts/get"] {
            let params = json!({
                "name": "echo",
                "arguments": { "a": 1 },
                "unknown": { "b": [null] },
                "_meta": { "traceparent": "00-1", "io.example/ui": { "c": 2 } },
            });
            let request = handle.raw_request(method, Some(params.clone()));
            assert_eq!(request.await.unwrap(), odd_result());
            let sent = peer.expect(method, 1).await.remove(0);
            assert_eq!(without_own_meta(sent), params);
        }
        assert_eq!(
            handle.raw_request("tools/list", None).await.unwrap()["tools"][1]["name"],
            "secret"
        );
    }
}

#[tokio::test]
async fn the_methods_of_the_connection_are_refused() {
    let peer = Peer::legacy(plain);
    let (_runtime, handle) = started(&peer).await;
    let reserved = [
        "initialize",
        "server/discover",
        "subscriptions/listen",
        "notifications/initialized",
        "notifications/cancelled",
    ];
    for method in reserved {
        let error = handle.raw_request(method, None).await.unwrap_err();
        assert!(matches!(error, CallError::InvalidRequest { .. }), "{error}");
        assert_eq!(error.known(), Known::NotSent);
        assert!(error.to_string().contains(method), "{error}");
    }
    let error = handle.notify("notifications/cancelled", None).await;
    assert!(matches!(error, Err(NotifyError::Invalid { .. })));
    assert_eq!(peer.received("initialize").len(), 1);
}

#[tokio::test]
async fn a_hidden_tool_stays_hidden_in_a_raw_call() {
    let peer = Peer::legacy(plain);
    let runtime = Runtime::builder().server(peer.config("a"));
    let runtime = runtime.start().await.unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    let agent = runtime.client("agent").tools(["!a__secret"]).build();
    let handle = agent.server("a").unwrap();
    let call = |tool: &str| handle.raw_request("tools/call", Some(json!({ "name": tool })));
    let error = call("secret").await.unwrap_err();
    assert!(matches!(error, CallError::ToolHidden { .. }), "{error:?}");
    call("echo").await.unwrap();
    assert_eq!(peer.received("tools/call").len(), 1);
}

#[tokio::test]
async fn a_hidden_tool_is_not_called_by_a_notification_either() {
    let peer = Peer::legacy(plain);
    let config = peer.config("a").deny_tools("secret");
    let runtime = Runtime::builder().server(config).start().await.unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    let handle = runtime.server("a").unwrap();
    for method in ["tools/call", "resources/subscribe", "tasks/cancel"] {
        let params = json!({ "name": "secret" });
        let error = handle.notify(method, Some(params)).await.unwrap_err();
        assert!(matches!(error, NotifyError::Invalid { .. }), "{error}");
        assert!(error.to_string().contains("use raw_request"), "{error}");
    }
    handle.notify("com.example/last", None).await.unwrap();
    // The protocol has no `null` as parameters.
    assert_eq!(peer.expect("com.example/last", 1).await, [json!({})]);
    assert!(peer.received("tools/call").is_empty());
}

#[tokio::test]
async fn a_raw_ping_or_setting_returns_an_empty_object() {
    for peer in [Peer::legacy(plain), Peer::modern(plain)] {
        let (_runtime, handle) = started(&peer).await;
        let level = json!({ "level": "debug" });
        for (method, params) in [("ping", None), ("logging/setLevel", Some(level))] {
            let result = handle.raw_request(method, params).await;
            assert_eq!(result.unwrap(), json!({}), "{method}");
        }
    }
}

/// A server that loses its connection with the first request of a method.
fn breaking(at: &'static str) -> Peer {
    let broken = AtomicBool::new(false);
    Peer::legacy(move |peer, method, _| match method {
        method if method != at => Answer::Default,
        _ if broken.swap(true, Ordering::SeqCst) => Answer::Result(json!({ "again": true })),
        _ => {
            peer.disconnect();
            Answer::Silence
        }
    })
}

#[tokio::test]
async fn only_known_methods_are_retried_after_an_unknown_outcome() {
    for (method, policy, again) in [
        ("com.example/any", RetryPolicy::Default, false),
        ("com.example/any", RetryPolicy::Always, true),
        ("tools/call", RetryPolicy::Default, false),
        ("resources/read", RetryPolicy::Default, true),
        ("resources/read", RetryPolicy::Never, false),
    ] {
        let peer = breaking(method);
        let (_runtime, handle) = started(&peer).await;
        let params = json!({ "name": "echo", "uri": "a:b" });
        let request = handle.raw_request(method, Some(params)).retry(policy);
        match request.deadline(DEADLINE).await {
            Ok(result) => {
                assert!(again, "{method} {policy:?}");
                assert_eq!(result, json!({ "again": true }));
            }
            Err(error) => {
                assert!(!again, "{method} {policy:?}: {error}");
                assert_eq!(error.known(), Known::Unknown, "{error}");
            }
        }
        let expected = if again { 2 } else { 1 };
        assert_eq!(peer.received(method).len(), expected, "{method} {policy:?}");
    }
}

#[tokio::test]
async fn progress_of_a_raw_request_reaches_its_caller() {
    let peer = Peer::legacy(|peer, method, params| match method {
        "com.example/slow" => {
            let token = &params["_meta"]["progressToken"];
            assert!(token.is_number(), "a token of the runtime: {token}");
            let progress = json!({ "progressToken": token, "progress": 3, "message": "on it" });
            peer.notify("notifications/progress", progress);
            Answer::Result(json!({}))
        }
        _ => Answer::Default,
    });
    let (_runtime, handle) = started(&peer).await;
    let (sink, mut progress) = mpsc::channel(8);
    let params = json!({ "_meta": { "progressToken": "theirs" } });
    let request = handle.raw_request("com.example/slow", Some(params));
    request.on_progress(sink).await.unwrap();
    assert_eq!(progress.recv().await.unwrap().message.unwrap(), "on it");
}

#[tokio::test]
async fn callbacks_answer_the_input_that_a_raw_call_requires() {
    let requests = json!({ "who": { "method": "elicitation/create", "params": {
        "mode": "form", "message": "Who?",
        "requestedSchema": { "type": "object", "properties": {} },
    } } });
    let peer = Peer::modern(move |_, method, params| match method {
        "tools/call" if params["inputResponses"].is_null() => Answer::Result(json!({
            "resultType": "input_required",
            "inputRequests": requests,
            "requestState": "sealed",
        })),
        "tools/call" => Answer::Result(json!({ "content": [], "got": params })),
        _ => Answer::Default,
    });
    let callbacks = Callbacks::new()
        .elicitation_form(|_| async { Ok(ElicitResult::new(ElicitationAction::Decline)) });
    let runtime = Runtime::builder().server(peer.config("a"));
    let runtime = runtime.callbacks(callbacks).start().await.unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    let handle = runtime.server("a").unwrap();
    let params = json!({ "name": "echo", "more": 1 });
    let result = handle.raw_request("tools/call", Some(params)).await;
    let got = &result.unwrap()["got"];
    assert_eq!(got["requestState"], "sealed");
    assert_eq!(got["inputResponses"]["who"]["action"], "decline");
    assert_eq!(got["more"], 1);
}

#[tokio::test]
async fn a_server_in_this_process_gets_raw_requests_as_its_types() {
    let scripted = ScriptedServer::new(Script::new());
    let config = server("a", scripted.transport());
    let runtime = Runtime::builder().server(config).start().await.unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    let handle = runtime.server("a").unwrap();
    let params = json!({ "name": "echo", "arguments": { "a": 1 } });
    let result = handle
        .raw_request("tools/call", Some(params))
        .await
        .unwrap();
    assert_eq!(result["structuredContent"], json!({ "a": 1 }));
    let tools = handle.raw_request("tools/list", None).await.unwrap();
    assert_eq!(tools["tools"][0]["name"], "echo");
}

#[tokio::test]
async fn notifications_reach_a_connected_server_and_wake_no_other() {
    for peer in [Peer::legacy(plain), Peer::modern(plain)] {
        let (runtime, handle) = started(&peer).await;
        let params = json!({ "a": [1], "_meta": { "b": 2 } });
        let method = "com.example/changed";
        handle.notify(method, Some(params.clone())).await.unwrap();
        assert_eq!(peer.expect(method, 1).await, [params]);
        runtime.disable("a").await.unwrap();
        let error = handle.notify(method, None).await.unwrap_err();
        let NotifyError::NotConnected { state, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(*state, StateName::Disabled);
        runtime.enable("a").await.unwrap();
        reaches(&handle, StateName::Connected).await;
        handle.notify(method, None).await.unwrap();
        peer.expect(method, 2).await;
        runtime.remove("a").await.unwrap();
        let error = handle.notify(method, None).await.unwrap_err();
        assert!(matches!(error, NotifyError::Removed { .. }), "{error}");
    }
}

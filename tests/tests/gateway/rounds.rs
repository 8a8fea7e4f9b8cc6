//! Input rounds in the caller's hands.

use mcpvisor::rmcp::model::{ClientCapabilities, ElicitationCapability, InputResponses};
use mcpvisor::{CallError, Callbacks, Known, ResultCheck, Round, Runtime, raw_definition};
use serde_json::{Value, json};

use crate::fleet::{DEADLINE, secs};
use crate::peer::{Answer, Peer, plain};
use crate::started;

/// An input request with members that no type knows, and a request that rmcp does not know.
fn required() -> Value {
    json!({
        "resultType": "input_required",
        "inputRequests": {
            "who": { "method": "elicitation/create", "params": {
                "mode": "form", "message": "Who?", "x-hint": [1],
                "requestedSchema": { "type": "object", "properties": {} },
            } },
            "what": { "method": "com.example/ask", "params": {} },
        },
        "requestState": "Runde\u{a0}1",
        "_meta": { "io.example/a": 1 },
        "future": true,
    })
}

/// Requires input for every call, prompt and resource without responses.
fn asking(_: &Peer, method: &str, params: &Value) -> Answer {
    let result = match method {
        "tools/call" => json!({ "content": [], "structuredContent": params }),
        "prompts/get" => json!({ "messages": [], "description": params["requestState"] }),
        "resources/read" => json!({ "contents": [] }),
        _ => return Answer::Default,
    };
    match params["inputResponses"].is_null() {
        true => Answer::Result(required()),
        false => Answer::Result(result),
    }
}

fn forms() -> ClientCapabilities {
    let mut capabilities = ClientCapabilities::default();
    capabilities.elicitation = Some(ElicitationCapability::new());
    capabilities
}

fn responses() -> InputResponses {
    let decline = json!({ "action": "decline", "x-more": 1 });
    InputResponses::from([("who".to_owned(), decline)])
}

/// The callbacks must not be called.
async fn with_callbacks(peer: &Peer) -> Runtime {
    let callbacks = Callbacks::new().elicitation_form(|_| async {
        panic!("the caller collects the input");
    });
    let runtime = Runtime::builder().server(peer.config("a"));
    let runtime = runtime.extension("io.example/ours", json!({ "b": 1 }));
    let runtime = runtime.callbacks(callbacks).start().await.unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    runtime
}

#[tokio::test]
async fn the_caller_gets_what_the_server_requires_and_sends_the_next_round() {
    let peer = Peer::modern(asking);
    let runtime = with_callbacks(&peer).await;
    let a = runtime.server("a").unwrap();
    let arguments = json!({ "x": 1 });
    let call = || a.call_tool("echo", arguments.clone());
    let Round::InputRequired(first) = call().input_rounds(forms()).await.unwrap() else {
        panic!("no input was required");
    };
    assert_eq!(Value::Object(first.result.clone()), required());
    assert_eq!(Value::Object(first.requests), required()["inputRequests"]);
    assert_eq!(first.state.as_deref(), Some("Runde\u{a0}1"));
    let next = call().input_responses(responses(), first.state);
    let Round::Complete(result) = next.input_rounds(forms()).await.unwrap() else {
        panic!("input was required again");
    };
    let sent = result.structured_content.unwrap();
    assert_eq!(sent["arguments"], arguments);
    assert_eq!(sent["requestState"], "Runde\u{a0}1");
    assert_eq!(sent["inputResponses"], json!(responses()));
    let capabilities = &sent["_meta"]["io.modelcontextprotocol/clientCapabilities"];
    assert_eq!(capabilities["elicitation"], json!({}), "the caller's own");
    assert_eq!(capabilities["extensions"]["io.example/ours"]["b"], 1);
    assert_eq!(a.status().in_flight, 0);
}

#[tokio::test]
async fn prompts_resources_and_raw_requests_have_rounds_too() {
    let peer = Peer::modern(asking);
    let runtime = with_callbacks(&peer).await;
    let a = runtime.server("a").unwrap();
    let state = || Some("s".to_owned());
    macro_rules! rounds {
        ($request:expr) => {{
            let first = $request.input_rounds(forms()).await.unwrap();
            assert!(matches!(first, Round::InputRequired(_)), "{first:?}");
            let next = $request.input_responses(responses(), state());
            match next.input_rounds(forms()).await.unwrap() {
                Round::Complete(result) => result,
                other => panic!("{other:?}"),
            }
        }};
    }
    let prompt = rounds!(a.get_prompt("p", Value::Null));
    assert_eq!(prompt.description.as_deref(), Some("s"));
    rounds!(a.read_resource("a:b"));
    let params = || Some(json!({ "name": "echo", "unknown": [1] }));
    let raw = rounds!(a.raw_request("tools/call", params()));
    assert_eq!(raw["structuredContent"]["unknown"], json!([1]));
    assert_eq!(raw["structuredContent"]["requestState"], "s");
    let error = a.ping().input_responses(responses(), None).await;
    let error = error.unwrap_err();
    assert!(matches!(error, CallError::InvalidRequest { .. }), "{error}");
}

#[tokio::test]
async fn each_round_is_a_request_with_its_own_deadline_and_place() {
    let peer = Peer::modern(|_, method, params| match method {
        "tools/call" if params["inputResponses"].is_null() => Answer::Result(required()),
        "tools/call" => Answer::Silence,
        _ => Answer::Default,
    });
    let (runtime, _own) = started(&peer).await;
    let agent = runtime.client("agent").quota(1).build();
    let a = agent.server("a").unwrap();
    let call = || a.call_tool("echo", Value::Null);
    // The first round does not hold its place while the caller collects the input.
    for _ in 0..3 {
        let round = call().input_rounds(forms()).deadline(DEADLINE).await;
        assert!(matches!(round, Ok(Round::InputRequired(_))));
    }
    let next = call().input_responses(responses(), None);
    let next = next.input_rounds(forms()).deadline(secs(1)).await;
    let error = next.unwrap_err();
    assert!(
        matches!(error, CallError::Deadline { sent: true, .. }),
        "{error}"
    );
    assert_eq!(error.known(), Known::Unknown);
}

/// Results with members and content that rmcp does not know.
fn odd(_: &Peer, method: &str, _: &Value) -> Answer {
    let text = json!({ "type": "text", "text": "a", "x-new": [1] });
    Answer::Result(match method {
        "tools/list" => json!({ "tools": [{
            "name": "echo",
            "inputSchema": { "type": "object" },
            "outputSchema": { "type": "object", "required": ["n"] },
        }] }),
        "tools/call" => json!({
            "content": [text, { "type": "video", "data": "AA" }],
            "structuredContent": {},
            "future": 1,
        }),
        "prompts/get" => json!({ "messages": [{ "role": "user", "content": text }], "future": 1 }),
        "resources/read" => json!({ "contents": [{ "uri": "a:b", "text": "", "x-new": 1 }] }),
        _ => return Answer::Default,
    })
}

#[tokio::test]
async fn the_result_of_a_round_keeps_what_rmcp_does_not_know() {
    let peer = Peer::modern(odd);
    let (_runtime, a) = started(&peer).await;
    macro_rules! same {
        ($method:literal, $request:expr) => {{
            let Round::Complete(result) = $request.input_rounds(forms()).await.unwrap() else {
                panic!("input was required");
            };
            let Answer::Result(sent) = odd(&peer, $method, &Value::Null) else {
                panic!("no result");
            };
            assert_eq!(raw_definition(&result), sent);
            result
        }};
    }
    let result = same!("tools/call", a.call_tool("echo", Value::Null));
    let text = result.content[1].as_text().unwrap();
    assert_eq!(text.text, "[unsupported content: video]");
    same!("prompts/get", a.get_prompt("p", Value::Null));
    same!("resources/read", a.read_resource("a:b"));
}

#[tokio::test]
async fn the_result_of_a_round_is_checked() {
    let peer = Peer::modern(odd);
    let config = peer.config("a").check_results(ResultCheck::Fail);
    let runtime = Runtime::builder().server(config).start().await.unwrap();
    runtime.settled(DEADLINE).await;
    let a = runtime.server("a").unwrap();
    let call = a.call_tool("echo", Value::Null).input_rounds(forms());
    let error = call.await.unwrap_err();
    assert!(matches!(error, CallError::InvalidResult { .. }), "{error}");
    assert_eq!(error.result().unwrap().content.len(), 2);
}

#[tokio::test]
async fn an_invalid_result_says_what_is_wrong() {
    for peer in [Peer::legacy(invalid), Peer::modern(invalid)] {
        let (_runtime, a) = started(&peer).await;
        let call = || a.call_tool("echo", Value::Null);
        let rounds = call().input_rounds(forms()).await.unwrap_err();
        for error in [call().await.unwrap_err(), rounds] {
            assert!(matches!(error, CallError::Unreadable { .. }), "{error}");
            assert!(
                error.to_string().contains("missing field `text`"),
                "{error}"
            );
        }
    }
}

/// Answers calls with a text block that has no text.
fn invalid(_: &Peer, method: &str, _: &Value) -> Answer {
    match method {
        "tools/call" => Answer::Result(json!({ "content": [{ "type": "text" }] })),
        _ => Answer::Default,
    }
}

#[tokio::test]
async fn an_unknown_type_of_result_is_not_a_result() {
    let peer = Peer::modern(|_, method, _| match method {
        "tools/call" => Answer::Result(json!({ "resultType": "later", "content": [] })),
        _ => Answer::Default,
    });
    let (_runtime, a) = started(&peer).await;
    let call = a.call_tool("echo", Value::Null).input_rounds(forms());
    let error = call.await.unwrap_err();
    assert!(matches!(error, CallError::Unreadable { .. }), "{error}");
    let raw = a.raw_request("tools/call", Some(json!({ "name": "echo" })));
    assert_eq!(raw.await.unwrap()["resultType"], "later");
}

#[tokio::test]
async fn older_versions_have_no_rounds() {
    let peer = Peer::legacy(plain);
    let (_runtime, a) = started(&peer).await;
    let call = a.call_tool("echo", json!({ "x": 1 })).input_rounds(forms());
    let Round::Complete(result) = call.await.unwrap() else {
        panic!("input was required");
    };
    assert_eq!(result.structured_content.unwrap(), json!({ "x": 1 }));
}

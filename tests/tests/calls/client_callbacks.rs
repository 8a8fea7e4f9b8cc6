//! Requests of a server reach the client whose call caused them, and no other.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use mcpvisor::{CallError, Callbacks, Runtime, ServerHandle};
use mcpvisor_testkit::scripted::{Behaviour, EntryKind, Record, Script, ScriptedServer};
use rmcp::model::{
    CustomNotification, ElicitRequest, ElicitResult, ElicitationAction, ErrorCode, ErrorData,
    RequestId, ServerNotification, ServerRequest,
};
use serde_json::{Value, json};

use crate::fleet::{DEADLINE, millis, server, settings, structured};
use crate::{received, spawn};

/// Accepts forms with the name of the client, and counts them.
fn named(name: &'static str, asked: &Arc<AtomicUsize>) -> Callbacks {
    let asked = Arc::clone(asked);
    Callbacks::new().elicitation_form(move |_| {
        asked.fetch_add(1, Ordering::Relaxed);
        let content = json!({ "name": name });
        async move { Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content)) }
    })
}

fn form() -> ServerRequest {
    let params = json!({
        "mode": "form",
        "message": "who are you?",
        "requestedSchema": { "type": "object", "properties": { "name": { "type": "string" } } },
    });
    ServerRequest::ElicitRequest(ElicitRequest::new(serde_json::from_value(params).unwrap()))
}

struct Fleet {
    scripted: ScriptedServer,
    runtime: Runtime,
    asked: Arc<AtomicUsize>,
}

impl Fleet {
    async fn start(script: Script) -> Self {
        let scripted = ScriptedServer::new(script);
        let asked = Arc::default();
        let runtime = Runtime::builder()
            .server(server("a", scripted.transport()).settings(settings(|_| {})))
            .callbacks(named("runtime", &asked))
            .start()
            .await
            .unwrap();
        runtime.ready(DEADLINE).await.unwrap();
        Self {
            scripted,
            runtime,
            asked,
        }
    }

    fn client(&self, name: &'static str) -> ServerHandle {
        let client = self.runtime.client(name);
        let client = client.callbacks(named(name, &self.asked)).build();
        client.server("a").unwrap()
    }

    /// Sends a request to the runtime and returns its answer.
    async fn ask(&self) -> Result<Value, ErrorData> {
        let id = self.scripted.control().request(form());
        let record = self.scripted.record();
        let answered = |record: &Record| answer_to(record, &id).is_some();
        record.until(DEADLINE, "an answer", answered).await;
        answer_to(&record, &id).unwrap()
    }

    fn ambiguous(&self) -> u64 {
        self.runtime
            .server("a")
            .unwrap()
            .status()
            .ambiguous_requests
    }
}

fn answer_to(record: &Record, id: &RequestId) -> Option<Result<Value, ErrorData>> {
    record.entries().into_iter().find_map(|it| match it.what {
        EntryKind::Answered {
            id: answered,
            result,
        } if answered == *id => Some(Ok(result)),
        EntryKind::Refused { id: refused, error } if refused.as_ref() == Some(id) => {
            Some(Err(error))
        }
        _ => None,
    })
}

fn name(answer: Result<Value, ErrorData>) -> String {
    answer.unwrap()["content"]["name"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn held() -> Script {
    Script::new().tool("slow", Behaviour::answer().held())
}

#[tokio::test(start_paused = true)]
async fn the_only_client_with_calls_in_flight_answers() {
    let fleet = Fleet::start(held()).await;
    assert_eq!(name(fleet.ask().await), "runtime");
    let planner = fleet.client("planner");
    let calls = [1, 2].map(|n| spawn(planner.call_tool("slow", json!({ "n": n }))));
    received(&fleet.scripted.record(), "slow", 2).await;
    assert_eq!(name(fleet.ask().await), "planner");
    fleet.scripted.control().release("slow", 2);
    for call in calls {
        structured(call.await.unwrap());
    }
    assert_eq!(name(fleet.ask().await), "runtime");
    assert_eq!(fleet.ambiguous(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_two_clients_may_have_caused_is_declined_and_counted() {
    let fleet = Fleet::start(held()).await;
    let (planner, coder) = (fleet.client("planner"), fleet.client("coder"));
    let calls = [&planner, &coder].map(|client| spawn(client.call_tool("slow", json!({}))));
    received(&fleet.scripted.record(), "slow", 2).await;
    for count in 1..=3 {
        let error = fleet.ask().await.unwrap_err();
        assert!(error.message.contains("several clients"), "{error:?}");
        mcpvisor_testkit::eventually(DEADLINE, "the count", || fleet.ambiguous() == count).await;
    }
    assert_eq!(fleet.asked.load(Ordering::Relaxed), 0);
    fleet.scripted.control().release("slow", 2);
    for call in calls {
        structured(call.await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_given_up_may_still_cause_requests() {
    let fleet = Fleet::start(held()).await;
    let (planner, coder) = (fleet.client("planner"), fleet.client("coder"));
    let given_up = planner.call_tool("slow", json!({})).deadline(millis(50));
    given_up.await.unwrap_err();
    let call = spawn(coder.call_tool("slow", json!({})));
    received(&fleet.scripted.record(), "slow", 2).await;
    fleet.ask().await.unwrap_err();
    assert_eq!(fleet.asked.load(Ordering::Relaxed), 0);
    fleet.scripted.control().release("slow", 1);
    structured(call.await.unwrap());
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    let call = spawn(coder.call_tool("slow", json!({})));
    received(&fleet.scripted.record(), "slow", 3).await;
    assert_eq!(name(fleet.ask().await), "coder");
    fleet.scripted.control().release("slow", 1);
    structured(call.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn callbacks_of_one_request_answer_what_it_causes() {
    let fleet = Fleet::start(held()).await;
    let planner = fleet.client("planner");
    let own = named("request", &fleet.asked);
    let call = spawn(planner.call_tool("slow", json!({})).callbacks(own));
    received(&fleet.scripted.record(), "slow", 1).await;
    assert_eq!(name(fleet.ask().await), "request");
    let other = spawn(planner.call_tool("slow", json!({})));
    received(&fleet.scripted.record(), "slow", 2).await;
    fleet.ask().await.unwrap_err();
    fleet.scripted.control().release("slow", 2);
    structured(call.await.unwrap());
    structured(other.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_connection_advertises_what_the_clients_answer_together() {
    let scripted = ScriptedServer::new(Script::new());
    let runtime = Runtime::builder()
        .server(server("a", scripted.transport()))
        .client_callbacks(&named("any", &Arc::default()))
        .start()
        .await
        .unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    let initialize = &scripted.record().received("initialize")[0];
    assert_eq!(
        initialize.params["capabilities"],
        json!({ "elicitation": { "form": {} } })
    );
}

/// Refuses the first calls until a person has opened two URLs.
fn url_required(refusals: usize) -> Script {
    let url = |id: &str| {
        json!({
            "mode": "url",
            "message": "sign in",
            "url": format!("https://example.com/{id}"),
            "elicitationId": id,
        })
    };
    let data = json!({ "elicitations": [url("first"), url("second")] });
    let error = ErrorData::new(ErrorCode(-32042), "sign in first", Some(data));
    let refused = Behaviour::error(error);
    let tool = Behaviour::first(refusals, refused, Behaviour::answer());
    Script::new().tool("charge", tool)
}

/// Answers requests to open URLs, and records them.
fn opening(action: ElicitationAction, opened: &Arc<Mutex<Vec<String>>>) -> Callbacks {
    let opened = Arc::clone(opened);
    Callbacks::new().elicitation_url(move |ask| {
        opened.lock().unwrap().push(ask.params.url);
        let action = action.clone();
        async move { Ok(ElicitResult::new(action)) }
    })
}

async fn with_urls(
    refusals: usize,
    action: ElicitationAction,
) -> (ScriptedServer, Runtime, Arc<Mutex<Vec<String>>>) {
    let scripted = ScriptedServer::new(url_required(refusals));
    let opened = Arc::default();
    let runtime = Runtime::builder()
        .server(server("a", scripted.transport()))
        .callbacks(opening(action, &opened))
        .start()
        .await
        .unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    (scripted, runtime, opened)
}

#[tokio::test(start_paused = true)]
async fn a_call_that_needs_urls_to_be_opened_is_sent_again_when_they_were() {
    let (scripted, runtime, opened) = with_urls(1, ElicitationAction::Accept).await;
    let handle = runtime.server("a").unwrap();
    let call = spawn(handle.call_tool("charge", json!({ "n": 1 })));
    let both = || opened.lock().unwrap().len() == 2;
    mcpvisor_testkit::eventually(DEADLINE, "both URLs", both).await;
    let begun = tokio::time::Instant::now();
    for id in ["first", "second"] {
        assert_eq!(scripted.record().calls("charge").len(), 1);
        let method = "notifications/elicitation/complete";
        let params = json!({ "elicitationId": id });
        let complete = CustomNotification::new(method, Some(params));
        let complete = ServerNotification::CustomNotification(complete);
        scripted.control().notify(complete);
    }
    assert_eq!(structured(call.await.unwrap()), json!({ "n": 1 }));
    assert!(begun.elapsed() < std::time::Duration::from_secs(30));
    assert_eq!(scripted.record().calls("charge").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_reports_no_completion_is_asked_again_after_a_minute() {
    let (scripted, runtime, _opened) = with_urls(1, ElicitationAction::Accept).await;
    let handle = runtime.server("a").unwrap();
    let begun = tokio::time::Instant::now();
    structured(handle.call_tool("charge", json!({})).await);
    assert_eq!(begun.elapsed().as_secs(), 60);
    assert_eq!(scripted.record().calls("charge").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_urls_are_not_opened_fails_with_the_reason() {
    let (scripted, runtime, opened) = with_urls(1, ElicitationAction::Decline).await;
    let handle = runtime.server("a").unwrap();
    let error = handle.call_tool("charge", json!({})).await.unwrap_err();
    assert!(matches!(error, CallError::InputRequired { .. }), "{error}");
    assert_eq!(opened.lock().unwrap().len(), 1);
    // A client that opens no URLs gets the server's error as it is.
    let client = runtime
        .client("planner")
        .callbacks(Callbacks::new())
        .build();
    let fresh = ScriptedServer::new(url_required(1));
    runtime.add(server("b", fresh.transport())).await.unwrap();
    let error = client.server("b").unwrap();
    let error = error.call_tool("charge", json!({})).await.unwrap_err();
    let CallError::Answered { error, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(error.code.0, -32042);
    assert!(error.data.is_some());
    assert_eq!(scripted.record().calls("charge").len(), 1);
}

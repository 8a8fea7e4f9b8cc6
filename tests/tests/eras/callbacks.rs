//! Requests from servers of the older eras: answered by callbacks, or declined.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mcpvisor::{Callbacks, Runtime, ServerHandle};
use mcpvisor_testkit::scripted::{Behaviour, EntryKind, Record, Script, ScriptedServer};
use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, CreateMessageRequest, CreateMessageResult,
    CustomRequest, ElicitRequest, ElicitResult, ElicitationAction, ErrorData, ListRootsRequest,
    LoggingLevel, RequestId, Root, SamplingMessage, ServerNotification, ServerRequest,
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::fleet::*;

async fn started(callbacks: Callbacks) -> (ScriptedServer, Runtime, ServerHandle) {
    let scripted = ScriptedServer::new(Script::new());
    let runtime = Runtime::builder()
        .server(server("a", scripted.transport()))
        .callbacks(callbacks)
        .start()
        .await
        .unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    let handle = runtime.server("a").unwrap();
    (scripted, runtime, handle)
}

fn sampling() -> ServerRequest {
    let params = json!({
        "messages": [{ "role": "user", "content": { "type": "text", "text": "hello?" } }],
        "maxTokens": 10,
    });
    let params = serde_json::from_value(params).unwrap();
    ServerRequest::CreateMessageRequest(CreateMessageRequest::new(params))
}

fn form() -> ServerRequest {
    elicitation(json!({
        "mode": "form",
        "message": "who are you?",
        "requestedSchema": {
            "type": "object",
            "properties": { "name": { "type": "string", "default": "Ada" } },
        },
    }))
}

fn url() -> ServerRequest {
    elicitation(json!({
        "mode": "url",
        "message": "sign in",
        "url": "https://example.com/login",
        "elicitationId": "1",
    }))
}

fn elicitation(params: Value) -> ServerRequest {
    let params = serde_json::from_value(params).unwrap();
    ServerRequest::ElicitRequest(ElicitRequest::new(params))
}

fn roots() -> ServerRequest {
    ServerRequest::ListRootsRequest(ListRootsRequest {
        method: Default::default(),
        extensions: Default::default(),
    })
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

/// Sends a request to the client and waits for the reply.
async fn asked(scripted: &ScriptedServer, request: ServerRequest) -> Result<Value, ErrorData> {
    let id = scripted.control().request(request);
    let record = scripted.record();
    let answered = |record: &Record| answer_to(record, &id).is_some();
    record.until(DEADLINE, "an answer", answered).await;
    answer_to(&record, &id).unwrap()
}

fn everything() -> Callbacks {
    Callbacks::new()
        .sampling(|ask| async move {
            let text = format!("{} asked", ask.server);
            Ok(CreateMessageResult::new(
                SamplingMessage::assistant_text(text),
                "model".to_owned(),
            ))
        })
        .elicitation_form(|ask| async move {
            let content = ask.params.with_defaults(Default::default());
            Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content.into()))
        })
        .elicitation_url(|ask| async move {
            assert_eq!(ask.params.url, "https://example.com/login");
            Ok(ElicitResult::new(ElicitationAction::Decline))
        })
        .roots(|_| async { Ok(vec![Root::new("file:///work")]) })
}

#[tokio::test]
async fn what_the_callbacks_implement_is_advertised_and_answered() {
    let (scripted, _runtime, _handle) = started(everything()).await;
    let initialize = &scripted.record().received("initialize")[0];
    assert_eq!(
        initialize.params["capabilities"],
        json!({ "sampling": {}, "roots": {}, "elicitation": { "form": {}, "url": {} } })
    );
    let sampled = asked(&scripted, sampling()).await.unwrap();
    assert_eq!(sampled["content"]["text"], "a asked");
    assert_eq!(
        asked(&scripted, form()).await.unwrap(),
        json!({ "action": "accept", "content": { "name": "Ada" } })
    );
    assert_eq!(
        asked(&scripted, url()).await.unwrap(),
        json!({ "action": "decline" })
    );
    assert_eq!(
        asked(&scripted, roots()).await.unwrap(),
        json!({ "roots": [{ "uri": "file:///work" }] })
    );
}

#[tokio::test]
async fn what_nobody_implements_is_neither_advertised_nor_answered() {
    let (scripted, _runtime, _handle) = started(Callbacks::new()).await;
    let initialize = &scripted.record().received("initialize")[0];
    assert_eq!(initialize.params["capabilities"], json!({}));
    for request in [sampling(), form(), url(), roots()] {
        let declined = asked(&scripted, request).await.unwrap_err();
        assert_eq!(declined.code.0, -32601);
    }
    let only_url = Callbacks::new()
        .elicitation_url(|_| async { Ok(ElicitResult::new(ElicitationAction::Accept)) });
    let (scripted, _runtime, _handle) = started(only_url).await;
    let declined = asked(&scripted, form()).await.unwrap_err();
    assert_eq!(declined.code.0, -32602, "the mode is wrong, not the method");
}

#[tokio::test]
async fn a_question_that_cannot_be_read_is_answered_with_what_is_wrong_with_it() {
    let unreadable = |method: &str| {
        let params = json!({ "messages": 7, "message": 7, "mode": "form" });
        ServerRequest::CustomRequest(CustomRequest::new(method, Some(params)))
    };
    let (scripted, _runtime, _handle) = started(everything()).await;
    for method in ["sampling/createMessage", "elicitation/create"] {
        let refused = asked(&scripted, unreadable(method)).await.unwrap_err();
        assert_eq!(refused.code.0, -32602, "{refused:?}");
        let start = format!("the parameters of {method} cannot be read: ");
        assert!(refused.message.starts_with(&start), "{refused:?}");
    }
    let unknown = asked(&scripted, unreadable("x/y")).await.unwrap_err();
    assert_eq!(unknown.code.0, -32601);
    let (scripted, _runtime, _handle) = started(Callbacks::new()).await;
    let sampling = unreadable("sampling/createMessage");
    let declined = asked(&scripted, sampling).await.unwrap_err();
    assert_eq!(declined.code.0, -32601, "it is not offered at all");
}

#[tokio::test]
async fn a_callback_that_fails_is_answered_with_its_error() {
    let callbacks = Callbacks::new()
        .roots(|_| async { Err(ErrorData::internal_error("not today", None)) })
        .sampling(|_| async { panic!("a callback of the host's panics") });
    without_reports_of_panics();
    let (scripted, _runtime, handle) = started(callbacks).await;
    assert_eq!(
        asked(&scripted, roots()).await.unwrap_err().message,
        "not today"
    );
    assert_eq!(
        asked(&scripted, sampling()).await.unwrap_err().message,
        "the client failed to answer"
    );
    handle.ping().await.unwrap();
    assert_eq!(scripted.record().opened(), [1]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_callback_blocks_nothing_and_is_given_up_at_its_deadline() {
    let callbacks = Callbacks::new()
        .roots(|_| std::future::pending())
        .deadline(secs(20));
    let (scripted, _runtime, handle) = started(callbacks).await;
    let id = scripted.control().request(roots());
    handle.ping().await.unwrap();
    assert_eq!(answer_to(&scripted.record(), &id), None);
    let answered = |record: &Record| answer_to(record, &id).is_some();
    scripted
        .record()
        .until(DEADLINE, "an answer", answered)
        .await;
    let given_up = answer_to(&scripted.record(), &id).unwrap().unwrap_err();
    assert_eq!(given_up.message, "the client timed out");
}

/// Then the client is the silent side, not the server.
#[tokio::test(start_paused = true)]
async fn the_idle_time_of_calls_rests_while_the_server_waits_for_an_answer() {
    let callbacks = Callbacks::new().roots(|_| async {
        tokio::time::sleep(secs(25)).await;
        Ok(Vec::new())
    });
    let (scripted, _runtime, handle) = started(callbacks).await;
    let patient = Behaviour::answer().after(secs(30));
    let script = Script::new().tool("patient", patient);
    scripted
        .control()
        .set_script(script.tool("silent", Behaviour::silence()));
    let begun = Instant::now();
    let call = |tool| handle.call_tool(tool, json!({})).idle_timeout(secs(10));
    let answered = tokio::spawn(call("patient").into_future());
    let silent = tokio::spawn(call("silent").into_future());
    let capped = tokio::spawn(call("silent").deadline(secs(20)).into_future());
    let all = |record: &Record| record.calls("silent").len() + record.calls("patient").len() == 3;
    scripted.record().until(DEADLINE, "the calls", all).await;
    tokio::time::sleep(secs(9)).await;
    scripted.control().request(roots());
    // One that starts in between is suspended too.
    tokio::time::sleep(secs(2)).await;
    let hasty = call("silent").idle_timeout(secs(1));
    let hasty = tokio::spawn(hasty.into_future());

    assert!(capped.await.unwrap().is_err());
    assert_eq!(begun.elapsed(), secs(20), "the deadline is a hard cap");
    answered.await.unwrap().unwrap();
    assert!(hasty.await.unwrap().is_err());
    assert_eq!(begun.elapsed(), secs(35), "1 s after the answer");
    let problem = silent.await.unwrap().unwrap_err();
    assert_eq!(begun.elapsed(), secs(44), "10 s after the answer");
    assert!(problem.to_string().contains("silent for 10s"), "{problem}");
}

#[tokio::test]
async fn a_flood_of_questions_is_answered_a_few_at_a_time() {
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let gate = Arc::new(Semaphore::new(0));
    let callbacks = Callbacks::new().at_once(3).roots({
        let (running, most, gate) = (running.clone(), most.clone(), gate.clone());
        move |_| {
            let (running, most, gate) = (running.clone(), most.clone(), gate.clone());
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                gate.acquire().await.unwrap().forget();
                running.fetch_sub(1, Ordering::SeqCst);
                Ok(Vec::new())
            }
        }
    });
    let (scripted, _runtime, handle) = started(callbacks).await;
    let ids: Vec<_> = (0..500)
        .map(|_| scripted.control().request(roots()))
        .collect();
    handle.ping().await.unwrap();
    gate.add_permits(500);
    let record = scripted.record();
    let all = |record: &Record| ids.iter().all(|id| answer_to(record, id).is_some());
    record.until(DEADLINE, "all answers", all).await;
    let answered = ids
        .iter()
        .filter(|id| answer_to(&record, id).unwrap().is_ok());
    assert!(answered.count() >= 3);
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_question_that_the_server_takes_back_is_dropped() {
    struct Dropped(Arc<Semaphore>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.add_permits(1);
        }
    }
    let (started_one, dropped) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let callbacks = Callbacks::new().at_once(1).roots({
        let (started_one, dropped) = (started_one.clone(), dropped.clone());
        move |_| {
            let guard = Dropped(dropped.clone());
            started_one.add_permits(1);
            async move {
                let _guard = guard;
                std::future::pending().await
            }
        }
    });
    let (scripted, runtime, handle) = started(callbacks).await;
    let id = scripted.control().request(roots());
    started_one.acquire().await.unwrap().forget();
    let param = CancelledNotificationParam::new(Some(id.clone()), None);
    scripted
        .control()
        .notify(ServerNotification::CancelledNotification(
            CancelledNotification::new(param),
        ));
    tokio::time::timeout(DEADLINE, dropped.acquire())
        .await
        .unwrap()
        .unwrap()
        .forget();
    handle.ping().await.unwrap();
    assert_eq!(answer_to(&scripted.record(), &id), None);
    // Another one takes its place, and ends with the connection.
    scripted.control().request(roots());
    started_one.acquire().await.unwrap().forget();
    runtime.shutdown(secs(1)).await;
    tokio::time::timeout(DEADLINE, dropped.acquire())
        .await
        .unwrap()
        .unwrap()
        .forget();
}

#[tokio::test]
async fn log_messages_and_notifications_of_a_servers_own_are_told_in_order() {
    let (sender, mut told) = tokio::sync::mpsc::unbounded_channel();
    let callbacks = Callbacks::new()
        .logs({
            let sender = sender.clone();
            move |ask| {
                let _ = sender.send(format!("{}: {}", ask.server, ask.params.data));
                async {}
            }
        })
        .notifications(move |ask| {
            let _ = sender.send(ask.params.method);
            async {}
        });
    let (scripted, _runtime, _handle) = started(callbacks).await;
    scripted.control().log(LoggingLevel::Info, json!("one"));
    let custom = json!({ "method": "notifications/x-mine" });
    let custom: ServerNotification = serde_json::from_value(custom).unwrap();
    scripted.control().notify(custom);
    scripted.control().log(LoggingLevel::Info, json!("two"));
    let mut all = Vec::new();
    for _ in 0..3 {
        all.push(
            tokio::time::timeout(DEADLINE, told.recv())
                .await
                .unwrap()
                .unwrap(),
        );
    }
    assert_eq!(all, ["a: \"one\"", "notifications/x-mine", "a: \"two\""]);
}

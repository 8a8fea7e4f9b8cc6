//! Requests that a modern server answers with an input request.

use std::future::IntoFuture;
use std::sync::Arc;

use mcpvisor::{CallError, Callbacks, Known, Runtime, ServerHandle};
use mcpvisor_testkit::processes::Marker;
use rmcp::model::{ElicitResult, ElicitationAction, ErrorData};
use serde_json::json;
use tokio::sync::Barrier;

use crate::fleet::*;
use crate::{Folder, child};

async fn started(
    marker: &Marker,
    folder: &Folder,
    callbacks: Callbacks,
) -> (Runtime, ServerHandle) {
    let runtime = Runtime::builder()
        .server(child(marker, "modern", &folder.file("received"), &[]))
        .callbacks(callbacks)
        .start()
        .await
        .unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    let handle = runtime.server("a").unwrap();
    (runtime, handle)
}

fn accepting() -> Callbacks {
    Callbacks::new().elicitation_form(|ask| async move {
        let content = ask.params.with_defaults(Default::default());
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content.into()))
    })
}

#[tokio::test]
async fn a_question_is_answered_and_the_call_goes_on_with_the_servers_state() {
    let (marker, folder) = (Marker::new("eras-rounds"), Folder::new("rounds"));
    let (_runtime, handle) = started(&marker, &folder, accepting()).await;
    for rounds in [1, 3, 8] {
        let result = handle.call_tool("ask", json!({ "rounds": rounds })).await;
        let name = format!("name {}", rounds - 1);
        assert_eq!(
            structured(result),
            json!({
                "state": format!("Runde\u{a0}{rounds}"),
                "inputs": { "who": { "action": "accept", "content": { "name": name } } },
            })
        );
    }
    assert_eq!(handle.status().in_flight, 0);
}

#[tokio::test]
async fn a_server_that_never_stops_asking_is_given_up() {
    let (marker, folder) = (Marker::new("eras-endless"), Folder::new("endless"));
    let (_runtime, handle) = started(&marker, &folder, accepting()).await;
    let error = handle
        .call_tool("ask", json!({ "rounds": 9 }))
        .await
        .unwrap_err();
    assert!(matches!(error, CallError::InputRequired { .. }), "{error}");
    assert_eq!(error.known(), Known::Answered);
    assert!(error.to_string().contains("8 times"), "{error}");
    handle.ping().await.unwrap();
    assert_eq!(handle.status().in_flight, 0);
}

#[tokio::test]
async fn what_nobody_answers_fails_the_call_with_the_reason() {
    let (marker, folder) = (Marker::new("eras-declined"), Folder::new("declined"));
    let (_runtime, handle) = started(&marker, &folder, Callbacks::new()).await;
    let error = handle.call_tool("ask", json!({})).await.unwrap_err();
    assert!(matches!(error, CallError::InputRequired { .. }), "{error}");
    assert!(
        error.to_string().contains("a form to be filled in"),
        "{error}"
    );

    let (marker, folder) = (Marker::new("eras-failing"), Folder::new("failing"));
    let callbacks = Callbacks::new()
        .elicitation_form(|_| async { Err(ErrorData::internal_error("nobody is there", None)) });
    let (_runtime, handle) = started(&marker, &folder, callbacks).await;
    let error = handle.call_tool("ask", json!({})).await.unwrap_err();
    assert!(error.to_string().contains("nobody is there"), "{error}");
}

#[tokio::test]
async fn the_rounds_of_a_call_share_its_deadline_but_not_its_idle_time() {
    let (marker, folder) = (Marker::new("eras-deadline"), Folder::new("deadline"));
    let slow = Callbacks::new().elicitation_form(|_| async {
        tokio::time::sleep(millis(2_500)).await;
        Ok(ElicitResult::new(ElicitationAction::Decline))
    });
    let (_runtime, handle) = started(&marker, &folder, slow).await;
    let call = handle.call_tool("ask", json!({ "rounds": 1 }));
    let result = call.idle_timeout(secs(2)).await;
    assert_eq!(
        structured(result)["inputs"],
        json!({ "who": { "action": "decline" } }),
        "it is we who were silent, not the server"
    );
    let call = handle.call_tool("ask", json!({ "rounds": 8 }));
    let error = call.deadline(secs(4)).await.unwrap_err();
    assert!(
        matches!(error, CallError::Deadline { sent: true, .. }),
        "{error}"
    );
    handle.ping().await.unwrap();
    assert_eq!(handle.status().in_flight, 0);
}

/// Figure 32 in the modern era: the server's question belongs to a call.
#[tokio::test]
async fn fifty_agents_that_are_asked_at_once_get_their_own_questions() {
    const AGENTS: usize = 50;
    let (marker, folder) = (Marker::new("eras-agents"), Folder::new("agents"));
    let (runtime, handle) = started(&marker, &folder, Callbacks::new()).await;
    let together = Arc::new(Barrier::new(AGENTS));
    let calls = (0..AGENTS).map(|agent| {
        let together = Arc::clone(&together);
        let callbacks = Callbacks::new().elicitation_form(move |_| {
            let together = Arc::clone(&together);
            async move {
                together.wait().await;
                let content = json!({ "name": format!("agent {agent}") });
                Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content))
            }
        });
        let client = runtime.client(format!("agent {agent}"));
        let handle = client.callbacks(callbacks).build().server("a").unwrap();
        let call = handle.call_tool("ask", json!({ "rounds": 1 }));
        tokio::spawn(call.deadline(DEADLINE).into_future())
    });
    for (agent, call) in calls.collect::<Vec<_>>().into_iter().enumerate() {
        let answer = structured(call.await.unwrap());
        let name = &answer["inputs"]["who"]["content"]["name"];
        assert_eq!(*name, format!("agent {agent}"));
    }
    // Without callbacks, a client offers nothing, whatever others offer.
    let error = handle.call_tool("ask", json!({})).await.unwrap_err();
    assert!(matches!(error, CallError::InputRequired { .. }), "{error}");
}

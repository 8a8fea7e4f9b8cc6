//! A call that becomes a task, and is awaited like any other.

use mcpvisor::{CallError, Callbacks, Known, TaskStart};
use mcpvisor_testkit::processes;
use rmcp::model::{ElicitResult, ElicitationAction};
use serde_json::json;

use super::*;

#[tokio::test]
async fn a_tool_that_has_to_be_a_task_is_awaited_like_any_other() {
    for era in ERAS {
        let tasks = TaskServer::new("required", era);
        let (_runtime, handle) = tasks.start().await;
        let call = handle.call_tool("must", json!({ "ms": 250, "poll": 100 }));
        let result = structured(call.deadline(DEADLINE).await);
        assert_eq!(result["arguments"]["ms"], 250, "{era}");
        assert!(tasks.count("tasks/get") >= 2, "{era}");
        assert_eq!(tasks.count("tasks/cancel"), 0, "{era}");
    }
}

#[tokio::test]
async fn a_tool_that_may_be_a_task_is_called_as_one_only_on_request() {
    let tasks = TaskServer::new("optional", "legacy");
    let (_runtime, handle) = tasks.start().await;
    let called = handle.call_tool("work", json!({ "ms": 1 })).await;
    assert_eq!(structured(called)["ms"], 1);
    assert_eq!(tasks.count("tasks/get"), 0);
    let started = handle.call_tool("work", json!({})).as_task().await.unwrap();
    let TaskStart::Started(task) = started else {
        panic!("answered at once");
    };
    assert_eq!(task.tool(), Some("work"));
    task.result().await.unwrap();
    // Not a task in either way.
    let started = handle
        .call_tool("plain", json!({}))
        .as_task()
        .await
        .unwrap();
    assert!(matches!(started, TaskStart::Answered(_)));
}

/// Its definition is known only after the server has refused the first call.
#[tokio::test]
async fn a_tool_of_a_server_that_is_not_connected_yet_becomes_a_task_if_it_has_to() {
    for as_task in [false, true] {
        let tasks = TaskServer::new(&format!("lazy-{as_task}"), "legacy");
        let mut config = tasks.config();
        config.settings.rest.lazy = true;
        let runtime = fleet([config]).await;
        let handle = runtime.server("a").unwrap();
        let call = handle.call_tool("must", json!({ "ms": 50 }));
        let call = call.deadline(DEADLINE);
        if as_task {
            let started = call.as_task().await.unwrap();
            assert!(matches!(started, TaskStart::Started(_)));
        } else {
            call.await.unwrap();
        }
        assert_eq!(tasks.count("tools/call"), 2 - usize::from(as_task));
    }
}

#[tokio::test]
async fn polls_keep_the_interval_of_the_server() {
    for era in ERAS {
        let tasks = TaskServer::new("interval", era);
        let (_runtime, handle) = tasks.start().await;
        let call = handle.call_tool("must", json!({ "ms": 1_000, "poll": 400 }));
        call.deadline(DEADLINE).await.unwrap();
        let polls = tasks.count("tasks/get");
        // It ends after the second interval, and is seen with the third poll.
        assert!((1..=3).contains(&polls), "{era}: {polls}");
    }
}

#[tokio::test]
async fn a_task_outlives_the_connection_and_its_caller_does_not_notice() {
    for era in ERAS {
        let tasks = TaskServer::new("killed", era);
        let (_runtime, handle) = tasks.start().await;
        let call = handle.call_tool("must", json!({ "ms": 1_500, "poll": 50 }));
        let call = tokio::spawn(call.deadline(DEADLINE).into_future());
        tasks.receives("tasks/get").await;
        for generation in 1..=2 {
            let running = tasks.marker.processes();
            processes::kill(running[0].pid);
            ready_after(&handle, generation).await;
        }
        assert_eq!(
            structured(call.await.unwrap())["arguments"]["ms"],
            1_500,
            "{era}"
        );
        assert_eq!(tasks.count("tools/call"), 1, "{era}: started once");
    }
}

#[tokio::test]
async fn a_dropped_call_cancels_its_task_at_the_server() {
    for era in ERAS {
        let tasks = TaskServer::new("dropped", era);
        let (_runtime, handle) = tasks.start().await;
        let call = handle.call_tool("must", json!({ "ms": ENDLESS }));
        let call = tokio::spawn(call.deadline(DEADLINE).into_future());
        tasks.receives("tasks/get").await;
        call.abort();
        tasks.receives("tasks/cancel").await;
    }
}

/// The cancellation is handed over before the runtime is shut down.
#[tokio::test]
async fn a_call_that_is_dropped_at_the_very_end_cancels_its_task_too() {
    let tasks = TaskServer::new("dropped-last", "modern");
    let (runtime, handle) = tasks.start().await;
    let mut call = Box::pin(
        handle
            .call_tool("must", json!({ "ms": ENDLESS, "poll": 600_000 }))
            .deadline(DEADLINE)
            .into_future(),
    );
    let asleep = async {
        tasks.receives("tools/call").await;
        // The answer is on its way; a poll follows only after the interval.
        handle.ping().await.unwrap();
        handle.ping().await.unwrap();
    };
    tokio::select! {
        _ = &mut call => panic!("it does not end"),
        () = asleep => {}
    }
    drop(call);
    runtime.shutdown(DEADLINE).await;
    assert_eq!(tasks.count("tasks/cancel"), 1);
}

#[tokio::test]
async fn the_deadline_of_a_call_covers_its_task_and_cancels_it() {
    for era in ERAS {
        let tasks = TaskServer::new("deadline", era);
        let (_runtime, handle) = tasks.start().await;
        let call = handle.call_tool("must", json!({ "ms": ENDLESS }));
        let late = call.deadline(millis(1_500)).await.unwrap_err();
        let expected = matches!(
            &late,
            CallError::Deadline { method, after, sent: true, .. } if **method == *"tools/call" && *after == millis(1_500)
        );
        assert!(expected, "{era}: {late}");
        tasks.receives("tasks/cancel").await;
    }
}

#[tokio::test]
async fn a_client_that_cancels_its_requests_cancels_its_tasks_too() {
    let tasks = TaskServer::new("client", "modern");
    let (runtime, _handle) = tasks.start().await;
    let client = runtime.client("agent").build();
    let handle = client.server("a").unwrap();
    let call = handle.call_tool("must", json!({ "ms": ENDLESS, "poll": 600_000 }));
    let call = tokio::spawn(call.deadline(DEADLINE).into_future());
    tasks.receives("tools/call").await;
    // Once it is cancelled, the task was known, or the call was still in flight.
    client.close();
    let cancelled = call.await.unwrap().unwrap_err();
    assert!(
        matches!(cancelled, CallError::Cancelled { .. }),
        "{cancelled}"
    );
    if tasks
        .received()
        .iter()
        .all(|it| it != "notifications/cancelled")
    {
        tasks.receives("tasks/cancel").await;
    }
}

#[tokio::test]
async fn polls_need_no_permit_of_the_clients_quota() {
    let tasks = TaskServer::new("quota", "modern");
    let (runtime, _handle) = tasks.start().await;
    let client = runtime.client("agent").quota(1).rate(1, secs(3_600));
    let handle = client.build().server("a").unwrap();
    let call = handle.call_tool("must", json!({ "ms": 300, "poll": 50 }));
    call.deadline(DEADLINE).await.unwrap();
    assert!(tasks.count("tasks/get") >= 2);
}

#[tokio::test]
async fn the_input_that_a_task_needs_is_given_by_the_callbacks_of_its_call() {
    for era in ERAS {
        let tasks = TaskServer::new("input", era);
        let answering = || {
            Callbacks::new().elicitation_form(|_| async {
                let content = json!({ "name": "Ada" });
                Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content))
            })
        };
        let builder = tasks.builder().client_callbacks(&answering());
        let (_runtime, handle) = started(builder).await;
        let call = handle.call_tool("must", json!({ "ask": true, "ms": 1 }));
        let call = call.deadline(DEADLINE).callbacks(answering());
        let result = structured(call.await);
        assert!(
            result["input"].to_string().contains("Ada"),
            "{era}: {result}"
        );
        let declined = handle.call_tool("must", json!({ "ask": true, "ms": 1 }));
        if era == "modern" {
            let declined = declined.deadline(DEADLINE).await.unwrap_err();
            assert!(
                matches!(declined, CallError::InputRequired { .. }),
                "{declined}"
            );
            tasks.receives("tasks/cancel").await;
        }
    }
}

#[tokio::test]
async fn a_task_that_fails_gives_the_error_of_its_call() {
    for era in ERAS {
        let tasks = TaskServer::new("fails", era);
        let (_runtime, handle) = tasks.start().await;
        let call = handle.call_tool("must", json!({ "error": "no space left", "ms": 100 }));
        let failed = call.deadline(DEADLINE).await.unwrap_err();
        let CallError::Answered { method, error, .. } = &failed else {
            panic!("{era}: {failed}");
        };
        assert_eq!(&**method, "tools/call");
        assert_eq!((error.code.0, &*error.message), (-32050, "no space left"));
        assert_eq!(failed.known(), Known::Answered);
    }
}

#[tokio::test]
async fn a_disabled_server_leaves_the_outcome_of_its_task_unknown() {
    let tasks = TaskServer::new("disabled", "modern");
    let (runtime, handle) = tasks.start().await;
    let call = handle.call_tool("must", json!({ "ms": ENDLESS, "poll": 50 }));
    let call = tokio::spawn(call.deadline(DEADLINE).into_future());
    tasks.receives("tasks/get").await;
    runtime.disable("a").await.unwrap();
    let lost = call.await.unwrap().unwrap_err();
    assert!(matches!(lost, CallError::TaskUnreachable { .. }), "{lost}");
    assert_eq!(lost.known(), Known::Unknown);
    assert_eq!(lost.code(), "task_unreachable");
}

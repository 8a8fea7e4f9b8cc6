//! Tasks over HTTP.

use mcpvisor::{CallError, Known, TaskStart};
use mcpvisor_testkit::http_server::{HttpOptions, HttpServer};
use serde_json::json;

use super::*;

async fn connected(options: HttpOptions) -> (HttpServer, Runtime, ServerHandle) {
    let http = HttpServer::start(options.with_tasks()).await;
    let config = server("a", Transport::http(http.url())).settings(eager());
    let (runtime, handle) = ready(config).await;
    (http, runtime, handle)
}

#[tokio::test]
async fn a_task_survives_a_server_that_is_away_for_a_while() {
    for options in [HttpOptions::modern(), HttpOptions::default()] {
        let (http, _runtime, handle) = connected(options).await;
        let call = handle.call_tool("must", json!({ "ms": 1_000, "poll": 50 }));
        let call = tokio::spawn(call.deadline(DEADLINE).into_future());
        eventually(DEADLINE, "a poll", || http.requests("tasks/get") > 0).await;
        http.stop().await;
        tokio::time::sleep(millis(300)).await;
        http.resume().await;
        assert_eq!(structured(call.await.unwrap())["arguments"]["ms"], 1_000);
        // In 2026-07-28 every request about a task names it in a header.
        assert_eq!(http.complaints(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_task_that_the_server_forgets_is_unknown() {
    let (http, _runtime, handle) = connected(HttpOptions::modern()).await;
    let call = handle.call_tool("work", json!({ "ms": ENDLESS, "poll": 50 }));
    let call = tokio::spawn(call.deadline(DEADLINE).into_future());
    eventually(DEADLINE, "a poll", || http.requests("tasks/get") > 0).await;
    http.task_book().forget_all();
    let lost = call.await.unwrap().unwrap_err();
    assert!(matches!(lost, CallError::TaskUnknown { .. }), "{lost}");
    assert_eq!(lost.known(), Known::Unknown);
    assert_eq!(
        http.requests("tasks/cancel"),
        0,
        "there is nothing to cancel"
    );
}

#[tokio::test]
async fn a_cancelled_task_names_itself_in_the_headers() {
    let (http, _runtime, handle) = connected(HttpOptions::modern()).await;
    let started = handle.call_tool("work", json!({ "ms": ENDLESS })).as_task();
    let TaskStart::Started(task) = started.await.unwrap() else {
        panic!("answered at once");
    };
    assert!(!task.is_kept(), "there is no state folder");
    task.cancel().await.unwrap();
    assert_eq!(http.task_book().status(task.id()), Some("cancelled"));
    assert_eq!(http.complaints(), Vec::<String>::new());
}

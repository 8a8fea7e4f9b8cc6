//! `call --task` and `tasks`: each command is a run of its own, and the server keeps the tasks.

#![allow(
    clippy::unwrap_used,
    reason = "the helpers of a test fail as the test does"
)]

mod common;

use common::Folder;
use mcpvisor_testkit::http_server::{HttpOptions, HttpServer};
use serde_json::json;

/// Runs a test beside a server with tasks, in both versions of the protocol that have them.
async fn with_tasks(test: impl Fn(&Folder, &HttpServer) + Copy + Send + 'static) {
    for options in [HttpOptions::modern(), HttpOptions::default()] {
        let server = HttpServer::start(options.with_tasks()).await;
        let folder = Folder::with(&json!({ "web": { "url": server.url() } }));
        let ran = tokio::task::spawn_blocking(move || test(&folder, &server));
        ran.await.unwrap();
    }
}

#[tokio::test]
async fn a_task_is_started_by_one_command_and_awaited_by_another() {
    with_tasks(|folder, _| {
        let started = folder.run(&["call", "web", "work", "ms:=1500", "--task"]);
        started.exits(0).says("tasks await");
        let id = started.stdout.trim();
        let listed = folder.run(&["tasks", "--json"]).exits(0).document();
        assert_eq!(listed[0]["task"], id, "{listed}");
        assert_eq!(
            (&listed[0]["server"], &listed[0]["tool"]),
            (&json!("web"), &json!("work"))
        );
        let table = folder.run(&["tasks", "web"]);
        assert!(table.exits(0).stdout.contains(id), "{}", table.stdout);
        let late = folder.run(&["tasks", "await", id, "--timeout", "1ms", "--json"]);
        assert_eq!(late.exits(7).error()["code"], "deadline");
        let result = folder
            .run(&["tasks", "await", id, "--json"])
            .exits(0)
            .document();
        assert_eq!(result["structuredContent"]["arguments"]["ms"], 1500);
        let none = folder.run(&["tasks"]);
        assert!(
            none.exits(0).stdout.contains("No tasks."),
            "{}",
            none.stdout
        );
        let gone = folder.run(&["tasks", "await", id, "--json"]);
        assert_eq!(gone.exits(5).error()["code"], "unknown_task");
    })
    .await;
}

#[tokio::test]
async fn a_task_is_cancelled_at_the_server() {
    with_tasks(|folder, server| {
        let started = folder.run(&["call", "web.must", "ms:=3600000", "--task", "--json"]);
        let started = started.exits(0).document();
        assert_eq!(started["kept"], true);
        let id = started["task"].as_str().unwrap();
        let cancelled = folder.run(&["tasks", "cancel", id]);
        assert!(
            cancelled.exits(0).stdout.contains("Cancelled"),
            "{}",
            cancelled.stdout
        );
        assert_eq!(server.task_book().status(id), Some("cancelled"));
        // By its server, since its id is no longer kept.
        let words = ["tasks", "await", id, "--server", "web", "--json"];
        assert_eq!(
            folder.run(&words).exits(6).error()["code"],
            "task_cancelled"
        );
        server.task_book().forget_all();
        assert_eq!(folder.run(&words).exits(6).error()["code"], "task_unknown");
        let ended = folder.run(&["call", "web.must", "ms:=1", "--task"]);
        let id = ended.exits(0).stdout.trim().to_owned();
        while server.task_book().status(&id) != Some("completed") {}
        let late = folder.run(&["tasks", "cancel", &id, "--json"]);
        assert_eq!(late.exits(5).error()["code"], "task_ended");
    })
    .await;
}

#[tokio::test]
async fn a_call_that_is_answered_at_once_prints_its_result() {
    with_tasks(|folder, _| {
        let ran = folder.run(&["call", "web", "echo", "text=x", "--task", "--json"]);
        assert_eq!(ran.exits(0).document()["structuredContent"]["text"], "x");
        // And a tool that has to be a task is awaited.
        let ran = folder.run(&["call", "web", "must", "ms:=200", "--json"]);
        let result = ran.exits(0).document();
        assert_eq!(result["structuredContent"]["arguments"]["ms"], 200);
        assert_eq!(
            folder.run(&["tasks", "--json"]).exits(0).document(),
            json!([])
        );
    })
    .await;
}

#[tokio::test]
async fn a_server_that_cannot_be_asked_is_a_failure() {
    with_tasks(|folder, server| {
        let started = folder.run(&["call", "web", "must", "ms:=1", "--task"]);
        started.exits(0);
        server.fault("http-status=500").on("tasks/get").for_ever();
        let ran = folder.run(&["tasks", "--json", "--timeout", "20s"]);
        assert_eq!(ran.exits(4).error()["server"], "web");
        let none = folder.run(&["tasks", "nowhere", "--json"]);
        assert_eq!(none.exits(1).error()["code"], "unknown_server");
    })
    .await;
}

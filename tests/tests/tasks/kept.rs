//! Tasks that are picked up later, also by another run of the program.

use mcpvisor::{CallError, Known, TaskHandle, TaskStart};
use mcpvisor_testkit::processes;
use rmcp::model::TaskStatus;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;

async fn kept(handle: &ServerHandle, arguments: Value) -> TaskHandle {
    let call = handle.call_tool("work", arguments).deadline(DEADLINE);
    match call.as_task().keep().await.unwrap() {
        TaskStart::Started(task) => task,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_task_survives_its_connection_and_the_host() {
    for era in ERAS {
        let tasks = TaskServer::new("restart", era);
        let (runtime, handle) = tasks.start().await;
        let task = kept(&handle, json!({ "ms": 1_000, "poll": 50 })).await;
        assert!(task.is_kept(), "{era}");
        let id = task.id().to_owned();
        processes::kill(tasks.marker.processes()[0].pid);
        ready_after(&handle, 1).await;
        assert_eq!(task.status().await.unwrap().id, id, "{era}");
        drop((task, handle));
        runtime.shutdown(DEADLINE).await;

        let (runtime, handle) = tasks.start().await;
        let found = handle.kept_tasks().await;
        assert_eq!(found.len(), 1, "{era}");
        assert_eq!(
            (found[0].id(), found[0].tool()),
            (&*id, Some("work")),
            "{era}"
        );
        assert!(found[0].started().is_some());
        let result = found[0].result().deadline(DEADLINE).await;
        assert_eq!(structured(result)["arguments"]["ms"], 1_000, "{era}");
        assert_eq!(
            handle.kept_tasks().await.len(),
            0,
            "{era}: it was delivered"
        );
        assert_eq!(tasks.count("tools/call"), 1, "{era}");
        runtime.shutdown(DEADLINE).await;
    }
}

#[tokio::test]
async fn the_file_has_the_id_alone_and_belongs_to_its_owner() {
    let tasks = TaskServer::new("file", "modern");
    let (_runtime, handle) = tasks.start().await;
    let task = kept(&handle, json!({ "ms": ENDLESS, "secret": "s3cret" })).await;
    let folder = tasks.folder.join("state/tasks");
    let files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(files.len(), 1);
    let text = std::fs::read_to_string(files[0].path()).unwrap();
    assert!(text.contains(task.id()) && text.contains("work"), "{text}");
    assert!(!text.contains("s3cret"), "{text}");
    let mode = std::os::unix::fs::PermissionsExt::mode(&files[0].metadata().unwrap().permissions());
    assert_eq!(mode & 0o077, 0);
}

#[tokio::test]
async fn old_and_surplus_ids_are_dropped() {
    let tasks = TaskServer::new("bounds", "modern");
    let (_runtime, handle) = tasks.start().await;
    let task = kept(&handle, json!({ "ms": ENDLESS })).await;
    let folder = tasks.folder.join("state/tasks");
    let file = std::fs::read_dir(folder)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let mut stored: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let now = stored["tasks"][0]["started"].as_u64().unwrap();
    let old = json!({ "id": "old", "started": now - 8 * 24 * 3_600 });
    let many = (0..1_200).map(|number| json!({ "id": format!("t{number}"), "started": now }));
    stored["tasks"] = std::iter::once(old).chain(many).collect();
    std::fs::write(&file, stored.to_string()).unwrap();
    let listed = handle.kept_tasks().await;
    assert_eq!(listed[0].id(), "t0", "the old one is dropped");
    let last = kept(&handle, json!({ "ms": ENDLESS })).await;
    let listed = handle.kept_tasks().await;
    assert_eq!(listed.len(), 1_000);
    assert_eq!(listed[999].id(), last.id());
    assert_eq!(listed[0].id(), "t201");
    drop(task);
}

#[tokio::test]
async fn a_task_that_is_cancelled_is_cancelled_at_the_server_and_forgotten() {
    for era in ERAS {
        let tasks = TaskServer::new("cancel", era);
        let (_runtime, handle) = tasks.start().await;
        let task = kept(&handle, json!({ "ms": ENDLESS, "poll": 50 })).await;
        let waiting = tokio::spawn(task.result().deadline(DEADLINE).into_future());
        let info = task.cancel().await.unwrap();
        assert_eq!(info.status, TaskStatus::Cancelled, "{era}");
        let cancelled = waiting.await.unwrap().unwrap_err();
        let known = (cancelled.code(), cancelled.known());
        assert_eq!(known, ("task_cancelled", Known::Unknown), "{era}");
        assert_eq!(tasks.count("tasks/cancel"), 1, "{era}");
        assert_eq!(handle.kept_tasks().await.len(), 0, "{era}");
        // Again: 2025-11-25 refuses it, but the status is the answer.
        assert_eq!(task.cancel().await.unwrap().status, TaskStatus::Cancelled);
    }
}

#[tokio::test]
async fn a_task_that_the_server_does_not_know_is_unknown() {
    for era in ERAS {
        let tasks = TaskServer::new("unknown", era);
        let (_runtime, handle) = tasks.start().await;
        let task = handle.task("from another time");
        let errors = [
            task.status().await.unwrap_err(),
            task.cancel().await.unwrap_err(),
            task.result().await.unwrap_err(),
        ];
        for error in errors {
            assert!(
                matches!(error, CallError::TaskUnknown { .. }),
                "{era}: {error}"
            );
        }
    }
}

#[tokio::test]
async fn a_wait_that_is_dropped_or_late_leaves_the_task_running() {
    let tasks = TaskServer::new("handle", "modern");
    let (_runtime, handle) = tasks.start().await;
    let task = kept(&handle, json!({ "ms": ENDLESS, "poll": 50 })).await;
    let (sink, mut seen) = mpsc::channel(8);
    let late = task.result().on_status(sink).deadline(millis(300)).await;
    assert!(matches!(late, Err(CallError::Deadline { .. })), "{late:?}");
    assert_eq!(seen.recv().await.unwrap().status, TaskStatus::Working);
    assert_eq!(task.status().await.unwrap().status, TaskStatus::Working);
    assert_eq!(tasks.count("tasks/cancel"), 0);
    assert_eq!(handle.kept_tasks().await.len(), 1);
}

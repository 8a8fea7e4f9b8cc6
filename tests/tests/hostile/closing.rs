//! Servers that are closed with pending calls: a call reported as not sent is never sent, and every
//! removal gets a reply.

use std::time::Duration;

use mcpvisor::{ControlError, Known, Runtime, ServerHandle, StateName};
use serde_json::json;

use crate::shell_server::*;

/// A server whose close lasts as long as a call is in flight.
async fn closing_slowly() -> Runtime {
    let mut config = server("slow", sh(&script(":", "")));
    config.settings.close.drain = Duration::from_secs(3);
    let runtime = Runtime::builder().server(config).start().await.unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    let slow = runtime.server("slow").unwrap();
    let call = slow.clone();
    tokio::spawn(async move { call.call_tool("never", json!({})).deadline(DEADLINE).await });
    until_gone("the idle server", || slow.status().in_flight == 1).await;
    runtime
}

async fn is_disabling(slow: &ServerHandle) {
    until_gone("what came before", || {
        slow.status().state == StateName::Disabling
    })
    .await;
}

#[tokio::test]
async fn a_second_removal_waits_for_the_first() {
    let runtime = closing_slowly().await;
    let slow = runtime.server("slow").unwrap();
    let first = runtime.clone();
    let first = tokio::spawn(async move { first.remove("slow").await });
    is_disabling(&slow).await;
    first.abort();
    let (second, third) = tokio::join!(runtime.remove("slow"), runtime.remove("slow"));
    second.unwrap();
    third.unwrap();
    assert!(runtime.server("slow").is_err(), "it is forgotten");
    runtime.shutdown(DEADLINE).await;
}

#[tokio::test]
async fn a_removal_during_a_shutdown_says_that_the_runtime_ends() {
    let runtime = closing_slowly().await;
    let slow = runtime.server("slow").unwrap();
    let ending = runtime.clone();
    let ending = tokio::spawn(async move { ending.shutdown(DEADLINE).await });
    is_disabling(&slow).await;
    let refused = runtime.remove("slow").await.unwrap_err();
    assert!(matches!(refused, ControlError::RuntimeGone), "{refused:?}");
    ending.await.unwrap();
}

#[tokio::test]
async fn a_call_that_was_taken_back_is_not_written_by_the_close() {
    let read = std::env::temp_dir().join(format!("mcpvisor-taken-back-{}", std::process::id()));
    let on_call = format!(
        r#"say "$line" >> {}; answer "$id" '{{"content":[]}}'"#,
        read.display()
    );
    let _ = std::fs::remove_file(&read);
    for round in 0..10 {
        let fleet = Fleet::start(&on_call).await;
        // The actor hands the call over and stops before any of it can be written.
        let call = fleet.hostile.call_tool("once", json!({ "round": round }));
        let crash = async { fleet.hostile.crash_actor() };
        let (outcome, ()) = tokio::join!(call.deadline(DEADLINE).into_future(), crash);
        // After the shutdown, the child that had the connection reads nothing more.
        fleet.runtime.shutdown(Duration::from_secs(2)).await;
        let ran = std::fs::read_to_string(&read).unwrap_or_default();
        let ran = ran.contains(&format!(r#""round":{round}"#));
        match outcome {
            Ok(_) => assert!(ran),
            Err(error) if error.known() == Known::NotSent => assert!(!ran, "{error}"),
            Err(error) => assert_eq!(error.known(), Known::Unknown, "{error}"),
        }
    }
    let _ = std::fs::remove_file(&read);
}

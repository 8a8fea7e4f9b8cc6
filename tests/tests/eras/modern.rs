//! A session of the modern era: request metadata, subscriptions, and other differences.

use std::time::Instant;

use mcpvisor::{CallError, EventKind, StateName};
use mcpvisor_testkit::eventually;
use mcpvisor_testkit::processes::{self, Marker};
use mcpvisor_testkit::scripted::{Behaviour, Record, Script, ScriptedServer};
use rmcp::model::LoggingLevel;
use serde_json::json;

use crate::fleet::*;
use crate::{Folder, child, received, started};

/// How often a method was received, over all processes.
fn count(log: &std::path::Path, method: &str) -> usize {
    let methods = received(log).into_iter().flatten();
    methods.filter(|it| it == method).count()
}

#[tokio::test]
async fn every_request_says_who_we_are_and_what_we_offer() {
    let (marker, folder) = (Marker::new("eras-meta"), Folder::new("meta"));
    let log = folder.file("received");
    let (_runtime, handle) = started(child(&marker, "modern", &log, &[])).await;
    handle.call_tool("echo", json!({})).await.unwrap();
    handle.list_tools(None).await.unwrap();
    handle.list_prompts(None).await.unwrap();
    handle.list_resources(None).await.unwrap();
    handle.list_resource_templates(None).await.unwrap();
    handle
        .get_prompt("greet", json!({ "name": "x" }))
        .await
        .unwrap();
    handle.read_resource("fixture://one").await.unwrap();
    handle.ping().await.unwrap();
    handle.subscribe("fixture://one").await.unwrap();
    handle.unsubscribe("fixture://one").await.unwrap();
    handle.set_log_level(LoggingLevel::Debug).await.unwrap();
    let level = handle.call_tool("level", json!({})).await;
    assert_eq!(structured(level), json!({ "level": "debug" }));
    // The server rejects a request without its metadata, and one that the era does not have.
    let wrong: Vec<String> = received(&log)
        .into_iter()
        .flatten()
        .filter(|line| line.starts_with("no-meta") || line.starts_with("not-modern"))
        .collect();
    assert_eq!(wrong, Vec::<String>::new());
    assert!(count(&log, "server/discover") >= 2, "a ping is a discovery");
}

#[tokio::test]
async fn what_is_answered_without_the_server_does_not_prove_the_connection() {
    let (marker, folder) = (Marker::new("eras-proof"), Folder::new("proof"));
    let log = folder.file("received");
    let (_runtime, handle) = started(child(&marker, "modern", &log, &[])).await;
    handle.set_log_level(LoggingLevel::Debug).await.unwrap();
    handle.unsubscribe("fixture://one").await.unwrap();
    assert_eq!(handle.status().attempts_used, 1);
    handle.call_tool("echo", json!({})).await.unwrap();
    assert_eq!(handle.status().attempts_used, 0);
}

#[tokio::test]
async fn a_changed_list_is_heard_and_fetched() {
    let (marker, folder) = (Marker::new("eras-changed"), Folder::new("changed"));
    let log = folder.file("received");
    let (_runtime, handle) = started(child(&marker, "modern", &log, &[])).await;
    assert!(handle.catalog().tool("after_burst").is_none());
    handle.call_tool("news", json!({})).await.unwrap();
    let listed = || handle.catalog().tool("after_burst").is_some();
    eventually(DEADLINE, "the new tool", listed).await;
    assert_eq!(count(&log, "subscriptions/listen"), 1);
}

#[tokio::test]
async fn subscriptions_are_listened_for_again_after_a_reconnect() {
    let (marker, folder) = (Marker::new("eras-again"), Folder::new("again"));
    let log = folder.file("received");
    let (runtime, handle) = started(child(&marker, "modern", &log, &[])).await;
    handle.subscribe("fixture://one").await.unwrap();
    handle.subscribe("fixture://two").await.unwrap();
    handle.unsubscribe("fixture://two").await.unwrap();
    let mut events = runtime.events();
    processes::kill(pid(&handle).await);
    ready_after(&handle, 1).await;
    for uri in ["fixture://two", "fixture://one"] {
        handle
            .call_tool("touch", json!({ "uri": uri }))
            .await
            .unwrap();
    }
    let updated = next_event(&mut events, |event| match &event.kind {
        EventKind::ResourceUpdated { uri } => Some(uri.clone()),
        _ => None,
    });
    assert_eq!(updated.await, "fixture://one");
}

/// A request made without a connection takes precedence over the remembered state.
#[tokio::test]
async fn a_resource_that_a_waiting_caller_unsubscribes_is_not_listened_for_again() {
    let (marker, folder) = (Marker::new("eras-left"), Folder::new("left"));
    let log = folder.file("received");
    let (runtime, handle) = started(child(&marker, "modern", &log, &[])).await;
    handle.subscribe("fixture://one").await.unwrap();
    handle.subscribe("fixture://two").await.unwrap();
    processes::kill(pid(&handle).await);
    reaches(&handle, StateName::Reconnecting).await;
    handle.unsubscribe("fixture://one").await.unwrap();
    // Acknowledged, so all earlier subscriptions are active too.
    handle.subscribe("fixture://three").await.unwrap();
    let mut events = runtime.events();
    for uri in ["fixture://one", "fixture://two"] {
        let touched = handle.call_tool("touch", json!({ "uri": uri }));
        touched.await.unwrap();
    }
    let updated = next_event(&mut events, |event| match &event.kind {
        EventKind::ResourceUpdated { uri } => Some(uri.clone()),
        _ => None,
    });
    assert_eq!(updated.await, "fixture://two");
}

#[tokio::test]
async fn a_request_that_listens_is_issued_again_when_it_ends_either_way() {
    let (marker, folder) = (Marker::new("eras-ends"), Folder::new("ends"));
    let log = folder.file("received");
    let config = child(&marker, "modern", &log, &["--end-listen", "3"]);
    let (_runtime, handle) = started(config).await;
    let four = || count(&log, "subscriptions/listen") == 4;
    eventually(DEADLINE, "the fourth request", four).await;
    handle.call_tool("news", json!({})).await.unwrap();
    let listed = || handle.catalog().tool("after_burst").is_some();
    eventually(DEADLINE, "the new tool", listed).await;
    assert_eq!(count(&log, "subscriptions/listen"), 4);
}

#[tokio::test]
async fn a_server_that_ends_every_request_that_listens_is_asked_ever_more_slowly() {
    let (marker, folder) = (Marker::new("eras-ends-all"), Folder::new("ends-all"));
    let log = folder.file("received");
    let config = child(&marker, "modern", &log, &["--end-listen", "1000"]);
    let begin = Instant::now();
    let (_runtime, _handle) = started(config).await;
    // Each one is acknowledged before it is ended, and leaves a gap in which lists may have
    // changed.
    let six = || count(&log, "subscriptions/listen") >= 6;
    eventually(DEADLINE, "the sixth request", six).await;
    let took = begin.elapsed();
    assert!(took >= millis(100 + 200 + 400 + 800 + 1_600), "{took:?}");
    let listings = count(&log, "tools/list");
    assert!(listings <= 1 + 6, "{listings}");
}

#[tokio::test]
async fn a_list_whose_time_is_up_is_fetched_again_when_it_is_read_and_not_before() {
    let (marker, folder) = (Marker::new("eras-ttl"), Folder::new("ttl"));
    let log = folder.file("received");
    let config = child(&marker, "modern", &log, &["--ttl", "300"]);
    let (_runtime, handle) = started(config).await;
    assert_eq!(count(&log, "tools/list"), 1);
    tokio::time::sleep(millis(900)).await;
    assert_eq!(count(&log, "tools/list"), 1, "nobody read it");
    let listed = || handle.catalog().tool("after_burst").is_some();
    eventually(DEADLINE, "the new tool", listed).await;
}

#[tokio::test]
async fn an_idle_connection_is_checked_by_a_discovery() {
    let (marker, folder) = (Marker::new("eras-check"), Folder::new("check"));
    let log = folder.file("received");
    let config = child(&marker, "modern", &log, &[]);
    let config = config.settings(settings(|settings| settings.health.keepalive = millis(200)));
    let (_runtime, handle) = started(config).await;
    let checked = || count(&log, "server/discover") >= 4;
    eventually(DEADLINE, "three checks", checked).await;
    assert_eq!(handle.status().generation.get(), 1);
}

#[tokio::test]
async fn what_the_server_does_not_offer_is_an_invalid_request() {
    let scripted = ScriptedServer::new(modern_script());
    let mut config = server("a", scripted.transport());
    config.protocol = Some(rmcp::model::ProtocolVersion::V_2026_07_28);
    let (_runtime, handle) = ready(config).await;
    let refused = handle.subscribe("x://y").await.unwrap_err();
    assert!(
        matches!(&refused, CallError::InvalidRequest { problem, .. } if problem.contains("does not support resource subscriptions")),
        "{refused}"
    );
}

/// A scripted server that answers `server/discover`, without changing lists.
fn modern_script() -> Script {
    modern_script_with(rmcp::model::ServerCapabilities::default())
}

/// The same, with these capabilities. It never ends a listening request.
fn modern_script_with(capabilities: rmcp::model::ServerCapabilities) -> Script {
    use rmcp::model::{DiscoverResult, ProtocolVersion};
    let discovered = DiscoverResult::new(vec![ProtocolVersion::V_2026_07_28], capabilities);
    Script::new()
        .on("server/discover", Behaviour::answer_with(discovered))
        .on("subscriptions/listen", Behaviour::silence())
}

/// Acknowledges the listening request with this number, and returns its id.
async fn acknowledge(scripted: &ScriptedServer, nth: usize) -> serde_json::Value {
    use rmcp::model::SubscriptionsAcknowledgedNotification as Acknowledged;
    let record = scripted.record();
    let listening = record
        .until(DEADLINE, "the request that listens", |record| {
            let mut listening = record.received("subscriptions/listen").into_iter();
            listening.nth(nth).ok_or("none")
        })
        .await;
    let id = json!(listening.id);
    let told: Acknowledged = serde_json::from_value(json!({
        "method": "notifications/subscriptions/acknowledged",
        "params": {
            "notifications": listening.params["notifications"],
            "_meta": { "io.modelcontextprotocol/subscriptionId": id },
        },
    }))
    .unwrap();
    scripted.control().notify(told);
    id
}

#[tokio::test]
async fn nobody_listens_any_more_once_the_last_resource_is_unsubscribed() {
    let scripted = ScriptedServer::new(modern_script_with(resources_alone()));
    let mut config = server("a", scripted.transport());
    config.protocol = Some(rmcp::model::ProtocolVersion::V_2026_07_28);
    let (runtime, handle) = ready(config).await;
    for (nth, uri) in ["x://y", "x://z"].into_iter().enumerate() {
        let subscribed = tokio::spawn(handle.subscribe(uri).into_future());
        let id = acknowledge(&scripted, nth).await;
        subscribed.await.unwrap().unwrap();
        let mut events = runtime.events();
        scripted.control().resource_updated(uri);
        next_event(&mut events, |event| match &event.kind {
            EventKind::ResourceUpdated { .. } => Some(()),
            _ => None,
        })
        .await;
        handle.unsubscribe(uri).await.unwrap();
        let cancelled = |record: &Record| match record.cancelled() {
            all if all.contains(&id) => Ok(()),
            all => Err(all),
        };
        let record = scripted.record();
        record.until(DEADLINE, "the cancellation", cancelled).await;
    }
    let listened = scripted.record().received("subscriptions/listen");
    assert_eq!(listened.len(), 2);
}

/// A server that announces resource updates, and whose lists never change.
fn resources_alone() -> rmcp::model::ServerCapabilities {
    let mut resources = rmcp::model::ResourcesCapability::default();
    resources.subscribe = Some(true);
    let mut capabilities = rmcp::model::ServerCapabilities::default();
    capabilities.resources = Some(resources);
    capabilities
}

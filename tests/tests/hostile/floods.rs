//! Servers that flood the client. (Figure 18.)

use std::time::Duration;

use mcpvisor_testkit::in_own_process;
use mcpvisor_testkit::leaks::{Snapshot, peak_memory};
use mcpvisor_testkit::tasks::most_tasks;
use rmcp::model::LoggingMessageNotificationParam;
use rmcp::service::NotificationContext;
use rmcp::{ClientHandler, RoleClient};
use serde_json::json;

use crate::arena::*;
use crate::bare::Bare;
use crate::fleet::*;
use crate::shell_server;

const MIB: u64 = 1024 * 1024;

/// Deadline of one test in its own process.
const LIMIT: Duration = Duration::from_secs(300);

/// Tasks of normal operation, such as a listing or a check.
const A_FEW: usize = 8;

/// A flood that ends with a reply, while an event subscriber does not read.
async fn flood(fault: &str, dropped: bool) {
    let arena = Arena::new(&[]).await;
    let slow_reader = arena.runtime.events();
    arena.recovers(1).await;
    let before = Snapshot::take().memory;
    let ((outcome, took), tasks) = most_tasks(arena.inject(fault, LIMIT)).await;
    outcome.unwrap();
    let memory = peak_memory().saturating_sub(before) / MIB;
    let status = arena.bad.status();
    println!(
        "figure 18: {fault}: {took:?}, at most {tasks} more tasks, +{memory} MiB, {} dropped",
        status.dropped_flood
    );
    assert!(tasks <= A_FEW, "{tasks} tasks more");
    assert!(memory < 32, "+{memory} MiB");
    assert_eq!(status.dropped_flood > 0, dropped, "{status:?}");
    arena.recovers(1).await;
    drop(slow_reader);
    arena.end().await;
}

#[test]
fn figure_18_a_flood_of_notifications_costs_no_task_and_no_memory() {
    let name = "floods::figure_18_a_flood_of_notifications_costs_no_task_and_no_memory";
    in_own_process(name, LIMIT, async || {
        flood(&format!("flood={}", size(50_000, 500_000)), true).await;
    });
}

#[test]
fn figure_18_a_flood_of_requests_costs_no_task_and_no_memory() {
    let name = "floods::figure_18_a_flood_of_requests_costs_no_task_and_no_memory";
    in_own_process(name, LIMIT, async || {
        flood(&format!("flood-requests={}", size(50_000, 500_000)), true).await;
    });
}

#[test]
fn a_flood_on_stderr_is_read_and_forgotten() {
    let name = "floods::a_flood_on_stderr_is_read_and_forgotten";
    in_own_process(name, LIMIT, async || {
        let bytes = size(16, 1_024) as u64 * MIB;
        flood(&format!("stderr-flood={bytes}"), false).await;
    });
}

#[tokio::test]
async fn a_flood_drops_no_reply_and_no_changed_list_and_is_counted() {
    let log =
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;
    let request = r#"{"jsonrpc":"2.0","id":"theirs","method":"roots/list"}"#;
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let fleet = shell_server::Fleet::start(&format!(
        r#"yes '{log}' | head -n 10000; yes '{request}' | head -n 10000; say '{changed}'; answer "$id" '{{"content":[]}}'"#
    ))
    .await;
    let first = fleet.hostile.catalog().tools[0].name.clone();
    let call = fleet.hostile.call_tool("flood", json!({}));
    call.deadline(DEADLINE).await.unwrap();
    let mut status = fleet.hostile.watch();
    let counted = status.wait_for(|status| status.dropped_flood > 0);
    let dropped = tokio::time::timeout(DEADLINE, counted)
        .await
        .unwrap()
        .unwrap()
        .dropped_flood;
    println!("dropped {dropped} of 20000");
    shell_server::until_gone("the old list", || {
        fleet.hostile.catalog().tools[0].name != first
    })
    .await;
    assert_eq!(fleet.hostile.status().generation.get(), 1);
    let shown = serde_json::to_value(fleet.hostile.status()).unwrap();
    assert!(shown.get("dropped_flood").is_none(), "{shown}");
    fleet.end().await;
}

/// A slow handler, such as one that writes to a terminal or a database.
struct Slow;

impl ClientHandler for Slow {
    async fn on_logging_message(
        &self,
        _: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        tokio::time::sleep(secs(60)).await;
    }
}

#[test]
fn control_figure_18_bare_rmcp_spawns_a_task_for_each() {
    let name = "floods::control_figure_18_bare_rmcp_spawns_a_task_for_each";
    in_own_process(name, LIMIT, async || {
        let bare = Bare::connect_with(Slow, &[]).await;
        let amount = size(5_000, 50_000);
        let fault = format!("flood={amount}");
        let flooded = tokio::time::timeout(secs(20), bare.inject(&fault));
        let (_, tasks) = most_tasks(flooded).await;
        println!("figure 18, bare rmcp: {tasks} more tasks of {amount} notifications");
        assert!(tasks > 100 * A_FEW, "{tasks} tasks more");
    });
}

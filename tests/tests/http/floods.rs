//! Servers that flood the client. (Figure 18.)

use std::time::Duration;

use mcpvisor_testkit::http_server::{HttpOptions, HttpServer};
use mcpvisor_testkit::in_own_process;
use mcpvisor_testkit::leaks::{Snapshot, peak_memory};
use mcpvisor_testkit::tasks::most_tasks;
use rmcp::model::{ClientConfig, LoggingMessageNotificationParam, ProtocolVersion};
use rmcp::service::NotificationContext;
use rmcp::{ClientHandler, RoleClient};
use serde_json::json;

use crate::arena::*;
use crate::bare::{Bare, serve_with};
use crate::fleet::*;

const MIB: u64 = 1024 * 1024;

/// Deadline of one test in its own process.
const LIMIT: Duration = Duration::from_secs(300);

/// A message behind a flood on the same stream waits until the flood has been read, at a fraction
/// of a core.
const BEHIND_THE_FLOOD: Duration = Duration::from_secs(200);

/// Tasks of normal operation, such as a listing, a check, or a connection on either side.
const A_FEW: usize = 12;

async fn flood(options: HttpOptions, fault: &str) {
    let arena = Arena::new(options).await;
    let slow_reader = arena.runtime.events();
    arena.recovers(1).await;
    let before = Snapshot::take().memory;
    let ((outcome, took), tasks) = most_tasks(arena.inject(fault, LIMIT)).await;
    outcome.unwrap();
    let memory = peak_memory().saturating_sub(before) / MIB;
    // The number of dropped messages is reported with a delay.
    let counted = || arena.handle.status().dropped_flood > 0;
    mcpvisor_testkit::eventually(DEADLINE, "what was dropped", counted).await;
    let status = arena.handle.status();
    println!(
        "figure 18, {:?}: {fault}: {took:?}, at most {tasks} more tasks, +{memory} MiB, {} dropped",
        options.reply, status.dropped_flood
    );
    assert!(tasks <= A_FEW, "{tasks} tasks more");
    assert!(memory < 32, "+{memory} MiB");
    arena.recovers(1).await;
    drop(slow_reader);
    arena.end().await;
}

fn notifications() -> String {
    format!("http-flood={}", size(20_000, 500_000))
}

fn requests() -> String {
    format!("http-flood-requests={}", size(20_000, 500_000))
}

#[test]
fn figure_18_a_flood_of_notifications_over_http_sse_costs_no_task_and_no_memory() {
    let name =
        "floods::figure_18_a_flood_of_notifications_over_http_sse_costs_no_task_and_no_memory";
    in_own_process(name, LIMIT, async || {
        flood(HttpOptions::http_sse(), &notifications()).await;
    });
}

#[test]
fn figure_18_a_flood_of_requests_over_http_sse_costs_no_task_and_no_memory() {
    let name = "floods::figure_18_a_flood_of_requests_over_http_sse_costs_no_task_and_no_memory";
    in_own_process(name, LIMIT, async || {
        flood(HttpOptions::http_sse(), &requests()).await;
    });
}

#[test]
fn figure_18_a_flood_of_notifications_costs_no_task_and_no_memory() {
    let name = "floods::figure_18_a_flood_of_notifications_costs_no_task_and_no_memory";
    in_own_process(name, LIMIT, async || {
        flood(HttpOptions::sse(), &notifications()).await;
    });
}

#[test]
fn figure_18_a_flood_of_requests_costs_no_task_and_no_memory() {
    let name = "floods::figure_18_a_flood_of_requests_costs_no_task_and_no_memory";
    in_own_process(name, LIMIT, async || {
        flood(HttpOptions::sse(), &requests()).await;
    });
}

#[test]
fn figure_18_a_flood_on_the_servers_own_stream_loses_no_reply_and_no_changed_list() {
    let name =
        "floods::figure_18_a_flood_on_the_servers_own_stream_loses_no_reply_and_no_changed_list";
    in_own_process(name, LIMIT, async || {
        let arena = Arena::new(HttpOptions::default()).await;
        let open = || arena.server.open_streams() == 1;
        mcpvisor_testkit::eventually(DEADLINE, "the stream", open).await;
        let listed = arena.server.requests("tools/list");
        let flood = async {
            let message = json!({ "level": "error", "data": "one of very many" });
            for round in 0..size(20, 200) {
                for _ in 0..1_000 {
                    arena
                        .server
                        .notify("notifications/message", message.clone());
                }
                arena.run(&format!("during {round}")).await.unwrap();
            }
            arena
                .server
                .notify("notifications/tools/list_changed", json!({}));
        };
        let ((), tasks) = most_tasks(flood).await;
        assert!(tasks <= A_FEW, "{tasks} tasks more");
        let again = || arena.server.requests("tools/list") > listed;
        mcpvisor_testkit::eventually(BEHIND_THE_FLOOD, "the new list", again).await;
        arena.recovers(1).await;
        arena.end().await;
    });
}

/// A slow handler for bare rmcp.
#[derive(Clone)]
struct Slow;

impl ClientHandler for Slow {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::default().with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn on_logging_message(
        &self,
        _: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        tokio::time::sleep(secs(60)).await;
    }
}

#[test]
fn control_figure_18_bare_rmcp_has_a_task_for_each() {
    let name = "floods::control_figure_18_bare_rmcp_has_a_task_for_each";
    in_own_process(name, LIMIT, async || {
        let server = HttpServer::start(HttpOptions::sse()).await;
        let bare = Bare(serve_with(Slow, &server).await.unwrap());
        let (outcome, tasks) = most_tasks(bare.inject("http-flood=5000")).await;
        outcome.unwrap();
        println!("figure 18, http, bare rmcp: {tasks} more tasks");
        assert!(tasks > 1_000, "{tasks}");
    });
}

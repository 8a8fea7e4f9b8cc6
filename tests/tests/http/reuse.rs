//! Connections that a server closes after some idle time, over a network with a round trip: a
//! request that crosses the close is lost.

use std::time::Duration;

use mcpvisor::{CallError, Known, Transport};
use mcpvisor_testkit::delay::DelayProxy;
use mcpvisor_testkit::eventually;
use mcpvisor_testkit::http_server::{HttpOptions, HttpServer};
use serde_json::json;
use tokio::task::JoinSet;

use crate::fleet::*;

/// The server closes connections as uvicorn does: after exactly 5 s, without notice.
const KEPT: Duration = Duration::from_secs(5);

/// Long enough that a close and a request cross even on a busy machine.
const EACH_WAY: Duration = Duration::from_millis(200);

const AGENTS: u32 = 32;

fn closing_after(keep_alive: Duration) -> HttpOptions {
    HttpOptions {
        keep_alive: Some(keep_alive),
        ..HttpOptions::without_sessions()
    }
}

/// Agents pause for about the server's keep-alive time. Returns how many calls were lost.
async fn lost_calls(options: HttpOptions) -> usize {
    let http = HttpServer::start(options).await;
    let (mut proxies, mut agents) = (Vec::new(), Vec::new());
    for agent in 0..AGENTS {
        // A separate origin for each, so that none learns from the connections of another.
        let proxy = DelayProxy::start(http.address(), EACH_WAY).await.unwrap();
        let url = format!("http://{}/mcp", proxy.address());
        agents.push(server(&format!("agent-{agent}"), Transport::http(url)));
        proxies.push(proxy);
    }
    let runtime = fleet(agents).await;
    runtime.ready(2 * DEADLINE).await.unwrap();
    let mut calls = JoinSet::new();
    for agent in 0..AGENTS {
        let handle = runtime.server(format!("agent-{agent}")).unwrap();
        let pause = KEPT - 4 * EACH_WAY + 5 * EACH_WAY * agent / AGENTS;
        calls.spawn(async move {
            // Uses all idle connections once, so that none is closed before the others.
            let first = (0..8).map(|_| handle.call_tool("sleep", json!({ "ms": 200 })));
            let first: JoinSet<_> = first
                .map(|call| call.deadline(DEADLINE).into_future())
                .collect();
            first.join_all().await;
            tokio::time::sleep(pause).await;
            handle
                .call_tool("echo", json!({}))
                .deadline(DEADLINE)
                .await
                .err()
        });
    }
    let failed: Vec<CallError> = calls.join_all().await.into_iter().flatten().collect();
    for error in &failed {
        assert_eq!(error.known(), Known::Unknown, "{error:?}");
    }
    runtime.shutdown(DEADLINE).await;
    failed.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_is_lost_to_a_server_that_closes_idle_connections_without_a_word() {
    assert_eq!(lost_calls(closing_after(KEPT)).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_calls_are_lost_when_connections_are_reused_for_longer() {
    let announces_too_much = HttpOptions {
        announced: Some(60),
        ..closing_after(KEPT)
    };
    for _ in 0..5 {
        if lost_calls(announces_too_much).await > 0 {
            return;
        }
    }
    panic!("no call met a close on its way");
}

#[tokio::test]
async fn an_early_close_teaches_how_long_connections_are_good() {
    let http = HttpServer::start(HttpOptions {
        stream: false,
        ..closing_after(secs(2))
    })
    .await;
    let (runtime, handle) = ready(server("web", Transport::http(http.url()))).await;
    let echo = || handle.call_tool("echo", json!({})).deadline(DEADLINE);
    echo().await.unwrap();
    eventually(DEADLINE, "a close", || http.open_connections() == 0).await;
    echo().await.unwrap();
    let before = http.connects();
    echo().await.unwrap();
    assert_eq!(http.connects(), before, "reused at once");
    // Half of the observed keep-alive time is no longer safe.
    tokio::time::sleep(millis(1_500)).await;
    echo().await.unwrap();
    assert_eq!(http.connects(), before + 1, "not reused");
    runtime.shutdown(DEADLINE).await;
}

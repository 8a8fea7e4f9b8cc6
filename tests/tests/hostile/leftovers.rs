//! No fault leaks a descriptor, task, process or zombie.

use mcpvisor_testkit::in_own_process;
use mcpvisor_testkit::leaks::{Slack, Snapshot, assert_returns_to};

use crate::arena::*;
use crate::bare::Bare;
use crate::fleet::*;

/// Faults that are active from the start.
const OF_SERVERS: &[&str] = &[
    "exit-on-initialize",
    "sigstop-on-initialize",
    "mute-initialize",
    "wrong-version",
    "endless-cursor",
    "repeating-cursor",
    "huge-tool-list=20000",
    "change-tools",
    "ignore-eof",
    "ignore-sigterm",
];

/// Runs one fleet with one fault, from start to end.
async fn round(armed: &[&str], strike: Option<&str>) {
    let arena = Arena::start(armed, quick()).await;
    let _ = match strike {
        Some(fault) => {
            arena.runtime.ready(DEADLINE).await.unwrap();
            arena.inject(fault, SHORT).await.0
        }
        None => arena.inject("mute-calls", SHORT).await.0,
    };
    arena.end().await;
}

#[test]
fn nothing_is_left_behind_by_any_fault() {
    let name = "leftovers::nothing_is_left_behind_by_any_fault";
    in_own_process(name, secs(size(240, 600) as u64), async || {
        // Tokio keeps some descriptors for signals after the first child.
        round(&[], Some("kill-on-call")).await;
        let before = Snapshot::take();
        for _ in 0..size(1, 5) {
            for fault in CALL_FAULTS {
                round(&[], Some(fault)).await;
                assert_returns_to(&before, Slack::NONE, DEADLINE).await;
            }
            for fault in OF_SERVERS {
                round(&[fault], None).await;
                assert_returns_to(&before, Slack::NONE, DEADLINE).await;
            }
        }
    });
}

#[test]
fn control_bare_rmcp_leaves_processes_behind() {
    let name = "leftovers::control_bare_rmcp_leaves_processes_behind";
    in_own_process(name, secs(60), async || {
        let before = Snapshot::take();
        let bare = Bare::connect(&[]).await;
        bare.inject("spawn-grandchildren=2").await.unwrap();
        bare.client.cancel().await.unwrap();
        // They have been reparented, so only their marker identifies them.
        assert!(!bare.left.0.processes().is_empty(), "{before:?}");
    });
}

//! Servers that resist shutdown, and the processes they leave behind. (Figures 4 and 5.)

use std::collections::BTreeSet;
use std::time::Duration;

use mcpvisor_testkit::eventually;
use mcpvisor_testkit::processes::Marker;
use serde_json::json;

use crate::arena::*;
use crate::bare::{Bare, hangs};
use crate::fleet::*;

/// Larger than any pipe buffer.
const FILLING: usize = 4 * 1024 * 1024;

/// Shuts down a fleet whose only server was prepared to resist.
async fn shut_down(faults: &[&str], prepare: impl AsyncFn(&Arena)) -> Duration {
    let arena = Arena::new(faults).await;
    prepare(&arena).await;
    let (report, took) = timed(arena.end()).await;
    assert!(!report.is_clean(), "it had to be killed: {report:?}");
    took
}

/// Fills the pipe to a server that does not read.
async fn fill(arena: &Arena) {
    arena.at_its_deadline("stop-reading-stdin").await;
    let filling = json!({ "text": "x".repeat(FILLING) });
    let call = arena.bad.call_tool("echo", filling).deadline(SHORT);
    call.await.unwrap_err();
}

#[tokio::test]
async fn figure_4_a_stubborn_server_is_gone_within_the_grace_and_a_second() {
    let mut longest = Duration::ZERO;
    let grace = GRACE.total();
    let stubborn = ["ignore-eof", "ignore-sigterm"];
    for _ in 0..size(1, 20) {
        let empty = async || shut_down(&stubborn, async |_| {}).await;
        longest = longest.max(at_best(grace + secs(1), empty).await);
        let full = async || shut_down(&stubborn, fill).await;
        longest = longest.max(at_best(grace + secs(1), full).await);
    }
    println!("figure 4: grace {grace:?}, the longest shutdown {longest:?}");
}

#[tokio::test]
async fn control_figure_4_bare_rmcp_does_not_end_while_nobody_reads() {
    let bare = Bare::connect(&[]).await;
    let peer = bare.client.peer().clone();
    assert!(bare.hangs("stop-reading-stdin").await);
    let mut filling = rmcp::model::CallToolRequestParams::new("echo");
    filling.arguments = json!({ "text": "x".repeat(FILLING) }).as_object().cloned();
    let call = tokio::spawn(async move { peer.call_tool(filling).await });
    tokio::time::sleep(millis(500)).await;
    assert!(hangs(bare.client.cancel()).await, "closing it hangs");
    assert_eq!(bare.left.0.processes().len(), 1, "and the child is there");
    call.abort();
}

/// A server with three child processes.
async fn with_grandchildren() -> Arena {
    let arena = Arena::new(&[]).await;
    arena.answered("spawn-grandchildren=3").await;
    four(&arena.marker).await;
    arena
}

/// The marked processes, by pid: all other fields change when the parent dies.
fn pids(marker: &Marker) -> BTreeSet<u32> {
    let processes = marker.processes().into_iter();
    processes.map(|process| process.pid).collect()
}

async fn four(marker: &Marker) {
    // Until they exec, they look like their parent.
    eventually(DEADLINE, "three grandchildren", || {
        marker.processes().len() == 4
    })
    .await;
}

#[tokio::test]
async fn figure_5_grandchildren_end_with_their_server() {
    for round in 0..size(1, 20) {
        let arena = with_grandchildren().await;
        let children = pids(&arena.marker);
        // The server dies: the rest of its group is gone before the next process starts.
        arena.at_once("kill-on-call").await;
        arena.recovers(2).await;
        let now = pids(&arena.marker);
        assert!(now.is_disjoint(&children), "{children:?} became {now:?}");
        arena.end().await;

        let arena = with_grandchildren().await;
        arena.runtime.disable("bad").await.unwrap();
        assert_eq!(arena.marker.processes(), [], "it was switched off");
        arena.end().await;

        // No process is left after `end` either.
        with_grandchildren().await.end().await;
        println!("figure 5: round {round}: of 3 × 3 grandchildren none is left");
    }
}

#[tokio::test]
async fn control_figure_5_bare_rmcp_leaves_grandchildren_behind() {
    let bare = Bare::connect(&[]).await;
    bare.inject("spawn-grandchildren=3").await.unwrap();
    four(&bare.left.0).await;
    bare.client.cancel().await.unwrap();
    // The server itself may still be exiting.
    eventually(DEADLINE, "the three alone", || {
        bare.left.0.processes().len() == 3
    })
    .await;
}

#[tokio::test]
async fn a_connect_that_fails_half_way_leaves_nothing_behind() {
    let mut settings = quick();
    settings.timeouts.connect = millis(200);
    settings.budget.attempts = 3;
    let stubborn = ["mute-initialize", "ignore-eof", "ignore-sigterm"];
    let arena = Arena::start(&stubborn, settings).await;
    reaches(&arena.bad, mcpvisor::StateName::Disconnected).await;
    eventually(DEADLINE, "nobody", || arena.marker.processes().is_empty()).await;
    arena.end().await;
}

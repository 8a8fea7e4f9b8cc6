//! Figure 15: one bad server among fifty.

use std::time::Duration;

use mcpvisor::{Runtime, ServerHandle};
use mcpvisor_testkit::scripted::{Behaviour, Script, ScriptedServer};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::fleet::*;

/// How much slower the others may be in the median. The guarantee is 5 %; CI allows more for a
/// shared machine. A server that blocks the others costs far more than that.
fn tolerance() -> f64 {
    if in_full() { 1.05 } else { 1.15 }
}

/// Samples, of which at least one should be undisturbed by other processes.
const LOOKS: usize = 3;

/// Calls every server concurrently. Returns the median duration of a call.
async fn burst(good: &[ServerHandle]) -> Duration {
    let mut calls = JoinSet::new();
    for handle in good {
        let call = handle.call_tool("echo", json!({ "a": 1 }));
        calls.spawn(async move {
            let begin = Instant::now();
            call.deadline(DEADLINE).await.unwrap();
            begin.elapsed()
        });
    }
    median(calls.join_all().await)
}

fn median<T: Copy + PartialOrd>(mut values: Vec<T>) -> T {
    values.sort_by(|a, b| a.partial_cmp(b).unwrap());
    values[values.len() / 2]
}

/// A server that completes three handshakes, answers no call, and then no further handshake.
fn bad_server() -> ScriptedServer {
    let handshake = Behaviour::first(3, Behaviour::answer(), Behaviour::silence());
    let script = Script::new()
        .on_call("echo", Behaviour::silence())
        .on("initialize", handshake);
    ScriptedServer::new(script)
}

/// Starts the bad server, and 49 good ones with this tool.
async fn fifty(
    bad: &ScriptedServer,
    tool: Behaviour,
) -> (Runtime, ServerHandle, Vec<ServerHandle>) {
    let mut servers = vec![server("bad", scripted(bad)).settings(eager())];
    for number in 0..49 {
        let script = Script::new().on_call("echo", tool.clone());
        let good = ScriptedServer::new(script);
        servers.push(server(&format!("good-{number}"), scripted(&good)));
    }
    let runtime = fleet(servers).await;
    runtime.ready(DEADLINE).await.unwrap();
    let handle = |name: String| runtime.server(&name).unwrap();
    let good = (0..49).map(|number| handle(format!("good-{number}")));
    let (bad, good) = (handle("bad".to_owned()), good.collect());
    (runtime, bad, good)
}

/// Starts calls that are never answered, and injects one more fault into the bad server.
fn trouble(round: usize, bad: &ScriptedServer, handle: &ServerHandle) -> JoinSet<()> {
    let mut callers = JoinSet::new();
    for _ in 0..32 {
        let call = handle.call_tool("echo", json!({})).deadline(DEADLINE);
        callers.spawn(async move { drop(call.await) });
    }
    match round % 3 {
        0 if !bad.control().live().is_empty() => bad.control().end(),
        1 => handle.crash_actor(),
        _ => handle.report_broken(handle.status().generation),
    }
    callers
}

#[tokio::test(start_paused = true)]
async fn a_bad_server_keeps_the_others_waiting_for_nothing() {
    without_reports_of_panics();
    let bad = bad_server();
    let tool = Behaviour::answer().after(millis(10));
    let (_runtime, bad_handle, good) = fifty(&bad, tool).await;
    for round in 0..30 {
        let callers = trouble(round, &bad, &bad_handle);
        // Paused time advances only while every task waits, so only waiting takes time.
        assert_eq!(burst(&good).await, millis(10));
        drop(callers);
    }
}

/// Calls one server after another, and records the duration of each call.
async fn one_by_one(good: &[ServerHandle], times: &mut Vec<Duration>) {
    for handle in good {
        let begin = std::time::Instant::now();
        handle.call_tool("echo", json!({ "a": 1 })).await.unwrap();
        times.push(begin.elapsed());
    }
}

/// How much slower a call is next to a bad server.
async fn slower(bad: &ScriptedServer, bad_handle: &ServerHandle, good: &[ServerHandle]) -> f64 {
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for round in 0..size(60, 1_000) {
        // Alternating, so that other load on the machine affects both.
        one_by_one(good, &mut without).await;
        let callers = trouble(round, bad, bad_handle);
        one_by_one(good, &mut with).await;
        drop(callers);
    }
    let (without, with) = (median(without), median(with));
    let ratio = with.as_secs_f64() / without.as_secs_f64();
    println!("a call takes {without:?}, with a bad server {with:?}: {ratio:.3}");
    ratio
}

// On one thread, where a call never moves between processors of a busy machine.
#[tokio::test]
async fn a_bad_server_makes_the_others_no_slower() {
    without_reports_of_panics();
    let bad = bad_server();
    let (runtime, bad_handle, good) = fifty(&bad, Behaviour::answer()).await;
    let mut looks = Vec::new();
    while looks.len() < LOOKS && looks.iter().all(|ratio| *ratio >= tolerance()) {
        looks.push(slower(&bad, &bad_handle, &good).await);
    }
    let best = looks.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(best < tolerance(), "{looks:?}");
    for handle in &good {
        let status = handle.status();
        assert_eq!((status.generation.get(), status.restarts), (1, 0));
    }
    runtime.shutdown(secs(5)).await;
}

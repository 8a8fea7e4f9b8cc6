//! Servers that die and restart on their port, and the outcome of the calls. (Figure 11.)

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mcpvisor::{CallError, Known, StateName};
use mcpvisor_testkit::eventually;
use mcpvisor_testkit::http_server::{HttpOptions, HttpServer};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::arena::*;
use crate::bare::{self, Bare};
use crate::fleet::*;

/// Calls in flight when the server dies.
const IN_FLIGHT: usize = 16;

#[tokio::test]
async fn calls_in_flight_when_the_server_dies_have_their_outcome_at_once() {
    for options in [
        HttpOptions::default(),
        HttpOptions::sse(),
        HttpOptions::resumable(),
        HttpOptions::http_sse(),
    ] {
        let arena = Arena::new(options).await;
        let mut calls = JoinSet::new();
        for number in 0..IN_FLIGHT {
            let call = json!({ "key": format!("{number}"), "ms": 60_000 });
            let call = arena.handle.call_tool("run", call).deadline(DEADLINE * 2);
            calls.spawn(async move { (call.await, Instant::now()) });
        }
        let running = || arena.server.all_runs() == IN_FLIGHT as u64;
        eventually(DEADLINE, "the calls at work", running).await;
        let died = Instant::now();
        arena.server.stop().await;
        for (outcome, at) in calls.join_all().await {
            let error = outcome.unwrap_err();
            assert!(
                matches!(error, CallError::OutcomeUnknown { .. }),
                "{options:?}: {error:?}"
            );
            assert_eq!(error.known(), Known::Unknown);
            let took = at.saturating_duration_since(died);
            assert!(took < tolerance(), "{options:?}: {took:?}");
        }
        arena.server.resume().await;
        let call = arena.handle.call_tool("echo", json!({})).deadline(DEADLINE);
        call.await.unwrap();
        assert_eq!(arena.server.all_runs(), IN_FLIGHT as u64, "none ran twice");
        arena.end().await;
    }
}

#[tokio::test]
async fn control_figure_11_a_call_of_bare_rmcp_hangs_when_the_server_dies() {
    let server = HttpServer::start(HttpOptions::resumable()).await;
    let bare = Bare::connect(&server).await;
    let call = bare.call("run", json!({ "key": "k", "ms": 60_000 }));
    let died = async {
        eventually(DEADLINE, "the call at work", || server.runs("k") == 1).await;
        server.restart().await;
        std::future::pending::<()>().await;
    };
    let hangs = tokio::select! {
        hangs = bare::hangs(call) => hangs,
        () = died => false,
    };
    assert!(hangs);
}

#[tokio::test]
async fn figure_11_a_server_that_is_restarted_on_its_port_is_found_again_every_time() {
    let restarts = size(5, 100);
    for options in [
        HttpOptions::default(),
        HttpOptions::sse(),
        HttpOptions::modern(),
        HttpOptions::http_sse(),
    ] {
        let arena = Arena::new(options).await;
        let mut times = Vec::new();
        for number in 0..restarts {
            arena.server.restart().await;
            let begin = Instant::now();
            let outcome = arena.run(&format!("after {number}")).await;
            outcome.unwrap_or_else(|error| panic!("{options:?}, restart {number}: {error:?}"));
            times.push(begin.elapsed());
        }
        times.sort_unstable();
        let p99 = times[times.len() * 99 / 100];
        println!(
            "figure 11: {:?}, {:?}: {restarts} restarts, p99 {p99:?}",
            options.era, options.reply
        );
        assert!(p99 < secs(1) + tolerance(), "{p99:?}");
        assert_eq!(arena.server.ran_twice(), Vec::<String>::new());
        arena.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn figure_11_restarts_under_load_cost_no_outcome_and_run_nothing_twice() {
    for options in [HttpOptions::sse(), HttpOptions::http_sse()] {
        restarts_under_load(options).await;
    }
}

async fn restarts_under_load(options: HttpOptions) {
    let arena = Arc::new(Arena::new(options).await);
    let stop = Arc::new(AtomicBool::new(false));
    let unknown = Arc::new(AtomicU64::new(0));
    let mut callers = JoinSet::new();
    for caller in 0..16 {
        let (arena, stop) = (Arc::clone(&arena), Arc::clone(&stop));
        let unknown = Arc::clone(&unknown);
        callers.spawn(async move {
            let mut answered = 0;
            for number in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                match arena.run_for(&format!("{caller}-{number}"), 2).await {
                    Ok(_) => answered += 1,
                    Err(CallError::OutcomeUnknown { .. }) => {
                        unknown.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(other) => panic!("{other:?}"),
                }
            }
            answered
        });
    }
    for _ in 0..size(5, 100) {
        // Callers work again, and continue to for a while.
        let before = arena.server.all_runs();
        eventually(DEADLINE, "calls", || arena.server.all_runs() > before + 16).await;
        tokio::time::sleep(millis(100)).await;
        arena.server.stop().await;
        tokio::time::sleep(millis(20)).await;
        arena.server.resume().await;
    }
    // The last call is answered: nothing is stuck.
    arena.run("last").await.unwrap();
    stop.store(true, Ordering::Relaxed);
    let answered: usize = callers.join_all().await.into_iter().sum();
    let unknown = unknown.load(Ordering::Relaxed);
    let reply = options.reply;
    println!("figure 11, under load: {reply:?}: {answered} answered, {unknown} unknown");
    assert!(answered > 0);
    assert!(unknown > 0, "no restart hit a call");
    let generation = arena.generation();
    assert!(generation > size(5, 100) as u64, "{generation} connections");
    assert_eq!(arena.server.ran_twice(), Vec::<String>::new());
}

#[tokio::test]
async fn a_dead_server_is_noticed_though_nobody_calls_and_its_tools_stay() {
    for options in [HttpOptions::default(), HttpOptions::http_sse()] {
        let arena = Arena::new(options).await;
        let tools = arena.handle.catalog().tools.len();
        assert!(tools > 3);
        let open = || arena.server.open_streams() == 1;
        eventually(DEADLINE, "the server's own stream", open).await;
        arena.server.stop().await;
        reaches(&arena.handle, StateName::Reconnecting).await;
        // A reader never sees the tools disappear, and sees that they are stale.
        assert_eq!(arena.handle.catalog().tools.len(), tools);
        assert!(arena.handle.status().stale);
        arena.server.resume().await;
        ready_after(&arena.handle, 1).await;
        assert_eq!(arena.handle.catalog().tools.len(), tools);
        arena.end().await;
    }
}

#[tokio::test]
async fn readers_see_the_tools_all_the_time_while_a_server_restarts_again_and_again() {
    let arena = Arena::new(HttpOptions::default()).await;
    let tools = arena.handle.catalog().tools.len();
    let (handle, stop) = (arena.handle.clone(), Arc::new(AtomicBool::new(false)));
    let stopped = Arc::clone(&stop);
    let reader = tokio::spawn(async move {
        let mut fewest = usize::MAX;
        while !stopped.load(Ordering::Relaxed) {
            fewest = fewest.min(handle.catalog().tools.len());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        fewest
    });
    for number in 0..5 {
        arena.server.restart().await;
        arena.run(&format!("{number}")).await.unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    assert_eq!(reader.await.unwrap(), tools);
    arena.end().await;
}

#[tokio::test]
async fn a_closed_port_is_tried_within_the_budget_and_parked() {
    for options in [HttpOptions::default(), HttpOptions::http_sse()] {
        let server = HttpServer::start(options).await;
        server.stop().await;
        let mut settings = quick();
        settings.budget.attempts = 3;
        let arena = Arena::start(server, settings).await;
        reaches(&arena.handle, StateName::Disconnected).await;
        let fault = arena.handle.status().last_error.unwrap();
        says(&fault, &["refused"]);
        // Once the server is back, a call triggers a reconnect.
        arena.server.resume().await;
        arena.run("woken").await.unwrap();
        arena.end().await;
    }
}

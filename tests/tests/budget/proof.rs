//! B3 and B4: what restores the budget, and what costs nothing.

use std::time::Duration;

use mcpvisor::{StateName, Transport};
use mcpvisor_testkit::scripted::{Behaviour, Script, ScriptedServer};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::fleet::{millis, reaches, ready, ready_after, secs, server, structured};
use crate::{assert_about, dead, exact, in_time, pauses, started};

#[tokio::test(start_paused = true)]
async fn a_server_that_flaps_right_after_connecting_runs_out() {
    let flapping = Script::new().on("notifications/initialized", Behaviour::end());
    let scripted = ScriptedServer::new(flapping);
    let (_runtime, handle) = started(&scripted, exact(|s| s.budget.attempts = 4)).await;
    in_time(&handle, StateName::Disconnected).await;
    assert_eq!(scripted.record().opened(), [1, 2, 3, 4]);
    assert_about(
        &pauses(&scripted.record()),
        &[500, 1_000, 2_000].map(millis),
    );
}

#[tokio::test(start_paused = true)]
async fn handshake_discovery_restored_subscriptions_and_pings_prove_nothing() {
    let scripted = ScriptedServer::new(Script::new());
    let busy = exact(|settings| {
        settings.budget.attempts = 4;
        settings.health.keepalive = secs(1);
    });
    let (_runtime, handle) = ready(server("a", scripted.transport()).settings(busy)).await;
    // A reply to a caller proves generation 1; the subscription is restored on the others.
    handle.subscribe("file:///a").await.unwrap();
    scripted.control().end();
    let record = scripted.record();
    for generation in 2..=5 {
        ready_after(&handle, generation - 1).await;
        sleep(millis(3_500)).await;
        let methods = record.methods(generation);
        let count = |method: &str| methods.iter().filter(|m| *m == method).count();
        assert_eq!(count("resources/subscribe"), 1, "{methods:?}");
        assert_eq!(count("tools/list"), 1, "{methods:?}");
        assert_eq!(count("ping"), 3, "{methods:?}");
        scripted.control().end();
    }
    in_time(&handle, StateName::Disconnected).await;
    assert_eq!(record.opened(), [1, 2, 3, 4, 5]);
}

#[tokio::test(start_paused = true)]
async fn an_answered_caller_gives_the_budget_back() {
    let scripted = ScriptedServer::new(Script::new());
    let two = exact(|settings| settings.budget.attempts = 2);
    let (_runtime, handle) = ready(server("a", scripted.transport()).settings(two)).await;
    for generation in 1..=10 {
        ready_after(&handle, generation - 1).await;
        structured(handle.call_tool("echo", json!({})).await);
        let status = handle.status();
        assert_eq!((status.attempts_used, status.attempt), (0, 0));
        scripted.control().end();
    }
    ready_after(&handle, 10).await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_stays_up_gives_the_budget_back() {
    // The states of a server that loses its connection five times, each time after this uptime.
    let lost_after = async |up: Duration| {
        let scripted = ScriptedServer::new(Script::new());
        let two = exact(|settings| settings.budget.attempts = 2);
        let (_runtime, handle) = started(&scripted, two).await;
        for _ in 0..5 {
            reaches(&handle, StateName::Connected).await;
            sleep(up).await;
            scripted.control().end();
            sleep(millis(1)).await;
            if handle.status().state == StateName::Disconnected {
                break;
            }
        }
        handle.status().state
    };
    assert_eq!(lost_after(millis(30_010)).await, StateName::Connected);
    assert_eq!(lost_after(millis(29_990)).await, StateName::Disconnected);
}

#[tokio::test(start_paused = true)]
async fn the_first_connect_counts_too() {
    let scripted = ScriptedServer::new(dead());
    let (_runtime, handle) = started(&scripted, exact(|s| s.budget.attempts = 1)).await;
    let begun = Instant::now();
    in_time(&handle, StateName::Disconnected).await;
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(scripted.record().opened(), [1]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_one_call_and_dies_is_not_connected_in_a_tight_loop() {
    let script = Script::new().tool("last_words", Behaviour::answer().then_end());
    let scripted = ScriptedServer::new(script);
    let (_runtime, handle) = ready(server("a", scripted.transport()).settings(exact(|_| {}))).await;
    let begun = Instant::now();
    while begun.elapsed() < secs(10) {
        let generation = handle.status().generation.get();
        structured(handle.call_tool("last_words", json!({})).await);
        ready_after(&handle, generation).await;
    }
    // One of 5 s immediately, the others half a second apart.
    let connects = scripted.record().opened().len();
    assert!((18..=24).contains(&connects), "{connects} connects in 10 s");
}

#[tokio::test(start_paused = true)]
async fn a_failing_close_costs_no_attempt() {
    let scripted = ScriptedServer::new(Script::new());
    let serving = scripted.clone();
    // It ignores the request to end, and is aborted after a second.
    let stays = Transport::channel(move |end| {
        let generation = end.generation.get();
        let serving = serving
            .clone()
            .serve(end.incoming, end.outgoing, generation);
        async move {
            serving.await;
            std::future::pending::<()>().await;
        }
    });
    let three = exact(|settings| {
        settings.budget.attempts = 3;
        settings.close.stdin = secs(1);
    });
    let (_runtime, handle) = ready(server("a", stays).settings(three)).await;
    for connects in 1..=3 {
        reaches(&handle, StateName::Connected).await;
        assert_eq!(handle.status().attempts_used, connects);
        handle.report_broken(handle.status().generation);
        sleep(millis(990)).await;
        assert_eq!(
            scripted.record().opened().len(),
            connects as usize,
            "it closes"
        );
        let status = handle.status();
        assert_ne!(status.state, StateName::Connected);
        assert_eq!(status.attempts_used, connects);
        sleep(millis(20)).await;
        if connects < 3 {
            reaches(&handle, StateName::Connected).await;
        }
    }
    assert_eq!(handle.status().state, StateName::Disconnected);
    assert_eq!(scripted.record().opened(), [1, 2, 3]);
}

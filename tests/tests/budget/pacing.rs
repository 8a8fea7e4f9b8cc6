//! B1 and B2: attempts follow a backoff curve within a budget, and a failed reconnect continues it.

use std::time::Duration;

use mcpvisor::{FaultClass, StateName};
use mcpvisor_testkit::eventually_in;
use mcpvisor_testkit::scripted::{Script, ScriptedServer};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::fleet::{
    DEADLINE, millis, next_state, ready, ready_after, secs, server, settings, structured,
};
use crate::{assert_about, dead, exact, in_time, pauses, started};

#[tokio::test(start_paused = true)]
async fn connects_are_paced_by_the_configured_curve_with_jitter() {
    let scripted = ScriptedServer::new(dead());
    let configured = settings(|settings| {
        settings.backoff.initial = secs(1);
        settings.backoff.multiplier = 3.0;
        settings.backoff.max = secs(20);
        settings.backoff.jitter = 0.1;
        settings.budget.attempts = 7;
    });
    let (_runtime, handle) = started(&scripted, configured).await;
    in_time(&handle, StateName::Disconnected).await;

    let pauses = pauses(&scripted.record());
    let curve = [1, 3, 9, 20, 20, 20].map(secs);
    assert_eq!(pauses.len(), curve.len(), "{pauses:?}");
    for (pause, middle) in pauses.iter().zip(curve) {
        let low = middle.mul_f64(0.9);
        let high = middle.mul_f64(1.1).min(secs(20)) + millis(5);
        assert!((low..=high).contains(pause), "{pauses:?} around {curve:?}");
    }
    let jittered = |(pause, middle): (&Duration, Duration)| pause.abs_diff(middle) > millis(5);
    assert!(pauses.iter().zip(curve).any(jittered), "{pauses:?}");
}

#[tokio::test(start_paused = true)]
async fn the_status_shows_how_far_the_budget_is_used_and_when_the_next_connect_comes() {
    let scripted = ScriptedServer::new(dead());
    let (_runtime, handle) = started(&scripted, exact(|s| s.budget.attempts = 5)).await;
    for used in 1..=4_u32 {
        let what = format!("connect {used} failed");
        eventually_in(DEADLINE, what, &mut handle.watch(), |status| {
            status.attempts_used == used && status.retry_at.is_some()
        })
        .await;
        let status = handle.status();
        assert_eq!((status.attempt, status.attempts_limit), (used, 5));
        assert_eq!(status.state, StateName::Reconnecting);
        let delay = millis(500) * 2_u32.pow(used - 1);
        assert_eq!(status.retry_in(), Some(delay));
        let fault = status.last_error.clone().unwrap();
        assert_eq!(fault.class, FaultClass::ConnectionLost, "{fault}");
        let shown = serde_json::to_value(&status).unwrap();
        assert_eq!(shown["attempt"], used);
        assert_eq!(shown["retry_in_ms"], delay.as_millis() as u64);
        sleep(delay).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_window_slides_so_that_rare_failures_never_spend_the_budget() {
    let scripted = ScriptedServer::new(Script::new());
    let (_runtime, handle) = started(
        &scripted,
        exact(|settings| {
            settings.budget.attempts = 3;
            settings.budget.within = secs(60);
            settings.backoff.max = millis(500);
            // Only the window restores the budget.
            settings.budget.proven_after = secs(1_000_000);
        }),
    )
    .await;
    for generation in 1..=10 {
        ready_after(&handle, generation - 1).await;
        sleep(secs(31)).await;
        scripted.control().end();
    }
    ready_after(&handle, 10).await;
    assert_eq!(
        handle.status().attempts_used,
        1 + 1,
        "those of the last minute"
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_reconnect_goes_on_with_the_budget_until_the_server_is_back() {
    let scripted = ScriptedServer::new(Script::new());
    let (runtime, handle) = ready(server("a", scripted.transport()).settings(exact(|_| {}))).await;
    structured(handle.call_tool("echo", json!({})).await);
    let mut events = runtime.events();
    let lost = Instant::now();
    scripted.control().set_script(dead());
    scripted.control().end();
    // Recovers after four failed reconnects.
    let record = scripted.record();
    record
        .until(DEADLINE, "four failures", |record| {
            record.opened().len() == 5
        })
        .await;
    scripted.control().set_script(Script::new());
    ready_after(&handle, 5).await;

    let openings = record.openings();
    let after: Vec<_> = openings[1..].iter().map(|at| *at - lost).collect();
    // Immediately, because the connection was proven; then the curve.
    let curve = [0, 500, 1_500, 3_500, 7_500].map(millis);
    assert_about(&after, &curve);
    assert_eq!(next_state(&mut events).await, StateName::Reconnecting);
    assert_eq!(next_state(&mut events).await, StateName::Connected);
    assert_eq!(record.opened(), [1, 2, 3, 4, 5, 6]);
}

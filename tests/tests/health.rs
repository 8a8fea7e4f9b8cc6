//! When a connection counts as dead or unhealthy, and when it does not.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

mod fleet;

use std::future::IntoFuture;
use std::time::Duration;

use fleet::{
    DEADLINE, fixture, fleet, millis, pid, reaches, ready, ready_after, secs, server, settings,
    structured,
};
use mcpvisor::rmcp::model::{ErrorCode, ErrorData};
use mcpvisor::{CallError, FaultClass, Runtime, ServerHandle, ServerSettings, StateName};
use mcpvisor_testkit::processes::{self, Marker};
use mcpvisor_testkit::scripted::{Behaviour, Script, ScriptedServer};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// Three timeouts of 10 s make a connection suspect; it is idle only after an hour.
fn suspicious() -> ServerSettings {
    settings(|settings| {
        settings.timeouts.idle = secs(10);
        settings.health.threshold = 3;
        settings.health.keepalive = secs(3_600);
        settings.health.keepalive_timeout = secs(5);
    })
}

/// A tool that works, one that never answers, and unanswered pings.
fn sick() -> Script {
    Script::new()
        .tool("silent", Behaviour::silence())
        .on("ping", Behaviour::silence())
}

async fn started(
    script: Script,
    settings: ServerSettings,
) -> (ScriptedServer, Runtime, ServerHandle) {
    let scripted = ScriptedServer::new(script);
    let (runtime, handle) = ready(server("a", scripted.transport()).settings(settings)).await;
    (scripted, runtime, handle)
}

/// Calls the tool that never answers, this many times in sequence.
async fn time_out(handle: &ServerHandle, times: usize) {
    for _ in 0..times {
        let late = handle.call_tool("silent", json!({})).await.unwrap_err();
        assert!(
            matches!(late, CallError::Deadline { idle: true, .. }),
            "{late}"
        );
    }
}

fn pings(scripted: &ScriptedServer) -> usize {
    scripted.record().received("ping").len()
}

// ---- H1: a dead transport counts immediately, softer failures after a threshold

#[tokio::test(start_paused = true)]
async fn a_dead_transport_starts_a_reconnect_at_once() {
    let (scripted, _runtime, handle) = started(Script::new(), ServerSettings::default()).await;
    structured(handle.call_tool("echo", json!({})).await);
    let lost = Instant::now();
    scripted.control().end();
    ready_after(&handle, 1).await;
    assert_eq!(lost.elapsed(), Duration::ZERO);
    assert_eq!(pings(&scripted), 0, "nothing has to be asked");
}

#[tokio::test]
async fn a_killed_child_is_replaced_at_once() {
    let marker = Marker::new("h1");
    // Only the end of the transport reveals it.
    let deaf = settings(|settings| settings.health.keepalive = secs(3_600));
    let (runtime, handle) = ready(server("a", fixture(&marker, &[])).settings(deaf)).await;
    let child = pid(&handle).await;
    processes::kill(child);
    ready_after(&handle, 1).await;
    assert_ne!(pid(&handle).await, child);
    assert_eq!(handle.status().generation.get(), 2);
    runtime.shutdown(secs(5)).await;
    marker.assert_none_left(DEADLINE).await;
}

#[tokio::test(start_paused = true)]
async fn consecutive_timeouts_reconnect_when_one_ping_is_not_answered_either() {
    let (scripted, _runtime, handle) = started(sick(), suspicious()).await;
    time_out(&handle, 2).await;
    sleep(secs(60)).await;
    assert_eq!(pings(&scripted), 0, "two are no reason");
    time_out(&handle, 1).await;
    sleep(millis(4_990)).await;
    assert_eq!(pings(&scripted), 1);
    assert_eq!(
        handle.status().state,
        StateName::Connected,
        "the ping decides"
    );
    sleep(millis(20)).await;
    assert_eq!(scripted.record().opened(), [1, 2]);
    ready_after(&handle, 1).await;
    let fault = handle.status().last_error.unwrap();
    assert_eq!(fault.class, FaultClass::Timeout, "{fault}");
}

#[tokio::test(start_paused = true)]
async fn an_answered_ping_clears_the_suspicion() {
    let script = sick().on("ping", Behaviour::answer());
    let (scripted, _runtime, handle) = started(script, suspicious()).await;
    time_out(&handle, 3).await;
    sleep(secs(60)).await;
    assert_eq!((pings(&scripted), handle.status().generation.get()), (1, 1));
    // The count has restarted.
    time_out(&handle, 2).await;
    sleep(secs(60)).await;
    assert_eq!(pings(&scripted), 1);
    time_out(&handle, 1).await;
    sleep(secs(60)).await;
    assert_eq!((pings(&scripted), handle.status().generation.get()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_between_begins_the_count_anew() {
    let (scripted, _runtime, handle) = started(sick(), suspicious()).await;
    for _ in 0..5 {
        time_out(&handle, 2).await;
        structured(handle.call_tool("echo", json!({})).await);
    }
    sleep(secs(60)).await;
    assert_eq!((pings(&scripted), handle.status().generation.get()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn tiny_deadlines_of_one_caller_cut_nobody_off() {
    let (scripted, _runtime, handle) = started(sick(), suspicious()).await;
    for _ in 0..50 {
        let hasty = handle.call_tool("silent", json!({}));
        hasty.deadline(millis(9_900)).await.unwrap_err();
    }
    for _ in 0..50 {
        let hasty = handle.call_tool("silent", json!({}));
        hasty.idle_timeout(millis(9_900)).await.unwrap_err();
    }
    assert_eq!((pings(&scripted), handle.status().generation.get()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_timeout_beside_anything_that_arrives_counts_nothing() {
    let (scripted, _runtime, handle) = started(sick(), suspicious()).await;
    for _ in 0..5 {
        // A slow tool on a live connection: another caller is answered meanwhile.
        let slow = tokio::spawn(handle.call_tool("silent", json!({})).into_future());
        sleep(secs(3)).await;
        structured(handle.call_tool("echo", json!({})).await);
        slow.await.unwrap().unwrap_err();
    }
    sleep(secs(60)).await;
    assert_eq!((pings(&scripted), handle.status().generation.get()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_soft_reconnect_drains_what_is_in_flight_first() {
    let script = sick().tool("slow", Behaviour::answer().held());
    let (scripted, _runtime, handle) = started(script, suspicious()).await;
    let slow = handle.call_tool("slow", json!({ "n": 7 }));
    let slow = tokio::spawn(slow.idle_timeout(secs(600)).into_future());
    time_out(&handle, 3).await;
    reaches(&handle, StateName::Reconnecting).await;
    sleep(secs(2)).await;
    assert_eq!(scripted.control().live(), [1], "it drains");
    scripted.control().release("slow", 1);
    assert_eq!(structured(slow.await.unwrap()), json!({ "n": 7 }));
    ready_after(&handle, 1).await;
    assert_eq!(scripted.record().calls("slow").len(), 1);
}

#[tokio::test]
async fn replies_that_cannot_be_read_count_like_timeouts() {
    let marker = Marker::new("h1-garbled");
    let quick = settings(|settings| settings.health.keepalive_timeout = millis(50));
    let (runtime, handle) =
        ready(server("a", fixture(&marker, &["--mute-pings"])).settings(quick)).await;
    let child = pid(&handle).await;
    let garbled = async |times: usize| {
        for _ in 0..times {
            let garbled = handle.call_tool("garble", Value::Null).await.unwrap_err();
            assert!(matches!(garbled, CallError::Unreadable { .. }), "{garbled}");
        }
    };
    garbled(2).await;
    assert_eq!(pid(&handle).await, child);
    garbled(2).await;
    assert_eq!(pid(&handle).await, child, "two in a row, twice");
    garbled(3).await;
    ready_after(&handle, 1).await;
    assert_ne!(pid(&handle).await, child);
    runtime.shutdown(secs(5)).await;
    marker.assert_none_left(DEADLINE).await;
}

// ---- H2: discovery and calls are counted separately

#[tokio::test(start_paused = true)]
async fn a_working_tool_does_not_hide_a_broken_listing() {
    let broken = sick().on("tools/list", Behaviour::silence());
    let scripted = ScriptedServer::new(Script::new()).on_generation(1, broken);
    let settings = settings(|settings| {
        settings.timeouts.listing = secs(5);
        settings.health.keepalive_timeout = secs(5);
    });
    let runtime = fleet([server("a", scripted.transport()).settings(settings)]).await;
    let handle = runtime.server("a").unwrap();
    reaches(&handle, StateName::Connected).await;
    // The tool answers every second, the listing never does.
    let begun = Instant::now();
    while handle.status().generation.get() == 1 {
        structured(handle.call_tool("echo", json!({})).await);
        sleep(secs(1)).await;
        assert!(begun.elapsed() < secs(60), "the listing is broken");
    }
    // Three listings of 5 s with pauses of 1 s and 2 s, and a ping of 5 s.
    assert!(begun.elapsed() >= secs(22), "{:?}", begun.elapsed());
    assert_eq!(
        scripted
            .record()
            .methods(1)
            .iter()
            .filter(|m| *m == "ping")
            .count(),
        1
    );
    ready_after(&handle, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_working_listing_does_not_hide_broken_calls() {
    let (scripted, _runtime, handle) = started(sick(), suspicious()).await;
    for round in 1..=3 {
        time_out(&handle, 1).await;
        scripted.control().tools_changed();
        let record = scripted.record();
        let refreshed = |listings: usize| listings == round + 1;
        record
            .until(DEADLINE, "a refresh", |record| {
                refreshed(record.received("tools/list").len())
            })
            .await;
        sleep(secs(1)).await;
    }
    assert_eq!(pings(&scripted), 1);
    ready_after(&handle, 1).await;
}

// ---- H3: an error from the server is not a transport failure

#[tokio::test(start_paused = true)]
async fn errors_that_the_server_answered_never_count() {
    let refusal = ErrorData::new(ErrorCode::INTERNAL_ERROR, "out of order", None);
    let script = sick()
        .tool("refuse", Behaviour::error(refusal))
        .tool("fail", Behaviour::tool_error("failed"));
    let (scripted, _runtime, handle) = started(script, suspicious()).await;
    for _ in 0..20 {
        let refused = handle.call_tool("refuse", json!({})).await.unwrap_err();
        assert!(matches!(refused, CallError::Answered { .. }), "{refused}");
    }
    for _ in 0..20 {
        let failed = handle.call_tool("fail", json!({})).await.unwrap();
        assert_eq!(failed.is_error, Some(true));
    }
    // They do not add to counted failures either.
    time_out(&handle, 2).await;
    handle.call_tool("refuse", json!({})).await.unwrap_err();
    time_out(&handle, 2).await;
    handle.call_tool("fail", json!({})).await.unwrap();
    sleep(secs(60)).await;
    assert_eq!((pings(&scripted), handle.status().generation.get()), (0, 1));
    assert_eq!(handle.status().last_error, None);
}

#[tokio::test(start_paused = true)]
async fn callers_that_leave_never_count() {
    let (scripted, _runtime, handle) = started(sick(), suspicious()).await;
    time_out(&handle, 2).await;
    for _ in 0..20 {
        let leaver = tokio::spawn(handle.call_tool("silent", json!({})).into_future());
        // Just before the idle timeout, which would count.
        sleep(millis(9_900)).await;
        leaver.abort();
        sleep(secs(1)).await;
    }
    assert_eq!(scripted.record().cancelled().len(), 22);
    assert_eq!((pings(&scripted), handle.status().generation.get()), (0, 1));
}

// ---- H4: only an idle connection is checked

fn a_minute() -> ServerSettings {
    settings(|settings| {
        settings.health.keepalive = secs(60);
        settings.health.keepalive_timeout = secs(10);
    })
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_pinged_and_kept_while_it_answers() {
    let (scripted, _runtime, handle) = started(Script::new(), a_minute()).await;
    sleep(millis(59_900)).await;
    assert_eq!(pings(&scripted), 0);
    sleep(millis(200)).await;
    assert_eq!(pings(&scripted), 1);
    sleep(secs(3_540)).await;
    assert_eq!(pings(&scripted), 60, "one a minute");
    assert_eq!(handle.status().generation.get(), 1);
    structured(handle.call_tool("echo", json!({})).await);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_that_does_not_answer_a_ping_is_dead() {
    let (scripted, _runtime, handle) = started(sick(), a_minute()).await;
    sleep(millis(69_900)).await;
    assert_eq!((pings(&scripted), handle.status().generation.get()), (1, 1));
    sleep(millis(200)).await;
    assert_eq!(scripted.record().opened(), [1, 2], "proven, so at once");
    ready_after(&handle, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_check_never_competes_with_calls_in_flight() {
    let script = sick().tool("slow", Behaviour::answer().held());
    let (scripted, _runtime, handle) = started(script, a_minute()).await;
    let patient = handle.call_tool("slow", json!({})).deadline(secs(900));
    let slow = tokio::spawn(patient.idle_timeout(secs(900)).into_future());
    sleep(secs(600)).await;
    assert_eq!((pings(&scripted), handle.status().generation.get()), (0, 1));
    scripted.control().release("slow", 1);
    structured(slow.await.unwrap());
    // Idle from here on.
    sleep(millis(59_900)).await;
    assert_eq!(pings(&scripted), 0);
    sleep(millis(200)).await;
    assert_eq!(pings(&scripted), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_calls_needs_no_check() {
    let (scripted, _runtime, handle) = started(sick(), a_minute()).await;
    for _ in 0..20 {
        sleep(secs(55)).await;
        structured(handle.call_tool("echo", json!({})).await);
    }
    assert_eq!(pings(&scripted), 0);
    // Even when the check was sent before the call.
    sleep(secs(65)).await;
    assert_eq!(pings(&scripted), 1);
    structured(handle.call_tool("echo", json!({})).await);
    sleep(secs(20)).await;
    assert_eq!(handle.status().generation.get(), 1);
}

/// An obsolete check is cancelled at the server too, and leaves nothing behind.
#[tokio::test(start_paused = true)]
async fn checks_that_were_overtaken_do_not_pile_up() {
    let (scripted, _runtime, handle) = started(sick(), a_minute()).await;
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let before = tasks();
    for round in 1..=20 {
        sleep(secs(65)).await;
        assert_eq!(pings(&scripted), round);
        structured(handle.call_tool("echo", json!({})).await);
    }
    sleep(secs(20)).await;
    assert_eq!(handle.status().generation.get(), 1);
    assert_eq!(
        scripted.record().received("notifications/cancelled").len(),
        20
    );
    assert!(tasks() <= before, "{} more tasks", tasks() - before);
}

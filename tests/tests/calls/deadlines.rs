//! C4: deadlines, idle timeouts, progress and cancellation.

use mcpvisor::{Known, ServerSettings};
use mcpvisor_testkit::eventually;
use mcpvisor_testkit::processes::Marker;
use mcpvisor_testkit::scripted::{Behaviour, Script, ScriptedServer};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::fleet::{DEADLINE, eager, fixture, fleet, ready, secs, server, settings, structured};
use crate::{deadline_of, losing, received, spawn, started};

#[tokio::test(start_paused = true)]
async fn a_deadline_covers_the_wait_for_a_place_and_the_connect() {
    let script = Script::new().tool("slow", Behaviour::silence());
    let one = settings(|settings| settings.admission.in_flight = 1);
    let (scripted, _runtime, handle) = started(script, one).await;
    let _slow = spawn(handle.call_tool("slow", json!({})));
    received(&scripted.record(), "slow", 1).await;
    let begun = Instant::now();
    let in_line = handle.call_tool("echo", json!({})).deadline(secs(2));
    let late = in_line.await.unwrap_err();
    assert_eq!(deadline_of(&late), (false, false));
    assert_eq!(begun.elapsed(), secs(2));
    assert_eq!(
        late.to_string(),
        "a: tools/call did not finish within 2s; it was not sent"
    );

    let mute = Script::new().on("initialize", Behaviour::silence());
    let scripted = ScriptedServer::new(mute);
    let runtime = fleet([server("a", scripted.transport())]).await;
    let begun = Instant::now();
    let call = runtime.server("a").unwrap().call_tool("echo", json!({}));
    let late = call.deadline(secs(3)).await.unwrap_err();
    assert_eq!(deadline_of(&late), (false, false));
    assert_eq!(begun.elapsed(), secs(3));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_covers_the_retry() {
    let mute = Script::new().on("initialize", Behaviour::silence());
    let scripted = ScriptedServer::new(losing(1)).on_generation(2, mute);
    let (_runtime, handle) = ready(server("a", scripted.transport()).settings(eager())).await;
    let begun = Instant::now();
    let read = handle.read_resource("file:///a").deadline(secs(4));
    let late = read.await.unwrap_err();
    // It was sent on the connection that was lost.
    assert_eq!(deadline_of(&late), (true, false));
    assert_eq!(late.known(), Known::Unknown);
    assert_eq!(begun.elapsed(), secs(4));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_covers_the_wait_for_the_clients_own_quota() {
    let script = Script::new().tool("slow", Behaviour::silence());
    let (scripted, runtime, _handle) = started(script, ServerSettings::default()).await;
    let client = runtime.client("planner").quota(1).build();
    let handle = client.server("a").unwrap();
    let _slow = spawn(handle.call_tool("slow", json!({})));
    received(&scripted.record(), "slow", 1).await;
    let begun = Instant::now();
    let late = handle.call_tool("echo", json!({})).deadline(secs(2));
    assert_eq!(deadline_of(&late.await.unwrap_err()), (false, false));
    assert_eq!(begun.elapsed(), secs(2));
    assert_eq!(scripted.record().calls("echo").len(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_idle_time_begins_when_the_call_is_sent() {
    let script = Script::new()
        .tool("first", Behaviour::answer().after(secs(20)))
        .tool("second", Behaviour::answer().after(secs(8)))
        .tool("silent", Behaviour::silence());
    let one = settings(|settings| {
        settings.admission.in_flight = 1;
        settings.timeouts.idle = secs(10);
    });
    let (scripted, _runtime, handle) = started(script, one).await;
    let first = handle.call_tool("first", json!({})).idle_timeout(secs(30));
    let first = spawn(first);
    received(&scripted.record(), "first", 1).await;
    let begun = Instant::now();
    structured(handle.call_tool("second", json!({})).await);
    assert_eq!(begun.elapsed(), secs(28), "20 s in line, 8 s of its 10 s");
    structured(first.await.unwrap());
    let begun = Instant::now();
    let silent = handle.call_tool("silent", json!({})).await.unwrap_err();
    assert_eq!(deadline_of(&silent), (true, true));
    assert_eq!(begun.elapsed(), secs(10));
}

#[tokio::test(start_paused = true)]
async fn progress_renews_the_idle_time_but_never_the_deadline() {
    let steady = Behaviour::answer().with_progress(5, secs(8));
    let script = Script::new().tool("steady", steady);
    let ten = settings(|settings| settings.timeouts.idle = secs(10));
    let (scripted, _runtime, handle) = started(script, ten).await;
    let (sink, mut progress) = mpsc::channel(8);
    let begun = Instant::now();
    let steady = handle.call_tool("steady", json!({}));
    structured(steady.on_progress(sink).await);
    assert_eq!(begun.elapsed(), secs(48));
    let mut seen = Vec::new();
    while let Ok(step) = progress.try_recv() {
        seen.push(step.progress);
    }
    assert_eq!(seen, [1.0, 2.0, 3.0, 4.0, 5.0]);

    let begun = Instant::now();
    let steady = handle.call_tool("steady", json!({})).deadline(secs(30));
    let late = steady.await.unwrap_err();
    assert_eq!(deadline_of(&late), (true, false));
    assert_eq!(begun.elapsed(), secs(30));
    assert_eq!(scripted.record().cancelled().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_server_is_told_of_every_call_that_is_given_up() {
    let script = Script::new().tool("silent", Behaviour::silence());
    let (scripted, _runtime, handle) = started(script, ServerSettings::default()).await;
    let silent = || handle.call_tool("silent", json!({}));
    let record = scripted.record();
    // The deadline passes, the idle timeout passes, the caller drops the call.
    silent().deadline(secs(1)).await.unwrap_err();
    silent().idle_timeout(secs(1)).await.unwrap_err();
    let leaver = spawn(silent());
    received(&record, "silent", 3).await;
    leaver.abort();
    record
        .until(DEADLINE, "the cancellation", |record| {
            record.cancelled().len() == 3
        })
        .await;
    let ids: Vec<Value> = record
        .received("tools/call")
        .iter()
        .map(|call| json!(call.id))
        .collect();
    assert_eq!(record.cancelled(), ids, "each by its own id");
    assert_eq!(handle.status().in_flight, 0, "their places are free");
    // Unsent and answered calls are not cancelled.
    structured(handle.call_tool("echo", json!({})).await);
    sleep(secs(1)).await;
    assert_eq!(record.cancelled().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_the_line_leaves_nothing_in_it() {
    let script = Script::new().tool("slow", Behaviour::answer().held());
    let one = settings(|settings| settings.admission.in_flight = 1);
    let (scripted, _runtime, handle) = started(script, one).await;
    let slow = spawn(handle.call_tool("slow", json!({})));
    received(&scripted.record(), "slow", 1).await;
    let leaver = spawn(handle.call_tool("echo", json!({ "n": 1 })));
    eventually(DEADLINE, "it waits", || handle.status().waiting == 1).await;
    leaver.abort();
    eventually(DEADLINE, "it left", || handle.status().waiting == 0).await;
    scripted.control().release("slow", 1);
    structured(slow.await.unwrap());
    structured(handle.call_tool("echo", json!({ "n": 2 })).await);
    assert_eq!(scripted.record().calls("echo").len(), 1);
    assert_eq!(scripted.record().cancelled().len(), 0);
}

#[tokio::test]
async fn a_child_is_told_of_a_call_that_is_given_up() {
    let marker = Marker::new("c4");
    let log = std::env::temp_dir().join(marker.value());
    let flags = ["--cancel-log", log.to_str().unwrap()];
    let (runtime, handle) = ready(server("a", fixture(&marker, &flags))).await;
    let sleeping = || handle.call_tool("sleep", json!({ "ms": 600_000 }));
    let cancelled = || std::fs::read_to_string(&log).map_or(0, |log| log.lines().count());
    sleeping().deadline(secs(1)).await.unwrap_err();
    eventually(DEADLINE, "the deadline reached the child", || {
        cancelled() == 1
    })
    .await;
    let leaver = spawn(sleeping());
    eventually(DEADLINE, "it is in flight", || {
        handle.status().in_flight == 1
    })
    .await;
    leaver.abort();
    eventually(DEADLINE, "the leave reached the child", || cancelled() == 2).await;
    runtime.shutdown(secs(5)).await;
    marker.assert_none_left(DEADLINE).await;
    std::fs::remove_file(&log).unwrap();
}

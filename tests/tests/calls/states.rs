//! C7: the behaviour of calls in each state of a server.

use std::time::Duration;

use mcpvisor::{NotSentReason, Runtime, ServerHandle, ServerSettings, StateName};
use mcpvisor_testkit::scripted::{Behaviour, Script, ScriptedServer};
use mcpvisor_testkit::{eventually, eventually_in};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::fleet::{DEADLINE, fleet, reaches, ready, secs, server, settings, structured};
use crate::{deadline_of, not_sent, received, spawn, started};

#[tokio::test(start_paused = true)]
async fn while_connecting_a_call_waits_for_the_connect() {
    let slow = Behaviour::answer().after(secs(25));
    let scripted = ScriptedServer::new(Script::new().on("initialize", slow));
    let runtime = fleet([server("a", scripted.transport())]).await;
    let handle = runtime.server("a").unwrap();
    let begun = Instant::now();
    structured(handle.call_tool("echo", json!({})).await);
    assert_eq!(begun.elapsed(), secs(25));
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_first_attempt_failed_reconnects_while_its_callers_wait() {
    let flaky = Behaviour::first(4, Behaviour::end(), Behaviour::answer());
    let scripted = ScriptedServer::new(Script::new().on("initialize", flaky));
    let runtime = fleet([server("a", scripted.transport())]).await;
    let handle = runtime.server("a").unwrap();
    let call = spawn(handle.call_tool("echo", json!({})));
    let mut status = handle.watch();
    eventually_in(DEADLINE, "connected", &mut status, |status| {
        match (status.state, &status.last_error) {
            (StateName::Connecting, None) => assert_eq!(status.retry_at, None),
            (StateName::Reconnecting, Some(_)) => assert!(status.attempt >= 1),
            (StateName::Connected, _) => {}
            _ => panic!("{status:?}"),
        }
        status.state == StateName::Connected
    })
    .await;
    structured(call.await.unwrap());
    assert_eq!(scripted.record().opened(), [1, 2, 3, 4, 5]);
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_the_first_attempt_then_fifteen_seconds_from_its_failure() {
    let slow_to_fail = Behaviour::end().after(secs(20));
    let attempts = Behaviour::first(1, slow_to_fail, Behaviour::silence());
    let scripted = ScriptedServer::new(Script::new().on("initialize", attempts));
    let runtime = fleet([server("a", scripted.transport())]).await;
    let handle = runtime.server("a").unwrap();
    let begun = Instant::now();
    let reason = not_sent(handle.call_tool("echo", json!({})).await);
    assert!(
        matches!(reason, NotSentReason::NoConnection(Some(_))),
        "{reason}"
    );
    assert_eq!(begun.elapsed(), secs(20 + 15));
}

/// A proven server that loses its connection, and whose next handshake takes this long.
async fn reconnecting(handshake: Duration) -> (ScriptedServer, Runtime, ServerHandle) {
    let slow = Script::new().on("initialize", Behaviour::answer().after(handshake));
    let scripted = ScriptedServer::new(Script::new()).on_generation(2, slow);
    let (runtime, handle) = ready(server("a", scripted.transport())).await;
    structured(handle.call_tool("echo", json!({})).await);
    scripted.control().end();
    reaches(&handle, StateName::Reconnecting).await;
    (scripted, runtime, handle)
}

#[tokio::test(start_paused = true)]
async fn while_reconnecting_a_call_waits_for_fifteen_seconds() {
    let (_scripted, _runtime, handle) = reconnecting(secs(14)).await;
    let begun = Instant::now();
    structured(handle.call_tool("echo", json!({})).await);
    assert_eq!(begun.elapsed(), secs(14));

    let (scripted, _runtime, handle) = reconnecting(secs(20)).await;
    let begun = Instant::now();
    let reason = not_sent(handle.call_tool("echo", json!({})).await);
    assert_eq!(begun.elapsed(), secs(15));
    assert!(
        matches!(reason, NotSentReason::NoConnection(Some(_))),
        "{reason}"
    );
    // Its own deadline is even shorter.
    let late = handle.call_tool("echo", json!({})).deadline(secs(1));
    assert_eq!(deadline_of(&late.await.unwrap_err()), (false, false));
    assert_eq!(scripted.record().calls("echo").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn while_disconnected_a_call_wakes_the_server_and_waits_for_fifteen_seconds() {
    let parked = async |script: Script| {
        let dead = Script::new().on("initialize", Behaviour::end());
        let scripted = ScriptedServer::new(script).on_generation(1, dead);
        let one = settings(|settings| settings.budget.attempts = 1);
        let runtime = fleet([server("a", scripted.transport()).settings(one)]).await;
        let handle = runtime.server("a").unwrap();
        reaches(&handle, StateName::Disconnected).await;
        sleep(secs(5)).await;
        assert_eq!(scripted.record().opened(), [1]);
        (scripted, runtime, handle)
    };
    let handshake = |time| Script::new().on("initialize", Behaviour::answer().after(time));
    let (_scripted, _runtime, handle) = parked(handshake(secs(14))).await;
    let begun = Instant::now();
    structured(handle.call_tool("echo", json!({})).await);
    assert_eq!(begun.elapsed(), secs(14), "woken at once");

    let (scripted, _runtime, handle) = parked(handshake(secs(20))).await;
    let begun = Instant::now();
    not_sent(handle.call_tool("echo", json!({})).await);
    assert_eq!(begun.elapsed(), secs(15));
    assert_eq!(scripted.record().opened(), [1, 2]);
    // A call does not wait for a server that is still dead.
    let (_scripted, _runtime, handle) =
        parked(Script::new().on("initialize", Behaviour::end())).await;
    let begun = Instant::now();
    let reason = not_sent(handle.call_tool("echo", json!({})).await);
    assert!(matches!(reason, NotSentReason::Parked(Some(_))), "{reason}");
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_off_or_failed_refuses_at_once_and_says_what_to_do() {
    let script = Script::new().tool("silent", Behaviour::silence());
    let (scripted, runtime, handle) = started(script, ServerSettings::default()).await;
    let in_flight = spawn(handle.call_tool("silent", json!({})));
    received(&scripted.record(), "silent", 1).await;
    let disable = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.disable("a").await }
    });
    let refused_at_once = async |expected: &str| {
        let begun = Instant::now();
        let reason = not_sent(handle.call_tool("echo", json!({})).await);
        assert!(reason.to_string().contains(expected), "{reason}");
        assert_eq!(begun.elapsed(), Duration::ZERO);
    };
    reaches(&handle, StateName::Disabling).await;
    refused_at_once("enable it first").await;
    disable.await.unwrap().unwrap();
    in_flight.await.unwrap().unwrap_err();
    assert_eq!(handle.status().state, StateName::Disabled);
    refused_at_once("enable it first").await;
    scripted
        .control()
        .set_script(Script::new().protocol("1999-12-31"));
    runtime.enable("a").await.unwrap();
    reaches(&handle, StateName::PermanentlyFailed).await;
    refused_at_once("update the server").await;
    assert_eq!(scripted.record().calls("echo").len(), 0);
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_are_refused_as_soon_as_waiting_is_in_vain() {
    // Connecting, then disabled; connecting, then incompatible; connecting, then parked.
    let held = |behaviour: Behaviour| Script::new().on("initialize", behaviour.held());
    let one = settings(|settings| settings.budget.attempts = 1);
    let waiting = async |script: Script| {
        let scripted = ScriptedServer::new(script);
        let config = server("a", scripted.transport()).settings(one.clone());
        let runtime = fleet([config]).await;
        let handle = runtime.server("a").unwrap();
        let call = spawn(handle.call_tool("echo", json!({})));
        eventually(DEADLINE, "it waits", || handle.status().waiting == 1).await;
        (scripted, runtime, call)
    };
    let (_scripted, runtime, call) = waiting(held(Behaviour::answer())).await;
    runtime.disable("a").await.unwrap();
    assert_eq!(not_sent(call.await.unwrap()), NotSentReason::Disabled);

    let incompatible = held(Behaviour::answer()).protocol("1999-12-31");
    let (scripted, _runtime, call) = waiting(incompatible).await;
    scripted.control().release("initialize", 1);
    let reason = not_sent(call.await.unwrap());
    assert!(matches!(reason, NotSentReason::Failed { .. }), "{reason}");

    let (scripted, _runtime, call) = waiting(held(Behaviour::end())).await;
    scripted.control().release("initialize", 1);
    let reason = not_sent(call.await.unwrap());
    assert!(matches!(reason, NotSentReason::Parked(Some(_))), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_off_refuses_at_once_though_its_clients_quota_is_spent() {
    let busy = ScriptedServer::new(Script::new().tool("slow", Behaviour::silence()));
    let [off, goes_off] = [(), ()].map(|()| ScriptedServer::new(Script::new()));
    let runtime = fleet([
        server("busy", busy.transport()),
        server("off", off.transport()),
        server("goes-off", goes_off.transport()),
    ])
    .await;
    runtime.ready(DEADLINE).await.unwrap();
    runtime.disable("off").await.unwrap();
    let client = runtime.client("planner").quota(1).build();
    let slow = client.server("busy").unwrap().call_tool("slow", json!({}));
    let _slow = spawn(slow);
    received(&busy.record(), "slow", 1).await;

    let begun = Instant::now();
    let call = |name| client.server(name).unwrap().call_tool("echo", json!({}));
    assert_eq!(not_sent(call("off").await), NotSentReason::Disabled);
    let waits = spawn(call("goes-off"));
    tokio::task::yield_now().await;
    runtime.disable("goes-off").await.unwrap();
    assert_eq!(not_sent(waits.await.unwrap()), NotSentReason::Disabled);
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

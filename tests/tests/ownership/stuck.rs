//! O3: a stuck server delays no other.

use std::future::IntoFuture;
use std::time::Duration;

use mcpvisor::{CallError, CloseOutcome, Known, StateName, Transport};
use mcpvisor_testkit::eventually;
use mcpvisor_testkit::processes::Marker;
use mcpvisor_testkit::scripted::{Behaviour, Script, ScriptedServer};
use serde_json::json;
use tokio::time::Instant;

use crate::control_requests::{Overlap, lingering};
use crate::fleet::{
    DEADLINE, fixture, fleet, millis, pid, reaches, secs, server, settings, structured,
};

/// A server that follows its script but never ends on request.
fn never_closing(scripted: &ScriptedServer) -> Transport {
    lingering(scripted, secs(1_000_000), &Overlap::default())
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_stuck_anywhere_delays_no_other() {
    let mute = ScriptedServer::new(Script::new().on("initialize", Behaviour::silence()));
    let stuck = ScriptedServer::new(Script::new().tool("silent", Behaviour::silence()));
    let good = ScriptedServer::new(Script::new());
    let runtime = fleet([
        server("mute", mute.transport()),
        server("stuck", never_closing(&stuck)),
        server("zgood", good.transport()).required(true),
    ])
    .await;
    runtime.ready(DEADLINE).await.unwrap();
    let handle = runtime.server("zgood").unwrap();
    let stuck_handle = runtime.server("stuck").unwrap();
    reaches(&stuck_handle, StateName::Connected).await;
    let silent = stuck_handle.call_tool("silent", json!({}));
    let silent = tokio::spawn(silent.into_future());

    // One connects forever, one is in a call forever, then it closes forever.
    let unharmed = async |what: &str| {
        let started = Instant::now();
        structured(handle.call_tool("echo", json!({})).await);
        runtime.reconnect("zgood").await.unwrap();
        structured(handle.call_tool("echo", json!({})).await);
        let name = format!("{}-{}", "new", good.record().opened().len());
        let new = server(&name, ScriptedServer::new(Script::new()).transport());
        runtime.add(new).await.unwrap();
        let status = runtime.status().len();
        runtime.remove(&name).await.unwrap();
        assert_eq!(runtime.status().len(), status - 1);
        assert_eq!(started.elapsed(), Duration::ZERO, "{what}");
    };
    unharmed("beside a handshake without an answer").await;
    runtime.reconnect("stuck").await.unwrap();
    assert_eq!(stuck_handle.status().state, StateName::Reconnecting);
    unharmed("beside a drain").await;
    let lost = silent.await.unwrap().unwrap_err();
    assert!(matches!(lost, CallError::OutcomeUnknown { .. }), "{lost}");
    unharmed("beside a close without an end").await;
}

#[tokio::test(start_paused = true)]
async fn a_stuck_server_can_be_disabled_and_shut_down_all_the_same() {
    let mute = ScriptedServer::new(Script::new().on("initialize", Behaviour::silence()));
    let stuck = ScriptedServer::new(Script::new().tool("silent", Behaviour::silence()));
    let runtime = fleet([
        server("mute", never_closing(&mute)),
        server("stuck", never_closing(&stuck)),
    ])
    .await;
    let handle = runtime.server("stuck").unwrap();
    reaches(&handle, StateName::Connected).await;
    let silent = tokio::spawn(handle.call_tool("silent", json!({})).into_future());
    eventually(DEADLINE, "the call in flight", || {
        handle.status().in_flight == 1
    })
    .await;

    // The default steps: 5 s to drain, 2 s to exit.
    let started = Instant::now();
    let disable = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.disable("stuck").await }
    });
    reaches(&handle, StateName::Disabling).await;
    let refused = handle.call_tool("silent", json!({})).await.unwrap_err();
    assert_eq!(refused.known(), Known::NotSent);
    assert_eq!(started.elapsed(), Duration::ZERO, "detached at once");
    disable.await.unwrap().unwrap();
    assert!(started.elapsed() <= secs(7) + millis(10));
    assert_eq!(handle.status().state, StateName::Disabled);
    assert!(silent.await.unwrap().is_err());

    // During a handshake, in less time than the steps would take.
    let started = Instant::now();
    let report = runtime.shutdown(secs(1)).await;
    assert!(started.elapsed() <= secs(1), "{:?}", started.elapsed());
    let closed: Vec<_> = report
        .servers
        .iter()
        .map(|closed| (closed.server.as_str(), closed.how != CloseOutcome::Clean))
        .collect();
    assert_eq!(closed, [("mute", true), ("stuck", true)]);
}

#[tokio::test]
async fn a_stuck_child_delays_neither_its_sibling_nor_its_own_end() {
    let marker = Marker::new("o3");
    let hard = ["--mute-initialize", "--ignore-eof", "--ignore-sigterm"];
    let quick = settings(|settings| {
        settings.close.stdin = millis(100);
        settings.close.terminate = millis(100);
    });
    let runtime = fleet([
        server("good", fixture(&marker, &[])).required(true),
        server("stuck", fixture(&marker, &hard)).settings(quick),
    ])
    .await;
    runtime.ready(DEADLINE).await.unwrap();
    let good = runtime.server("good").unwrap();
    let child = pid(&good).await;

    // Concurrently: calls continue while the other server resists.
    let calls = async {
        for number in 0..200 {
            let answer = good.call_tool("echo", json!({ "n": number })).await;
            assert_eq!(structured(answer), json!({ "n": number }));
        }
    };
    let started = Instant::now();
    let (disabled, ()) = tokio::join!(runtime.disable("stuck"), calls);
    disabled.unwrap();
    // 0.2 s of grace; the rest is for a busy machine.
    assert!(started.elapsed() < secs(8), "{:?}", started.elapsed());
    let left = marker.processes();
    assert_eq!(left.iter().map(|p| p.pid).collect::<Vec<_>>(), [child]);
    runtime.shutdown(secs(5)).await;
    marker.assert_none_left(DEADLINE).await;
}

//! Waiting for a fleet: what `ready` and `settled` wait for, and what they report.

use mcpvisor::{Readiness, StateName, Transport};
use mcpvisor_testkit::processes::Marker;
use mcpvisor_testkit::scripted::{Behaviour, Script, ScriptedServer};
use tokio::time::Instant;

use crate::fleet::{DEADLINE, fixture, fleet, millis, secs, server};

/// A server whose handshake takes this long.
fn slow(seconds: u64) -> ScriptedServer {
    let slow = Behaviour::answer().after(secs(seconds));
    ScriptedServer::new(Script::new().on("initialize", slow))
}

/// A server that exits during every handshake.
fn dead() -> ScriptedServer {
    ScriptedServer::new(Script::new().on("initialize", Behaviour::end()))
}

fn incompatible() -> ScriptedServer {
    ScriptedServer::new(Script::new().protocol("1999-12-31"))
}

#[tokio::test(start_paused = true)]
async fn one_hopeless_server_does_not_end_the_wait_for_the_others() {
    let (hopeless, slow) = (incompatible(), slow(3));
    let runtime = fleet([
        server("hopeless", hopeless.transport()),
        server("slow", slow.transport()),
    ])
    .await;
    let begun = Instant::now();
    let problem = runtime.ready(DEADLINE).await.unwrap_err();
    assert_eq!(begun.elapsed(), secs(3), "as long as the other takes");
    assert!(runtime.server("slow").unwrap().status().is_ready());
    let names: Vec<_> = problem
        .servers
        .iter()
        .map(|it| it.server.as_str())
        .collect();
    assert_eq!(names, ["hopeless"]);
    let hopeless = &problem.servers[0];
    assert_eq!(hopeless.state, StateName::PermanentlyFailed);
    let text = problem.to_string();
    assert!(text.starts_with("not ready: hopeless failed: "), "{text}");
    let action = hopeless.action.as_ref().map(ToString::to_string);
    for part in [&hopeless.problem, &action] {
        assert!(text.contains(part.as_deref().unwrap()), "{text}");
    }
    assert!(!text.contains("in time"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_still_on_its_way_is_reported_when_the_time_is_up() {
    let (slow, dead) = (slow(25), dead());
    let runtime = fleet([
        server("dead", dead.transport()),
        server("slow", slow.transport()),
    ])
    .await;
    let begun = Instant::now();
    let problem = runtime.ready(secs(5)).await.unwrap_err();
    assert_eq!(begun.elapsed(), secs(5));
    let text = problem.to_string();
    assert!(text.contains("dead is still reconnecting: "), "{text}");
    assert!(text.contains("slow is still connecting"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn settled_waits_until_each_server_has_connected_or_failed() {
    let (dead, hopeless, slow) = (dead(), incompatible(), slow(3));
    let mut off = server("off", ScriptedServer::new(Script::new()).transport());
    off.enabled = false;
    let runtime = fleet([
        server("dead", dead.transport()),
        server("hopeless", hopeless.transport()),
        off,
        server("slow", slow.transport()),
    ])
    .await;
    let begun = Instant::now();
    let settled = runtime.settled(DEADLINE).await;
    assert_eq!(begun.elapsed(), secs(3));
    let readiness: Vec<_> = settled.iter().map(|status| status.readiness()).collect();
    use Readiness::{Disabled, Failed, Ready};
    assert_eq!(readiness, [Failed, Failed, Disabled, Ready]);
    assert!(settled[0].last_error.is_some());
    assert!(settled[1].action.is_some());
}

#[tokio::test(start_paused = true)]
async fn settled_says_what_was_still_pending() {
    let slow = slow(25);
    let runtime = fleet([server("slow", slow.transport())]).await;
    let settled = runtime.settled(secs(2)).await;
    assert_eq!(settled[0].readiness(), Readiness::Pending);
    assert_eq!(settled[0].state, StateName::Connecting);
}

#[tokio::test]
async fn children_that_are_missing_hold_up_none_that_start() {
    let marker = Marker::new("readiness");
    let missing = Transport::stdio("no-such-command-anywhere");
    let slow = fixture(&marker, &["--start-delay", "300"]);
    let runtime = fleet([server("missing", missing), server("slow", slow)]).await;
    let begun = Instant::now();
    let problem = runtime.ready(DEADLINE).await.unwrap_err();
    assert!(begun.elapsed() >= millis(300));
    assert_eq!(problem.servers.len(), 1, "{problem}");
    assert!(problem.to_string().contains("missing failed"), "{problem}");
    let ready = runtime.settled(DEADLINE).await;
    assert_eq!(ready[1].readiness(), Readiness::Ready);
}

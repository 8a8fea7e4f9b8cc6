//! Servers without a connection: lazy and sleeping ones, and what readers see of them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

mod fleet;

use std::fs;
use std::path::PathBuf;

use fleet::*;
use mcpvisor::{Config, Runtime, ServerConfig, ServerHandle, StartMode, StateName};
use mcpvisor_testkit::eventually;
use mcpvisor_testkit::eventually::eventually_in;
use mcpvisor_testkit::processes::Marker;
use mcpvisor_testkit::scripted::{Behaviour, Script, ScriptedServer};
use serde_json::Value;

fn lazy(scripted_server: &ScriptedServer) -> ServerConfig {
    let mut config = server("one", scripted(scripted_server));
    config.settings.rest.lazy = true;
    config
}

fn sleepy(scripted_server: &ScriptedServer) -> ServerConfig {
    let mut config = server("one", scripted(scripted_server));
    config.settings.rest.sleep_after = Some(secs(60));
    config
}

async fn in_state(handle: &ServerHandle, state: StateName) {
    let what = format!("{} is {state}", handle.name());
    let look = |status: &mcpvisor::ServerStatus| status.state == state;
    eventually_in(DEADLINE * 20, what, &mut handle.watch(), look).await;
}

fn connects(scripted_server: &ScriptedServer) -> usize {
    scripted_server.record().received("initialize").len()
}

#[tokio::test(start_paused = true)]
async fn a_lazy_server_is_ready_at_once_and_connects_at_its_first_call() {
    let one = ScriptedServer::new(Script::new());
    let (runtime, handle) = ready(lazy(&one)).await;
    tokio::time::sleep(secs(600)).await;
    assert_eq!(handle.status().state, StateName::Sleeping);
    assert_eq!((handle.status().last_error, connects(&one)), (None, 0));
    handle.call_tool("echo", Value::Null).await.unwrap();
    assert_eq!(handle.status().state, StateName::Connected);
    eventually(DEADLINE, "its tools are listed", || {
        let count = runtime.catalog().tool_count();
        if count == 1 { Ok(()) } else { Err(count) }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_server_sleeps_keeps_its_catalog_and_wakes_for_a_call() {
    let one = ScriptedServer::new(Script::new().on("ping", Behaviour::answer()));
    let (runtime, handle) = ready(sleepy(&one)).await;
    handle.call_tool("echo", Value::Null).await.unwrap();
    in_state(&handle, StateName::Sleeping).await;
    assert_eq!(runtime.catalog().tool_count(), 1);
    assert_eq!(
        (handle.status().tools, handle.status().attempts_used),
        (1, 0)
    );
    assert!(handle.status().is_ready());
    runtime.ready(secs(1)).await.unwrap();
    tokio::time::sleep(secs(3_600)).await;
    assert_eq!(connects(&one), 1, "nothing wakes it by itself");

    let calls = (0..5).map(|_| handle.call_tool("echo", Value::Null).into_future());
    for call in futures(calls).await {
        call.unwrap();
    }
    assert_eq!(connects(&one), 2, "many calls wake it once");
    assert_eq!(handle.status().generation.get(), 2);
}

async fn futures<F: Future + Send + 'static>(calls: impl Iterator<Item = F>) -> Vec<F::Output>
where
    F::Output: Send,
{
    let tasks: Vec<_> = calls.map(tokio::spawn).collect();
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(task.await.unwrap());
    }
    outcomes
}

#[tokio::test(start_paused = true)]
async fn a_server_with_calls_in_flight_or_subscriptions_does_not_sleep() {
    let script = Script::new().tool("slow", Behaviour::answer().after(secs(200)));
    let one = ScriptedServer::new(script);
    let mut config = sleepy(&one);
    config.settings.timeouts.idle = secs(1_000);
    config.settings.timeouts.call = secs(1_000);
    let (_runtime, handle) = ready(config).await;
    handle.call_tool("slow", Value::Null).await.unwrap();
    assert_eq!(handle.status().generation.get(), 1);
    handle.subscribe("test://one").await.unwrap();
    tokio::time::sleep(secs(600)).await;
    assert_eq!(handle.status().state, StateName::Connected);
    handle.unsubscribe("test://one").await.unwrap();
    in_state(&handle, StateName::Sleeping).await;
}

#[tokio::test(start_paused = true)]
async fn people_wake_a_sleeping_server_and_switch_it_off() {
    let one = ScriptedServer::new(Script::new());
    let (runtime, handle) = ready(lazy(&one)).await;
    runtime.disable("one").await.unwrap();
    assert_eq!(handle.status().state, StateName::Disabled);
    runtime.enable("one").await.unwrap();
    in_state(&handle, StateName::Connected).await;
    let (runtime, handle) = ready(lazy(&one)).await;
    runtime.reconnect("one").await.unwrap();
    in_state(&handle, StateName::Connected).await;
    // An eager server from now on: it never sleeps.
    let (runtime, handle) = ready(lazy(&one)).await;
    let eager = lazy(&one).start(StartMode::Eager);
    runtime.reload(Config::new().server(eager)).await.unwrap();
    in_state(&handle, StateName::Connected).await;
}

#[tokio::test]
async fn a_child_is_gone_while_it_sleeps_and_back_when_it_is_called() {
    let marker = Marker::new("sleep");
    let mut config = server("one", fixture(&marker, &[]));
    config.settings.rest.sleep_after = Some(millis(300));
    let (runtime, handle) = ready(config).await;
    handle.call_tool("pid", Value::Null).await.unwrap();
    in_state(&handle, StateName::Sleeping).await;
    eventually(DEADLINE, "no process", || {
        let left = marker.processes();
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
    assert_eq!(handle.status().last_error, None, "it was closed politely");
    handle.call_tool("pid", Value::Null).await.unwrap();
    runtime.shutdown(DEADLINE).await;
}

// State that survives a restart of the program.

struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let name = format!("mcpvisor-sleep-{}-{test}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        // Left over from a killed process with the same pid.
        let _ = fs::remove_dir_all(&folder);
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

async fn start(config: ServerConfig, folder: &Folder) -> (Runtime, ServerHandle) {
    let builder = Runtime::builder().server(config).state_dir(&folder.0);
    let runtime = builder.start().await.unwrap();
    let handle = runtime.server("one").unwrap();
    (runtime, handle)
}

#[tokio::test]
async fn a_cold_start_serves_the_last_known_catalog_until_the_server_has_its_own() {
    let folder = Folder::new("cold");
    let one = ScriptedServer::new(Script::new());
    let (runtime, _) = start(server("one", scripted(&one)), &folder).await;
    runtime.ready(DEADLINE).await.unwrap();
    runtime.shutdown(DEADLINE).await;

    let (runtime, handle) = start(lazy(&one), &folder).await;
    let catalog = handle.catalog();
    assert_eq!(
        runtime.catalog().tool_count(),
        1,
        "at once, without a connection"
    );
    assert!(catalog.stale && catalog.tool("echo").is_some());
    assert_eq!(connects(&one), 1);
    runtime
        .call("one__echo", Value::Null)
        .unwrap()
        .await
        .unwrap();
    eventually(DEADLINE, "it has listed its own", || {
        let catalog = handle.catalog();
        if catalog.stale { Err(catalog) } else { Ok(()) }
    })
    .await;
    runtime.shutdown(DEADLINE).await;
}

/// The cached lists of a program are not used for the program that replaced it in a reload.
#[tokio::test]
async fn what_was_listed_is_kept_as_that_of_the_server_that_listed_it() {
    let (folder, marker) = (Folder::new("whose"), Marker::new("sleep-whose"));
    let of = |command| {
        let mut config = server("one", command);
        config.settings.rest.lazy = true;
        config
    };
    let listed = || of(fixture(&marker, &[]));
    let silent = || of(fixture(&marker, &["--mute-initialize"]));
    let (runtime, handle) = start(listed(), &folder).await;
    handle.call_tool("echo", Value::Null).await.unwrap();
    let is_listed = || handle.catalog().tool("echo").is_some();
    eventually(DEADLINE, "it is listed", is_listed).await;
    runtime
        .reload(Config::new().server(silent()))
        .await
        .unwrap();
    runtime.shutdown(DEADLINE).await;

    let (runtime, handle) = start(silent(), &folder).await;
    assert!(handle.catalog().is_empty(), "it never listed anything");
    runtime.shutdown(DEADLINE).await;
    let (runtime, handle) = start(listed(), &folder).await;
    assert!(handle.catalog().tool("echo").is_some());
    runtime.shutdown(DEADLINE).await;
}

#[tokio::test]
async fn a_kept_catalog_that_cannot_be_read_is_passed_over() {
    let folder = Folder::new("corrupt");
    let one = ScriptedServer::new(Script::new());
    let (runtime, _) = start(server("one", scripted(&one)), &folder).await;
    runtime.ready(DEADLINE).await.unwrap();
    runtime.shutdown(DEADLINE).await;
    let file = folder.0.join("catalogs/one__catalog.json");
    let whole = fs::read(&file).unwrap();
    for length in (0..whole.len()).step_by(size(41, 1)) {
        fs::write(&file, &whole[..length]).unwrap();
        let (runtime, handle) = start(lazy(&one), &folder).await;
        assert!(handle.catalog().is_empty(), "{length} bytes");
        runtime.shutdown(DEADLINE).await;
    }
    fs::write(&file, &whole).unwrap();
    let (runtime, handle) = start(lazy(&one), &folder).await;
    assert_eq!(handle.catalog().tools.len(), 1);
    runtime.shutdown(DEADLINE).await;
}

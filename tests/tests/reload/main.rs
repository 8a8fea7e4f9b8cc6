//! Reloading the config of a running fleet: only what differs is changed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

mod equivalence;
#[path = "../fleet/mod.rs"]
mod fleet;
mod watch;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use fleet::*;
use mcpvisor::{
    CallError, Config, ConfigWatch, EventKind, GovernorSettings, ReloadError, Runtime,
    ServerChange, ServerConfig, ServerHandle, StateName, StdioCommand, ToolFilter, Transport,
};
use mcpvisor_testkit::eventually;
use mcpvisor_testkit::processes::{MARKER, Marker};
use mcpvisor_testkit::scripted::{Behaviour, Script, ScriptedServer};
use serde_json::Value;

fn config(servers: impl IntoIterator<Item = ServerConfig>) -> Config {
    servers.into_iter().fold(Config::new(), Config::server)
}

async fn start(config: Config) -> Runtime {
    let runtime = Runtime::builder().config(config).start().await.unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    runtime
}

fn deny(patterns: &[&str]) -> ToolFilter {
    ToolFilter::new([""; 0], patterns.iter().copied())
}

fn change(runtime: &mcpvisor::ReloadReport, server: &str) -> ServerChange {
    runtime.server(server).unwrap().change.clone()
}

fn generations(runtime: &Runtime) -> BTreeMap<String, u64> {
    let status = runtime.status();
    let of = |it: &mcpvisor::ServerStatus| (it.name.to_string(), it.generation.get());
    status.iter().map(of).collect()
}

#[tokio::test(start_paused = true)]
async fn of_fifty_servers_the_one_whose_entry_was_edited_is_restarted() {
    let scripted_servers: Vec<_> = (0..50)
        .map(|_| ScriptedServer::new(Script::new()))
        .collect();
    let servers: Vec<_> = scripted_servers
        .iter()
        .enumerate()
        .map(|(number, it)| server(&format!("s{number:02}"), scripted(it)))
        .collect();
    let runtime = start(config(servers.clone())).await;
    let before = generations(&runtime);
    let edited_handle = runtime.server("s07").unwrap();

    let mut edited = servers;
    edited[7].transport = scripted(&ScriptedServer::new(
        Script::bare().tool("new", Behaviour::answer()),
    ));
    let report = runtime.reload(config(edited)).await.unwrap();

    let why = vec!["transport"];
    assert_eq!(change(&report, "s07"), ServerChange::Restarted { why });
    let unchanged = report
        .servers
        .iter()
        .filter(|it| it.change == ServerChange::Unchanged);
    assert_eq!(unchanged.count(), 49);
    ready_after(&edited_handle, before["s07"]).await;
    edited_handle.call_tool("new", Value::Null).await.unwrap();
    let mut expected = before;
    *expected.get_mut("s07").unwrap() += 1;
    assert_eq!(generations(&runtime), expected);
    for (number, other) in scripted_servers.iter().enumerate() {
        let connects = other.record().received("initialize").len();
        assert_eq!(connects, 1, "s{number:02}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_filter_that_is_adjusted_in_place_drops_no_call() {
    let git = ScriptedServer::new(
        Script::new()
            .tool("slow", Behaviour::answer().after(secs(10)))
            .tool("other", Behaviour::answer()),
    );
    let plain = server("git", scripted(&git));
    let runtime = start(config([plain.clone()])).await;
    let handle = runtime.server("git").unwrap();
    let mut events = runtime.events();
    let slow = tokio::spawn(async move { handle.call_tool("slow", Value::Null).await });
    eventually(DEADLINE, "the call is in flight", || {
        let calls = git.record().received("tools/call").len();
        if calls == 1 { Ok(()) } else { Err(calls) }
    })
    .await;

    let mut filtered = plain;
    filtered.tools = deny(&["slow", "oth*"]);
    let report = runtime.reload(config([filtered])).await.unwrap();
    let what = vec!["tools"];
    assert_eq!(change(&report, "git"), ServerChange::Adjusted { what });
    assert_eq!(
        runtime.catalog().tool_count(),
        1,
        "the catalog follows at once"
    );
    let removed = next_event(&mut events, |event| match &event.kind {
        EventKind::CatalogChanged { diff, .. } => Some(diff.removed.clone()),
        _ => None,
    })
    .await;
    assert_eq!(removed, ["slow", "other"]);
    slow.await.unwrap().unwrap();
    let handle = runtime.server("git").unwrap();
    let refused = handle.call_tool("other", Value::Null).await.unwrap_err();
    assert!(matches!(refused, CallError::ToolHidden { .. }), "{refused}");
    assert_eq!(handle.status().generation.get(), 1);
    assert_eq!(git.record().received("initialize").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn more_places_let_those_start_that_wait() {
    let busy =
        ScriptedServer::new(Script::bare().tool("hang", Behaviour::answer().after(secs(20))));
    let mut narrow = server("busy", scripted(&busy));
    narrow.settings.admission.in_flight = 1;
    narrow.settings.admission.waiting = 1;
    let runtime = start(config([narrow.clone()])).await;
    let handle = runtime.server("busy").unwrap();
    let calls: Vec<_> = (0..2)
        .map(|_| {
            let handle = handle.clone();
            tokio::spawn(async move { handle.call_tool("hang", Value::Null).await })
        })
        .collect();
    let gauges = || (handle.status().in_flight, handle.status().waiting);
    eventually(DEADLINE, "one runs and one waits", || {
        if gauges() == (1, 1) {
            Ok(())
        } else {
            Err(gauges())
        }
    })
    .await;
    let full = handle.call_tool("hang", Value::Null).await.unwrap_err();
    assert!(matches!(full, CallError::Busy { .. }), "{full}");

    let mut wide = narrow;
    wide.settings.admission.in_flight = 3;
    let report = runtime.reload(config([wide])).await.unwrap();
    let what = vec!["limits"];
    assert_eq!(change(&report, "busy"), ServerChange::Adjusted { what });
    eventually(DEADLINE, "both run", || {
        if gauges() == (2, 0) {
            Ok(())
        } else {
            Err(gauges())
        }
    })
    .await;
    handle.call_tool("hang", Value::Null).await.unwrap();
    for call in calls {
        call.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_config_that_cannot_be_used_changes_nothing() {
    let one = ScriptedServer::new(Script::new());
    let plain = server("one", scripted(&one));
    let runtime = start(config([plain.clone()])).await;
    let mut another = plain.clone();
    another.name = mcpvisor::ServerName::new("two").unwrap();
    let mut changed = plain.clone();
    changed.tools = deny(&["*"]);
    let mut no_attempts = another.clone();
    no_attempts.settings.budget.attempts = 0;
    for broken in [no_attempts, another.clone().sleep_after(millis(0))] {
        let refused = runtime
            .reload(config([changed.clone(), broken.clone()]))
            .await
            .unwrap_err();
        assert!(
            matches!(refused, ReloadError::InvalidSetting { .. }),
            "{refused}"
        );
        // As at the start, and one by one.
        assert!(runtime.add(broken.clone()).await.is_err());
        let start = Runtime::builder().server(broken).start().await;
        assert!(start.is_err());
    }
    let refused = runtime
        .reload(config([changed.clone(), changed]))
        .await
        .unwrap_err();
    assert!(
        matches!(refused, ReloadError::DuplicateServer(_)),
        "{refused}"
    );
    assert_eq!(runtime.servers().len(), 1);
    assert_eq!(runtime.catalog().tool_count(), 1);
    assert!(
        runtime
            .reload(config([plain]))
            .await
            .unwrap()
            .is_unchanged()
    );
    runtime.shutdown(DEADLINE).await;
    let gone = runtime.reload(Config::new()).await;
    assert!(
        matches!(gone, Ok(_) | Err(ReloadError::RuntimeGone)),
        "{gone:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn servers_come_go_and_are_switched_as_the_config_says() {
    let scripted_server = ScriptedServer::new(Script::new());
    let of = |name: &str| server(name, scripted(&scripted_server));
    let (off, mut on) = (of("switched").enabled(false), of("switched").enabled(true));
    // The same transport: only the `disabled` switch differs.
    on.transport = off.transport.clone();
    let stays = of("stays");
    let runtime = start(config([stays.clone(), of("goes"), off])).await;
    let goes = runtime.server("goes").unwrap();
    let switched = runtime.server("switched").unwrap();
    assert_eq!(switched.status().state, StateName::Disabled);

    let report = runtime
        .reload(config([stays.clone(), of("comes"), on.clone()]))
        .await
        .unwrap();
    assert_eq!(change(&report, "comes"), ServerChange::Added);
    assert_eq!(change(&report, "goes"), ServerChange::Removed);
    assert_eq!(change(&report, "stays"), ServerChange::Unchanged);
    let what = vec!["enabled"];
    assert_eq!(change(&report, "switched"), ServerChange::Adjusted { what });
    assert!(runtime.server("goes").is_err());
    let gone = goes.call_tool("echo", Value::Null).await.unwrap_err();
    assert!(gone.to_string().contains("removed"), "{gone}");
    runtime.ready(DEADLINE).await.unwrap();
    assert_eq!(runtime.catalog().tool_count(), 3);

    let off = on.enabled(false);
    runtime.reload(config([stays, off])).await.unwrap();
    assert_eq!(switched.status().state, StateName::Disabled);
    assert_eq!(runtime.catalog().tool_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn how_many_connect_at_once_is_taken_from_the_config_and_from_the_next_one() {
    let silent = || {
        let script = Script::new().on("initialize", Behaviour::silence());
        ScriptedServer::new(script)
    };
    let scripted_servers = [silent(), silent(), silent()];
    let servers: Vec<_> = scripted_servers
        .iter()
        .enumerate()
        .map(|(number, it)| {
            let mut server = server(&format!("s{number}"), scripted(it));
            // Prevents a connect timeout, which would release a permit.
            server.settings.timeouts.connect = secs(10_000);
            server
        })
        .collect();
    let at_once = |most: usize| {
        let mut connects = GovernorSettings::default();
        connects.max_connects = most;
        connects.hold = secs(10_000);
        config(servers.clone()).connects(connects)
    };
    let connecting = || {
        let asked = |it: &&ScriptedServer| !it.record().received("initialize").is_empty();
        scripted_servers.iter().filter(asked).count()
    };
    let runtime = Runtime::builder().config(at_once(1)).start().await.unwrap();
    for most in [1, 2] {
        let report = runtime.reload(at_once(most)).await.unwrap();
        let differs: &[&str] = if most == 1 { &[] } else { &["connects"] };
        assert_eq!(report.fleet, differs);
        assert_eq!(report.is_unchanged(), most == 1);
        eventually(DEADLINE, "as many connect as may", || match connecting() {
            count if count >= most => Ok(()),
            count => Err(count),
        })
        .await;
        assert_eq!(connecting(), most);
    }
    let refused = runtime.reload(at_once(0)).await.unwrap_err();
    assert!(
        matches!(refused, ReloadError::InvalidConnects(_)),
        "{refused}"
    );
    let start = Runtime::builder().config(at_once(0)).start().await;
    assert!(start.is_err());
    runtime.shutdown(DEADLINE).await;
}

/// The config's switch is the initial state; it does not override what the host set later.
#[tokio::test(start_paused = true)]
async fn a_server_that_the_host_switched_on_is_restarted_as_the_report_says() {
    let old = ScriptedServer::new(Script::bare().tool("old", Behaviour::answer()));
    let new = ScriptedServer::new(Script::bare().tool("new", Behaviour::answer()));
    let entry = server("a", scripted(&old)).enabled(false);
    let runtime = start(config([entry.clone()])).await;
    let handle = runtime.server("a").unwrap();
    runtime.enable("a").await.unwrap();
    ready_after(&handle, 0).await;
    handle.call_tool("old", Value::Null).await.unwrap();

    let mut edited = entry.clone();
    edited.transport = scripted(&new);
    let report = runtime.reload(config([edited.clone()])).await.unwrap();
    let why = vec!["transport"];
    assert_eq!(change(&report, "a"), ServerChange::Restarted { why });
    ready_after(&handle, 1).await;
    handle.call_tool("new", Value::Null).await.unwrap();

    // A disabled server stays disabled, and uses the new config once it is enabled.
    runtime.disable("a").await.unwrap();
    let report = runtime.reload(config([entry])).await.unwrap();
    let why = vec!["transport"];
    assert_eq!(change(&report, "a"), ServerChange::Restarted { why });
    assert_eq!(handle.status().state, StateName::Disabled);
    runtime.enable("a").await.unwrap();
    ready_after(&handle, 2).await;
    handle.call_tool("old", Value::Null).await.unwrap();
}

/// A reload completes even if its caller stops waiting.
#[tokio::test(start_paused = true)]
async fn a_reload_that_nobody_waits_for_is_done_all_the_same() {
    let one = ScriptedServer::new(Script::new());
    let entry = server("one", scripted(&one));
    let runtime = start(config([entry.clone()])).await;
    let handle = runtime.server("one").unwrap();
    let off = config([entry.enabled(false)]);
    tokio::select! {
        biased;
        done = runtime.reload(off.clone()) => panic!("too soon: {done:?}"),
        () = std::future::ready(()) => {}
    }
    in_state(&handle, StateName::Disabled).await;
    let report = runtime.reload(off).await.unwrap();
    assert_eq!(change(&report, "one"), ServerChange::Unchanged);
    assert_eq!(handle.status().state, StateName::Disabled);
}

#[tokio::test(start_paused = true)]
async fn the_budget_keeps_what_was_used_and_a_new_transport_wakes_what_had_failed() {
    let dead = ScriptedServer::new(Script::new().on("initialize", Behaviour::end()));
    let mut entry = server("dead", scripted(&dead));
    entry.settings.budget.attempts = 3;
    let runtime = Runtime::builder()
        .server(entry.clone())
        .start()
        .await
        .unwrap();
    let handle = runtime.server("dead").unwrap();
    in_state(&handle, StateName::Disconnected).await;
    entry.settings.budget.attempts = 4;
    let report = runtime.reload(config([entry.clone()])).await.unwrap();
    let what = vec!["reconnect"];
    assert_eq!(change(&report, "dead"), ServerChange::Adjusted { what });
    let status = handle.status();
    assert_eq!((status.attempts_used, status.attempts_limit), (3, 4));
    assert_eq!(
        status.state,
        StateName::Disconnected,
        "no new burst of connects"
    );

    entry.transport = scripted(&ScriptedServer::new(Script::new()));
    runtime.reload(config([entry])).await.unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    handle.call_tool("echo", Value::Null).await.unwrap();
}

/// The fixture server as a child that starts to answer after this many seconds.
#[cfg(unix)]
fn slow_to_start(marker: &Marker, seconds: &str) -> StdioCommand {
    Transport::stdio("sh")
        .args(["-c", "sleep \"$1\"; exec \"$0\""])
        .args([env!("CARGO_BIN_EXE_fixture-server"), seconds])
        .env(MARKER, marker.value())
}

#[cfg(unix)]
#[tokio::test]
async fn a_reload_in_the_middle_of_a_handshake_is_not_lost() {
    let (old, new) = (Marker::new("handshake-old"), Marker::new("handshake-new"));
    let mut entry = server("slow", slow_to_start(&old, "2"));
    entry.settings.close.stdin = millis(10);
    let runtime = fleet([entry.clone()]).await;
    let handle = runtime.server("slow").unwrap();
    eventually(DEADLINE, "the old one is being connected", || {
        let running = old.processes();
        if running.is_empty() { Err(()) } else { Ok(()) }
    })
    .await;
    assert_eq!(handle.status().state, StateName::Connecting);

    entry.transport = slow_to_start(&new, "0").into();
    let report = runtime.reload(config([entry])).await.unwrap();
    let why = vec!["args", "env"];
    assert_eq!(change(&report, "slow"), ServerChange::Restarted { why });
    runtime.ready(DEADLINE).await.unwrap();
    let answers = pid(&handle).await;
    assert!(
        new.processes().iter().any(|it| it.pid == answers),
        "it is the one of the new config that answers"
    );
    let status = handle.status();
    assert_eq!((status.generation.get(), status.attempts_used), (2, 0));
    old.assert_none_left(DEADLINE).await;
    runtime.shutdown(DEADLINE).await;
}

async fn in_state(handle: &ServerHandle, state: StateName) {
    let what = format!("{} is {state}", handle.name());
    mcpvisor_testkit::eventually::eventually_in(DEADLINE, what, &mut handle.watch(), |status| {
        status.state == state
    })
    .await;
}

#[tokio::test]
async fn another_authorization_restarts_the_server() {
    let with = |auth: Value| {
        let entry = serde_json::json!({ "url": "http://127.0.0.1:9/mcp", "auth": auth });
        let text = serde_json::json!({ "mcpServers": { "web": entry } }).to_string();
        let config = Config::from_json(&text, |_| None).unwrap();
        assert!(config.problems.is_empty(), "{:?}", config.problems);
        config
    };
    let first = with(serde_json::json!({ "scopes": ["read"] }));
    let runtime = Runtime::builder().config(first).start().await.unwrap();
    let same = with(serde_json::json!({ "scopes": "read" }));
    let report = runtime.reload(same).await.unwrap();
    assert_eq!(change(&report, "web"), ServerChange::Unchanged);
    for auth in [
        serde_json::json!({ "scopes": ["read", "write"] }),
        serde_json::json!({ "account": "work" }),
        serde_json::json!({ "headersHelper": ["/no/such/program"] }),
    ] {
        let report = runtime.reload(with(auth)).await.unwrap();
        let why = vec!["auth"];
        assert_eq!(change(&report, "web"), ServerChange::Restarted { why });
    }
    runtime.shutdown(DEADLINE).await;
}

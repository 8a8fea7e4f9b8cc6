//! Another config for a running fleet: only what differs is touched.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

mod fleet;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use fleet::*;
use mcpvisor::{
    CallError, Config, ConfigWatch, EventKind, GovernorSettings, ReloadError, Runtime,
    ServerChange, ServerConfig, ServerHandle, StartMode, StateName, StdioCommand, ToolFilter,
    Transport,
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
    ToolFilter {
        allow: Vec::new(),
        deny: patterns.iter().map(|it| (*it).to_owned()).collect(),
    }
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
    assert!(matches!(full, CallError::Busy { limit: 2, .. }), "{full}");

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
    // The same transport: only the switch differs.
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
            // Nobody makes room by giving up.
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

/// What the config says of the switch is where the server begins, not where the host left it.
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

    // One that is off stays off, and is another one once it is on.
    runtime.disable("a").await.unwrap();
    let report = runtime.reload(config([entry])).await.unwrap();
    let why = vec!["transport"];
    assert_eq!(change(&report, "a"), ServerChange::Restarted { why });
    assert_eq!(handle.status().state, StateName::Disabled);
    runtime.enable("a").await.unwrap();
    ready_after(&handle, 2).await;
    handle.call_tool("old", Value::Null).await.unwrap();
}

/// Whoever gives up waiting for a reload gives up no half of it.
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

/// The fixture server as a child that begins to answer after so many seconds.
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
    old.nobody_left(DEADLINE).await;
    runtime.shutdown(DEADLINE).await;
}

async fn in_state(handle: &ServerHandle, state: StateName) {
    let what = format!("{} is {state}", handle.name());
    mcpvisor_testkit::eventually::eventually_in(DEADLINE, what, &mut handle.watch(), |status| {
        status.state == state
    })
    .await;
}

/// Random small configs over the same few servers.
struct Dice {
    dice: fastrand::Rng,
    transports: Vec<Transport>,
}

impl Dice {
    fn config(&mut self) -> Config {
        let mut servers = Vec::new();
        for name in ["a", "b", "c", "d"] {
            if self.dice.u8(0..10) < 3 {
                continue;
            }
            let transport = self.dice.choice(&self.transports).unwrap().clone();
            let mut server = server(name, transport);
            server.enabled = self.dice.u8(0..10) < 8;
            server.required = self.dice.bool();
            server.settings.budget.attempts = self.dice.u32(1..4);
            server.settings.admission.in_flight = self.dice.usize(1..4);
            let filters: [&[&str]; 4] = [&[], &["x*"], &["?"], &["*"]];
            server.tools = deny(self.dice.choice(filters).unwrap());
            if self.dice.u8(0..10) < 3 {
                server.start = StartMode::Lazy;
            }
            if self.dice.bool() {
                server.sleep_after = Some(secs(600));
            }
            servers.push(server);
        }
        config(servers)
    }
}

type Seen = (Vec<(String, StateName, u32, bool, usize)>, Vec<String>);

/// All that a reload decides, as callers see it.
fn seen(runtime: &Runtime) -> Seen {
    let of = |it: &mcpvisor::ServerStatus| {
        let name = it.name.to_string();
        (name, it.state, it.attempts_limit, it.required, it.tools)
    };
    let tools = runtime.catalog();
    let tools = tools.tools().map(|it| it.exposed().to_owned()).collect();
    (runtime.status().iter().map(of).collect(), tools)
}

async fn settled(runtime: &Runtime) {
    for name in runtime.servers() {
        let handle = runtime.server(name.as_str()).unwrap();
        let what = format!("{name} has settled");
        let done = |it: &mcpvisor::ServerStatus| it.is_ready() || it.state == StateName::Disabled;
        mcpvisor_testkit::eventually::eventually_in(DEADLINE, what, &mut handle.watch(), done)
            .await;
    }
}

/// A lazy server that is not asleep may stay awake, so those are compared awake.
async fn roused(runtime: &Runtime, config: &Config) {
    let lazy = |it: &&ServerConfig| it.enabled && it.start == StartMode::Lazy;
    for server in config.servers.iter().filter(lazy) {
        runtime.enable(server.name.as_str()).await.unwrap();
        let handle = runtime.server(server.name.as_str()).unwrap();
        in_state(&handle, StateName::Connected).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_reload_from_one_config_to_another_equals_a_fresh_start_with_the_other() {
    let scripts: [&[&str]; 3] = [&["x", "y"], &["x1", "z"], &[]];
    let transports = scripts.map(|tools| {
        let script = tools.iter().fold(Script::bare(), |script, name| {
            script.tool(name, Behaviour::answer())
        });
        scripted(&ScriptedServer::new(script))
    });
    for seed in 0..size(60, 2_000) {
        let mut dice = Dice {
            dice: fastrand::Rng::with_seed(seed as u64),
            transports: transports.to_vec(),
        };
        let reloaded = Runtime::builder()
            .config(dice.config())
            .start()
            .await
            .unwrap();
        if dice.dice.bool() {
            settled(&reloaded).await;
        }
        for _ in 0..3 {
            let next = dice.config();
            reloaded.reload(next.clone()).await.unwrap();
            let again = reloaded.reload(next.clone()).await.unwrap();
            assert!(again.is_unchanged(), "seed {seed}: {again:?}");
            if dice.dice.bool() {
                continue;
            }
            let fresh = Runtime::builder()
                .config(next.clone())
                .start()
                .await
                .unwrap();
            for runtime in [&reloaded, &fresh] {
                settled(runtime).await;
                roused(runtime, &next).await;
                settled(runtime).await;
            }
            assert_eq!(seen(&reloaded), seen(&fresh), "seed {seed}");
            fresh.shutdown(DEADLINE).await;
        }
        reloaded.shutdown(DEADLINE).await;
    }
}

// Watched files, in real time.

struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let name = format!("mcpvisor-reload-{}-{test}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // Of a process that had this number before, and was killed.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A config of servers that are switched off: nothing is started.
fn file(names: &[&str]) -> String {
    let entry = |name: &&str| {
        (
            name.to_string(),
            serde_json::json!({ "command": "x", "enabled": false }),
        )
    };
    let servers: serde_json::Map<_, _> = names.iter().map(entry).collect();
    serde_json::json!({ "mcpServers": servers }).to_string()
}

async fn watched(path: &Path) -> (Runtime, ConfigWatch) {
    let config = Config::load(path).unwrap();
    let runtime = Runtime::builder().config(config).start().await.unwrap();
    let watch = runtime.watch_config(path);
    (runtime, watch)
}

async fn next(watch: &mut ConfigWatch) -> Result<mcpvisor::ReloadReport, mcpvisor::RejectedConfig> {
    tokio::time::timeout(DEADLINE, watch.changed())
        .await
        .expect("a change in time")
        .unwrap()
}

fn names(runtime: &Runtime) -> Vec<String> {
    runtime.servers().iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn a_watched_file_is_followed_however_it_is_replaced() {
    let folder = Folder::new("replaced");
    let path = folder.path("mcp.json");
    fs::write(&path, file(&["a"])).unwrap();
    let (runtime, mut watch) = watched(&path).await;

    // As editors do: a new file is renamed over the old one.
    fs::write(folder.path("draft"), file(&["a", "b"])).unwrap();
    fs::rename(folder.path("draft"), &path).unwrap();
    let report = next(&mut watch).await.unwrap();
    assert_eq!(change(&report, "b"), ServerChange::Added);
    assert_eq!(change(&report, "a"), ServerChange::Unchanged);

    // Deleted, and written anew a while later.
    fs::remove_file(&path).unwrap();
    tokio::time::sleep(millis(700)).await;
    assert_eq!(
        names(&runtime),
        ["a", "b"],
        "a file that is gone changes nothing"
    );
    fs::write(&path, file(&["b"])).unwrap();
    let report = next(&mut watch).await.unwrap();
    assert_eq!(change(&report, "a"), ServerChange::Removed);

    // In place, in two parts: what is still being written is not read, or read again.
    fs::write(&path, &file(&["b", "c"])[..10]).unwrap();
    tokio::time::sleep(millis(50)).await;
    fs::write(&path, file(&["b", "c"])).unwrap();
    while next(&mut watch).await.is_err() {}
    assert_eq!(names(&runtime), ["b", "c"]);
}

#[cfg(unix)]
#[tokio::test]
async fn a_watched_symlink_is_followed_to_where_it_points_now() {
    let folder = Folder::new("symlink");
    fs::write(folder.path("one.json"), file(&["a"])).unwrap();
    fs::write(folder.path("two.json"), file(&["b"])).unwrap();
    let path = folder.path("mcp.json");
    std::os::unix::fs::symlink(folder.path("one.json"), &path).unwrap();
    let (runtime, mut watch) = watched(&path).await;
    std::os::unix::fs::symlink(folder.path("two.json"), folder.path("next")).unwrap();
    fs::rename(folder.path("next"), &path).unwrap();
    next(&mut watch).await.unwrap();
    assert_eq!(names(&runtime), ["b"]);
}

#[tokio::test]
async fn a_watched_file_that_does_not_parse_changes_nothing_and_is_an_event() {
    let folder = Folder::new("broken");
    let path = folder.path("mcp.json");
    fs::write(&path, file(&["a"])).unwrap();
    let (runtime, mut watch) = watched(&path).await;
    let mut events = runtime.events();
    fs::write(&path, "{ \"mcpServers\": ").unwrap();
    let rejected = next(&mut watch).await.unwrap_err();
    assert_eq!(names(&runtime), ["a"]);
    let said = next_event(&mut events, |event| match &event.kind {
        EventKind::ConfigRejected { problem } => Some(problem.clone()),
        _ => None,
    })
    .await;
    assert_eq!(said, rejected.to_string());
    fs::write(&path, file(&["a", "b"])).unwrap();
    next(&mut watch).await.unwrap();
    assert_eq!(names(&runtime), ["a", "b"]);
    drop(runtime);
    let end = tokio::time::timeout(DEADLINE, watch.changed())
        .await
        .unwrap();
    assert!(end.is_none(), "the watch does not keep the runtime");
}

#[tokio::test]
async fn an_entry_that_became_unusable_leaves_its_server_as_it_was() {
    let folder = Folder::new("entry");
    let path = folder.path("mcp.json");
    fs::write(&path, file(&["a", "b"])).unwrap();
    let (runtime, mut watch) = watched(&path).await;
    let text = file(&["a", "b", "c"]).replacen("\"command\":\"x\"", "\"command\":7", 1);
    fs::write(&path, text).unwrap();
    let report = next(&mut watch).await.unwrap();
    assert_eq!(change(&report, "a"), ServerChange::Kept);
    assert_eq!(change(&report, "c"), ServerChange::Added);
    assert_eq!(report.problems.len(), 1);
    assert_eq!(names(&runtime), ["a", "b", "c"]);

    // An entry that another one of the same name supersedes is not taken up in its place.
    let text = r#"{"mcpServers":{"a":{"command":"y"},"a":{"command":7}}}"#;
    fs::write(&path, text).unwrap();
    let report = next(&mut watch).await.unwrap();
    assert_eq!(change(&report, "a"), ServerChange::Kept);
    assert_eq!(report.problems.len(), 2);
}

#[tokio::test]
async fn an_entry_that_became_unusable_and_is_switched_off_is_obeyed_in_that() {
    let scripted_server = ScriptedServer::new(Script::new());
    let (runtime, handle) = ready(server("a", scripted(&scripted_server))).await;
    let text = r#"{ "mcpServers": { "a": { "command": 7, "enabled": false } } }"#;
    let off = Config::from_json(text, |_| None).unwrap();
    let report = runtime.reload(off.clone()).await.unwrap();
    let what = vec!["enabled"];
    assert_eq!(change(&report, "a"), ServerChange::Adjusted { what });
    reaches(&handle, StateName::Disabled).await;
    let report = runtime.reload(off).await.unwrap();
    assert_eq!(change(&report, "a"), ServerChange::Kept);
}

//! Figure 27: a file system that hangs, at every file that the runtime uses. A hook simulates it by
//! blocking the thread of the operation, as a dead network mount would.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use mcpvisor::{
    CallError, Config, ControlError, Event, EventKind, Events, HeldReason, Runtime, ServerConfig,
    Transport,
};
use serde_json::json;

use crate::shell_server::*;
use crate::slow_state_dir::Folder;

/// The folders in a state folder, by which operations are matched.
const FILES: [&str; 3] = ["catalogs", "eras", "pins"];

/// Consecutive calls while a file hangs.
const REPEATED: usize = 50;

/// Simulated file systems that hang on paths with one of these parts.
#[derive(Default)]
struct Mount {
    dead: Mutex<BTreeSet<String>>,
    changed: Condvar,
    used: Mutex<BTreeSet<PathBuf>>,
}

impl Mount {
    fn die(&self, part: &str) {
        self.dead.lock().unwrap().insert(part.to_owned());
    }

    fn come_back(&self) {
        self.dead.lock().unwrap().clear();
        self.changed.notify_all();
    }

    /// Blocks while the path hangs.
    fn access(&self, path: &Path) {
        self.used.lock().unwrap().insert(path.to_owned());
        let path = path.to_string_lossy();
        let hangs = |dead: &mut BTreeSet<String>| dead.iter().any(|part| path.contains(part));
        let dead = self.dead.lock().unwrap();
        drop(self.changed.wait_while(dead, hangs).unwrap());
    }

    fn used(&self, part: &str) -> Vec<PathBuf> {
        let used = self.used.lock().unwrap();
        let is_part = |it: &&PathBuf| it.to_string_lossy().contains(part);
        used.iter().filter(is_part).cloned().collect()
    }
}

/// Releases the file system on drop, so that no thread stays blocked.
struct Alive(Arc<Mount>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.come_back();
    }
}

/// A server whose only tool always has the same definition.
fn steady(name: &str) -> ServerConfig {
    let steady = script(r#"answer "$id" '{"content":[]}'"#, "");
    let steady = steady.replace("tool-$((lists += 1))", "fine");
    server(name, sh(&steady))
}

fn pinned() -> ServerConfig {
    let mut config = steady("pinned");
    config.pin = true;
    config
}

fn config() -> Config {
    Config::new().server(pinned()).server(steady("plain"))
}

/// Fails the test if the work hangs. The runtime's own deadlines are shorter.
async fn bounded<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(DEADLINE, work).await;
    done.unwrap_or_else(|_| panic!("{what} hangs"))
}

async fn start(folder: &Folder, mount: &Arc<Mount>) -> Runtime {
    let mount = Arc::clone(mount);
    let hook = Arc::new(move |path: &Path| mount.access(path));
    let builder = Runtime::builder().config(config()).state_dir(&folder.0);
    let started = bounded("the start", builder.file_hook(hook).start()).await;
    started.unwrap()
}

async fn call(runtime: &Runtime, server: &str) -> Result<(), CallError> {
    let server = runtime.server(server).unwrap();
    let call = server.call_tool("fine", json!({})).deadline(DEADLINE);
    bounded("a call", call).await.map(drop)
}

/// The threads of this process that run a file operation.
fn file_threads() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = threads.map(|it| std::fs::read_to_string(it.path().join("comm")));
    let ours = names.filter(|it| {
        it.as_deref()
            .is_ok_and(|it| it.starts_with("mcpvisor-file"))
    });
    ours.count()
}

async fn event<T>(events: &mut Events, wanted: impl Fn(&Event) -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = wanted(&events.recv().await.unwrap()) {
                return found;
            }
        }
    };
    bounded("an event", found).await
}

/// Checks that every operation of a runtime completes with the correct result while files hang.
async fn check(runtime: &Runtime, folder: &Folder, hangs: &str, knows_pins: bool) {
    bounded("ready", runtime.ready(DEADLINE)).await.unwrap();
    call(runtime, "plain").await.unwrap();
    let holds = hangs.is_empty() || hangs == "/pins/";
    let lock = folder.0.join("pins/pinned__lock.json");
    let lock = lock.to_str().unwrap();
    if holds && !knows_pins {
        for _ in 0..REPEATED {
            let error = call(runtime, "pinned").await.unwrap_err();
            assert!(matches!(error, CallError::HeldBack { .. }), "{error}");
            let said = error.to_string();
            assert!(said.contains(lock), "{said}");
            assert!(said.contains("check its disk or network mount"), "{said}");
        }
        let held = runtime.held("pinned").unwrap();
        assert_eq!(held[0].reason, HeldReason::Unreadable);
        let action = runtime.server("pinned").unwrap().status().action;
        assert!(action.is_some_and(|it| it.to_string().contains(lock)));
        let approve = bounded("approve", runtime.approve("pinned", None)).await;
        let refused = approve.unwrap_err();
        let is_clear = matches!(refused, ControlError::NotApproved { .. });
        assert!(is_clear && refused.to_string().contains(lock), "{refused}");
    } else {
        for _ in 0..REPEATED {
            call(runtime, "pinned").await.unwrap();
        }
        let approve = bounded("approve", runtime.approve("pinned", None)).await;
        assert_eq!(approve.unwrap(), [""; 0]);
    }
    let mut other = pinned();
    other.settings.health.threshold += 1;
    let other = Config::new().server(other).server(steady("plain"));
    let report = bounded("a reload", runtime.reload(other)).await.unwrap();
    let report = report.server("pinned").unwrap();
    assert_eq!(report.problem, None);
    let add = bounded("add", runtime.add(steady("added"))).await;
    add.unwrap();
    bounded("disable", runtime.disable("pinned")).await.unwrap();
    bounded("enable", runtime.enable("pinned")).await.unwrap();
    bounded("ready", runtime.ready(DEADLINE)).await.unwrap();
    call(runtime, "plain").await.unwrap();
}

/// `hangs` is the part of the paths that hang, from the start or in the middle of a run.
async fn survives(name: &str, hangs: &str, from_start: bool) {
    let folder = Folder::new(name);
    let mount = Arc::new(Mount::default());
    let _alive = Alive(Arc::clone(&mount));
    if from_start {
        mount.die(
            &folder
                .0
                .join(hangs.trim_start_matches('/'))
                .to_string_lossy(),
        );
    }
    let runtime = start(&folder, &mount).await;
    if !from_start {
        bounded("ready", runtime.ready(DEADLINE)).await.unwrap();
        mount.die(
            &folder
                .0
                .join(hangs.trim_start_matches('/'))
                .to_string_lossy(),
        );
        bounded("reconnect", runtime.reconnect("pinned"))
            .await
            .unwrap();
    }
    check(&runtime, &folder, hangs, !from_start).await;
    assert!(!mount.used(hangs).is_empty(), "{hangs} is never used");
    let paths = mount.used(&folder.0.to_string_lossy()).len();
    assert!(file_threads() <= paths.min(16) + 4, "{paths} paths");
    let begun = Instant::now();
    let shutdown = runtime.shutdown(Duration::from_secs(3));
    bounded("the shutdown", shutdown).await;
    assert!(begun.elapsed() < Duration::from_secs(3) + 2 * BUSY);
}

#[tokio::test]
async fn every_file_that_is_used_is_one_that_these_tests_let_hang() {
    let folder = Folder::new("all-files");
    let mount = Arc::new(Mount::default());
    let runtime = start(&folder, &mount).await;
    runtime.ready(DEADLINE).await.unwrap();
    call(&runtime, "pinned").await.unwrap();
    runtime.shutdown(Duration::from_secs(3)).await;
    let kind = |path: &PathBuf| {
        let within = path.strip_prefix(&folder.0).unwrap();
        let first = within.components().next().unwrap();
        first.as_os_str().to_string_lossy().into_owned()
    };
    let used: BTreeSet<_> = mount.used("").iter().map(kind).collect();
    assert_eq!(used, FILES.map(str::to_owned).into());
    // The same operation writes the marker and the lock beside it.
    let mut kept: Vec<_> = std::fs::read_dir(&folder.0).unwrap().flatten().collect();
    kept.retain(|it| !FILES.contains(&&*it.file_name().to_string_lossy()));
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].file_name(), "pinned");
}

#[tokio::test]
async fn approvals_that_hang_from_the_start_hold_tools_back_and_nothing_else() {
    survives("pins-start", "/pins/", true).await;
}

#[tokio::test]
async fn approvals_that_hang_later_stay_known() {
    survives("pins-later", "/pins/", false).await;
}

#[tokio::test]
async fn eras_that_hang_stop_nothing() {
    survives("eras-start", "/eras/", true).await;
    survives("eras-later", "/eras/", false).await;
}

#[tokio::test]
async fn catalogs_that_hang_stop_nothing() {
    survives("catalogs-start", "/catalogs/", true).await;
    survives("catalogs-later", "/catalogs/", false).await;
}

#[tokio::test]
async fn a_whole_folder_that_hangs_holds_tools_back_and_nothing_else() {
    survives("folder-start", "", true).await;
    survives("folder-later", "", false).await;
}

#[tokio::test]
async fn tools_are_shown_once_the_file_answers_again() {
    let folder = Folder::new("comes-back");
    let mount = Arc::new(Mount::default());
    let _alive = Alive(Arc::clone(&mount));
    mount.die("/pins/");
    let runtime = start(&folder, &mount).await;
    let mut events = runtime.events();
    let problem = event(&mut events, |event| match &event.kind {
        EventKind::ApprovalsUnavailable { problem } => Some(problem.clone()),
        _ => None,
    })
    .await;
    assert!(problem.contains("pinned__lock.json"), "{problem}");
    call(&runtime, "pinned").await.unwrap_err();
    mount.come_back();
    until_gone("what was held back", || {
        runtime.held("pinned").unwrap().is_empty()
    })
    .await;
    call(&runtime, "pinned").await.unwrap();
    let action = runtime.server("pinned").unwrap().status().action;
    assert_eq!(action, None);
    runtime.shutdown(DEADLINE).await;
    assert!(folder.0.join("pins/pinned__lock.json").is_file());
}

/// The control: without a timeout, an operation on such a file never completes.
#[test]
fn control_a_dead_mount_blocks_plain_operations() {
    let mount = Arc::new(Mount::default());
    let alive = Alive(Arc::clone(&mount));
    mount.die("/pins/");
    let (done, is_done) = std::sync::mpsc::channel();
    let user = std::thread::spawn(move || {
        mount.access(Path::new("/state/pins/git__lock.json"));
        done.send(()).unwrap();
    });
    assert!(is_done.recv_timeout(PATIENCE).is_err());
    drop(alive);
    user.join().unwrap();
}

/// A pipe without a writer is refused instead of blocking the reader.
#[tokio::test]
async fn a_pipe_in_place_of_the_approvals_is_named_at_once() {
    let folder = Folder::new("pipe");
    let lock = folder.0.join("pins/pinned__lock.json");
    std::fs::create_dir_all(lock.parent().unwrap()).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(&lock)
            .status()
            .unwrap()
            .success()
    );
    let runtime = start(&folder, &Arc::default()).await;
    runtime.ready(DEADLINE).await.unwrap();
    let error = call(&runtime, "pinned").await.unwrap_err().to_string();
    assert!(error.contains(lock.to_str().unwrap()), "{error}");
    assert!(error.contains("not a regular file"), "{error}");
    call(&runtime, "plain").await.unwrap();
    // An approval replaces the pipe with a file.
    let approved = runtime.approve("pinned", None).await.unwrap();
    assert_eq!(approved, ["fine"]);
    assert!(lock.is_file());
    call(&runtime, "pinned").await.unwrap();
    runtime.shutdown(DEADLINE).await;
}

/// The catalog of the earlier run already lists the tools as blocked.
#[tokio::test]
async fn lost_approvals_are_announced_once_in_every_run() {
    let folder = Folder::new("announced");
    let lock = folder.0.join("pins/pinned__lock.json");
    let first = start(&folder, &Arc::default()).await;
    first.ready(DEADLINE).await.unwrap();
    first.shutdown(DEADLINE).await;
    assert!(lock.is_file());
    let damages: [fn(&Path); 3] = [
        |_| {},
        |lock| std::fs::write(lock, "{").unwrap(),
        |lock| {
            let made = Command::new("mkfifo").arg(lock).status().unwrap();
            assert!(made.success());
        },
    ];
    for damage in damages {
        std::fs::remove_file(&lock).unwrap_or_default();
        damage(&lock);
        let builder = Runtime::builder().config(config()).state_dir(&folder.0);
        let mut events = builder.events();
        let runtime = builder.start().await.unwrap();
        runtime.ready(DEADLINE).await.unwrap();
        call(&runtime, "pinned").await.unwrap_err();
        runtime.reconnect("pinned").await.unwrap();
        runtime.ready(DEADLINE).await.unwrap();
        call(&runtime, "pinned").await.unwrap_err();
        runtime.shutdown(DEADLINE).await;
        let (mut held, mut problems) = (Vec::new(), Vec::new());
        while let Ok(event) = events.recv().await {
            match &event.kind {
                EventKind::ToolsHeld { tools } => held.push(tools.clone()),
                EventKind::ApprovalsUnavailable { problem } => problems.push(problem.clone()),
                _ => {}
            }
        }
        assert_eq!(held, [["fine"]]);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains(lock.to_str().unwrap()));
    }
}

/// A dangling link can be neither read nor written, not even by root.
#[tokio::test]
async fn approvals_that_cannot_be_saved_are_announced_and_calls_go_on() {
    let folder = Folder::new("unsaved");
    std::fs::create_dir_all(&folder.0).unwrap();
    std::os::unix::fs::symlink("no/such/folder", folder.0.join("pins")).unwrap();
    let lock = folder.0.join("pins/pinned__lock.json");
    let lock = lock.to_str().unwrap();
    let builder = Runtime::builder().config(config()).state_dir(&folder.0);
    let mut events = builder.events();
    let runtime = builder.start().await.unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    call(&runtime, "pinned").await.unwrap();
    let is_clear = |it: &str| it.contains(lock) && it.contains("cannot be saved");
    let action = runtime.server("pinned").unwrap().status().action;
    let action = action.map(|action| action.to_string());
    assert!(action.as_deref().is_some_and(is_clear), "{action:?}");
    assert_eq!(runtime.server("plain").unwrap().status().action, None);
    runtime.reconnect("pinned").await.unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    call(&runtime, "pinned").await.unwrap();
    runtime.shutdown(DEADLINE).await;
    let mut problems = Vec::new();
    while let Ok(event) = events.recv().await {
        if let EventKind::ApprovalsUnavailable { problem } = &event.kind {
            problems.push(problem.clone());
        }
    }
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(is_clear(&problems[0]), "{problems:?}");
}

#[tokio::test]
async fn a_watched_config_that_hangs_is_reported_once_and_followed_when_it_answers() {
    let folder = Folder::new("config");
    std::fs::create_dir_all(&folder.0).unwrap();
    let file = folder.0.join("mcp.json");
    std::fs::write(&file, r#"{ "mcpServers": {} }"#).unwrap();
    let mount = Arc::new(Mount::default());
    let _alive = Alive(Arc::clone(&mount));
    mount.die("mcp.json");
    let runtime = start(&folder, &mount).await;
    let begun = Instant::now();
    let mut watch = runtime.watch_config(&file);
    assert!(begun.elapsed() < BUSY);
    let outcome = bounded("the watch", watch.changed()).await.unwrap();
    let said = outcome.unwrap_err().to_string();
    assert!(said.contains("mcp.json"), "{said}");
    assert!(said.contains("network mount"), "{said}");
    call(&runtime, "plain").await.unwrap();
    mount.come_back();
    // The first read is the baseline; the next write is a change.
    let follows = async {
        for port in 1.. {
            let text = format!(r#"{{ "mcpServers": {{}}, "connects": {{ "http": {port} }} }}"#);
            std::fs::write(&file, text).unwrap();
            let next = tokio::time::timeout(2 * BUSY, watch.changed()).await;
            if let Ok(Some(Ok(report))) = next {
                return report;
            }
        }
        unreachable!()
    };
    bounded("the file", follows).await;
    runtime.shutdown(DEADLINE).await;
}

#[tokio::test]
async fn certificates_that_hang_keep_only_their_server_from_connecting() {
    let folder = Folder::new("certificates");
    let mount = Arc::new(Mount::default());
    let _alive = Alive(Arc::clone(&mount));
    mount.die("roots.pem");
    let hook = Arc::clone(&mount);
    let hook = Arc::new(move |path: &Path| hook.access(path));
    let roots = folder.0.join("roots.pem");
    let tls = Transport::http("https://localhost:1/").root_certificate(&roots);
    let mut secure = ServerConfig::new("secure", tls).unwrap();
    secure.required = false;
    let mut plain = steady("plain");
    plain.required = true;
    let builder = Runtime::builder().server(secure).server(plain);
    let started = bounded("the start", builder.file_hook(hook).start()).await;
    let runtime = started.unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    call(&runtime, "plain").await.unwrap();
    let secure = runtime.server("secure").unwrap();
    until_gone("an attempt without an error", || {
        let error = secure.status().last_error;
        error.is_some_and(|it| it.message.contains("roots.pem does not respond"))
    })
    .await;
    bounded("the shutdown", runtime.shutdown(Duration::from_secs(3))).await;
}

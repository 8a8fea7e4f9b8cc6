//! A process that is killed while it writes catalogs, approved tools and eras. The next process
//! reads either the old or the new state.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

mod fleet;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Instant, SystemTime};

use fleet::*;
use mcpvisor::{HeldReason, Runtime, ServerConfig, Transport};
use mcpvisor_testkit::http_server::{HttpOptions, HttpServer};
use mcpvisor_testkit::scripted::{Behaviour, Listing, Script, ScriptedServer, tool};
use rmcp::model::Tool;
use serde_json::Value;

/// The state folder of the child.
const CHILD: &str = "MCPVISOR_KILLED_CHILD";

/// Servers whose catalogs change constantly. Each is written once a second.
const CATALOGS: usize = 12;

/// The kinds of files, with the folder of each.
const KINDS: [&str; 3] = ["catalogs", "pins", "eras"];

/// Rounds after which some write must have been interrupted.
const MOST: usize = 240;

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let name = format!("mcpvisor-killed-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        // Left over from a killed process with the same pid.
        let _ = fs::remove_dir_all(&folder);
        Self(folder)
    }

    /// The files of one kind.
    fn files(&self, kind: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.0.join(kind)).into_iter().flatten();
        entries.flatten().map(|entry| entry.path()).collect()
    }

    /// The files that were being written.
    fn drafts(&self) -> BTreeSet<PathBuf> {
        let all = KINDS.iter().flat_map(|kind| self.files(kind));
        all.filter(|file| is_draft(file)).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn is_draft(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "tmp")
}

/// A few tools, all from the same round.
fn tools(round: usize) -> Listing<Tool> {
    Listing::of((0..5).map(|number| {
        let mut tool = tool(format!("tool{number}"));
        let text = format!("{round} {}", "x".repeat(round % 50 * 2_000));
        tool.description = Some(text.into());
        tool
    }))
}

fn scripted_server() -> ScriptedServer {
    let script = Script::bare().on_call("tool0", Behaviour::answer());
    ScriptedServer::new(script.tools(tools(0)))
}

fn name(number: usize) -> String {
    format!("catalog{number}")
}

/// The permanent servers of the child; the first one is pinned.
fn servers(transport: impl Fn(usize) -> Transport) -> Vec<ServerConfig> {
    let pinned = |number| number == 0;
    let server = |number| server(&name(number), transport(number)).pin(pinned(number));
    (0..=CATALOGS).map(server).collect()
}

async fn start(folder: &Path, servers: Vec<ServerConfig>) -> Runtime {
    let builder = Runtime::builder().state_dir(folder).governor(no_governor());
    let builder = servers.into_iter().fold(builder, |it, one| it.server(one));
    builder.start().await.unwrap()
}

/// Writes all kinds of state in a loop. The test below runs it as a child process.
#[tokio::test]
#[ignore = "never ends; the test below runs and kills it"]
async fn a_child_that_writes_all_the_time() {
    let Some(folder) = std::env::var_os(CHILD) else {
        return;
    };
    let scripts: Vec<_> = (0..=CATALOGS).map(|_| scripted_server()).collect();
    let runtime = start(
        Path::new(&folder),
        servers(|number| scripted(&scripts[number])),
    )
    .await;
    runtime.ready(DEADLINE).await.unwrap();
    let web = HttpServer::start(HttpOptions::default()).await;
    for round in 1.. {
        for script in &scripts {
            script.control().update(|it| it.tools = tools(round));
            script.control().tools_changed();
        }
        while runtime.held(name(0)).unwrap().is_empty() {
            tokio::time::sleep(millis(1)).await;
        }
        runtime.approve(&name(0), None).await.unwrap();
        // Another address is another server, whose era is stored.
        let address = format!("{}?round={round}", web.url());
        let one = server("web", Transport::http(address));
        runtime.add(one).await.unwrap();
        reaches(
            &runtime.server("web").unwrap(),
            mcpvisor::StateName::Connected,
        )
        .await;
        runtime.remove("web").await.unwrap();
    }
}

fn spawn_child(folder: &Folder) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_child_that_writes_all_the_time", "--ignored"])
        .env(CHILD, &folder.0)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits until every catalog exists, and this child has written a file of every kind.
async fn wait_for_writes(folder: &Folder, began: SystemTime) {
    let until = Instant::now() + DEADLINE;
    let written = |kind: &&str| {
        let mut files = folder.files(kind).into_iter();
        // A draft may be gone before it is read.
        let is_new = |file: &Path| fs::metadata(file)?.modified().map(|at| at > began);
        files.any(|file| !is_draft(&file) && is_new(&file).unwrap_or(false))
    };
    let of = |number| format!("catalogs/{}__catalog.json", name(number));
    let all_there = || (1..=CATALOGS).all(|number| folder.0.join(of(number)).exists());
    while !(all_there() && KINDS.iter().all(written)) {
        assert!(Instant::now() < until, "the child does not write");
        tokio::time::sleep(millis(2)).await;
    }
}

/// Waits until a draft of this kind is visible. Drafts exist only briefly, so this polls without
/// sleeping.
fn wait_for_a_draft(folder: &Folder, kind: &str) {
    let until = Instant::now() + secs(5);
    while Instant::now() < until {
        if folder.files(kind).iter().any(|file| is_draft(file)) {
            return;
        }
    }
}

/// The round of a catalog. All of its tools must be from the same one.
fn round_of(catalog: &mcpvisor::ServerCatalog) -> String {
    let descriptions = catalog.tools.iter().map(|it| it.description.clone());
    let descriptions: BTreeSet<_> = descriptions.map(Option::unwrap).collect();
    assert_eq!((catalog.tools.len(), descriptions.len()), (5, 1));
    let description = descriptions.first().unwrap();
    description.split(' ').next().unwrap().to_owned()
}

/// Starts after the kill: the stored state is complete without a connection.
async fn look(folder: &Folder, round: usize) {
    for file in KINDS.iter().flat_map(|kind| folder.files(kind)) {
        if !is_draft(&file) {
            let text = fs::read(&file).unwrap();
            let whole = serde_json::from_slice::<Value>(&text);
            assert!(
                whole.is_ok(),
                "round {round}: {} is cut off",
                file.display()
            );
        }
    }
    let silent = servers(|_| Transport::channel(|_end| std::future::pending()));
    let runtime = start(&folder.0, silent).await;
    for number in 1..=CATALOGS {
        let catalog = runtime.server(name(number)).unwrap().catalog();
        assert!(catalog.stale, "round {round}");
        round_of(&catalog);
    }
    runtime.shutdown(millis(100)).await;

    let changed = scripted_server();
    changed.control().update(|script| {
        script.tools = Listing::of([tool("tool0".to_owned()), tool("new".to_owned())]);
    });
    let pinned = server(&name(0), scripted(&changed)).pin(true);
    let runtime = start(&folder.0, vec![pinned]).await;
    runtime.ready(DEADLINE).await.unwrap();
    let held = runtime.held(name(0)).unwrap();
    let reasons: Vec<_> = held
        .iter()
        .map(|it| (it.tool.as_str(), it.reason))
        .collect();
    // A lost lock would approve both; an unreadable one would know neither.
    let expected = [("tool0", HeldReason::Changed), ("new", HeldReason::New)];
    assert_eq!(reasons, expected, "round {round}");
    runtime.shutdown(DEADLINE).await;
}

/// Backdates drafts, as if they had been left long ago.
fn age(drafts: &BTreeSet<PathBuf>) {
    for draft in drafts {
        let file = File::options().write(true).open(draft).unwrap();
        let long_ago = SystemTime::now() - secs(3_600);
        file.set_modified(long_ago).unwrap();
    }
}

#[tokio::test]
async fn a_process_that_is_killed_while_it_writes_leaves_what_the_next_one_can_read() {
    let folder = Folder::new();
    let mut left = BTreeSet::new();
    let mut torn = 0;
    for round in 0.. {
        // Half of the rounds wait for a draft before the kill, and sometimes the write finishes
        // first. Without any interrupted write the test has proved nothing.
        if round >= size(12, 200) && torn > 0 {
            break;
        }
        assert!(round < MOST, "no write was ever cut off");
        for era in folder.files("eras") {
            fs::remove_file(era).unwrap();
        }
        let mut child = spawn_child(&folder);
        wait_for_writes(&folder, SystemTime::now()).await;
        match round % 2 {
            0 => tokio::time::sleep(millis(fastrand::u64(0..300))).await,
            _ => wait_for_a_draft(&folder, KINDS[round / 2 % KINDS.len()]),
        }
        child.kill().unwrap();
        child.wait().unwrap();
        look(&folder, round).await;
        let drafts = folder.drafts();
        assert!(drafts.is_disjoint(&left), "what was left earlier is gone");
        torn += drafts.len();
        age(&drafts);
        left = drafts;
    }
    println!("{torn} writes were cut off");
}

//! Overhead of the commands beyond the unavoidable cost. The loose bounds catch gross regressions
//! on any machine; the best round of an optimised build must meet the strict ones.
//! `docs/figures.md` has the figures of a release build, measured with
//! `cargo test --release -p mcpvisor-cli --test speed -- --nocapture --test-threads=1`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "the helpers of a test fail as the test does, and say what they saw"
)]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{BINARY, Folder, builtin, mcpvisor, run};
use serde_json::json;

/// Allowance for a busy machine and an unoptimised build.
const MARGIN: Duration = Duration::from_millis(1_500);

const ROUNDS: usize = 9;

/// Bounds for an optimised build: starting the binary, and a call beyond its server's own time.
const START: Duration = Duration::from_millis(10);
const OVER: Duration = Duration::from_millis(30);

/// Timings of several rounds.
struct Times {
    best: Duration,
    median: Duration,
}

fn times(mut measure: impl FnMut()) -> Times {
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let begun = Instant::now();
            measure();
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    Times {
        best: times[0],
        median: times[ROUNDS / 2],
    }
}

/// Checks the best round against a bound, in an optimised build only.
#[track_caller]
fn assert_optimised(best: Duration, most: Duration) {
    let optimised = !cfg!(debug_assertions);
    assert!(!optimised || best < most, "{best:?} instead of {most:?}");
}

/// Runs a command and discards its output, because capturing it takes time.
#[track_caller]
fn succeeds(folder: &Folder, args: &[&str]) {
    let mut command = folder.command(args);
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(status.unwrap().success());
}

#[test]
fn the_version_costs_little_more_than_starting_a_process() {
    let folder = std::env::temp_dir();
    let version = times(|| {
        let status = Command::new(BINARY)
            .arg("--version")
            .stdout(Stdio::null())
            .status();
        assert!(status.unwrap().success());
    });
    let nothing = times(|| {
        assert!(Command::new("true").status().unwrap().success());
    });
    assert_optimised(version.best, START);
    let (version, nothing) = (version.median, nothing.median);
    println!("--version: {version:.1?}, a process that does nothing: {nothing:.1?}");
    assert!(version < nothing + MARGIN, "{version:?}");
    let mut command = mcpvisor(&folder);
    command.arg("--version");
    assert!(run(command).exits(0).stdout.starts_with("mcpvisor "));
}

#[test]
fn list_starts_nothing() {
    let mut servers = serde_json::Map::new();
    for number in 0..200 {
        servers.insert(format!("s{number}"), builtin("lab"));
    }
    let folder = Folder::with(&servers.into());
    let listing = times(|| {
        succeeds(&folder, &["list"]);
    });
    let listing = listing.median;
    println!("list of 200 servers: {listing:.1?}");
    assert!(listing < MARGIN, "{listing:?}");
    assert_eq!(folder.started(), [0; 0]);
}

/// Starts the server and sends it the same requests, without the client.
fn bare() {
    let mut child = Command::new(BINARY)
        .args(["builtin-server", "lab"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "bare", "version": "1" },
    } });
    writeln!(stdin, "{initialize}").unwrap();
    lines.next().unwrap().unwrap();
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "echo", "arguments": { "text": "x" },
    } });
    writeln!(stdin, "{initialized}\n{call}").unwrap();
    assert!(lines.next().unwrap().unwrap().contains("\"id\":2"));
    drop(stdin);
    child.wait().unwrap();
}

#[test]
fn a_call_costs_little_more_than_its_server() {
    let folder = Folder::with(&json!({ "lab": builtin("lab") }));
    let ours = times(|| {
        succeeds(&folder, &["call", "lab", "echo", "text=x"]);
    });
    let bare = times(bare);
    assert_optimised(ours.best.saturating_sub(bare.best), OVER);
    let (ours, bare) = (ours.median, bare.median);
    let over = ours.saturating_sub(bare);
    println!("call: {ours:.1?}, the server alone: {bare:.1?}, over it: {over:.1?}");
    assert!(ours < bare + MARGIN, "{ours:?} instead of {bare:?}");
    folder.assert_nothing_left();
}

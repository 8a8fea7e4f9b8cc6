//! The misbehaving server does what its manual says: a client that passes a broken fault passes
//! nothing.

#![allow(
    clippy::unwrap_used,
    reason = "the helpers of a test fail as the test does"
)]

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{Duration, Instant};

use mcpvisor_testkit::eventually;
use mcpvisor_testkit::processes::{MARKER, Marker, Process};
use mcpvisor_testkit::raw_client::RawClient;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_secs(20);
const MANUAL: &str = include_str!("../../../docs/badserver.md");

fn command(faults: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mcpvisor-badserver"));
    for fault in faults {
        command.args(["--fault", fault]);
    }
    command
}

fn with(faults: &[&str]) -> RawClient {
    RawClient::start(&mut command(faults))
}

/// The first line that comes of a call under a fault, and the call's id.
fn struck(fault: &str) -> (Option<String>, u64) {
    let mut bad = with(&[fault]);
    let id = bad.call("echo", json!({}));
    (bad.line(), id)
}

/// What the tool `misbehave` is told.
fn wish(fault: &str) -> Value {
    json!({ "fault": fault })
}

/// Answers come in order, so one to a ping that was sent later means that there is none to come.
fn only_answers_pings(bad: &mut RawClient) {
    let ping = bad.ask("ping", json!({}));
    assert_eq!(bad.message()["id"], ping);
}

fn listed() -> Vec<String> {
    let output = command(&[]).arg("--list-faults").output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn the_manual_names_every_fault_with_its_line() {
    let faults = listed();
    assert!(faults.len() >= 36, "{faults:?}");
    for listed in faults {
        let (usage, line) = listed.split_once("  ").unwrap_or_else(|| {
            let (usage, line) = listed.split_once(") ").unwrap();
            (usage, line)
        });
        let name = usage.split(['[', ' ']).next().unwrap();
        assert!(MANUAL.contains(&format!("`{name}")), "{name}");
        assert!(MANUAL.contains(line.trim()), "{line}");
    }
}

#[test]
fn without_a_fault_it_is_well_behaved() {
    let mut good = with(&[]);
    good.ask("initialize", json!({ "protocolVersion": "2025-11-25" }));
    let welcome = good.message()["result"].clone();
    assert_eq!(welcome["protocolVersion"], "2025-11-25");
    assert_eq!(welcome["serverInfo"]["name"], "mcpvisor-badserver");
    assert_eq!(good.result_of("echo", json!({ "a": 1 })), json!({ "a": 1 }));
    assert!(good.end().success());
}

#[test]
fn an_unknown_fault_is_refused() {
    let output = command(&["no-such-fault"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("no-such-fault") && said.contains("exit-on-call"));
}

#[test]
fn misbehave_strikes_once() {
    let mut bad = with(&[]);
    bad.call("misbehave", wish("garbage"));
    assert!(bad.line().unwrap().starts_with("%%"));
    bad.result_of("echo", json!({}));
    assert_eq!(bad.result_of("misbehave", wish("flood=0")), wish("flood=0"));
    for refused in ["no-such-fault", "mute-initialize"] {
        bad.call("misbehave", wish(refused));
        assert_eq!(bad.message()["error"]["code"], -32602);
    }
}

#[test]
fn faults_of_the_start_and_the_handshake() {
    let mut bad = with(&["banner"]);
    assert!(bad.line().unwrap().starts_with("Welcome"));

    let mut bad = with(&["exit-on-initialize=7"]);
    bad.ask("initialize", json!({}));
    assert_eq!(bad.line(), None);
    assert_eq!(bad.child.wait().unwrap().code(), Some(7));

    let mut bad = with(&["mute-initialize"]);
    bad.ask("initialize", json!({}));
    only_answers_pings(&mut bad);

    let mut bad = with(&["wrong-version"]);
    bad.ask("initialize", json!({ "protocolVersion": "2025-11-25" }));
    assert_eq!(bad.message()["result"]["protocolVersion"], "1999-01-01");
}

#[test]
fn faults_of_death() {
    let mut bad = with(&["exit-on-call=9"]);
    bad.call("echo", json!({}));
    assert_eq!(bad.line(), None);
    assert_eq!(bad.child.wait().unwrap().code(), Some(9));

    let mut bad = with(&["kill-on-call"]);
    bad.call("echo", json!({}));
    assert_eq!(bad.line(), None);
    assert_eq!(bad.child.wait().unwrap().signal(), Some(9));

    let mut bad = with(&["close-stdout-on-call"]);
    bad.call("echo", json!({}));
    assert_eq!(bad.line(), None);
    assert_eq!(bad.child.try_wait().unwrap(), None);

    let mut bad = with(&["close-stdin-on-call"]);
    bad.result_of("echo", json!({}));
    let mut stdin = bad.stdin.take().unwrap();
    assert!(std::io::Write::write_all(&mut stdin, b"\n").is_err());
    assert_eq!(bad.child.try_wait().unwrap(), None);

    let mut bad = with(&["half-answer-exit"]);
    bad.call("echo", json!({}));
    let half = bad.line().unwrap();
    assert!(half.contains("\"id\":1"), "{half}");
    assert!(serde_json::from_str::<Value>(&half).is_err(), "{half}");
    assert_eq!(bad.line(), None);
}

#[tokio::test]
async fn a_stopped_server_answers_when_it_is_continued() {
    for (fault, method) in [
        ("sigstop-on-call", "tools/call"),
        ("sigstop-on-initialize", "initialize"),
    ] {
        let mut bad = with(&[fault]);
        let pid = Pid::from_child(&bad.child);
        let id = bad.ask(method, json!({ "name": "echo" }));
        let stopped = || {
            Process::read(pid.as_raw_nonzero().get() as u32)
                .unwrap()
                .state
                == 'T'
        };
        eventually(DEADLINE, "the stop", stopped).await;
        kill_process(pid, Signal::CONT).unwrap();
        assert_eq!(bad.message()["id"], id);
    }
}

#[tokio::test]
async fn grandchildren_stay_and_may_hold_stdout() {
    let marker = Marker::new("bad-grandchildren");
    let marked = |fault| {
        let mut command = command(&[fault]);
        RawClient::start(command.env(MARKER, marker.value()))
    };
    let mut bad = marked("spawn-grandchildren=2");
    bad.result_of("echo", json!({}));
    eventually(DEADLINE, "the grandchildren", || {
        marker.processes().len() == 3
    })
    .await;
    assert!(bad.end().success());
    kill_all(&marker, 2).await;

    let mut bad = marked("grandchild-holds-stdout");
    bad.call("echo", json!({}));
    assert_eq!(bad.child.wait().unwrap().signal(), Some(9));
    let reader = std::thread::spawn(move || bad.line());
    kill_all(&marker, 1).await;
    assert_eq!(reader.join().unwrap(), None, "open for as long as it lived");
}

async fn kill_all(marker: &Marker, wanted: usize) {
    // One that is just becoming its program has no environment for a moment.
    eventually(DEADLINE, "those who stay", || {
        marker.processes().len() == wanted
    })
    .await;
    marker.kill_all();
    marker.assert_none_left(DEADLINE).await;
}

#[test]
fn faults_of_silence() {
    let mut bad = with(&["mute-calls"]);
    bad.call("echo", json!({}));
    only_answers_pings(&mut bad);

    let mut bad = with(&["stop-reading-stdin"]);
    bad.call("echo", json!({}));
    let mut stdin = bad.stdin.take().unwrap();
    let writer = std::thread::spawn(move || {
        // More than a pipe holds.
        std::io::Write::write_all(&mut stdin, &vec![b'\n'; 4 * 1024 * 1024])
    });
    std::thread::sleep(Duration::from_millis(200));
    assert!(!writer.is_finished(), "the pipe is full and nobody reads");
    bad.child.kill().unwrap();
    assert!(writer.join().unwrap().is_err());
}

#[test]
fn faults_of_nonsense() {
    assert!(struck("garbage").0.unwrap().starts_with("%%"));
    let (line, id) = struck("truncated-json");
    let line = line.unwrap();
    assert!(line.contains(&format!("\"id\":{id}")) && line.contains("\"result\""));
    assert!(serde_json::from_str::<Value>(&line).is_err());

    let parsed = |fault| {
        let (line, id) = struck(fault);
        let message: Value = serde_json::from_str(&line.unwrap()).unwrap();
        (message, id)
    };
    let (answer, id) = parsed("wrong-id");
    assert!(answer["id"].is_u64() && answer["id"] != id);
    assert_eq!(parsed("foreign-id").0["id"], "server-error");
    let (answer, id) = parsed("wrong-shape");
    assert_eq!(
        (&answer["id"], &answer["result"]["content"]),
        (&json!(id), &json!(5))
    );

    let mut bad = with(&["bad-utf8"]);
    bad.call("echo", json!({}));
    assert!(String::from_utf8(bad.bytes().unwrap()).is_err());
}

#[test]
fn faults_of_size() {
    let line = struck("nesting=300").0.unwrap();
    assert!(line.contains(&"[".repeat(300)) && !line.contains(&"[".repeat(301)));
    let line = struck("line=100000").0.unwrap();
    assert!((100_000..101_000).contains(&line.len()));
    assert!(serde_json::from_str::<Value>(&line).is_ok());
    let line = struck("values=1000").0.unwrap();
    let answer: Value = serde_json::from_str(&line).unwrap();
    let ones = answer["result"]["structuredContent"]["value"].as_array();
    assert_eq!(ones.unwrap().len(), 1000);
}

#[test]
fn faults_of_time() {
    let started = Instant::now();
    let (line, id) = struck("slow-drip=1");
    assert!(
        started.elapsed() > Duration::from_millis(100),
        "byte by byte"
    );
    let answer: Value = serde_json::from_str(&line.unwrap()).unwrap();
    assert_eq!(answer["id"], id);

    let mut bad = with(&["late-answer=300"]);
    let id = bad.call("echo", json!({}));
    bad.notify("notifications/cancelled", json!({ "requestId": id }));
    only_answers_pings(&mut bad);
    assert_eq!(bad.message()["id"], id, "though it was cancelled");

    let mut bad = with(&["duplicate-answers=2"]);
    let id = bad.call("echo", json!({}));
    assert_eq!(
        [bad.message()["id"].clone(), bad.message()["id"].clone()],
        [id, id]
    );
    only_answers_pings(&mut bad);
}

#[test]
fn faults_of_too_much() {
    let mut bad = with(&["flood=3"]);
    let id = bad.call("echo", json!({}));
    for _ in 0..3 {
        assert_eq!(bad.message()["method"], "notifications/message");
    }
    assert_eq!(bad.message()["id"], id);

    let mut bad = with(&["flood-requests=3"]);
    let id = bad.call("echo", json!({}));
    let methods: Vec<Value> = (0..3).map(|_| bad.message()["method"].take()).collect();
    assert_eq!(methods, ["ping", "roots/list", "sampling/createMessage"]);
    assert_eq!(bad.message()["id"], id);

    let mut bad = with(&["stderr-flood=100000"]);
    let mut stderr = bad.child.stderr.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut said = Vec::new();
        stderr.read_to_end(&mut said).map(|_| said.len())
    });
    bad.result_of("echo", json!({}));
    bad.end();
    assert_eq!(reader.join().unwrap().unwrap(), 100_000);
}

#[test]
fn faults_of_the_listing() {
    let list = |bad: &mut RawClient| {
        bad.ask("tools/list", json!({}));
        bad.message()["result"].take()
    };
    let mut bad = with(&["endless-cursor"]);
    assert_ne!(list(&mut bad)["nextCursor"], list(&mut bad)["nextCursor"]);
    let mut bad = with(&["repeating-cursor"]);
    let pages = [list(&mut bad), list(&mut bad)];
    assert_eq!(pages[0]["nextCursor"], pages[1]["nextCursor"]);
    assert!(pages[0]["nextCursor"].is_string());
    let mut bad = with(&["change-tools"]);
    assert_ne!(list(&mut bad), list(&mut bad));

    let mut bad = with(&[]);
    let before = list(&mut bad)["tools"].as_array().unwrap().len();
    bad.call("misbehave", wish("huge-tool-list=50"));
    assert_eq!(bad.message()["method"], "notifications/tools/list_changed");
    bad.message();
    let after = list(&mut bad)["tools"].as_array().unwrap().len();
    assert_eq!(after, before + 50);
}

#[test]
fn faults_of_the_end() {
    let mut bad = with(&["ignore-eof", "ignore-sigterm"]);
    bad.result_of("echo", json!({}));
    kill_process(Pid::from_child(&bad.child), Signal::TERM).unwrap();
    bad.result_of("echo", json!({}));
    drop(bad.stdin.take());
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(bad.child.try_wait().unwrap(), None);
}

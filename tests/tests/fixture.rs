//! The fixture server does what its flags say: a test with a broken fixture would prove nothing.

use std::io::{BufRead, BufReader};
use std::process::Command;
use std::time::{Duration, Instant};

use mcpvisor_testkit::eventually;
use mcpvisor_testkit::processes::{self, MARKER, Marker, Process};
use mcpvisor_testkit::raw_client::RawClient;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

const DEADLINE: Duration = Duration::from_secs(10);

fn start(flags: &[&str]) -> RawClient {
    RawClient::start(Command::new(env!("CARGO_BIN_EXE_fixture-server")).args(flags))
}

fn marked(marker: &str) -> RawClient {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fixture-server"));
    RawClient::start(command.env(MARKER, marker))
}

#[test]
fn it_starts_soon_and_ends_at_the_end_of_its_input() {
    let started = Instant::now();
    let mut fixture = start(&[]);
    fixture.ask("initialize", json!({ "protocolVersion": "2025-11-25" }));
    let answer = fixture.message();
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
    assert_eq!(answer["result"]["serverInfo"]["name"], "fixture-server");
    assert!(fixture.end().success());
}

#[test]
fn tools_answer_and_count() {
    let mut fixture = marked("none");
    let echoed = fixture.result_of("echo", json!({ "a": [1, null] }));
    assert_eq!(echoed, json!({ "a": [1, null] }));
    let pid = fixture.child.id();
    assert_eq!(fixture.result_of("pid", json!({})), json!({ "pid": pid }));
    assert_eq!(fixture.result_of("count", json!({})), json!({ "count": 3 }));
    let marker = fixture.result_of("env", json!({ "name": MARKER }));
    assert_eq!(marker, json!({ "value": "none" }));
    fixture.call("fail", json!({}));
    assert_eq!(fixture.message()["result"]["isError"], true);
    fixture.call("nonsense", json!({}));
    assert_eq!(fixture.message()["error"]["code"], -32602);
}

#[test]
fn a_side_effect_happens_before_the_answer() {
    let file = std::env::temp_dir().join(Marker::new("append").value());
    let mut fixture = start(&[]);
    fixture.result_of("append", json!({ "file": file, "text": "one" }));
    fixture.call(
        "append",
        json!({ "file": file, "text": "two", "ms": 600_000 }),
    );
    assert_eq!(fixture.result_of("count", json!({})), json!({ "count": 3 }));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "one\ntwo\n");
    std::fs::remove_file(file).unwrap();
}

#[test]
fn a_sleep_holds_up_nobody_and_can_be_cancelled() {
    let log = std::env::temp_dir().join(Marker::new("cancel").value());
    let mut fixture = start(&["--cancel-log", log.to_str().unwrap()]);
    let slow = fixture.call("sleep", json!({ "ms": 600_000 }));
    let quick = fixture.call("sleep", json!({ "ms": 1 }));
    assert_eq!(fixture.message()["id"], quick);
    fixture.notify("notifications/cancelled", json!({ "requestId": slow }));
    assert_eq!(fixture.result_of("count", json!({})), json!({ "count": 3 }));
    assert_eq!(std::fs::read_to_string(&log).unwrap(), format!("{slow}\n"));
    std::fs::remove_file(log).unwrap();
}

#[test]
fn progress_is_reported_before_the_answer() {
    let mut fixture = start(&[]);
    let params = json!({
        "name": "progress",
        "arguments": { "steps": 2, "ms": 1 },
        "_meta": { "progressToken": "p" },
    });
    let id = fixture.ask("tools/call", params);
    for step in 1..=2 {
        let wanted = json!({ "progressToken": "p", "progress": step, "total": 2 });
        assert_eq!(fixture.message()["params"], wanted);
    }
    assert_eq!(fixture.message()["id"], id);
}

#[test]
fn crashes_answer_nothing() {
    let mut fixture = start(&[]);
    fixture.call("crash", json!({ "code": 7 }));
    assert_eq!(fixture.line(), None);
    assert_eq!(fixture.child.wait().unwrap().code(), Some(7));

    let mut fixture = start(&[]);
    fixture.call("kill_self", json!({}));
    assert_eq!(fixture.line(), None);
    let status = fixture.child.wait().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(9)
    );

    let mut fixture = start(&["--die-after", "2"]);
    fixture.result_of("echo", json!({}));
    fixture.result_of("echo", json!({}));
    assert_eq!(fixture.line(), None);
}

#[test]
fn start_flags_show_at_the_start() {
    let output = Command::new(env!("CARGO_BIN_EXE_fixture-server"))
        .args(["--exit-at-once", "3", "--stderr", "no licence"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(output.stderr, b"no licence\n");

    let mut fixture = start(&["--banner", "Welcome!", "--protocol", "1999-01-01"]);
    assert_eq!(fixture.line().unwrap(), "Welcome!");
    fixture.ask("initialize", json!({ "protocolVersion": "2025-11-25" }));
    assert_eq!(fixture.message()["result"]["protocolVersion"], "1999-01-01");

    let mut fixture = start(&["--mute-initialize", "--mute-calls"]);
    fixture.ask("initialize", json!({}));
    fixture.call("echo", json!({}));
    let ping = fixture.ask("ping", json!({}));
    assert_eq!(fixture.message()["id"], ping);
}

#[test]
fn the_end_of_the_handshake_makes_it_flap_or_burst() {
    let mut fixture = start(&["--flap"]);
    fixture.notify("notifications/initialized", json!({}));
    assert_eq!(fixture.line(), None);

    let mut fixture = start(&["--list-changed-burst", "3"]);
    fixture.notify("notifications/initialized", json!({}));
    for _ in 0..3 {
        let method = fixture.message()["method"].clone();
        assert_eq!(method, "notifications/tools/list_changed");
    }
    fixture.ask("tools/list", json!({}));
    let tools = fixture.message()["result"]["tools"].clone();
    assert_eq!(
        tools.as_array().unwrap().last().unwrap()["name"],
        "after_burst"
    );
}

#[test]
fn subscriptions_and_log_levels_are_obeyed() {
    let mut fixture = start(&[]);
    let touched = json!({ "uri": "fixture://one" });
    fixture.result_of("touch", touched.clone());
    fixture.ask("resources/subscribe", touched.clone());
    fixture.message();
    fixture.call("touch", touched.clone());
    assert_eq!(fixture.message()["params"], touched);
    fixture.message();

    fixture.result_of("log", json!({ "level": "debug", "text": "quiet" }));
    fixture.ask("logging/setLevel", json!({ "level": "debug" }));
    fixture.message();
    fixture.call("log", json!({ "level": "debug", "text": "loud" }));
    let wanted = json!({ "level": "debug", "data": "loud" });
    assert_eq!(fixture.message()["params"], wanted);
}

#[test]
fn it_can_refuse_to_end() {
    let mut fixture = start(&["--ignore-eof", "--ignore-sigterm"]);
    let pid = Pid::from_child(&fixture.child);
    fixture.result_of("echo", json!({}));
    kill_process(pid, Signal::TERM).unwrap();
    fixture.result_of("echo", json!({}));
    drop(fixture.stdin.take());
    let mut said = String::new();
    let stderr = fixture.child.stderr.take().unwrap();
    BufReader::new(stderr).read_line(&mut said).unwrap();
    assert_eq!(said, "staying after the end of input\n");
    assert_eq!(fixture.child.try_wait().unwrap(), None);
}

#[tokio::test]
async fn a_grandchild_outlives_it_and_carries_its_marker() {
    let marker = Marker::new("grandchild");
    let mut fixture = marked(marker.value());
    let pid = fixture.result_of("spawn_grandchild", json!({}))["pid"].clone();
    let pid = u32::try_from(pid.as_u64().unwrap()).unwrap();
    assert!(fixture.end().success());
    let pids = |left: Vec<Process>| left.iter().map(|it| it.pid).collect::<Vec<_>>();
    eventually(DEADLINE, "the grandchild alone", || {
        pids(marker.processes()) == [pid]
    })
    .await;
    processes::kill(pid);
    marker.assert_none_left(DEADLINE).await;
}

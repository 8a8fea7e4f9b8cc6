//! Servers that do their worst, written in shell: every call has an outcome by its deadline, other
//! servers notice nothing, and no process is left.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mcpvisor::{CallError, Config, Runtime, StateName};
use serde_json::json;

use crate::shell_server::*;

#[tokio::test]
async fn a_stopped_server_costs_its_caller_the_deadline() {
    let fleet = Fleet::start("kill -STOP $$").await;
    at_the_deadline(fleet.fails().await);
    fleet.end().await;
}

#[tokio::test]
async fn a_server_that_does_not_read_costs_its_caller_the_deadline() {
    let fleet = Fleet::start("sleep 100").await;
    at_the_deadline(fleet.fails().await);
    // The pipe takes less than that, so it is full for good.
    let text = "x".repeat(1024 * 1024);
    let call = fleet.hostile.call_tool("worst", json!({ "text": text }));
    let called = Instant::now();
    let error = call.deadline(PATIENCE).await.unwrap_err();
    at_the_deadline((error, called.elapsed()));
    fleet.end().await;
}

#[tokio::test]
async fn a_server_that_closes_its_stdout_and_lives_on_is_noticed() {
    let fleet = Fleet::start("exec 1>&-; sleep 100").await;
    lost(fleet.fails().await, "closed its stdout");
    fleet.end().await;
}

#[tokio::test]
async fn a_server_that_exits_is_noticed_though_a_grandchild_holds_its_stdout() {
    let fleet = Fleet::start("sleep 100 & exit 3").await;
    lost(fleet.fails().await, "code 3");
    fleet.end().await;
}

#[tokio::test]
async fn a_killed_server_is_noticed_at_once() {
    let fleet = Fleet::start("kill -KILL $$").await;
    let (error, took) = fleet.fails().await;
    println!("call and death noticed after {took:?}");
    lost((error, took), "signal 9");
    fleet.end().await;
}

#[tokio::test]
async fn a_reply_beyond_a_bound_fails_its_call_alone() {
    let reply = |inside: &str| {
        format!(
            r#"printf '{{"jsonrpc":"2.0","id":%s,"result":{{"structuredContent":' "$id"; {inside}; say '}}}}'"#
        )
    };
    let repeated = |count: u32, text: &str| format!("yes '{text}' | head -n {count} | tr -d '\\n'");
    let nested = format!("{}; {}", repeated(200, "["), repeated(200, "]"));
    let values = format!("printf '['; {}; printf '1]'", repeated(8_000_000, "1,"));
    for (inside, named) in [
        ("mib 17 1".to_owned(), "longer than 16 MiB"),
        (nested, "nested deeper than 128"),
        (values, "more than 262144 JSON values"),
    ] {
        let fleet = Fleet::start(&reply(&inside)).await;
        let call = fleet
            .hostile
            .call_tool("worst", json!({}))
            .deadline(DEADLINE);
        let error = call.await.unwrap_err();
        assert!(matches!(error, CallError::Unreadable { .. }), "{error:?}");
        assert!(error.to_string().contains(named), "{error}");
        fleet.hostile.call_tool("fine", json!({})).await.unwrap();
        assert_eq!(fleet.hostile.status().generation.get(), 1, "{named}");
        fleet.end().await;
    }
}

#[tokio::test]
async fn a_flood_drops_no_reply_and_no_changed_list_and_is_counted() {
    let log =
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;
    let request = r#"{"jsonrpc":"2.0","id":"theirs","method":"roots/list"}"#;
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let fleet = Fleet::start(&format!(
        r#"yes '{log}' | head -n 10000; yes '{request}' | head -n 10000; say '{changed}'; answer "$id" '{{"content":[]}}'"#
    ))
    .await;
    let first = fleet.hostile.catalog().tools[0].name.clone();
    let call = fleet.hostile.call_tool("flood", json!({}));
    call.deadline(DEADLINE).await.unwrap();
    let mut status = fleet.hostile.watch();
    let counted = status.wait_for(|status| status.dropped_flood > 0);
    let dropped = tokio::time::timeout(DEADLINE, counted)
        .await
        .unwrap()
        .unwrap()
        .dropped_flood;
    println!("dropped {dropped} of 20000");
    gone("the old list", || {
        fleet.hostile.catalog().tools[0].name != first
    })
    .await;
    assert_eq!(fleet.hostile.status().generation.get(), 1);
    let shown = serde_json::to_value(fleet.hostile.status()).unwrap();
    assert!(shown.get("dropped_flood").is_none(), "{shown}");
    fleet.end().await;
}

#[tokio::test]
async fn a_stubborn_server_and_its_grandchildren_are_gone_after_a_shutdown() {
    let stubborn = "trap '' TERM; sleep 100 & sleep 100 & while :; do sleep 0.1; done";
    let fleet = Fleet::of(script("", stubborn)).await;
    fleet.end().await;
}

#[tokio::test]
async fn a_connect_that_fails_half_way_leaves_no_process() {
    let hello = script("", "sleep 100").replace("2025-11-25", "1999-01-01");
    let config = server("hostile", sh(&format!("sleep 100 & {hello}")));
    let runtime = Runtime::builder().server(config).start().await.unwrap();
    let hostile = runtime.server("hostile").unwrap();
    let mut status = hostile.watch();
    let failed = status.wait_for(|status| status.state == StateName::PermanentlyFailed);
    drop(
        tokio::time::timeout(DEADLINE, failed)
            .await
            .unwrap()
            .unwrap(),
    );
    let group = group_of(&hostile);
    gone("the group", || members(group).is_empty()).await;
    runtime.shutdown(BUSY).await;
}

#[test]
fn a_dropped_tokio_runtime_leaves_no_process() {
    let stubborn = script("", "trap '' TERM; sleep 100 & while :; do sleep 0.1; done");
    for workers in [0, 2] {
        let tokio = match workers {
            0 => tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build(),
            _ => tokio::runtime::Builder::new_multi_thread()
                .worker_threads(workers)
                .enable_all()
                .build(),
        };
        let tokio = tokio.unwrap();
        let (runtime, group) = tokio.block_on(async {
            let runtime = Runtime::builder()
                .server(server("hostile", sh(&stubborn)))
                .start()
                .await
                .unwrap();
            runtime.ready(DEADLINE).await.unwrap();
            let group = group_of(&runtime.server("hostile").unwrap());
            (runtime, group)
        });
        assert!(!members(group).is_empty());
        drop(tokio);
        let begun = Instant::now();
        while !members(group).is_empty() || is_zombie(group) {
            assert!(begun.elapsed() < BUSY, "{:?}", members(group));
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(runtime);
    }
}

/// Says to the second process that it is the host.
const HOST: &str = "MCPVISOR_TEST_HOST";

/// Starts a host that is the named test in a process of its own, kills it when it has three
/// children, and waits for these to end. Returns how long they lived, if no longer than `limit`.
fn outlive_a_killed_host(test: &str, limit: Duration) -> (Option<Duration>, Vec<u32>) {
    let mut host = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(HOST, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(host.stdout.take().unwrap()).lines();
    let pids: Vec<u32> = lines
        .map_while(Result::ok)
        .filter_map(|line| line.split_once("child ")?.1.parse().ok())
        .take(3)
        .collect();
    assert_eq!(pids.len(), 3, "the host did not start");
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    host.kill().unwrap();
    let killed = Instant::now();
    host.wait().unwrap();
    while pids.iter().any(|pid| is_alive(*pid)) {
        if killed.elapsed() > limit {
            return (None, pids);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    (Some(killed.elapsed()), pids)
}

#[test]
fn the_children_of_a_host_that_is_killed_end_too() {
    let limit = Duration::from_secs(2);
    let (lived, _) = outlive_a_killed_host("shell_faults::a_host_that_is_killed", limit);
    println!(
        "figure 6: the children were gone after {:?}",
        lived.expect("in time")
    );
}

#[test]
fn control_figure_6_children_started_the_ordinary_way_outlive_their_host() {
    let limit = Duration::from_millis(500);
    let (lived, pids) =
        outlive_a_killed_host("shell_faults::an_ordinary_host_that_is_killed", limit);
    for pid in pids {
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    assert_eq!(lived, None, "they would have ended by themselves");
}

/// Not a test of its own: the host of the control.
#[test]
fn an_ordinary_host_that_is_killed() {
    if std::env::var_os(HOST).is_none() {
        return;
    }
    let mut children = [(); 3].map(|()| Command::new("sleep").arg("60").spawn().unwrap());
    for child in &children {
        println!("\nchild {}", child.id());
    }
    for child in &mut children {
        child.wait().unwrap();
    }
}

fn is_alive(pid: u32) -> bool {
    std::fs::exists(format!("/proc/{pid}")).unwrap() && !is_zombie(pid)
}

/// Not a test of its own: what the test above starts, with children that ignore the end of stdin.
#[test]
fn a_host_that_is_killed() {
    if std::env::var_os(HOST).is_none() {
        return;
    }
    let stubborn = script("", "trap '' TERM; while :; do sleep 0.1; done");
    let tokio = tokio::runtime::Runtime::new().unwrap();
    tokio.block_on(async {
        let names = ["a", "b", "c"];
        let servers = names.map(|name| server(name, sh(&stubborn)));
        let config = servers.into_iter().fold(Config::new(), Config::server);
        let runtime = Runtime::builder().config(config).start().await.unwrap();
        runtime.ready(DEADLINE).await.unwrap();
        for name in names {
            println!("\nchild {}", group_of(&runtime.server(name).unwrap()));
        }
        // Idle threads of tokio's end after a while; the children must not end with them.
        tokio::time::sleep(Duration::from_secs(60)).await;
    });
}

/// The second process has secrets in its environment, under names of every kind.
const CANARY: &str = "canary-in-the-environment";

#[test]
fn nothing_of_the_environment_reaches_a_child_but_what_is_listed_or_named() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "shell_faults::a_host_with_secrets",
            "--exact",
            "--nocapture",
        ])
        .env(HOST, "1")
        .envs(
            [
                "AWS_SECRET_ACCESS_KEY",
                "GITHUB_TOKEN",
                "PATHS",
                "HOMES",
                "path",
                "Http_Proxy",
                "LD_PRELOAD_",
                "PYTHONPATH",
                "NODE_OPTIONS",
                "XDG",
                "LC",
            ]
            .map(|name| (name, CANARY)),
        )
        .envs([
            ("NAMED", "kept"),
            ("LC_TIME", "listed"),
            ("XDG_CACHE_HOME", "listed"),
            ("NO_PROXY", "listed"),
        ])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for line in [
        "NAMED=kept",
        "LC_TIME=listed",
        "XDG_CACHE_HOME=listed",
        "NO_PROXY=listed",
        "GIVEN=hand",
        "directory /",
    ] {
        assert!(
            said.lines().any(|said| said == line),
            "{line} is not in {said}"
        );
    }
    assert!(!said.contains(CANARY), "{said}");
}

/// Not a test of its own: what the test above starts.
#[test]
fn a_host_with_secrets() {
    if std::env::var_os(HOST).is_none() {
        return;
    }
    let tokio = tokio::runtime::Runtime::new().unwrap();
    tokio.block_on(async {
        let script = format!("env >&2; echo \"directory $(pwd)\" >&2; {}", script("", ""));
        let command = sh(&script)
            .env("GIVEN", "hand")
            .inherit_env("NAMED")
            .cwd("/");
        let runtime = Runtime::builder()
            .server(server("curious", command))
            .start()
            .await
            .unwrap();
        runtime.ready(DEADLINE).await.unwrap();
        println!("\n{}", runtime.server("curious").unwrap().stderr_tail());
        runtime.shutdown(BUSY).await;
    });
}

/// What the server gets for a request that comes after `before` and is as large as `size` says.
async fn refusal(before: &str, size: &str) -> String {
    let ask = r#"BEFORE
        printf '{"jsonrpc":"2.0","id":"theirs","method":"roots/list","params":{"x":"'; SIZE; say '"}}'
        while IFS= read -r line; do case $line in *'"theirs"'*) break;; esac; done
        answer "$id" '{"content":[],"structuredContent":'"$line"'}'"#;
    let fleet = Fleet::start(&ask.replace("BEFORE", before).replace("SIZE", size)).await;
    let call = fleet.hostile.call_tool("worst", json!({}));
    let told = call.deadline(DEADLINE).await.unwrap();
    fleet.decent.call_tool("fine", json!({})).await.unwrap();
    fleet.end().await;
    let told = told.structured_content.unwrap();
    told["error"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_request_that_is_not_read_is_answered_all_the_same() {
    let large = "the request is too large for this client";
    assert_eq!(refusal("", "mib 2 x").await, large);
    assert_eq!(refusal("", "mib 20 x").await, large);
    // Behind as many messages as there is room for, unless the machine was slow.
    let log =
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;
    let burst = format!("yes '{log}' | head -n 10000");
    let told = refusal(&burst, "head -c 400000 /dev/zero | tr '\\0' x").await;
    let expected = [
        "too many messages at once; ask again later",
        "this client does not offer that",
    ];
    assert!(expected.contains(&&*told), "{told}");
}

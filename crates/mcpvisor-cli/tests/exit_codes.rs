//! Every exit code of the binary.

#![allow(
    clippy::unwrap_used,
    reason = "the helpers of a test fail as the test does"
)]

mod common;

use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Folder, LIMIT, builtin, finish, mcpvisor, run, script};
use serde_json::json;

fn lab() -> Folder {
    Folder::with(&json!({ "lab": builtin("lab") }))
}

#[test]
fn a_call_that_worked_exits_0_and_leaves_no_process() {
    let folder = lab();
    let ran = folder.run(&["call", "lab", "sleep", "ms=1"]);
    ran.exits(0);
    assert_eq!(
        (ran.stdout.as_str(), ran.stderr.as_str()),
        ("slept 1 ms\n", "")
    );
    folder.assert_nothing_left();
}

#[test]
fn help_and_version_exit_0() {
    let folder = lab();
    assert!(
        folder
            .run(&["--help"])
            .exits(0)
            .stdout
            .contains("Exit codes")
    );
    assert!(
        folder
            .run(&["--version"])
            .exits(0)
            .stdout
            .starts_with("mcpvisor ")
    );
}

#[test]
fn wrong_use_exits_1_and_starts_nothing() {
    let folder = lab();
    for wrong in [
        vec!["bogus"],
        vec![],
        vec!["status", "--timeout", "10"],
        vec!["status", "--timeout", "0s"],
        vec!["call", "lab"],
        vec!["call", "lab", "echo", "word"],
        vec!["call", "lab", "echo", "--args", "[1]"],
    ] {
        folder.run(&wrong).exits(1);
    }
    assert_eq!(folder.started(), [0; 0]);
}

#[test]
fn an_unknown_server_exits_1_and_names_those_that_exist() {
    let folder = lab();
    let ran = folder.run(&["call", "lba.echo"]);
    ran.exits(1).says("\"lba\"").says("did you mean \"lab\"?");
    folder
        .run(&["tools", "lba"])
        .exits(1)
        .says("did you mean \"lab\"?");
}

#[test]
fn a_server_that_was_left_out_of_the_config_exits_1_with_the_reason() {
    let folder = Folder::with(&json!({ "web": { "type": "ftp", "url": "https://example.com/" } }));
    let ran = folder.run(&["call", "web", "x"]);
    ran.exits(1).says("must be \"stdio\", \"http\" or \"sse\"");
}

#[test]
fn an_unreadable_config_exits_1_and_says_where() {
    let folder = lab();
    std::fs::write(folder.path("mcp.json"), "{\n  oops\n}").unwrap();
    folder.run(&["status"]).exits(1).says("mcp.json:2:3");
    std::fs::remove_file(folder.path("mcp.json")).unwrap();
    folder.run(&["status"]).exits(1).says("mcp.json");
}

#[test]
fn a_found_config_starts_nothing_before_it_is_trusted() {
    let folder = lab();
    let bare = |args: &[&str]| {
        let mut command = mcpvisor(&folder.path(""));
        command.args(args);
        run(command)
    };
    bare(&["status"]).exits(1).says("pass `--config FILE`");
    std::fs::rename(folder.path("mcp.json"), folder.path(".mcp.json")).unwrap();
    for start in [
        vec!["status"],
        vec!["status", "--watch", "--json"],
        vec!["tools"],
    ] {
        bare(&start).exits(1).says("mcpvisor trust");
    }
    bare(&["call", "lab", "pid"])
        .exits(1)
        .says("--config .mcp.json");
    assert!(bare(&["list"]).exits(0).stdout.contains("lab"));
    assert!(bare(&["get", "lab"]).exits(0).stdout.contains(".mcp.json"));
    let doctor = bare(&["doctor"]);
    assert!(
        doctor.exits(4).stdout.contains("run `mcpvisor trust`"),
        "{doctor:?}"
    );
    assert_eq!(folder.started(), [0; 0]);
}

#[test]
fn a_found_config_that_is_not_a_regular_file_is_an_error() {
    let folder = lab();
    std::fs::rename(folder.path("mcp.json"), folder.path(".mcp.json")).unwrap();
    let fifo = folder.path("mcpvisor.json");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.unwrap().success());
    for args in [["list"], ["trust"], ["tools"]] {
        let mut command = mcpvisor(&folder.path(""));
        command.args(args);
        run(command).exits(1).says("mcpvisor.json: not a file");
    }
}

#[test]
fn a_config_in_the_user_config_folder_needs_no_trust() {
    let folder = lab();
    let own = folder.path("config/mcpvisor");
    std::fs::create_dir_all(&own).unwrap();
    std::fs::rename(folder.path("mcp.json"), own.join("mcpvisor.json")).unwrap();
    let mut command = mcpvisor(&folder.path(""));
    command.current_dir(&own).args(["call", "lab", "pid"]);
    run(command).exits(0);
}

#[test]
fn a_command_that_does_not_exist_exits_4() {
    let folder = Folder::with(&json!({ "gone": { "command": "no-such-command-anywhere" } }));
    let ran = folder.run(&["call", "gone", "x"]);
    ran.exits(4).says("gone").says("not found");
}

#[test]
fn a_server_that_exits_at_once_exits_4_with_its_last_words() {
    let folder = Folder::with(&json!({ "dead": script("echo the cellar is wet >&2; exit 3") }));
    let ran = folder.run(&["call", "dead", "x"]);
    ran.exits(4).says("dead").says("the cellar is wet");
    folder.run(&["tools"]).exits(4).says("the cellar is wet");
}

#[test]
fn a_disabled_server_exits_4_and_says_so() {
    let mut entry = builtin("lab");
    entry["disabled"] = json!(true);
    let folder = Folder::with(&json!({ "lab": entry }));
    folder
        .run(&["call", "lab", "pid"])
        .exits(4)
        .says("disabled");
    assert_eq!(folder.started(), [0; 0]);
}

#[test]
fn a_tool_that_failed_exits_5_and_its_result_is_on_stdout() {
    let folder = lab();
    let ran = folder.run(&["call", "lab", "fail"]);
    assert_eq!(ran.exits(5).stdout, "this tool always fails\n");
    folder.assert_nothing_left();
}

#[test]
fn a_protocol_error_exits_5_with_the_servers_words() {
    let ran = lab().run(&["call", "lab", "refuse"]);
    ran.exits(5).says("refuses every argument");
    assert_eq!(ran.stdout, "");
}

#[test]
fn a_tool_that_does_not_exist_exits_5_and_suggests_the_nearest() {
    lab()
        .run(&["call", "lab", "slep"])
        .exits(5)
        .says("did you mean \"sleep\"?");
}

#[test]
fn a_server_that_dies_in_mid_call_exits_6() {
    let folder = lab();
    let ran = folder.run(&["call", "lab", "crash"]);
    ran.exits(6).says("outcome is unknown");
    assert_eq!(ran.stdout, "");
    folder.assert_nothing_left();
}

#[test]
fn a_deadline_exits_7_whether_the_server_is_slow_or_mute() {
    let folder = Folder::with(&json!({ "lab": builtin("lab"), "mute": script("exec sleep 600") }));
    let ran = folder.run(&["call", "lab", "sleep", "ms=600000", "--timeout", "2s"]);
    ran.exits(7).says("lab");
    let ran = folder.run(&["call", "mute", "x", "--timeout", "500ms"]);
    ran.exits(7).says("mute");
    folder
        .run(&["tools", "mute", "--timeout", "500ms"])
        .exits(7);
    folder.assert_nothing_left();
}

#[test]
fn an_interrupt_in_mid_call_exits_130_and_leaves_no_process() {
    let mut notes = builtin("notes");
    let args = notes["args"].as_array_mut().unwrap();
    args.extend(["--hold-while".into(), "hold".into()]);
    let folder = Folder::with(&json!({ "notes": notes }));
    std::fs::write(folder.path("hold"), "").unwrap();
    let call = ["call", "notes", "append", "text=x", "hold=true"];
    let child = folder.command(&call).spawn().unwrap();
    let until = Instant::now() + LIMIT;
    while !folder.journal().contains("began append") {
        assert!(Instant::now() < until, "the call never began");
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    finish(child).exits(130).says("interrupted");
    folder.assert_nothing_left();
}

fn interrupt(child: &std::process::Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}

#[test]
fn an_interrupt_cancels_the_call_at_the_server() {
    let folder = Folder::with_shop();
    std::fs::write(folder.path("tools_call.silent"), "").unwrap();
    let child = folder.command(&["call", "shop", "photo"]).spawn().unwrap();
    folder.awaits("requests", "tools/call");
    interrupt(&child);
    finish(child).exits(130);
    folder.awaits("requests", "notifications/cancelled");
}

#[test]
fn a_second_interrupt_does_not_wait_for_servers_to_close() {
    // It ignores both the end of stdin and SIGTERM.
    let script = script(
        r#"trap '' TERM; echo $$ >pid; exec 3<&0; head -c 1 <&3 >/dev/null; echo >begun
        cat <&3 >/dev/null; echo >closing; while :; do sleep 0.1; done"#,
    );
    let folder = Folder::with(&json!({ "stubborn": script }));
    let child = folder.command(&["call", "stubborn", "x"]).spawn().unwrap();
    folder.awaits("begun", "\n");
    interrupt(&child);
    folder.awaits("closing", "\n");
    let begun = Instant::now();
    interrupt(&child);
    finish(child).exits(130);
    // A graceful close would take the whole grace period of four seconds.
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
    let pid = std::fs::read_to_string(folder.path("pid")).unwrap();
    let pid: u32 = pid.trim().parse().unwrap();
    let until = Instant::now() + LIMIT;
    while mcpvisor_testkit::processes::Process::read(pid).is_some() {
        assert!(Instant::now() < until, "the server outlived the command");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_closed_pipe_is_not_a_failure() {
    let folder = lab();
    let mut command = folder.command(&["tools", "--json"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ran = finish(child);
    ran.exits(0);
    assert_eq!(ran.stderr, "");
    folder.assert_nothing_left();
}

#[test]
fn a_misspelled_server_gets_a_suggestion() {
    let folder =
        Folder::with(&json!({ "weather": common::builtin("lab"), "odd": { "command": 5 } }));
    for args in [
        &["call", "wether", "pid"][..],
        &["call", "wether.pid"],
        &["get", "wether"],
        &["tools", "Weather"],
        &["read", "wether", "x://y"],
        &["doctor", "wether"],
        &["approve", "wether"],
    ] {
        folder.run(args).exits(1).says("did you mean \"weather\"?");
    }
    folder
        .run(&["get", "od"])
        .exits(1)
        .says("did you mean \"odd\"?");
    let none = folder.run(&["get", "nothing-like-it"]);
    assert!(!none.exits(1).stderr.contains("did you mean"), "{none:?}");
    none.says("servers: weather");
}

#[test]
fn a_clean_end_is_not_logged_as_a_lost_connection() {
    let folder = lab();
    let ran = folder.run(&["-v", "call", "lab", "pid"]);
    assert!(!ran.exits(0).stderr.contains("connection lost"), "{ran:?}");
    // A lost connection is logged.
    let ran = folder.run(&["-v", "call", "lab", "crash"]);
    ran.exits(6).says("connection lost");
}

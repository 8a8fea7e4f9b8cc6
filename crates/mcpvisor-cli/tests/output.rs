//! Output of the commands: the JSON shapes that scripts depend on, and the text for people.

mod common;

use common::{BINARY, Folder, builtin, next_line, run, script};
use serde_json::{Value, json};
use std::io::{BufReader, Write};
use std::process::Stdio;
use std::time::Duration;

/// The keys of a JSON object; empty for any other value.
fn keys(value: &Value) -> Vec<&str> {
    let object = value.as_object().into_iter().flatten();
    object.map(|(key, _)| key.as_str()).collect()
}

#[test]
fn status_as_json_has_exactly_the_documented_fields() {
    let folder = Folder::with(&json!({
        "lab": builtin("lab"),
        "gone": { "command": "no-such-command-anywhere" },
        "off": { "command": "true", "enabled": false },
    }));
    let ran = folder.run(&["status", "--json"]);
    assert_eq!(ran.exits(0).stderr, "");
    let document = ran.document();
    let all = document.as_array().unwrap();
    assert_eq!(all.len(), 3);
    let of = |name: &str| all.iter().find(|status| status["name"] == name).unwrap();
    for status in all {
        let mut fields = keys(status);
        fields.sort_unstable();
        let mut documented = [
            "name",
            "instance",
            "state",
            "generation",
            "since",
            "attempt",
            "retry_in_ms",
            "protocol",
            "server",
            "transport",
            "tools",
            "prompts",
            "resources",
            "stale",
            "in_flight",
            "last_error",
            "action",
        ];
        documented.sort_unstable();
        assert_eq!(fields, documented);
    }
    let lab = of("lab");
    assert_eq!(lab["state"], "connected");
    assert_eq!(lab["server"], json!({ "name": "lab", "version": "1.0.0" }));
    assert_eq!((&lab["tools"], &lab["stale"]), (&json!(7), &json!(false)));
    assert_eq!(lab["last_error"], Value::Null);
    let gone = of("gone");
    assert_eq!(gone["state"], "permanently_failed");
    assert_eq!(gone["last_error"]["class"], "command_not_found");
    assert_eq!(keys(&gone["last_error"]), ["class", "message"]);
    assert!(gone["action"].is_string());
    assert_eq!(of("off")["state"], "disabled");
    folder.assert_nothing_left();
}

#[test]
fn status_shows_partial_results_at_the_deadline() {
    let folder = Folder::with(&json!({ "mute": script("exec sleep 600") }));
    let ran = folder.run(&["status", "--timeout", "300ms"]);
    assert!(ran.exits(0).stdout.contains("connecting"), "{ran:?}");
}

#[test]
fn watching_as_json_is_one_line_per_change() {
    // The server starts once `go` exists, so the test sees the state before it connects.
    let waiting = format!(
        "until [ -f go ]; do sleep 0.02; done; exec {BINARY} builtin-server lab --journal journal"
    );
    let folder = Folder::with(&json!({ "lab": script(&waiting) }));
    let mut child = folder
        .command(&["status", "--watch", "--json"])
        .spawn()
        .unwrap();
    let mut pipe = child.stdout.take().map(BufReader::new);
    let mut next = |wanted: &dyn Fn(&Value) -> bool| loop {
        let (line, rest) = next_line(pipe.take().unwrap());
        pipe = Some(rest);
        let status: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(status["name"], "lab");
        if wanted(&status) {
            return status;
        }
    };
    next(&|status| status["state"] == "connecting");
    std::fs::write(folder.path("go"), "").unwrap();
    let listed = next(&|status| status["state"] == "connected" && status["tools"] == 7);
    assert_eq!(listed["generation"], 1);
    let pid = *folder.started().last().unwrap();
    mcpvisor_testkit::processes::kill(pid);
    let lost = next(&|status| status["state"] == "reconnecting");
    assert!(
        lost["last_error"]["message"]
            .as_str()
            .unwrap()
            .contains("signal 9"),
        "{lost}"
    );
    let back = next(&|status| status["state"] == "connected");
    assert_eq!(back["generation"], 2);
    // Closing the pipe ends the command.
    drop(pipe);
    assert_eq!(common::finish(child).exits(0).stderr, "");
    folder.assert_nothing_left();
}

#[test]
fn watching_without_a_terminal_says_what_to_do_instead() {
    let folder = Folder::with(&json!({ "lab": builtin("lab") }));
    folder.run(&["status", "--watch"]).exits(1).says("--json");
    assert_eq!(folder.started(), [0; 0]);
}

#[test]
fn a_result_as_json_has_the_shape_of_the_protocol() {
    let folder = Folder::with(&json!({ "lab": builtin("lab") }));
    let document = folder
        .run(&["call", "lab", "echo", "text=hi", "--json"])
        .exits(0)
        .document();
    assert_eq!(document["content"][0]["type"], "text");
    assert_eq!(document["structuredContent"]["text"], "hi");
    assert_eq!(document["isError"], false);
    let ran = folder.run(&["call", "lab", "fail", "--json"]);
    assert_eq!(ran.exits(5).document()["isError"], true);
    assert_eq!(ran.stderr, "");
}

#[test]
fn an_error_as_json_is_alone_on_stderr() {
    let folder = Folder::with(&json!({
        "lab": builtin("lab"),
        "web": { "command": 5 },
        "dead": script("exit 3"),
    }));
    for (args, code, name, server) in [
        (vec!["bogus"], 1, "usage", None),
        (vec!["call", "nope", "x"], 1, "unknown_server", Some("nope")),
        (vec!["call", "web", "x"], 1, "config", Some("web")),
        (vec!["call", "dead", "x"], 4, "unreachable", Some("dead")),
        (vec!["call", "lab", "nope"], 5, "unknown_tool", Some("lab")),
        (
            vec!["call", "lab", "refuse"],
            5,
            "answered_with_error",
            Some("lab"),
        ),
        (
            vec!["call", "lab", "crash"],
            6,
            "outcome_unknown",
            Some("lab"),
        ),
        (
            vec!["call", "lab", "sleep", "ms=60000", "--timeout", "1s"],
            7,
            "deadline",
            Some("lab"),
        ),
    ] {
        let args: Vec<&str> = args.into_iter().chain(["--json"]).collect();
        let ran = folder.run(&args);
        let error = ran.exits(code).error();
        assert_eq!(error["code"], name, "{args:?}");
        assert_eq!(
            error.get("server").and_then(Value::as_str),
            server,
            "{args:?}"
        );
        assert!(error["message"].is_string());
    }
}

#[test]
fn a_usage_error_as_json_is_one_line_with_the_suggestion() {
    let folder = Folder::with(&json!({ "lab": builtin("lab") }));
    for (args, expected) in [
        (vec!["get"], "<NAME>"),
        (vec!["read"], "<SERVER> <URI>"),
        (vec!["completions", "tcsh"], "[possible values: bash,"),
        (
            vec!["status", "--wach"],
            "tip: a similar argument exists: '--watch'",
        ),
        (vec!["call", "lab."], "missing tool name"),
    ] {
        let args: Vec<&str> = args.into_iter().chain(["--json"]).collect();
        let error = folder.run(&args).exits(1).error();
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(expected), "{args:?}: {message}");
        assert!(
            !message.contains("Usage:") && !message.contains('\n'),
            "{message}"
        );
    }
}

#[test]
fn hidden_commands_are_neither_listed_nor_suggested() {
    let folder = Folder::with(&json!({}));
    let bare = folder.run(&["--json"]);
    bare.exits(1).says("doctor");
    let mann = folder.run(&["mann"]);
    mann.exits(1).says("'mann'");
    for hidden in ["conformance-client", "builtin-server", "'man'", " man,"] {
        assert!(!bare.stderr.contains(hidden), "{bare:?}");
        assert!(!mann.stderr.contains(hidden), "{mann:?}");
    }
    folder.run(&["docter"]).exits(1).says("'doctor'");
}

#[test]
fn naming_a_disabled_server_reports_that_it_is_disabled() {
    let folder = Folder::with(&json!({
        "off": { "command": "true", "disabled": true }, "lab": builtin("lab"),
    }));
    for args in [
        vec!["tools", "off"],
        vec!["prompts", "off"],
        vec!["call", "off", "x"],
        vec!["read", "off", "x://y"],
    ] {
        let ran = folder.run(&args);
        ran.exits(4).says("disabled").says("\"enabled\": true");
        assert!(!ran.stderr.contains("enable it"), "{ran:?}");
        let args: Vec<&str> = args.into_iter().chain(["--json"]).collect();
        assert_eq!(folder.run(&args).exits(4).error()["code"], "not_sent");
    }
    folder.run(&["tools"]).exits(0);
}

#[test]
fn a_failed_listing_is_not_reported_as_unreachable() {
    let folder = Folder::with_shop();
    folder.answers("tools/list", &json!({ "tools": 5 }));
    let error = folder.run(&["tools", "--json"]).exits(4).error();
    assert_eq!(error["code"], "listing_failed");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("is connected, but"), "{message}");
    assert!(
        !message.contains("cannot be reached") && !message.contains("Result"),
        "{message}"
    );
}

#[test]
fn arguments_are_typed_by_the_tools_schema() {
    let folder = Folder::with(&json!({ "lab": builtin("lab") }));
    let echoed = |args: &[&str]| {
        let args: Vec<&str> = ["call", "lab:echo", "--json"]
            .iter()
            .chain(args)
            .copied()
            .collect();
        folder.run(&args).exits(0).document()["structuredContent"].clone()
    };
    let typed = [
        "text=5",
        "count=5",
        "share=5",
        "flag=true",
        "tags=a",
        "tags=b",
        "more={\"k\":1}",
    ];
    let expected = json!({
        "text": "5", "count": 5, "share": 5.0, "flag": true, "tags": ["a", "b"], "more": { "k": 1 },
    });
    assert_eq!(echoed(&typed), expected);
    let whole = echoed(&["--args", r#"{"text": "whole", "count": 1}"#, "count:=2"]);
    assert_eq!(
        (&whole["text"], &whole["count"]),
        (&json!("whole"), &json!(2))
    );
}

#[test]
fn arguments_can_come_from_stdin() {
    let folder = Folder::with(&json!({ "lab": builtin("lab") }));
    let mut command = folder.command(&["call", "lab", "echo", "--args", "-", "--json"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(br#"{"text": "piped"}"#)
        .unwrap();
    let ran = common::finish(child);
    assert_eq!(
        ran.exits(0).document()["structuredContent"]["text"],
        "piped"
    );
}

#[test]
fn tools_are_listed_as_a_table_and_in_the_shape_of_the_protocol() {
    let folder = Folder::with(&json!({ "lab": builtin("lab"), "dead": script("exit 3") }));
    let ran = folder.run(&["tools"]);
    assert!(
        ran.exits(0).stdout.contains("Answer with the arguments."),
        "{ran:?}"
    );
    ran.says("warning: dead");
    let ran = folder.run(&["tools", "lab", "--json"]);
    assert_eq!(ran.exits(0).stderr, "");
    let document = ran.document();
    let echo = document
        .as_array()
        .unwrap()
        .iter()
        .find(|tool| tool["name"] == "echo")
        .unwrap();
    assert_eq!(echo["server"], "lab");
    assert_eq!(
        echo["inputSchema"]["properties"]["count"]["type"],
        "integer"
    );
}

#[test]
fn missing_servers_are_error_lines_with_json() {
    let folder = Folder::with(&json!({
        "lab": builtin("lab"),
        "dead": script("exit 3"),
        "gone": { "command": "no-such-command-anywhere" },
        "odd": { "command": 5 },
    }));
    let pair = |code: &str, server: &str| (code.to_owned(), server.to_owned());
    for list in ["tools", "prompts", "resources", "templates"] {
        let ran = folder.run(&[list, "--json"]);
        assert!(ran.exits(0).document().is_array());
        let expected = [
            pair("config", "odd"),
            pair("unreachable", "dead"),
            pair("unreachable", "gone"),
        ];
        assert_eq!(ran.errors(), expected, "{list}");
    }
    let ran = folder.run(&["list", "--json"]);
    assert_eq!(ran.exits(0).errors(), [pair("config", "odd")]);
    let ran = folder.run(&["list"]);
    assert!(
        ran.exits(0).stdout.contains("odd   -          unusable"),
        "{ran:?}"
    );
    // With no working server, every failure is reported and the last one sets the exit code.
    let folder = Folder::with(&json!({
        "dead": script("exit 3"), "gone": { "command": "no-such-command-anywhere" },
    }));
    let ran = folder.run(&["tools", "--json"]);
    assert_eq!(ran.exits(4).stdout, "");
    let both = [pair("unreachable", "dead"), pair("unreachable", "gone")];
    assert_eq!(ran.errors(), both);
    let folder = Folder::with(&json!({ "odd": { "command": 5 } }));
    let ran = folder.run(&["tools", "--json"]);
    assert_eq!(ran.exits(1).document(), json!([]));
    assert_eq!(ran.errors(), [pair("config", "odd")]);
}

#[test]
fn an_unusable_entry_is_listed_as_a_failed_server() {
    let folder = Folder::with(&json!({ "odd": { "command": 5 }, "off": {
        "command": "true", "enabled": false,
    } }));
    let ran = folder.run(&["status", "--json"]);
    let document = ran.exits(0).document();
    let all = document.as_array().unwrap();
    let of = |name: &str| all.iter().find(|status| status["name"] == name).unwrap();
    assert_eq!(all.len(), 2);
    let odd = of("odd");
    assert_eq!(keys(odd), keys(of("off")), "the same fields");
    assert_eq!(odd["state"], "permanently_failed");
    assert_eq!(odd["last_error"]["class"], "config");
    let action = odd["action"].as_str().unwrap();
    assert!(action.contains("mcp.json:1:"), "{action}");
    let listed = folder.run(&["list", "--json"]).exits(0).document();
    let listed = listed.as_array().unwrap();
    let odd = listed
        .iter()
        .find(|server| server["name"] == "odd")
        .unwrap();
    assert_eq!(odd["state"], "permanently_failed");
    assert_eq!(odd["last_error"]["class"], "config");
    assert_eq!(
        (&odd["enabled"], &odd["transport"]),
        (&json!(false), &Value::Null)
    );
    let ran = folder.run(&["status"]);
    assert!(
        ran.exits(0).stdout.contains("odd   permanently_failed"),
        "{ran:?}"
    );
}

#[test]
fn watching_as_json_begins_with_the_entries_that_cannot_be_used() {
    use std::io::{BufRead, BufReader};
    let folder = Folder::with(&json!({ "odd": { "command": 5 }, "lab": builtin("lab") }));
    let mut child = folder
        .command(&["status", "--watch", "--json"])
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let first = next();
    assert_eq!(
        (&first["name"], &first["state"]),
        (&json!("odd"), &json!("permanently_failed"))
    );
    assert_eq!(next()["name"], "lab");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    common::finish(child).exits(130).says("\"server\":\"odd\"");
}

#[test]
fn results_of_a_server_are_escaped() {
    let folder = Folder::with(&json!({ "lab": builtin("lab") }));
    let ran = folder.run(&["call", "lab", "paint"]);
    assert_eq!(
        ran.exits(0).stdout,
        "clear\\u{1b}[2J and \\u{202e}reverse\n"
    );
}

#[test]
fn config_problems_are_warnings_on_stderr() {
    let mut entry = builtin("lab");
    entry["reconect"] = json!({});
    let folder = Folder::with(&json!({ "lab": entry, "web": { "command": 5 } }));
    let ran = folder.run(&["list"]);
    ran.exits(0)
        .says("did you mean \"reconnect\"?")
        .says("server \"web\"");
    let ran = folder.run(&["call", "lab", "pid"]);
    assert!(
        !ran.exits(0)
            .says("did you mean")
            .stderr
            .contains("server \"web\""),
        "{ran:?}"
    );
}

#[test]
fn logs_go_to_stderr_and_only_with_verbose() {
    let folder = Folder::with(&json!({ "lab": builtin("lab") }));
    assert_eq!(folder.run(&["call", "lab", "pid"]).exits(0).stderr, "");
    let ran = folder.run(&["call", "lab", "pid", "-v"]);
    assert!(ran.exits(0).stderr.contains("INFO"), "{ran:?}");
    let mut command = folder.command(&["call", "lab", "pid"]);
    command.env("RUST_LOG", "mcpvisor=debug");
    let ran = run(command);
    assert!(ran.exits(0).stderr.contains("mcpvisor"), "{ran:?}");
}

#[test]
fn watching_ends_when_stdout_closes_without_a_change() {
    use std::io::{BufRead, BufReader};
    let folder = Folder::with(&json!({ "lab": builtin("lab") }));
    let mut child = folder
        .command(&["status", "--watch", "--json"])
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let at_rest = |line: String| {
        let status: Value = serde_json::from_str(&line).unwrap();
        status["state"] == "connected" && status["stale"] == false
    };
    assert!(lines.any(|line| at_rest(line.unwrap())));
    drop(lines);
    let ran = common::finish(child);
    // The connection is proven after 30 s, which writes the next line. The closed pipe must end the
    // command before that.
    assert!(ran.exits(0).took < Duration::from_secs(20), "{ran:?}");
    folder.assert_nothing_left();
}

#[test]
fn a_broken_disabled_entry_is_disabled() {
    let folder = Folder::with(&json!({
        "token": { "command": "x", "disabled": true, "env": { "T": "${UNSET_TOKEN_OF_THIS}" } },
        "old": { "type": "ftp", "url": "https://example.com/sse", "enabled": false },
    }));
    let ran = folder.run(&["status", "--json"]);
    assert_eq!(ran.exits(0).stderr, "", "no warning");
    for status in ran.document().as_array().unwrap() {
        assert_eq!(status["state"], "disabled", "{status}");
    }
    let ran = folder.run(&["status"]);
    ran.says("warning: mcp.json").says("UNSET_TOKEN_OF_THIS");
    assert!(!ran.stderr.contains("error"), "{ran:?}");
    assert!(!folder.run(&["list"]).stdout.contains("unusable"));
    folder.run(&["tools"]).exits(0);
    for name in ["token", "old"] {
        let error = folder.run(&["call", name, "x", "--json"]).exits(4).error();
        assert_eq!(error["code"], "not_sent", "{error}");
        let report = folder.run(&["doctor", name, "--json"]).document();
        assert_eq!(report["servers"][0]["state"], "disabled", "{report}");
    }
}

#[test]
fn a_pinned_server_needs_a_state_folder() {
    let mut pinned = builtin("lab");
    pinned["pin"] = json!(true);
    let folder = Folder::with(&json!({ "pinned": pinned, "lab": builtin("lab") }));
    let without = |args: &[&str]| {
        let mut command = folder.command(args);
        for variable in ["MCPVISOR_STATE_DIR", "XDG_STATE_HOME", "HOME"] {
            command.env_remove(variable);
        }
        run(command)
    };
    let error = without(&["call", "pinned", "pid", "--json"])
        .exits(1)
        .error();
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("MCPVISOR_STATE_DIR"), "{message}");
    assert_eq!(folder.started(), [0; 0]);
    without(&["call", "lab", "pid"]).exits(0);
    let status = without(&["status", "--json"]).exits(0).document();
    let states: Vec<&str> = status
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|status| status["state"].as_str())
        .collect();
    assert_eq!(states, ["connected", "permanently_failed"]);
}

#[test]
fn a_variable_that_is_not_utf8_is_not_reported_as_unset() {
    use std::os::unix::ffi::OsStrExt;
    let folder = Folder::with(&json!({ "a": { "command": "x", "args": ["${ODD_VARIABLE}"] } }));
    let mut command = folder.command(&["list"]);
    command.env("ODD_VARIABLE", std::ffi::OsStr::from_bytes(b"a\xff"));
    let ran = run(command);
    ran.exits(0).says("is not valid UTF-8");
    assert!(!ran.stderr.contains("not set"), "{ran:?}");
}

#[test]
fn actions_fit_the_command_line() {
    let web =
        json!({ "url": "http://127.0.0.1:9/mcp", "bearerTokenEnvVar": "UNSET_TOKEN_OF_THIS" });
    let folder = Folder::with(&json!({ "web": web }));
    let commands: [&[&str]; 4] = [
        &["status"],
        &["status", "--json"],
        &["doctor"],
        &["call", "web", "x"],
    ];
    for command in commands {
        let ran = folder.run(command);
        let printed = format!("{}{}", ran.stdout, ran.stderr);
        assert!(
            printed.contains("Set UNSET_TOKEN_OF_THIS in the environment."),
            "{printed}"
        );
        assert!(!printed.contains("reconnect"), "{printed}");
    }
    let folder = Folder::with_shop();
    folder
        .run(&["call", "shop", "zzzzzzzz"])
        .says("Run `mcpvisor tools shop --config mcp.json`");
}

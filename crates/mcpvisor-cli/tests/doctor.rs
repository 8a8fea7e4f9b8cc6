//! The problems that `doctor` reports.

mod common;

use common::{Folder, builtin};
use mcpvisor_testkit::http_server::{HttpOptions, HttpServer};
use serde_json::{Value, json};

/// The failed checks of one server in a report.
fn bad(report: &Value, server: &str) -> Vec<String> {
    let servers = report["servers"].as_array().into_iter().flatten();
    let checks = servers
        .filter(|one| one["name"] == server)
        .flat_map(|one| one["checks"].as_array().into_iter().flatten());
    checks
        .filter(|check| check["ok"] == false)
        .map(|check| format!("{} {}", check["check"], check["detail"]))
        .collect()
}

#[test]
fn a_missing_socket_is_reported_once_with_what_to_do() {
    let folder = Folder::with(&json!({}));
    std::fs::write(folder.path("file"), "").unwrap();
    let dead = folder.path("dead.sock");
    drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
    let entry = |path: &str| {
        let socket = folder.path(path);
        json!({
            "url": "http://localhost/mcp", "socketPath": socket,
            "reconnect": { "attempts": 1 }, "start": "eager",
        })
    };
    let entries =
        json!({ "none": entry("none"), "file": entry("file"), "dead": entry("dead.sock") });
    let config = json!({ "mcpServers": entries });
    std::fs::write(folder.path("mcp.json"), config.to_string()).unwrap();
    let report = folder.run(&["doctor", "--json"]).exits(4).document();
    for (server, expected) in [
        ("none", "does not exist"),
        ("file", "is not a socket"),
        ("dead", "no process listens on the socket"),
    ] {
        let bad = bad(&report, server);
        let [bad] = bad.as_slice() else {
            panic!("{server}: {bad:?}");
        };
        assert!(bad.contains(expected), "{server}: {bad}");
    }
    let text = folder.run(&["doctor", "none"]).exits(4).stdout.clone();
    assert!(text.contains("Start the server, or correct"), "{text}");
    let shown = folder.run(&["get", "none"]).exits(0).stdout.clone();
    assert!(shown.contains("through the socket"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_transport_in_use_is_shown_where_the_config_leaves_it_open() {
    let server = HttpServer::start(HttpOptions::http_sse()).await;
    let open = json!({ "url": server.url() });
    let known = json!({ "type": "sse", "url": server.url() });
    let folder = Folder::with(&json!({ "open": open, "known": known }));
    let ran = tokio::task::spawn_blocking(move || {
        let report = folder.run(&["doctor", "--json"]).exits(0).document();
        let list = folder.run(&["list", "--json"]).exits(0).document();
        let status = folder.run(&["status", "--json"]).exits(0).document();
        let get = folder.run(&["get", "known"]).exits(0).stdout.clone();
        (report, list, status, get)
    });
    let (report, list, status, get) = ran.await.unwrap();
    let transports = |servers: &Value| -> Vec<(String, String)> {
        let servers = servers.as_array().unwrap().iter();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let mut found: Vec<_> = servers
            .map(|it| (text(&it["name"]), text(&it["transport"])))
            .collect();
        found.sort_unstable();
        found
    };
    let shown = |known: &str, open: &str| {
        [("known", known), ("open", open)].map(|(name, it)| (name.to_owned(), it.to_owned()))
    };
    assert_eq!(transports(&report["servers"]), shown("sse", "sse"));
    assert_eq!(transports(&list), shown("sse", "http"), "as configured");
    assert_eq!(transports(&status), shown("sse", "sse"));
    assert_eq!(get.matches("transport").count(), 1, "{get}");
}

#[test]
fn a_broken_command_is_reported_once() {
    let folder = Folder::with(&json!({}));
    std::fs::create_dir(folder.path("folder")).unwrap();
    std::fs::write(folder.path("locked.sh"), "#!/bin/sh\n").unwrap();
    let lost = "#!/no/such/interpreter\n";
    std::fs::write(folder.path("lost.sh"), lost).unwrap();
    common::make_executable(&folder.path("lost.sh"));
    let entries = json!({
        "absolute": { "command": "/no/such" },
        "relative": { "command": "./rel.sh" },
        "words": { "command": "python3 /path/srv.py" },
        "folder": { "command": "./folder" },
        "locked": { "command": "./locked.sh" },
        "elsewhere": { "command": "./lost.sh", "cwd": "folder" },
        "nowhere": { "command": "true", "cwd": "no-folder" },
        "lost": { "command": "./lost.sh" },
        "off": { "command": "/no/such", "enabled": false },
        "well": builtin("lab"),
    });
    let config = json!({ "mcpServers": entries });
    std::fs::write(folder.path("mcp.json"), config.to_string()).unwrap();
    let ran = folder.run(&["doctor", "--json"]);
    let report = ran.exits(4).document();
    for (server, expected) in [
        ("absolute", "does not exist"),
        ("relative", "does not exist"),
        ("words", "does not exist"),
        ("folder", "is a folder"),
        ("locked", "is not executable"),
        ("elsewhere", "does not exist"),
        ("nowhere", "the working directory"),
        ("lost", "interpreter"),
        ("off", "does not exist"),
    ] {
        // Each problem is reported once.
        let bad = bad(&report, server);
        let [bad] = bad.as_slice() else {
            panic!("{server}: {bad:?}");
        };
        assert!(bad.contains(expected), "{server}: {bad}");
    }
    assert_eq!(bad(&report, "well"), [""; 0]);
    let text = folder.run(&["doctor", "words"]);
    assert!(text.exits(4).stdout.contains("to \"args\""), "{text:?}");
}

#[test]
fn a_null_entry_is_a_warning() {
    let folder = Folder::with(&json!({ "nothing": null, "well": builtin("lab") }));
    let report = folder.run(&["doctor", "--json"]).exits(0).document();
    let machine = report["machine"].to_string();
    assert!(machine.contains("null"), "{machine}");
    assert_eq!(bad(&report, "well"), [""; 0]);
    let listed = folder.run(&["list", "--json"]).exits(0).document();
    assert_eq!(listed.as_array().unwrap().len(), 1);
}

#[test]
fn held_back_tools_are_a_problem_with_an_action() {
    let folder = Folder::with_shop();
    let config = std::fs::read_to_string(folder.path("mcp.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["mcpServers"]["shop"]["pin"] = json!(true);
    std::fs::write(folder.path("mcp.json"), config.to_string()).unwrap();
    folder.run(&["doctor"]).exits(0);
    let other = json!({ "tools": [{ "name": "photo", "inputSchema": { "type": "object" } }] });
    folder.answers("tools/list", &other);
    let ran = folder.run(&["doctor"]);
    let printed = &ran.exits(4).stdout;
    assert!(printed.contains("1 tool is held back"), "{printed}");
    assert!(
        printed.contains("mcpvisor approve shop --list"),
        "{printed}"
    );
}

#[test]
fn the_value_of_a_variable_in_a_path_is_hidden() {
    let folder =
        Folder::with(&json!({ "well": { "command": "${OWN_SHELL}", "args": ["-c", ""] } }));
    std::fs::create_dir(folder.path("s3cret-place")).unwrap();
    let shell = folder.path("s3cret-place/sh");
    std::os::unix::fs::symlink("/bin/sh", &shell).unwrap();
    for args in [&["doctor"][..], &["doctor", "--json"]] {
        let mut command = folder.command(args);
        command.env("OWN_SHELL", &shell);
        let ran = common::run(command);
        assert!(ran.stdout.contains("command"), "{ran:?}");
        assert!(!ran.stdout.contains("s3cret-place"), "{ran:?}");
        assert!(!ran.stderr.contains("s3cret-place"), "{ran:?}");
    }
}

/// An attacker who can edit the config swaps it with the trusted one between check and use. The
/// content that was checked is the content that is started, so the race cannot be won.
#[test]
fn a_config_swapped_during_doctor_starts_nothing_untrusted() {
    use std::sync::atomic::{AtomicBool, Ordering};
    const LOOKS: usize = 20;
    let folder = Folder::with(&json!({ "evil": common::script(": >evil") }));
    let bare = |args: &[&str]| {
        let mut command = common::mcpvisor(&folder.path(""));
        command.args(args);
        common::run(command)
    };
    let found = folder.path(".mcp.json");
    let good = json!({ "mcpServers": {} }).to_string();
    let evil = std::fs::read_to_string(folder.path("mcp.json")).unwrap();
    std::fs::write(&found, &good).unwrap();
    bare(&["trust", "--yes"]).exits(0);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let draft = folder.path("draft");
            while !over.load(Ordering::Relaxed) {
                for text in [&evil, &good] {
                    std::fs::write(&draft, text).unwrap();
                    std::fs::rename(&draft, &found).unwrap();
                }
            }
        });
        for _ in 0..LOOKS {
            let ran = bare(&["doctor", "--timeout", "1s"]);
            assert!(matches!(ran.code, Some(0 | 4)), "{ran:?}");
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(!folder.path("evil").exists(), "an untrusted command ran");
}

#[test]
fn findings_are_warnings() {
    let folder = Folder::with_shop();
    let odd = json!({
        "name": "photo", "description": "Shows\u{202e} it.", "inputSchema": { "type": "object" },
    });
    folder.answers("tools/list", &json!({ "tools": [odd] }));
    let ran = folder.run(&["doctor"]);
    let printed = &ran.exits(0).stdout;
    assert!(
        printed.contains("WARNING  finding: tools: the description of"),
        "{printed}"
    );
    assert!(printed.contains("U+202E"), "{printed}");
    let report = folder.run(&["doctor", "--json"]).exits(0).document();
    assert!(report.to_string().contains("U+202E"), "{report}");
    let status = folder.run(&["status"]);
    let printed = &status.exits(0).stdout;
    assert!(printed.contains("1 finding in its catalog"), "{printed}");
    assert!(printed.contains("mcpvisor doctor shop"), "{printed}");
}

#[test]
fn a_warning_is_not_a_failure() {
    let folder = Folder::with_shop();
    folder.edits(|shop| shop["timeout"] = json!(5));
    let ran = folder.run(&["doctor"]);
    ran.exits(0);
    assert!(
        ran.stdout
            .contains("WARNING  entry: \"timeout\" has no unit"),
        "{ran:?}"
    );
    assert!(ran.stdout.contains("no problems, 1 warning"), "{ran:?}");
    let report = folder.run(&["doctor", "--json"]).exits(0).document();
    assert_eq!(
        (&report["ok"], &report["problems"]),
        (&json!(true), &json!(0))
    );
    assert_eq!(report["servers"][0]["checks"][0]["warning"], json!(true));
}

#[test]
fn a_server_that_prints_on_stdout_is_warned_about() {
    let folder = Folder::with_shop();
    folder.edits(|shop| {
        let script = shop["args"][1].as_str().unwrap_or_default();
        shop["args"][1] = json!(format!("echo Welcome to the shop; echo v2; {script}"));
    });
    let ran = folder.run(&["doctor"]);
    ran.exits(0);
    assert!(
        ran.stdout
            .contains("WARNING  stdout: wrote 2 lines to stdout"),
        "{ran:?}"
    );
    let quiet = Folder::with_shop().run(&["doctor"]);
    assert!(!quiet.exits(0).stdout.contains("WARNING"), "{quiet:?}");
}

#[test]
fn a_late_list_is_a_problem() {
    let folder = Folder::with_shop();
    std::fs::write(folder.path("tools_list.silent"), "").unwrap();
    let ran = folder.run(&["doctor", "--timeout", "5s"]);
    let printed = &ran.exits(7).stdout;
    assert!(
        printed.contains("PROBLEM  catalog: its tools were not listed within 5s"),
        "{printed}"
    );
    let status = folder.run(&["status", "--timeout", "5s"]);
    let printed = &status.exits(0).stdout;
    assert!(printed.contains("tools not listed within 5s"), "{printed}");
}

#[test]
fn the_output_of_a_silent_server_is_shown_by_every_command() {
    let chatty = common::script("echo Welcome; echo v2; exec sleep 60");
    let folder = Folder::with(&json!({ "shop": chatty }));
    let clue = "it wrote 2 non-protocol lines to stdout";
    for (command, code) in [("doctor", 7), ("tools", 7), ("status", 0)] {
        let ran = folder.run(&[command, "--timeout", "3s"]);
        let printed = format!("{}{}", ran.stdout, ran.stderr);
        ran.exits(code);
        assert!(printed.contains(clue), "{command}: {printed}");
        if command == "status" {
            assert!(printed.contains("no answer within 3s"), "{printed}");
        }
    }
    let called = folder.run(&["call", "shop", "order", "--timeout", "3s"]);
    called.exits(7).says(clue);
}

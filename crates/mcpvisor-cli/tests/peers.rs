//! Every command with third-party servers: `server-everything` from npm, `mcp-server-time` from
//! PyPI.
//!
//! `just peers` installs them and sets `MCPVISOR_PEERS`. Without it the tests print that they were
//! skipped.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "the helpers of a test fail as the test does, and say what they saw"
)]

mod common;

use std::path::PathBuf;

use common::Folder;
use serde_json::{Value, json};

/// These servers start slowly on a busy machine.
const PATIENCE: [&str; 2] = ["--timeout", "50s"];

fn folder() -> Option<Folder> {
    let Some(peers) = std::env::var_os("MCPVISOR_PEERS").map(PathBuf::from) else {
        println!("skipped: MCPVISOR_PEERS is not set; `.ci/peers` installs the servers");
        return None;
    };
    let script = "node_modules/@modelcontextprotocol/server-everything/dist/index.js";
    Some(Folder::with(&json!({
        "everything": { "command": "node", "args": [peers.join(script), "stdio"] },
        "time": { "command": peers.join("python/bin/mcp-server-time") },
    })))
}

/// Runs a command that must succeed. Returns its JSON document.
#[track_caller]
fn document(folder: &Folder, args: &[&str]) -> Value {
    let args: Vec<&str> = [args, &PATIENCE, &["--json"]].concat();
    folder.run(&args).exits(0).document()
}

/// Runs a command that must succeed. Returns its text output.
#[track_caller]
fn text(folder: &Folder, args: &[&str]) -> String {
    let args: Vec<&str> = [args, &PATIENCE].concat();
    folder.run(&args).exits(0).stdout.clone()
}

fn names(listed: &Value, key: &str) -> Vec<String> {
    let listed = listed.as_array().into_iter().flatten();
    listed
        .map(|one| one[key].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn list_and_status_of_foreign_servers() {
    let Some(folder) = folder() else { return };
    assert_eq!(
        names(&document(&folder, &["list"]), "name"),
        ["everything", "time"]
    );
    assert_eq!(document(&folder, &["get", "time"])["transport"], "stdio");
    let status = document(&folder, &["status"]);
    for server in status.as_array().unwrap() {
        assert_eq!(server["state"], "connected", "{server}");
    }
    let doctor = document(&folder, &["doctor"]);
    assert_eq!(doctor["ok"], true, "{doctor:#}");
    assert!(text(&folder, &["doctor"]).contains("no problems"));
}

#[test]
fn the_catalogs() {
    let Some(folder) = folder() else { return };
    let tools = names(&document(&folder, &["tools"]), "name");
    for tool in ["echo", "get-sum", "get_current_time"] {
        assert!(tools.iter().any(|name| name == tool), "{tools:?}");
    }
    for list in ["prompts", "resources", "templates"] {
        let listed = document(&folder, &[list, "everything"]);
        assert!(!listed.as_array().unwrap().is_empty(), "{list}");
        assert!(
            text(&folder, &[list, "everything"]).lines().count() > 1,
            "{list}"
        );
    }
}

#[test]
fn calls_good_and_bad() {
    let Some(folder) = folder() else { return };
    assert_eq!(
        text(&folder, &["call", "everything", "echo", "message=hi"]),
        "Echo: hi\n"
    );
    assert!(text(&folder, &["call", "everything.get-sum", "a=2", "b=40"]).contains("42"));
    let time = text(
        &folder,
        &["call", "time", "get_current_time", "timezone=Asia/Tokyo"],
    );
    assert!(time.contains("Asia/Tokyo"), "{time}");
    let wrong = folder.run(&["call", "everything", "get-sum", "a=two", "b=40"]);
    wrong.exits(1).says("\"a\" must be number");
    folder
        .run(&["call", "everything", "ecko"])
        .exits(5)
        .says("did you mean \"echo\"?");
    let image = text(
        &folder,
        &["call", "everything", "get-tiny-image", "--out", "pictures"],
    );
    assert!(
        image.contains("saved as pictures/get-tiny-image.png"),
        "{image}"
    );
    let saved = std::fs::read(folder.path("pictures/get-tiny-image.png")).unwrap();
    assert!(saved.starts_with(b"\x89PNG"));
    let late = [
        "call",
        "everything",
        "trigger-long-running-operation",
        "duration=60",
        "steps=60",
    ];
    folder
        .run(&[&late[..], &["--timeout", "8s"]].concat())
        .exits(7);
}

#[test]
fn a_prompt_and_a_resource() {
    let Some(folder) = folder() else { return };
    let prompts = document(&folder, &["prompts", "everything"]);
    let simple = prompts.as_array().unwrap().iter().find(|prompt| {
        let arguments = prompt["arguments"].as_array();
        arguments.is_none_or(|arguments| arguments.iter().all(|one| one["required"] != true))
    });
    let name = simple.unwrap()["name"].as_str().unwrap();
    let prompt = document(&folder, &["prompt", "everything", name]);
    assert!(
        !prompt["messages"].as_array().unwrap().is_empty(),
        "{prompt}"
    );
    let uris = names(&document(&folder, &["resources", "everything"]), "uri");
    let read = document(&folder, &["read", "everything", &uris[0]]);
    assert!(!read["contents"].as_array().unwrap().is_empty(), "{read}");
    assert!(!text(&folder, &["read", "everything", &uris[0]]).is_empty());
    folder
        .run(&["read", "everything", "demo://nothing/here"])
        .exits(5);
}

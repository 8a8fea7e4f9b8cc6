//! Shell completions, run in a real bash.

#![allow(
    clippy::unwrap_used,
    reason = "the helpers of a test fail as the test does"
)]

mod common;

use std::process::{Command, Stdio};

use common::{BINARY, Folder, builtin};
use serde_json::json;

/// The completions that bash offers for the last word of a command line.
fn offered(folder: &Folder, words: &[&str]) -> Vec<String> {
    let script = folder.run(&["completions", "bash"]);
    std::fs::write(folder.path("completions.bash"), &script.exits(0).stdout).unwrap();
    // Bash passes the command, the word to complete and the previous word.
    let harness = r#"
        source completions.bash
        COMP_WORDS=("$@")
        COMP_CWORD=$(($# - 1))
        function=$(complete -p mcpvisor | sed 's/.*-F \([^ ]*\).*/\1/')
        "$function" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let mut command = Command::new("bash");
    command
        .args(["--norc", "-c", harness, "bash", BINARY])
        .args(words)
        .current_dir(folder.path(""))
        .env("XDG_CONFIG_HOME", folder.path("config"))
        .stdin(Stdio::null());
    let ran = command.output().unwrap();
    let text = String::from_utf8(ran.stdout).unwrap();
    let errors = String::from_utf8_lossy(&ran.stderr);
    // `compopt` fails outside a real completion.
    let errors = errors.lines().filter(|line| !line.contains("compopt"));
    assert_eq!(errors.collect::<Vec<_>>(), [""; 0]);
    text.lines()
        .filter(|it| !it.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn servers_are_completed_from_the_config() {
    let folder = Folder::with(&json!({
        "notes": builtin("notes"), "news": builtin("lab"), "weather": builtin("lab"),
    }));
    std::fs::copy(folder.path("mcp.json"), folder.path(".mcp.json")).unwrap();
    std::fs::write(folder.path("a-file"), "").unwrap();
    for command in [
        "call", "prompt", "read", "get", "tools", "doctor", "approve",
    ] {
        assert_eq!(
            offered(&folder, &[command, ""]),
            ["news", "notes", "weather"],
            "{command}"
        );
    }
    assert_eq!(offered(&folder, &["call", "ne"]), ["news"]);
    assert_eq!(
        offered(&folder, &["--json", "--timeout", "2s", "call", "w"]),
        ["weather"]
    );
    // A tool is not a server, and not a file.
    assert_eq!(offered(&folder, &["call", "notes", ""]), [""; 0]);
    assert_eq!(folder.started(), [0; 0], "nothing is started");
}

#[test]
fn completion_uses_the_named_config() {
    let folder = Folder::with(&json!({ "here": builtin("notes") }));
    let other = json!({ "mcpServers": { "there": builtin("notes") } });
    std::fs::write(folder.path("other one.json"), other.to_string()).unwrap();
    assert_eq!(offered(&folder, &["call", ""]), [""; 0], "none was found");
    for named in [
        &["--config", "other one.json"][..],
        &["--config", "=", "other one.json"],
    ] {
        let words = [&["call"][..], named, &[""]].concat();
        assert_eq!(offered(&folder, &words), ["there"]);
    }
    assert_eq!(
        offered(&folder, &["--config", "mc"]),
        ["mcp.json"],
        "an option's value is a file"
    );
}

#[test]
fn options_are_completed_only_after_a_dash() {
    let folder = Folder::with(&json!({ "here": builtin("notes") }));
    for words in [
        &[""][..],
        &["call", ""],
        &["status", ""],
        &["completions", ""],
    ] {
        let offered = offered(&folder, words);
        assert!(
            !offered.iter().any(|word| word.starts_with('-')),
            "{words:?}: {offered:?}"
        );
    }
    assert!(offered(&folder, &[""]).contains(&"call".to_owned()));
    assert!(offered(&folder, &["completions", ""]).contains(&"zsh".to_owned()));
    assert!(offered(&folder, &["call", "--a"]).contains(&"--args".to_owned()));
}

#[test]
fn completion_does_not_execute_names_from_the_config() {
    let folder = Folder::with(&json!({ "$(touch ran)": builtin("notes"), "a b": builtin("lab") }));
    let offered = offered(&folder, &["--config", "mcp.json", "call", ""]);
    assert_eq!(offered, ["\\$\\(touch\\ ran\\)", "a\\ b"]);
    assert!(!folder.path("ran").exists(), "a name was run");
}

//! Server text on a terminal: no text from a server can move the cursor, reorder a line or hide
//! characters, wherever it is shown. JSON output contains the text unchanged.

#![allow(
    clippy::unwrap_used,
    reason = "the helpers of a test fail as the test does"
)]

mod common;

use common::pty::Pty;
use common::{Folder, Ran, run, script};
use serde_json::{Value, json};

/// Clears the screen, sets the title, moves the cursor (C1), reverses text, and contains
/// bidirectional, invisible, tag, bell and delete characters.
const EVIL: &str = "<\u{1b}[2J\u{1b}]0;title\u{7}\u{9b}1A\u{202e}live\u{2066}\u{200b}\u{feff}\u{ad}\u{e0041}\u{85}\u{2028}\u{7f}\u{fe01}>";

/// [`EVIL`] with its characters escaped.
const SHOWN: &str = "<\\u{1b}[2J\\u{1b}]0;title\\u{7}\\u{9b}1A\\u{202e}live\\u{2066}\\u{200b}\\u{feff}\\u{ad}\\u{e0041}\\u{85}\\u{2028}\\u{7f}\\u{fe01}>";

/// A server in shell whose replies are files of the folder, by method.
const SERVER: &str = r#"
while read -r line; do
    id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
    method=$(printf '%s' "$line" | sed -n 's/.*"method":"\([a-z/]*\)".*/\1/p' | tr / _)
    [ -n "$id" ] && printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$(cat "$method.json")"
done
"#;

/// A folder with a hostile server and some that fail with hostile messages.
fn folder() -> Folder {
    let name = format!("tool{EVIL}");
    let fails = |words: &str| script(&format!("cat {words} >&2; exit 3"));
    let refuses = script(&SERVER.replace("$method.json", "refusal.json"));
    let folder = Folder::with(&json!({
        "evil": script(SERVER),
        "dying": fails("words.txt"),
        "refusing": refuses,
        "foreign": script(&SERVER.replace("$method.json", "version.json")),
        "noisy": script(&format!("cat words.txt\n{SERVER}")),
        "evil\u{202e}name": { "command": "true", "unknown\u{9b}key": 1, "enabled": false },
    }));
    let welcome = |version: &str| {
        json!({
            "protocolVersion": version,
            "capabilities": { "tools": {} },
            "serverInfo": { "name": EVIL, "version": EVIL },
        })
    };
    let tool = json!({ "name": name, "description": EVIL, "inputSchema": { "type": "object" } });
    let result = json!({
        "content": [
            { "type": "text", "text": format!("{EVIL}\nsecond\rline") },
            { "type": "image", "mimeType": EVIL, "data": "AAAA" },
            { "type": "resource_link", "uri": EVIL, "name": EVIL },
            { "type": "resource", "resource": { "uri": EVIL, "text": EVIL } },
            { "type": "resource", "resource": { "uri": EVIL, "blob": "AAAA" } },
        ],
    });
    let error = json!({ "code": -32000, "message": format!("{EVIL}\nmcpvisor: all is well") });
    for (file, member, value) in [
        ("initialize.json", "result", welcome("2025-11-25")),
        ("version.json", "result", welcome(EVIL)),
        ("tools_list.json", "result", json!({ "tools": [tool] })),
        ("tools_call.json", "result", result),
        ("refusal.json", "error", error),
    ] {
        std::fs::write(folder.path(file), format!("\"{member}\":{value}")).unwrap();
    }
    std::fs::write(folder.path("words.txt"), format!("{EVIL}\n")).unwrap();
    folder
}

/// Fails if the command's output contains a character that affects a terminal.
#[track_caller]
fn assert_harmless(ran: &Ran) {
    for text in [&ran.stdout, &ran.stderr] {
        assert!(!text.contains(acts), "{ran:?}");
    }
}

/// Whether a character controls the terminal or is invisible.
fn acts(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\t')) || (EVIL.contains(c) && !c.is_ascii())
}

fn tool() -> String {
    format!("tool{EVIL}")
}

#[test]
fn names_descriptions_and_faults_are_escaped_in_tables() {
    let folder = folder();
    let ran = folder.run(&["tools", "evil"]);
    assert_harmless(ran.exits(0));
    assert!(ran.stdout.contains(&format!("tool{SHOWN}")), "{ran:?}");
    let ran = folder.run(&["status"]);
    assert_harmless(ran.exits(0));
    let lines = |of: &str| {
        let mut lines = ran.stdout.lines();
        lines.find(|line| line.starts_with(of)).unwrap().to_owned()
    };
    assert!(lines("evil ").contains(&format!("{SHOWN} {SHOWN}")));
    assert!(lines("dying").contains(SHOWN), "{ran:?}");
    assert!(lines("refusing").contains(SHOWN), "{ran:?}");
    assert!(lines("foreign").contains("no protocol version in common"));
    assert_harmless(folder.run(&["list"]).exits(0));
}

#[test]
fn results_are_escaped_and_keep_their_lines() {
    let folder = folder();
    let ran = folder.run(&["call", "evil", &tool()]);
    assert_harmless(ran.exits(0));
    assert!(
        ran.stdout.starts_with(&format!("{SHOWN}\nsecond\\rline\n")),
        "{ran:?}"
    );
}

#[test]
fn errors_are_escaped_and_cannot_imitate_our_output() {
    let folder = folder();
    for server in ["dying", "refusing", "foreign"] {
        let ran = folder.run(&["call", server, "x"]);
        assert_harmless(&ran);
        let ours = ran
            .stderr
            .lines()
            .filter(|line| line.starts_with("mcpvisor:"));
        // At most a warning about another config entry, and the failure.
        assert!(ours.count() <= 2, "{ran:?}");
        assert!(!ran.stderr.contains("\nmcpvisor: all is well"), "{ran:?}");
    }
    let ran = folder.run(&["call", "evil", &format!("other{EVIL}")]);
    assert_harmless(ran.exits(5));
    let ran = folder.run(&["call", "dying\u{9b}", "x"]);
    assert_harmless(ran.exits(1));
}

#[test]
fn logs_are_escaped() {
    let folder = folder();
    for server in ["dying", "noisy"] {
        let mut command = folder.command(&["tools", server]);
        command.env("RUST_LOG", "trace");
        let ran = run(command);
        assert_harmless(&ran);
        let logged = ran.stderr.lines().any(|line| {
            line.contains(" mcpvisor::")
                && line.contains("\\u{1b}[2J")
                && line.contains("\\u{202e}")
        });
        assert!(logged, "{ran:?}");
    }
}

#[test]
fn json_is_escaped_and_keeps_its_value() {
    let folder = folder();
    let ran = folder.run(&["tools", "evil", "--json"]);
    assert_harmless(ran.exits(0));
    let document = ran.document();
    assert_eq!(document[0]["name"], tool());
    assert_eq!(document[0]["description"], EVIL);

    let ran = folder.run(&["call", "evil", &tool(), "--json"]);
    assert_harmless(ran.exits(0));
    assert_eq!(
        ran.document()["content"][0]["text"],
        format!("{EVIL}\nsecond\rline")
    );

    let ran = folder.run(&["status", "--json"]);
    assert_harmless(ran.exits(0));
    let document = ran.document();
    let of = |name: &str| {
        let all = document.as_array().unwrap();
        all.iter()
            .find(|status| status["name"] == name)
            .unwrap()
            .clone()
    };
    assert_eq!(of("evil")["server"]["name"], EVIL);
    let message = |status: Value| status["last_error"]["message"].as_str().unwrap().to_owned();
    assert!(message(of("dying")).contains(EVIL));

    let ran = folder.run(&["call", "refusing", "x", "--json"]);
    assert_harmless(&ran);
    let message = ran.error()["message"].as_str().unwrap().to_owned();
    assert!(message.contains(EVIL), "{message}");
}

#[test]
fn config_lines_are_escaped_and_only_our_text_is_colored() {
    let folder = folder();
    let name = "mcp\u{9b}2J.json";
    let text = format!("{{ \"mcpServers\": {{ \"{EVIL}\": {{ \"{EVIL}\" 5 }} }} }}");
    std::fs::write(folder.path(name), text).unwrap();
    for args in [
        &["--config", "mcp.json", "get", "evil\u{202e}name"][..],
        &["--config", "mcp.json", "list"],
        &["--config", name, "list"],
        &["--config", name, "doctor"],
    ] {
        let mut command = common::mcpvisor(&folder.path(""));
        command.args(args);
        let ran = run(command);
        assert_harmless(&ran);
        let printed = format!("{}{}", ran.stdout, ran.stderr);
        assert!(
            printed.contains("\n  |") || printed.contains(" 1 | "),
            "{ran:?}"
        );

        let coloured = on_a_terminal(&folder, args, &[]);
        assert!(coloured.contains("\u{1b}["), "{coloured:?}");
        let without = without_colours(&coloured);
        assert!(!without.contains(acts), "{coloured:?}");
        let plain = on_a_terminal(&folder, args, &[("NO_COLOR", "1")]);
        assert!(!plain.contains(acts), "{plain:?}");
    }
}

/// The output of a command on a terminal.
fn on_a_terminal(folder: &Folder, args: &[&str], env: &[(&str, &str)]) -> String {
    let mut pty = Pty::start_with(&folder.path(""), args, env, 60, 200);
    pty.ends();
    pty.written().replace("\r\n", "\n")
}

/// Removes the escape sequences for colour and weight.
fn without_colours(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |kept, part| {
        let digits = part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
        match digits.strip_prefix('m') {
            Some(rest) => kept + rest,
            None => kept + "\u{1b}[" + part,
        }
    })
}

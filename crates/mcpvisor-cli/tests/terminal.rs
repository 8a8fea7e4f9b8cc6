//! The commands on a pseudo-terminal: live screens update and react to keys, and the terminal is
//! restored however the command ends.

#![allow(
    clippy::unwrap_used,
    reason = "the helpers of a test fail as the test does"
)]

mod common;

use std::time::Duration;

use common::pty::Pty;
use common::{BINARY, Folder, builtin, make_executable};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// A server that starts slowly, so that its state changes are visible.
fn slow() -> Value {
    let script =
        format!("sleep 1; echo here I am >&2; exec {BINARY} builtin-server lab --journal journal");
    json!({ "command": "sh", "args": ["-c", script] })
}

fn watch(folder: &Folder) -> Pty {
    let args = ["--config", "mcp.json", "status", "--watch"];
    Pty::start(&folder.path(""), &args, 24, 120)
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// The line of a server on the screen.
fn line<'s>(screen: &'s str, server: &str) -> &'s str {
    screen
        .lines()
        .find(|line| line.trim_start().starts_with(server))
        .unwrap_or_default()
}

#[test]
fn watching_shows_a_killed_server_reconnect() {
    let folder = Folder::with(&json!({ "slow": slow(), "lab": builtin("notes") }));
    let mut pty = watch(&folder);
    pty.awaits("connected", |screen| {
        line(screen, "slow").contains(" connected ") && line(screen, "lab").contains(" connected ")
    });
    let own = |line: &&str| line.starts_with("started ");
    let journal = folder.journal();
    let started: Vec<&str> = journal.lines().filter(own).collect();
    assert_eq!(started.len(), 2, "{journal}");
    // The slow server started last.
    let pid: u32 = started[1].trim_start_matches("started ").parse().unwrap();
    signal(pid, Signal::KILL);
    pty.awaits("reconnecting, and why", |screen| {
        let line = line(screen, "slow");
        line.contains("reconnecting") && line.contains("killed by signal 9") && line.contains("7?")
    });
    assert!(
        line(&pty.screen(), "lab").contains(" connected "),
        "its neighbour did not notice"
    );
    pty.awaits("connected again", |screen| {
        let line = line(screen, "slow");
        line.contains(" connected ") && line.contains(" 2 ") && !line.contains("7?")
    });
    pty.awaits("a latency", |screen| line(screen, "slow").contains(" ms"));
    pty.types("q");
    assert_eq!(pty.ends(), 0);
    pty.assert_restored();
    folder.assert_nothing_left();
}

#[test]
fn watching_shows_unusable_entries() {
    let folder = Folder::with(&json!({
        "lab": builtin("lab"),
        "old": { "type": "ftp", "url": "https://example.com/" },
    }));
    let mut pty = watch(&folder);
    pty.awaits("both servers", |screen| {
        line(screen, "lab").contains(" connected ")
            && line(screen, "old").contains("permanently_failed")
            && line(screen, "old").contains("must be")
    });
    pty.types("q");
    assert_eq!(pty.ends(), 0);
    pty.assert_restored();
}

#[test]
fn keys_filter_sort_and_open_details() {
    let folder = Folder::with(&json!({ "slow": slow(), "lab": builtin("lab") }));
    let mut pty = watch(&folder);
    pty.awaits("connected", |screen| {
        line(screen, "slow").contains(" connected ")
    });
    pty.types("/slo");
    pty.awaits("only the filtered", |screen| {
        screen.contains("filter: slo") && line(screen, "lab").is_empty()
    });
    // The first Enter closes the filter, the second opens the server.
    pty.types("\r");
    pty.types("\r");
    pty.shows("here I am");
    pty.shows("echo, fail, paint");
    pty.types("d");
    pty.shows("slow: disabled");
    pty.types("q");
    pty.awaits("disabled", |screen| {
        line(screen, "slow").contains("disabled")
    });
    pty.types("e");
    pty.awaits("connected", |screen| {
        line(screen, "slow").contains(" connected ")
    });
    pty.types("r");
    pty.awaits("the next connection", |screen| {
        let line = line(screen, "slow");
        line.contains(" connected ") && line.contains(" 3 ")
    });
    pty.types("?");
    pty.shows("round trips of pings");
    pty.types("x");
    // A smaller terminal shows only the most important parts.
    pty.resize(10, 60);
    pty.awaits("the narrow screen", |screen| {
        !screen.contains("LATENCY") && line(screen, "slow").contains("connected")
    });
    pty.types("\u{3}");
    assert_eq!(pty.ends(), 130);
    pty.assert_restored();
    folder.assert_nothing_left();
}

#[test]
fn a_signal_restores_the_terminal() {
    let folder = Folder::with(&json!({ "lab": builtin("lab") }));
    let mut pty = watch(&folder);
    pty.shows("connected");
    assert!(pty.is_alternate());
    signal(pty.pid(), Signal::TERM);
    assert_eq!(pty.ends(), 130);
    pty.assert_restored();
    folder.assert_nothing_left();
}

#[cfg(debug_assertions)]
#[test]
fn a_panic_restores_the_terminal_and_is_readable() {
    let folder = Folder::with(&json!({ "lab": builtin("lab") }));
    let args = ["--config", "mcp.json", "status", "--watch"];
    let env = [("MCPVISOR_PANIC_SCREEN", "1"), ("RUST_BACKTRACE", "0")];
    let mut pty = Pty::start_with(&folder.path(""), &args, &env, 24, 120);
    assert_ne!(pty.ends(), 0);
    assert!(pty.written().contains("\u{1b}[?1049h"), "it had the screen");
    pty.assert_restored();
    pty.shows("MCPVISOR_PANIC_SCREEN is set");
}

#[test]
fn the_demo_is_a_live_screen_that_ends_with_a_summary() {
    let folder = Folder::with(&json!({}));
    let mut pty = Pty::start(
        &folder.path(""),
        &["demo", "--seconds", "5", "--seed", "7"],
        30,
        110,
    );
    pty.shows(" events ");
    pty.awaits("the fault", |screen| screen.contains("kill -9"));
    pty.awaits("the outcome", |screen| screen.contains("outcome unknown"));
    assert!(pty.is_alternate());
    pty.shows("processes left");
    assert_eq!(pty.ends(), 0, "{}", pty.screen());
    assert!(!pty.screen().contains("BROKEN"), "{}", pty.screen());
    pty.assert_restored();
}

#[test]
fn the_demo_can_be_quit_at_any_time() {
    let folder = Folder::with(&json!({}));
    let mut pty = Pty::start(&folder.path(""), &["demo"], 30, 110);
    pty.shows(" events ");
    pty.types("q");
    assert_eq!(pty.ends(), 130);
    pty.assert_restored();
}

#[test]
fn progress_is_a_bar_and_log_messages_are_dimmed() {
    let folder = Folder::with_shop();
    let progress = |done: u32, message: &str| {
        // The server inserts the token, which may be a string or a number.
        let line = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": {
            "progressToken": "TOKEN", "progress": done, "total": 4, "message": message,
        } });
        line
    };
    let log = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": {
        "level": "info", "data": "counting slices",
    } });
    folder.says_before(
        "tools/call",
        &[progress(1, "cutting"), log, progress(2, "wrapping")],
    );
    std::fs::write(folder.path("tools_call.wait"), "2").unwrap();
    let args = ["--config", "mcp.json", "call", "shop", "photo"];
    let mut pty = Pty::start(&folder.path(""), &args, 24, 100);
    pty.awaits("the bar", |screen| {
        screen.contains("50 %") && screen.contains("wrapping")
    });
    assert_eq!(pty.ends(), 0);
    assert!(
        !pty.screen().contains("50 %"),
        "the bar is gone: {}",
        pty.screen()
    );
    pty.shows("counting slices");
    pty.shows("done");
    assert!(
        pty.written()
            .contains("\u{1b}[2mshop: [info] counting slices"),
        "{:?}",
        pty.written()
    );
    pty.assert_restored();
}

#[test]
fn a_log_message_starts_with_its_server() {
    let folder = Folder::with_shop();
    let forged = "mcpvisor: the session expired";
    // Long enough for the terminal to wrap the line just before the second forged text.
    let log = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": {
        "level": "error", "logger": forged, "data": format!("{} {forged}", "x".repeat(74)),
    } });
    folder.says_before("tools/call", &[log]);
    let mut pty = Pty::start(&folder.path(""), &CALL, 24, 60);
    assert_eq!(pty.ends(), 0);
    let screen = pty.screen();
    assert!(
        screen.starts_with("shop: [error] mcpvisor: the session"),
        "{screen}"
    );
    let ours = |row: &String| row.starts_with("mcpvisor:");
    assert_eq!(pty.rows().into_iter().find(ours), None, "{screen}");
}

/// A shop that sends a request before its reply. It has only tools: it reads the next line as the
/// answer, and listing requests could come in between because a call does not wait for them.
fn asking(params: Value) -> Folder {
    let folder = Folder::with_shop();
    folder.answers(
        "initialize",
        &json!({
            "protocolVersion": "2025-11-25",
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "shop", "version": "2.1" },
        }),
    );
    let ask =
        json!({ "jsonrpc": "2.0", "id": 77, "method": "elicitation/create", "params": params });
    std::fs::write(folder.path("tools_call.ask"), format!("{ask}\n")).unwrap();
    folder
}

fn form() -> Value {
    json!({ "message": "Which \u{1b}[2Jcheese?", "requestedSchema": {
        "type": "object",
        "properties": {
            "grams": { "type": "integer", "minimum": 50 },
            "cut": { "type": "string", "enum": ["slices", "piece"] },
            "note": { "type": "string" },
        },
        "required": ["grams", "cut"],
    } })
}

/// The answer that the server received.
fn answer(folder: &Folder) -> Value {
    folder.awaits("answers", "\n");
    let text = std::fs::read_to_string(folder.path("answers")).unwrap();
    let answer: Value = serde_json::from_str(text.trim()).unwrap();
    assert_eq!(answer["id"], 77, "{answer}");
    answer["result"].clone()
}

const CALL: [&str; 5] = ["--config", "mcp.json", "call", "shop", "photo"];

#[test]
fn a_form_is_asked_field_by_field_and_checked() {
    let folder = asking(form());
    let mut pty = Pty::start(&folder.path(""), &CALL, 30, 100);
    pty.shows("shop asks:\n│ Which \\u{1b}[2Jcheese?");
    for (question, typed) in [
        ("one of these", "3"),
        ("not one of the choices", "2"),
        ("a whole number", "twenty"),
        ("not a whole number", "20"),
        ("at least 50", "200"),
        ("text; optional", ""),
    ] {
        pty.awaits(question, |screen| {
            let mut last = screen.trim_end().lines().rev();
            last.next() == Some("  >") && last.next().is_some_and(|line| line.contains(question))
        });
        pty.types(&format!("{typed}\r"));
    }
    let result = answer(&folder);
    assert_eq!(result["action"], "accept", "{result}");
    assert_eq!(result["content"], json!({ "grams": 200, "cut": "piece" }));
    assert_eq!(pty.ends(), 0);
    pty.shows("done");
}

#[test]
fn a_form_can_be_declined() {
    let folder = asking(form());
    let mut pty = Pty::start(&folder.path(""), &CALL, 30, 100);
    pty.shows("asks:");
    pty.types("!\r");
    assert_eq!(answer(&folder)["action"], "decline");
    assert_eq!(pty.ends(), 0);
}

#[test]
fn questions_are_declined_without_a_terminal_or_with_no_input() {
    let folder = asking(form());
    folder.run(&["call", "shop", "photo"]).exits(0);
    assert_eq!(answer(&folder)["action"], "decline");
    std::fs::remove_file(folder.path("answers")).unwrap();
    let args = [&CALL[..], &["--no-input"]].concat();
    let mut pty = Pty::start(&folder.path(""), &args, 30, 100);
    assert_eq!(pty.ends(), 0);
    assert!(!pty.written().contains("asks:"), "{}", pty.written());
    assert_eq!(answer(&folder)["action"], "decline");
}

/// A browser that records the URLs it is asked to open.
fn browser(folder: &Folder) -> String {
    let browser = folder.path("browser");
    let script = "#!/bin/sh\nprintf '%s' \"$1\" >\"$(dirname \"$0\")/opened\"\n";
    std::fs::write(&browser, script).unwrap();
    make_executable(&browser);
    browser.to_str().unwrap().to_owned()
}

#[test]
fn a_url_is_shown_and_opened_only_after_a_yes() {
    let url = "https://example.com/pay?order=7";
    let ask = json!({
        "mode": "url", "message": "Please pay", "url": url, "elicitationId": "pay-7",
    });
    let folder = asking(ask);
    let browser = browser(&folder);
    let env = [("BROWSER", browser.as_str())];
    for (key, action) in [("\r", "decline"), ("y\r", "accept")] {
        let mut pty = Pty::start_with(&folder.path(""), &CALL, &env, 30, 100);
        pty.shows(url);
        pty.shows("[y/N]");
        assert!(
            !folder.path("opened").exists(),
            "opened before it was agreed to"
        );
        pty.types(key);
        assert_eq!(answer(&folder)["action"], action);
        assert_eq!(pty.ends(), 0);
        std::fs::remove_file(folder.path("answers")).unwrap();
    }
    folder.awaits("opened", url);
}

/// A shop that asks to open a URL, and withdraws the question at the next step.
fn wavering() -> Folder {
    let folder = asking(json!({
        "message": "may I continue?",
        "requestedSchema": { "type": "object", "properties": {} },
    }));
    let open = json!({ "jsonrpc": "2.0", "id": 76, "method": "elicitation/create", "params": {
        "mode": "url", "message": "look", "url": "https://example.com/x", "elicitationId": "x",
    } });
    let never_mind = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 76 },
    });
    folder.says_before("tools/call", &[open]);
    folder.says_at_step("tools/call", 1, &[never_mind]);
    folder
}

#[test]
fn input_after_a_withdrawn_question_does_not_answer_it() {
    let folder = wavering();
    let browser = browser(&folder);
    let env = [("BROWSER", browser.as_str())];
    let mut pty = Pty::start_with(&folder.path(""), &CALL, &env, 30, 100);
    pty.shows("Open it in the browser? [y/N]");
    folder.goes_on(1);
    pty.shows("question withdrawn");
    pty.shows("│ may I continue?");
    pty.shows("Agree? [y/N]");
    // Too soon for a person to have read the question, unless this machine is slow.
    pty.types("y\r");
    let answered = || std::fs::read_to_string(folder.path("answers")).is_ok();
    pty.awaits("an answer", |screen| {
        screen.contains("Answer again:") || answered()
    });
    while !answered() {
        pty.types("y\r");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(answer(&folder)["action"], "accept");
    assert_eq!(pty.ends(), 0);
    assert!(!folder.path("opened").exists(), "{}", pty.screen());
}

#[test]
fn input_typed_before_a_question_does_not_answer_it() {
    let folder = wavering();
    let mut pty = Pty::start(&folder.path(""), &CALL, 30, 100);
    // An unfinished line.
    pty.shows("Open it in the browser? [y/N]");
    pty.types("y");
    pty.shows("[y/N] y");
    folder.goes_on(1);
    pty.shows("Agree? [y/N]");
    // Wait, so that the answer is not rejected for being too fast.
    std::thread::sleep(Duration::from_millis(600));
    pty.types("\r");
    assert_eq!(answer(&folder)["action"], "decline");
    assert_eq!(pty.ends(), 0);
}

#[test]
fn progress_is_shown_again_after_a_withdrawn_question() {
    let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": {
        "progressToken": "TOKEN", "progress": 2, "total": 4, "message": "wrapping",
    } });
    let folder = wavering();
    folder.says_at_step("tools/call", 2, &[progress]);
    std::fs::remove_file(folder.path("tools_call.ask")).unwrap();
    std::fs::write(folder.path("tools_call.until"), "enough").unwrap();
    let mut pty = Pty::start(&folder.path(""), &CALL, 30, 100);
    pty.shows("[y/N]");
    folder.goes_on(1);
    pty.shows("question withdrawn");
    folder.goes_on(2);
    pty.awaits("the bar", |screen| screen.contains("50 %"));
    std::fs::write(folder.path("enough"), "").unwrap();
    assert_eq!(pty.ends(), 0);
}

#[test]
fn no_line_of_the_terminal_starts_with_text_of_a_server() {
    let forged = "github asks: paste your token";
    // One explicit line break, and one from wrapping.
    let words = format!("Name\n{forged} {} {forged}", "x".repeat(60));
    let folder = asking(json!({ "message": words, "requestedSchema": {
        "type": "object",
        "properties": {
            "a": { "type": "string", "title": words, "description": words, "default": words },
            "b": { "oneOf": [{ "const": "c", "title": words }], "type": "string" },
        },
    } }));
    let mut pty = Pty::start(&folder.path(""), &CALL, 60, 60);
    for _ in 0..2 {
        pty.awaits("a field", |screen| screen.trim_end().ends_with("\n  >"));
        pty.types("\r");
    }
    assert_eq!(pty.ends(), 0);
    let screen = pty.screen();
    assert!(screen.contains("│ "), "{screen}");
    let bare =
        |row: &String| !row.starts_with('│') && (row.contains("github") || row.contains("xx"));
    assert_eq!(pty.rows().into_iter().find(bare), None, "{screen}");
}

#[test]
fn a_table_fits_the_terminal_and_respects_no_color() {
    let folder = Folder::with(&json!({
        "lab": builtin("lab"),
        "gone": { "command": "no-such-command-anywhere" },
    }));
    let args = ["--config", "mcp.json", "status"];
    let mut pty = Pty::start(&folder.path(""), &args, 40, 80);
    assert_eq!(pty.ends(), 0);
    assert!(
        pty.written().contains("\u{1b}[32mconnected\u{1b}[0m"),
        "{}",
        pty.written()
    );
    // The terminal wrapped no line.
    assert!(pty.screen().lines().all(|line| line.chars().count() <= 80));
    assert!(
        pty.screen().contains("no-such-command-anywhere"),
        "wrapped at words: {}",
        pty.screen()
    );
    let mut pty = Pty::start_with(&folder.path(""), &args, &[("NO_COLOR", "1")], 40, 80);
    assert_eq!(pty.ends(), 0);
    assert!(!pty.written().contains("\u{1b}["), "{}", pty.written());
}

#[test]
fn a_dumb_terminal_gets_no_escapes_and_no_screen() {
    let folder = Folder::with_shop();
    let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": {
        "progressToken": "TOKEN", "progress": 1, "total": 4, "message": "cutting",
    } });
    folder.says_before("tools/call", &[progress]);
    // Long enough for a progress bar to be drawn.
    std::fs::write(folder.path("tools_call.wait"), "1").unwrap();
    // Some libraries enable colours whenever `CI` is set.
    let dumb = [("TERM", "dumb"), ("CI", "true")];
    for (command, code) in [
        (vec!["status"], 0),
        (vec!["doctor", "-v"], 0),
        (vec!["call", "shop", "photo"], 0),
        (vec!["status", "--watch"], 1),
        (vec!["demo", "--fast", "--seconds", "1"], 0),
        (vec!["bogus"], 1),
        (vec!["call", "--help"], 0),
    ] {
        let args: Vec<&str> = ["--config", "mcp.json"]
            .into_iter()
            .chain(command)
            .collect();
        let mut pty = Pty::start_with(&folder.path(""), &args, &dumb, 40, 100);
        assert_eq!(pty.ends(), code, "{args:?}: {}", pty.screen());
        let written = pty.written();
        assert!(!written.contains('\u{1b}'), "{args:?}: {written:?}");
    }
}

#[test]
fn the_status_fits_a_narrow_terminal() {
    let folder = Folder::with(&json!({
        "lab": builtin("lab"),
        "gone": { "command": "no-such-command-anywhere" },
    }));
    let args = ["--config", "mcp.json", "status"];
    let env = [("NO_COLOR", "1")];
    for width in [40, 60, 69, 70] {
        let mut pty = Pty::start_with(&folder.path(""), &args, &env, 60, width);
        assert_eq!(pty.ends(), 0);
        let written = pty.written();
        for line in written.lines() {
            let line = line.trim_end();
            assert!(
                line.chars().count() <= usize::from(width),
                "{width}: {line:?}"
            );
        }
        assert_eq!(written.contains("TRANSPORT"), width >= 70, "{written}");
        assert!(written.contains("connected"), "{written}");
    }
}

#[test]
fn a_url_with_hidden_characters_is_not_opened() {
    let url = "https://example.com/\u{7}pay";
    let ask = json!({ "mode": "url", "message": "Please pay", "url": url, "elicitationId": "7" });
    let folder = asking(ask);
    let env = [("BROWSER", "false")];
    let mut pty = Pty::start_with(&folder.path(""), &CALL, &env, 30, 100);
    assert_eq!(pty.ends(), 0);
    assert!(!pty.written().contains("[y/N]"), "{}", pty.screen());
    assert_ne!(answer(&folder)["action"], "accept");
}

#[test]
fn the_detail_page_shows_failed_attempts_and_clears_the_old_error() {
    let script = format!(
        "[ -f fixed ] || {{ echo out of order >&2; exit 3; }}; exec {BINARY} builtin-server lab"
    );
    let folder = Folder::with(&json!({ "moody": { "command": "sh", "args": ["-c", script] } }));
    let mut pty = Pty::start(
        &folder.path(""),
        &["--config", "mcp.json", "status", "--watch"],
        40,
        160,
    );
    pty.shows("moody");
    pty.types("\r");
    pty.shows("attempt 1 failed: the process exited with code 3");
    pty.shows("attempt 2 failed");
    std::fs::write(folder.path("fixed"), "").unwrap();
    pty.awaits("the recovery", |screen| screen.contains("→ connected"));
    let screen = pty.screen();
    let recovery = screen.lines().find(|line| line.contains("→ connected"));
    assert!(!recovery.unwrap().contains("exited"), "{screen}");
    pty.awaits("a catalog of one kind", |screen| screen.contains("7 tools"));
    pty.types("qq");
    assert_eq!(pty.ends(), 0);
}

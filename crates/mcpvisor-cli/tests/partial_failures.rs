//! Servers that are partly broken or slow: a command still returns what it can.

#![allow(
    clippy::unwrap_used,
    reason = "the helpers of a test fail as the test does"
)]

mod common;

use std::io::{BufRead, BufReader};
use std::time::Duration;

use common::{Folder, finish, script, scripted};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

/// Less than the 30 s timeout of a listing.
const SOON: Duration = Duration::from_secs(25);

#[test]
fn a_failed_prompt_list_does_not_affect_tools() {
    let folder = Folder::with_shop();
    folder.refuses("prompts/list", "the prompts are broken");
    let call = ["call", "shop", "order", "cheese=Brie", "grams=5"];
    folder.run(&call).exits(0);
    folder.awaits("requests", r#""grams":5"#);
    let ran = folder.run(&["call", "shop", "ordr"]);
    ran.exits(5).says("did you mean \"order\"?");
    let tools = folder.run(&["tools", "shop", "--json"]).exits(0).document();
    assert_eq!(tools.as_array().unwrap().len(), 2);
    folder.run(&["resources", "shop"]).exits(0);
    folder.run(&["read", "shop", "shop://prices"]).exits(0);
    let error = folder.run(&["prompts", "shop", "--json"]).exits(4).error();
    assert_eq!(error["code"], "listing_failed");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("the prompts are broken"), "{message}");
    // Prompt arguments are untyped, so the prompt works without its listing.
    folder
        .run(&["prompt", "shop", "recipe", "cheese=Brie"])
        .exits(0);
    let status = folder.run(&["status"]);
    let shop = status.exits(0).stdout.lines().nth(1).unwrap();
    assert!(!shop.contains("2?"), "the tools are known: {shop}");
}

#[test]
fn only_commands_that_need_a_list_wait_for_it() {
    let folder = Folder::with_shop();
    for list in ["prompts_list", "resources_list"] {
        std::fs::write(folder.path(&format!("{list}.silent")), "").unwrap();
    }
    let call = ["call", "shop", "order", "cheese=Brie", "grams=5"];
    let ran = folder.run(&call);
    assert!(ran.exits(0).took < SOON, "{:?}", ran.took);
    folder.awaits("requests", r#""grams":5"#);
    let ran = folder.run(&["read", "shop", "shop://prices"]);
    assert!(ran.exits(0).took < SOON, "{:?}", ran.took);
    for late in [
        &["prompts", "shop"][..],
        &["prompt", "shop", "recipe", "cheese=Brie"],
    ] {
        let ran = folder.run(&[late, &["--timeout", "3s"]].concat());
        ran.exits(7).says("did not list its prompts");
    }
}

#[test]
fn untyped_arguments_are_not_sent() {
    let folder = Folder::with_shop();
    folder.refuses("tools/list", "the tools are broken");
    let words = ["call", "shop", "order", "cheese=Brie", "grams=5"];
    let ran = folder.run(&words);
    ran.exits(4).says("the tools are broken").says("KEY:=JSON");
    let error = folder.run(&[&words[..], &["--json"]].concat()).error();
    assert_eq!(error["code"], "listing_failed");
    assert!(!folder.requests().contains("tools/call"));
    let typed = [
        "call",
        "shop",
        "order",
        "grams:=5",
        "--args",
        r#"{"cheese":"Brie"}"#,
    ];
    folder.run(&typed).exits(0);
    folder.awaits("requests", r#""grams":5"#);
}

#[test]
fn the_timeout_option_replaces_the_idle_timeout() {
    let folder = Folder::with_shop();
    folder.edits(|shop| shop["timeouts"] = json!({ "idle": "200ms" }));
    for method in ["tools_call", "prompts_get", "resources_read"] {
        std::fs::write(folder.path(&format!("{method}.wait")), "1").unwrap();
    }
    for command in [
        &["call", "shop", "photo"][..],
        &["prompt", "shop", "recipe", "cheese=Brie"],
        &["read", "shop", "shop://prices"],
    ] {
        folder
            .run(&[command, &["--timeout", "50s"]].concat())
            .exits(0);
    }
}

#[test]
fn connecting_does_not_count_against_the_call_timeout() {
    let folder = Folder::with_shop();
    folder.edits(|shop| {
        shop["startup_timeout_sec"] = json!(50);
        shop["tool_timeout_sec"] = json!(5);
    });
    std::fs::write(folder.path("initialize.wait"), "6").unwrap();
    let commands = [
        &["call", "shop", "photo"][..],
        &["prompt", "shop", "recipe", "cheese=Brie"],
        &["read", "shop", "shop://prices"],
    ];
    let running = commands.map(|command| folder.command(command).spawn().unwrap());
    for child in running {
        finish(child).exits(0);
    }
}

#[test]
fn an_error_shows_the_timeout_as_given() {
    let folder = Folder::with_shop();
    std::fs::write(folder.path("tools_call.silent"), "").unwrap();
    let ran = folder.run(&["call", "shop", "photo", "--timeout", "3500ms", "--json"]);
    let error = ran.exits(7).error();
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("within 3.5s"), "{message}");
    assert_eq!(error["server"], "shop");
    assert!(error["sent"].is_boolean(), "{error}");
}

#[test]
fn the_stderr_of_a_server_that_hangs_at_start_is_shown() {
    let hangs = script("echo the cellar is wet >&2; echo Welcome!; exec sleep 600");
    let folder = Folder::with(&json!({ "cellar": hangs }));
    let ran = folder.run(&["call", "cellar", "x", "--timeout", "4s"]);
    ran.exits(7)
        .says("did not connect within 4s")
        .says("the cellar is wet")
        .says("it wrote 1 non-protocol line to stdout");
}

#[test]
fn a_failure_is_shown_before_the_shutdown() {
    // It ignores both the end of stdin and SIGTERM.
    let stubborn = script("trap '' TERM; echo $$ >pid; while :; do sleep 0.1; done");
    let folder = Folder::with(&json!({ "stubborn": stubborn }));
    let mut command = folder.command(&["call", "stubborn", "x", "--timeout", "2s"]);
    let mut child = command.spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.contains("did not connect"), "{line}");
    let pid = std::fs::read_to_string(folder.path("pid")).unwrap();
    let server = mcpvisor_testkit::processes::Process::read(pid.trim().parse().unwrap());
    assert!(server.is_some(), "the failure was shown after the close");
    finish(child).exits(7);
    line.clear();
    stderr.read_line(&mut line).unwrap();
    assert_eq!(line, "", "it was shown once");
}

#[test]
fn an_interrupt_reports_its_request_and_whether_it_was_sent() {
    for (silent, asked, sent) in [
        ("initialize", "initialize", false),
        ("tools_call", "tools/call", true),
    ] {
        let folder = Folder::with_shop();
        std::fs::write(folder.path(&format!("{silent}.silent")), "").unwrap();
        let mut command = folder.command(&["call", "shop", "photo", "--json"]);
        let child = command.spawn().unwrap();
        folder.awaits("requests", asked);
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let error = finish(child).exits(130).error();
        assert_eq!(error["code"], "interrupted");
        assert_eq!(error["server"], "shop");
        assert_eq!(error["sent"], sent, "{error}");
    }
}

#[test]
fn a_tool_hidden_by_a_filter_is_reported_as_hidden() {
    let folder = Folder::with_shop();
    folder.edits(|shop| shop["tools"] = json!({ "deny": ["pho*"] }));
    let error = folder
        .run(&["call", "shop", "photo", "--json"])
        .exits(4)
        .error();
    assert_eq!(error["code"], "tool_hidden");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("denied by the pattern \"pho*\""),
        "{message}"
    );
    folder.run(&["call", "shop", "ordr"]).exits(5);
}

#[test]
fn a_tool_can_be_called_by_its_exposed_name() {
    let folder = Folder::with_shop();
    let config = json!({ "mcpServers": { "shop": scripted(), "my.shop": scripted() } });
    std::fs::write(folder.path("mcp.json"), config.to_string()).unwrap();
    let odd = json!({ "name": "slice/thin.ly", "inputSchema": { "type": "object" } });
    folder.answers("tools/list", &json!({ "tools": [odd] }));
    let tools = folder.run(&["tools", "--json"]).exits(0).document();
    for tool in tools.as_array().unwrap() {
        let exposed = tool["exposed_name"].as_str().unwrap();
        assert!(!exposed.contains(['.', '/']), "{exposed}");
        std::fs::write(folder.path("requests"), "").unwrap();
        folder.run(&["call", exposed]).exits(0);
        folder.awaits("requests", r#""name":"slice/thin.ly""#);
    }
    folder.run(&["call", "my_shop__nothing"]).exits(5);
}

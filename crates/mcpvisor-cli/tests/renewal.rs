//! Commands that end while a token is being renewed, or whose renewed token cannot be saved.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

mod common;

use std::process::{Command, Stdio};
use std::time::Duration;

use common::world::{Running, World};
use common::{BINARY, LIMIT, Ran, run};
use mcpvisor_testkit::auth_server::{AuthFault, Endpoint};
use rustix::process::{Pid, Signal, kill_process};

/// A world with a login whose access token has expired.
fn expired() -> World {
    let world = World::new();
    expire(&world);
    world
}

/// Logs in, and lets the access token expire.
fn expire(world: &World) {
    world.log_in(&[]);
    world.auth.expire_access_tokens();
}

/// Starts a command whose renewal takes this long, and waits until the issuer replaced the token.
fn start_during_renewal(world: &World, args: &[&str], answer: Duration) -> Running {
    let requests = world.auth.count(Endpoint::Token);
    let slow = AuthFault::DelayAnswer(answer);
    world.auth.fault(slow).on(Endpoint::Token).once();
    let running = Running::start(world.folder.command(args));
    let auth = &world.auth;
    let sent = auth.wait_for_requests(Endpoint::Token, requests + 1, LIMIT);
    world.runtime.block_on(sent);
    running
}

fn interrupt(running: &Running) {
    kill_process(Pid::from_child(&running.child), Signal::INT).unwrap();
}

/// Fails unless the next run works with the stored login.
#[track_caller]
fn assert_login_survived(world: &World, refreshes: usize) {
    world.folder.run(&["call", "shop", "echo"]).exits(0);
    assert_eq!(world.auth.token_requests("refresh_token"), refreshes);
    assert_eq!(world.auth.counters().families_revoked, 0);
}

#[test]
fn an_interrupted_command_waits_for_a_renewal_and_saves_its_token() {
    let world = expired();
    let args = ["call", "shop", "echo"];
    let running = start_during_renewal(&world, &args, Duration::from_secs(5));
    interrupt(&running);
    running.line("Waiting for the login of shop to be saved. Press Ctrl-C again to stop.");
    running.finish().exits(130).says("interrupted");
    assert_login_survived(&world, 1);
}

#[test]
fn a_second_interrupt_ends_the_wait_at_once() {
    let world = expired();
    let args = ["tools", "shop"];
    let running = start_during_renewal(&world, &args, LIMIT * 2);
    interrupt(&running);
    running.line("Press Ctrl-C again to stop.");
    interrupt(&running);
    running.finish().exits(130);
}

#[test]
fn a_deadline_waits_for_a_renewal_and_saves_its_token() {
    let world = expired();
    let args = ["call", "shop", "echo", "--timeout", "6s"];
    let running = start_during_renewal(&world, &args, Duration::from_secs(9));
    running.line("Waiting for the login of shop to be saved. Press Ctrl-C to stop.");
    running.finish().exits(7);
    assert_login_survived(&world, 1);
}

#[test]
fn a_rejected_login_says_who_rejected_it_and_what_to_run() {
    let world = expired();
    let auth = &world.auth;
    auth.fault(AuthFault::InvalidGrant(400))
        .on(Endpoint::Token)
        .once();
    let ran = world.folder.run(&["call", "shop", "echo"]);
    let issuer = auth.issuer();
    let problem = format!("the login was rejected by {issuer} (invalid_grant");
    ran.exits(3).says(&format!("mcpvisor: shop: {problem}"));
    ran.says("Run `mcpvisor login shop");
    // The next run does not ask the issuer again.
    let ran = world.folder.run(&["status", "--json"]);
    let status = ran.exits(0).document();
    let message = status[0]["last_error"]["message"].as_str().unwrap();
    assert!(message.starts_with(&problem), "{message}");
    assert_eq!(status[0]["last_error"]["class"], "authorization");
    assert_eq!(auth.token_requests("refresh_token"), 1);
    let ran = world.folder.run(&["doctor"]);
    let check = format!("login: rejected by {issuer} (invalid_grant");
    assert!(ran.exits(3).stdout.contains(&check), "{ran:?}");
}

#[test]
fn an_issuer_that_fails_is_named_and_no_login_is_suggested() {
    let world = expired();
    let auth = &world.auth;
    auth.fault(AuthFault::Status(500))
        .on(Endpoint::Token)
        .for_ever();
    let ran = world.folder.run(&["call", "shop", "echo"]);
    let issuer = auth.issuer();
    let problem = format!("{issuer} cannot renew the login right now (HTTP 500)");
    ran.exits(3).says(&format!("mcpvisor: shop: {problem}"));
    assert!(!ran.stderr.contains("mcpvisor login"), "{ran:?}");
    assert!(!ran.stderr.contains("http_500"), "{ran:?}");
}

#[test]
fn an_error_of_the_server_that_repeats_the_token_is_shown_without_it() {
    let world = World::new();
    world.log_in(&[]);
    for (fault, args) in [
        ("http-repeat-answer", &["call", "shop", "echo"][..]),
        ("http-repeat-answer", &["call", "shop", "echo", "--json"]),
        (
            "http-repeat-session-error",
            &["call", "shop", "echo", "--json"],
        ),
    ] {
        world.shop.fault(fault).times(1);
        let ran = world.folder.run(args);
        ran.exits(5).says("***");
        for (token, _) in world.auth.current_tokens().access {
            assert!(!ran.stderr.contains(&token), "{ran:?}");
        }
        if args.contains(&"--json") {
            let data = ran.error()["data"]["sent"]["head"].to_string();
            assert!(data.contains("***"), "{data}");
        }
    }
}

/// Runs a command that can write no byte to a file, as on a full disk.
fn run_without_space(world: &World, args: &[&str]) -> Ran {
    let command = world.folder.command(args);
    let mut limited = Command::new("sh");
    // The signal of the limit would end the process.
    let script = "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\"";
    limited.args(["-c", script, BINARY]);
    limited.args(command.get_args());
    limited.current_dir(command.get_current_dir().unwrap());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited.stdin(Stdio::null());
    limited.stdout(Stdio::piped()).stderr(Stdio::piped());
    run(limited)
}

#[test]
fn a_token_that_cannot_be_saved_is_used_and_warned_of_once() {
    let world = expired();
    let ran = run_without_space(&world, &["call", "shop", "echo"]);
    let folder = world.folder.path("state").join("credentials");
    let warning = format!(
        "mcpvisor: warning: shop: the renewed login could not be saved (File too large). Make {} \
         writable; otherwise log in again.",
        folder.display()
    );
    ran.exits(0).says(&warning);
    assert_eq!(ran.stderr.matches("could not be saved").count(), 1);
}

#[test]
fn the_status_shows_a_token_that_could_not_be_saved() {
    let world = expired();
    let ran = run_without_space(&world, &["status", "--json"]);
    let status = ran.exits(0).document();
    let unsaved = &status[0]["unsaved_login"];
    assert_eq!(unsaved["problem"], "File too large");
    let action = unsaved["action"].as_str().unwrap();
    assert!(action.ends_with("; otherwise log in again."), "{action}");

    expire(&world);
    let ran = run_without_space(&world, &["status"]);
    let note = "the renewed login could not be saved (File too large). Make ";
    let shown = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains(note), "{ran:?}");

    world.log_in(&[]);
    let ran = run_without_space(&world, &["status", "--json"]);
    let status = ran.exits(0).document();
    assert!(status[0].get("unsaved_login").is_none(), "{status}");
}

#[test]
fn the_doctor_finds_a_store_that_cannot_be_written() {
    let world = World::new();
    world.log_in(&[]);
    world.folder.run(&["doctor"]).exits(0);
    let records = || std::fs::read_dir(world.folder.path("state").join("credentials"));
    let files = records().unwrap().count();
    let ran = run_without_space(&world, &["doctor", "--json"]);
    let report = ran.exits(4).document();
    let checks = report["servers"][0]["checks"].as_array().unwrap();
    let store = checks.iter().find(|check| check["check"] == "token store");
    let store = store.unwrap_or_else(|| panic!("{report}"));
    assert_eq!(store["ok"], false);
    assert_eq!(store["detail"], "logins cannot be saved: File too large");
    assert!(store["action"].as_str().unwrap().starts_with("Make "));
    assert_eq!(records().unwrap().count(), files, "nothing is left");
}

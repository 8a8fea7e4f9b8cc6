//! Invalid servers and requests: a clear error that names the server within its deadline, the
//! matching state, and nothing left behind.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

mod fleet;

use fleet::*;
use mcpvisor::{
    Action, CallError, FaultClass, Known, NotSentReason, Runtime, ServerConfig, ServerHandle,
    StartError, StateName, Transport,
};
use mcpvisor_testkit::eventually::{eventually, eventually_in};
use mcpvisor_testkit::in_own_process;
use mcpvisor_testkit::leaks::{Slack, Snapshot, assert_returns_to};
use mcpvisor_testkit::processes::Marker;
use mcpvisor_testkit::scripted::{Behaviour, Script, ScriptedServer};
use rmcp::model::ErrorData;
use serde_json::json;
use tokio::time::{Duration, Instant};

/// How late an outcome may arrive after its deadline.
const TOLERANCE: Duration = Duration::from_millis(100);

/// The allowance for a busy machine, with real processes and the real clock.
const BUSY: Duration = Duration::from_secs(3);

async fn start(config: ServerConfig) -> (Runtime, ServerHandle) {
    let name = config.name.clone();
    let runtime = fleet([config]).await;
    let handle = runtime.server(name.as_str()).unwrap();
    (runtime, handle)
}

async fn fails(handle: &ServerHandle, deadline: Duration) -> (CallError, Duration) {
    let begin = Instant::now();
    let call = handle.call_tool("echo", json!({})).deadline(deadline);
    let error = call.await.unwrap_err();
    (error, begin.elapsed())
}

/// Checks that the error contains all of these.
#[track_caller]
fn says(error: &impl ToString, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

// Commands that cannot be run.

#[tokio::test]
async fn a_command_that_does_not_exist_fails_for_good_and_says_what_to_do() {
    let directory = std::env::temp_dir();
    let missing = directory.join("mcpvisor-no-such-directory");
    let cases = [
        (
            Transport::stdio("mcpvisor-no-such-command"),
            FaultClass::CommandNotFound,
            "mcpvisor-no-such-command",
            "install it",
        ),
        (
            Transport::stdio(missing.join("server")),
            FaultClass::CommandNotFound,
            "mcpvisor-no-such-directory",
            "install it, or correct the path",
        ),
        (
            Transport::stdio(&directory),
            FaultClass::InvalidCommand,
            directory.to_str().unwrap(),
            "correct \"command\"",
        ),
        (
            Transport::stdio("sh").cwd(&missing),
            FaultClass::InvalidCommand,
            "mcpvisor-no-such-directory",
            "correct \"cwd\"",
        ),
        (
            Transport::stdio(""),
            FaultClass::CommandNotFound,
            "was not found",
            "install it",
        ),
        (
            // Otherwise the variable A would be set to "B=c".
            Transport::stdio("sh").env("A=B", "c"),
            FaultClass::InvalidCommand,
            "contains '='",
            "correct \"env\"",
        ),
    ];
    for (command, class, problem, action) in cases {
        let (runtime, handle) = start(server("broken", command)).await;
        reaches(&handle, StateName::PermanentlyFailed).await;
        let status = handle.status();
        let fault = status.last_error.unwrap();
        assert_eq!(fault.class, class);
        says(&fault, &[problem]);
        says(&status.action.unwrap().to_string(), &[action]);
        assert_eq!(status.generation.get(), 1, "tried once");

        let (error, took) = fails(&handle, secs(60)).await;
        assert!(took < BUSY, "at once, not after {took:?}");
        says(&error, &["broken", problem, action]);
        let failed = matches!(
            error,
            CallError::NotSent {
                reason: NotSentReason::Failed { .. },
                ..
            }
        );
        assert!(failed, "{error:?}");
        // A call does not wait for a server that needs the user.
        let not_ready = runtime.ready(10 * DEADLINE);
        let not_ready = tokio::time::timeout(DEADLINE, not_ready).await.unwrap();
        let not_ready = not_ready.unwrap_err();
        says(&not_ready, &["broken failed", problem]);
        runtime.shutdown(secs(5)).await;
    }
}

#[tokio::test]
async fn a_command_that_exits_at_once_says_its_last_words_in_the_error_and_the_status() {
    let marker = Marker::new("exits");
    let flags = ["--exit-at-once", "3", "--stderr", "no licence found"];
    let (runtime, handle) = start(server("exits", fixture(&marker, &flags))).await;
    let mut status = handle.watch();
    eventually_in(DEADLINE, "the first fault", &mut status, |status| {
        status.last_error.is_some()
    })
    .await;
    let (error, took) = fails(&handle, millis(300)).await;
    assert!(took < millis(300) + BUSY, "{took:?}");
    assert_eq!(error.known(), Known::NotSent);
    says(
        &error,
        &["exits", "code 3", "no licence found", "reconnecting"],
    );
    let status = handle.status();
    assert_eq!(status.state, StateName::Reconnecting, "it is tried again");
    let fault = status.last_error.unwrap();
    assert_eq!(fault.class, FaultClass::Exited);
    says(&fault, &["code 3", "no licence found"]);
    runtime.shutdown(secs(5)).await;
    assert_eq!(marker.processes(), []);
}

#[tokio::test]
async fn a_command_that_exits_until_it_is_parked_still_says_why() {
    let marker = Marker::new("parked");
    let flags = ["--exit-at-once", "3", "--stderr", "no licence found"];
    let two_tries = settings(|settings| {
        settings.budget.attempts = 2;
        settings.backoff.initial = millis(10);
    });
    let config = server("exits", fixture(&marker, &flags)).settings(two_tries);
    let (runtime, handle) = start(config).await;
    let (error, took) = fails(&handle, secs(60)).await;
    assert!(took < secs(60), "told when it was parked");
    says(
        &error,
        &["exits", "disconnected", "code 3", "no licence found"],
    );
    assert_eq!(handle.status().state, StateName::Disconnected);
    assert_eq!(handle.status().action, Some(Action::FixServer));
    runtime.shutdown(secs(5)).await;
    assert_eq!(marker.processes(), []);
}

#[tokio::test]
async fn a_banner_before_the_first_message_is_passed_over() {
    let marker = Marker::new("banner");
    let banner = "Welcome!\n{\"not\": \"a message\"}\n\n[1, 2";
    let flags = ["--banner", banner];
    let (runtime, handle) = ready(server("chatty", fixture(&marker, &flags))).await;
    let answer = handle.call_tool("echo", json!({ "a": 1 })).await;
    assert_eq!(structured(answer), json!({ "a": 1 }));
    assert_eq!(handle.status().generation.get(), 1);
    runtime.shutdown(secs(5)).await;
    assert_eq!(marker.processes(), []);
}

// No reply.

#[tokio::test(start_paused = true)]
async fn a_call_ends_at_its_deadline_while_the_handshake_is_not_answered() {
    let silent = ScriptedServer::new(Script::new().on("initialize", Behaviour::silence()));
    let (_runtime, handle) = start(server("mute", scripted(&silent))).await;
    let (error, took) = fails(&handle, millis(1_500)).await;
    assert!(took >= millis(1_500) && took <= millis(1_500) + TOLERANCE);
    assert!(
        matches!(error, CallError::Deadline { sent: false, .. }),
        "{error:?}"
    );
    says(
        &error,
        &["mute", "1.5s", "not sent: the server is connecting"],
    );
    assert_eq!(handle.status().state, StateName::Connecting);
}

#[tokio::test]
async fn a_child_that_does_not_answer_the_handshake_is_ended_and_tried_again() {
    let marker = Marker::new("mute");
    let impatient = settings(|settings| {
        settings.timeouts.connect = millis(300);
        settings.close.stdin = millis(200);
    });
    let command = fixture(&marker, &["--mute-initialize"]);
    let (runtime, handle) = start(server("mute", command).settings(impatient)).await;
    let mut status = handle.watch();
    let fault = eventually_in(DEADLINE, "the fault", &mut status, |status| {
        status.last_error.clone()
    })
    .await;
    assert_eq!(fault.class, FaultClass::Timeout);
    says(&fault, &["handshake", "300ms"]);
    let (error, took) = fails(&handle, millis(300)).await;
    assert!(took < millis(300) + BUSY, "{took:?}");
    says(&error, &["mute", "handshake"]);
    assert_eq!(handle.status().state, StateName::Reconnecting);
    eventually_in(DEADLINE, "another try", &mut status, |status| {
        status.generation.get() >= 2
    })
    .await;
    assert!(marker.processes().len() <= 1, "one at a time");
    runtime.shutdown(secs(5)).await;
    assert_eq!(marker.processes(), []);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_answered_ends_at_its_deadline() {
    let silent = ScriptedServer::new(Script::new().on_call("echo", Behaviour::silence()));
    let (_runtime, handle) = ready(server("mute", scripted(&silent))).await;
    let (error, took) = fails(&handle, millis(1_500)).await;
    assert!(took >= millis(1_500) && took <= millis(1_500) + TOLERANCE);
    assert!(
        matches!(
            error,
            CallError::Deadline {
                sent: true,
                idle: false,
                ..
            }
        ),
        "{error:?}"
    );
    says(
        &error,
        &["mute", "tools/call", "1.5s", "may have taken effect"],
    );
    silent
        .record()
        .until(DEADLINE, "the cancellation", |record| {
            record.cancelled().len() == 1
        })
        .await;
}

#[tokio::test]
async fn a_child_that_does_not_answer_a_call_is_told_and_stays_connected() {
    let marker = Marker::new("deaf");
    let log = std::env::temp_dir().join(marker.value());
    let flags = ["--mute-calls", "--cancel-log", log.to_str().unwrap()];
    let (runtime, handle) = ready(server("deaf", fixture(&marker, &flags))).await;
    let (error, took) = fails(&handle, millis(300)).await;
    assert!(took >= millis(300) && took < millis(300) + BUSY, "{took:?}");
    assert!(
        matches!(error, CallError::Deadline { sent: true, .. }),
        "{error:?}"
    );
    eventually(DEADLINE, "the cancellation", || {
        std::fs::read_to_string(&log).is_ok_and(|log| log.lines().count() == 1)
    })
    .await;
    handle.ping().await.unwrap();
    let status = handle.status();
    assert_eq!(
        (status.state, status.generation.get()),
        (StateName::Connected, 1)
    );
    runtime.shutdown(secs(5)).await;
    assert_eq!(marker.processes(), []);
    std::fs::remove_file(log).unwrap();
}

// No protocol in common.

#[tokio::test]
async fn another_protocol_version_fails_for_good_and_names_both_sides() {
    let marker = Marker::new("version");
    let command = fixture(&marker, &["--protocol", "1999-01-01"]);
    let (runtime, handle) = start(server("ancient", command)).await;
    reaches(&handle, StateName::PermanentlyFailed).await;
    let status = handle.status();
    let fault = status.last_error.unwrap();
    assert_eq!(fault.class, FaultClass::IncompatibleVersion);
    says(&fault, &["1999-01-01", "2025-11-25", "2024-11-05"]);
    assert_eq!(status.action, Some(Action::UpdateServer));
    let (error, _) = fails(&handle, secs(60)).await;
    says(
        &error,
        &["ancient", "1999-01-01", "2025-11-25", "update the server"],
    );
    eventually(DEADLINE, "the child gone", || marker.processes().is_empty()).await;
    assert_eq!(handle.status().generation.get(), 1, "tried once");
    runtime.shutdown(secs(5)).await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_the_version_names_both_sides_too() {
    let data = json!({ "supported": ["2099-01-01"], "requested": "2025-11-25" });
    let refusal = ErrorData::invalid_params("Unsupported protocol version", Some(data));
    let script = Script::new().on("initialize", Behaviour::error(refusal));
    let (_runtime, handle) = start(server("ahead", scripted(&ScriptedServer::new(script)))).await;
    reaches(&handle, StateName::PermanentlyFailed).await;
    says(
        &handle.status().last_error.unwrap(),
        &["2099-01-01", "2025-11-25"],
    );
}

// Invalid requests and fleets.

#[tokio::test(start_paused = true)]
async fn a_request_that_makes_no_sense_is_not_sent() {
    let scripted_server = ScriptedServer::new(Script::new());
    let (runtime, handle) = ready(server("one", scripted(&scripted_server))).await;
    for arguments in [json!([1]), json!("text"), json!(7), json!(true)] {
        let error = handle.call_tool("echo", arguments).await.unwrap_err();
        assert_eq!(error.known(), Known::NotSent);
        says(&error, &["one", "arguments of a tool are an object"]);
    }
    let (error, took) = fails(&handle, Duration::ZERO).await;
    assert_eq!((error.known(), took), (Known::NotSent, Duration::ZERO));
    assert_eq!(scripted_server.record().calls("echo"), []);

    // Far beyond the range of the clock.
    let forever = handle.call_tool("echo", json!({}));
    let forever = forever.deadline(Duration::MAX).idle_timeout(Duration::MAX);
    forever.await.unwrap();
    assert_eq!(handle.status().restarts, 0);

    let unknown = runtime.server("two").unwrap_err();
    says(&unknown, &["\"two\"", "configured: one"]);
}

#[tokio::test]
async fn a_fleet_that_makes_no_sense_does_not_start() {
    let scripted_server = ScriptedServer::new(Script::new());
    let config = || server("one", scripted(&scripted_server));
    let twice = Runtime::builder().server(config()).server(config());
    let error = twice.start().await.unwrap_err();
    assert!(matches!(error, StartError::DuplicateServer(_)), "{error:?}");
    says(&error, &["one", "twice"]);

    let spinning = settings(|settings| settings.backoff.initial = Duration::ZERO);
    let spinning = Runtime::builder().server(config().settings(spinning));
    let error = spinning.start().await.unwrap_err();
    says(&error, &["one", "reconnect.initialDelay"]);
    assert_eq!(scripted_server.record().opened(), [0; 0]);
}

// Nothing is left behind.

#[test]
fn nothing_is_left_behind_by_any_of_them() {
    let name = "nothing_is_left_behind_by_any_of_them";
    in_own_process(name, 2 * DEADLINE, async || {
        let marker = Marker::new("behind");
        let round = async |flags: &[&str], deadline| {
            let command = match flags {
                ["not found"] => Transport::stdio("mcpvisor-no-such-command"),
                flags => fixture(&marker, flags),
            };
            let (runtime, handle) = start(server("one", command)).await;
            let outcome = handle.call_tool("echo", json!({})).deadline(deadline).await;
            runtime.shutdown(secs(5)).await;
            assert_eq!(marker.processes(), [], "{flags:?}");
            outcome
        };
        // Tokio keeps some descriptors for signals after the first child.
        round(&[], DEADLINE).await.unwrap();
        let before = Snapshot::take();
        let bad: [&[&str]; 6] = [
            &["not found"],
            &["--exit-at-once", "1", "--stderr", "no"],
            &["--mute-initialize"],
            &["--mute-calls"],
            &["--protocol", "1999-01-01"],
            &["--flap"],
        ];
        for flags in bad {
            round(flags, millis(200)).await.unwrap_err();
            assert_returns_to(&before, Slack::NONE, DEADLINE).await;
        }
    });
}

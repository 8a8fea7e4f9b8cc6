//! B5 and B6: a spent budget parks the server, and permanent failures wait for the user.

use std::time::Duration;

use mcpvisor::{
    Action, CallError, FaultClass, NotSentReason, Runtime, ServerHandle, ServerSettings, StateName,
    Transport,
};
use mcpvisor_testkit::eventually_in;
use mcpvisor_testkit::scripted::{Script, ScriptedServer};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::fleet::{DEADLINE, fleet, reaches, ready_after, secs, server, structured};
use crate::{assert_about, dead, exact, in_time, pauses, started};

/// A dead server with a spent budget.
async fn parked(
    change: impl FnOnce(&mut ServerSettings),
) -> (ScriptedServer, Runtime, ServerHandle) {
    let scripted = ScriptedServer::new(dead());
    let settings = exact(|settings| {
        settings.budget.attempts = 2;
        change(settings);
    });
    let (runtime, handle) = started(&scripted, settings).await;
    in_time(&handle, StateName::Disconnected).await;
    sleep(secs(5)).await;
    assert_eq!(scripted.record().opened(), [1, 2]);
    (scripted, runtime, handle)
}

#[tokio::test(start_paused = true)]
async fn a_parked_server_is_probed_ever_more_slowly_and_comes_back_by_itself() {
    let (scripted, _runtime, handle) = parked(|_| {}).await;
    let status = handle.status();
    assert!(status.retry_in().is_some(), "it says when");
    assert!(
        status.action.unwrap().to_string().contains("reconnect"),
        "and what to do"
    );
    sleep(secs(3_600)).await;
    let pauses = pauses(&scripted.record());
    // Each probe increases the next pause, up to five minutes; an hour shows no burst.
    assert_about(&pauses[1..6], &[30, 60, 120, 240, 300].map(secs));
    assert!(
        pauses[6..].iter().all(|pause| *pause >= secs(300)),
        "{pauses:?}"
    );
    assert_eq!(handle.status().state, StateName::Disconnected);

    scripted.control().set_script(Script::new());
    in_time(&handle, StateName::Connected).await;
    structured(handle.call_tool("echo", json!({})).await);
    // Proven: the next loss starts with the full budget.
    let (generation, begun) = (handle.status().generation.get(), Instant::now());
    scripted.control().end();
    ready_after(&handle, generation).await;
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_parked_server_is_woken_at_once_by_reconnect_enable_or_a_call() {
    let mut woken = Vec::new();
    for how in ["reconnect", "enable", "call"] {
        let (scripted, runtime, handle) = parked(|_| {}).await;
        scripted.control().set_script(Script::new());
        let begun = Instant::now();
        match how {
            "reconnect" => runtime.reconnect("a").await.unwrap(),
            "enable" => runtime.enable("a").await.unwrap(),
            _ => drop(structured(handle.call_tool("echo", json!({})).await)),
        }
        reaches(&handle, StateName::Connected).await;
        woken.push((how, scripted.record().opened().len(), begun.elapsed()));
    }
    let at_once = |how| (how, 3, Duration::ZERO);
    assert_eq!(woken, ["reconnect", "enable", "call"].map(at_once));
}

#[tokio::test(start_paused = true)]
async fn calls_that_wake_a_parked_server_are_no_storm() {
    let (scripted, _runtime, handle) = parked(|_| {}).await;
    let before = scripted.record().opened().len();
    let begun = Instant::now();
    // Callers that retry as soon as a call fails.
    let mut callers = JoinSet::new();
    for _ in 0..50 {
        let handle = handle.clone();
        callers.spawn(async move {
            while begun.elapsed() < secs(20) {
                let failed = handle.call_tool("echo", json!({})).await.unwrap_err();
                let CallError::NotSent { reason, .. } = &failed else {
                    panic!("{failed}");
                };
                assert!(matches!(reason, NotSentReason::Parked(Some(_))), "{reason}");
            }
        });
    }
    callers.join_all().await;
    let connects = scripted.record().opened().len() - before;
    assert!((10..=21).contains(&connects), "{connects} in 20 s");
}

#[tokio::test(start_paused = true)]
async fn a_call_wakes_nothing_where_the_config_says_so() {
    let (scripted, _runtime, handle) =
        parked(|settings| settings.budget.wake_on_call = false).await;
    scripted.control().set_script(Script::new());
    let begun = Instant::now();
    let failed = handle.call_tool("echo", json!({})).await.unwrap_err();
    assert!(failed.to_string().contains("reconnect it"), "{failed}");
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(scripted.record().opened(), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn an_incompatible_protocol_version_fails_at_once_and_for_good() {
    let scripted = ScriptedServer::new(Script::new().protocol("1999-12-31"));
    let (runtime, handle) = started(&scripted, ServerSettings::default()).await;
    reaches(&handle, StateName::PermanentlyFailed).await;
    let status = handle.status();
    let fault = status.last_error.unwrap();
    assert_eq!(fault.class, FaultClass::IncompatibleVersion);
    assert!(fault.message.contains("1999-12-31"), "{fault}");
    assert_eq!(status.action, Some(Action::UpdateServer));
    // A call fails immediately with advice, and triggers no connection attempt.
    let begun = Instant::now();
    let failed = handle.call_tool("echo", json!({})).await.unwrap_err();
    assert!(failed.to_string().contains("update the server"), "{failed}");
    assert_eq!(begun.elapsed(), Duration::ZERO);
    sleep(secs(86_400)).await;
    assert_eq!(scripted.record().opened(), [1], "nothing is retried");
    assert_eq!(scripted.control().live(), [] as [u64; 0], "nothing is left");

    // After a repair, each of these ends that state.
    for generation in [2, 4] {
        scripted.control().set_script(Script::new());
        match generation {
            2 => runtime.reconnect("a").await.unwrap(),
            _ => runtime.enable("a").await.unwrap(),
        }
        ready_after(&handle, generation - 1).await;
        assert_eq!(handle.status().last_error, None);
        structured(handle.call_tool("echo", json!({})).await);
        scripted
            .control()
            .set_script(Script::new().protocol("1999-12-31"));
        scripted.control().end();
        reaches(&handle, StateName::PermanentlyFailed).await;
    }
}

#[tokio::test]
async fn a_command_that_does_not_exist_fails_at_once_and_says_so() {
    let command = Transport::stdio("mcpvisor-no-such-command");
    let runtime = fleet([server("a", command)]).await;
    let handle = runtime.server("a").unwrap();
    reaches(&handle, StateName::PermanentlyFailed).await;
    let status = handle.status();
    assert_eq!((status.generation.get(), status.attempts_used), (1, 1));
    let fault = status.last_error.unwrap();
    assert_eq!(fault.class, FaultClass::CommandNotFound);
    assert!(
        fault.message.contains("mcpvisor-no-such-command"),
        "{fault}"
    );
    let action = status.action.unwrap().to_string();
    let failed = handle.call_tool("echo", Value::Null).await.unwrap_err();
    assert!(failed.to_string().ends_with(&action), "{failed}");
    // The user may retry; it fails again, once.
    runtime.reconnect("a").await.unwrap();
    eventually_in(DEADLINE, "another try", &mut handle.watch(), |status| {
        status.generation.get() == 2 && status.state == StateName::PermanentlyFailed
    })
    .await;
}

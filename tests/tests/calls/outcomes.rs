//! C1 and C2: exactly one outcome within the deadline, whatever happens, and it is accurate.

use std::collections::HashMap;
use std::future::IntoFuture;
use std::time::Duration;

use mcpvisor::rmcp::model::{ErrorCode, ErrorData};
use mcpvisor::{CallError, Known, Runtime, ServerHandle, ServerSettings, Transport};
use mcpvisor_testkit::processes::{self, Marker};
use mcpvisor_testkit::scripted::{Behaviour, Script, ScriptedServer};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::fleet::{
    DEADLINE, eager, fixture, millis, pid, ready, ready_after, secs, server, structured,
};
use crate::{Answer, started};

const CALLS: u64 = 200;

/// The moment of the fault. Some replies arrive and some deadlines pass at the same moment.
const FAULT: Duration = Duration::from_millis(50);

/// Some calls finish immediately, some at the moment of the fault, some later, some never.
fn work(number: u64) -> Behaviour {
    match number % 4 {
        0 => Behaviour::answer(),
        1 => Behaviour::answer().after(FAULT),
        2 => Behaviour::answer().after(FAULT * 2),
        _ => Behaviour::silence(),
    }
}

fn deadline(number: u64) -> Duration {
    match number % 3 {
        0 => FAULT,
        1 => FAULT * 2,
        _ => secs(10),
    }
}

/// Starts many calls, does something to their server, and checks the outcome of each.
async fn all_have_one_honest_outcome(
    fault: impl AsyncFnOnce(&Runtime, &ServerHandle, &ScriptedServer),
) {
    let script = Script::new().tool(
        "work",
        Behaviour::choose(|call| work(call.params["arguments"]["n"].as_u64().unwrap())),
    );
    let (scripted, runtime, handle) = started(script, eager()).await;
    let mut calls = JoinSet::new();
    for number in 0..CALLS {
        let handle = handle.clone();
        calls.spawn(async move {
            let begun = Instant::now();
            let call = handle.call_tool("work", json!({ "n": number }));
            let answer = call.deadline(deadline(number)).await;
            (number, answer, begun.elapsed())
        });
    }
    sleep(FAULT).await;
    fault(&runtime, &handle, &scripted).await;
    let all = tokio::time::timeout(secs(60), calls.join_all()).await;
    let all = all.expect("a call without an outcome");

    let mut runs = HashMap::<u64, usize>::new();
    for call in scripted.record().calls("work") {
        *runs
            .entry(call.arguments["n"].as_u64().unwrap())
            .or_default() += 1;
    }
    let mut kinds = HashMap::<Known, usize>::new();
    for (number, answer, took) in all {
        let ran = runs.get(&number).copied().unwrap_or(0);
        assert!(took <= deadline(number) + millis(1), "{number}: {took:?}");
        let known = honest(number, &answer, ran);
        *kinds.entry(known).or_default() += 1;
    }
    assert!(
        kinds.len() > 1,
        "the fault came too early or too late: {kinds:?}"
    );
    assert_eq!(kinds.values().sum::<usize>(), CALLS as usize);
}

/// Compares the outcome of a call with the number of times it reached the server.
#[track_caller]
fn honest(number: u64, answer: &Answer, ran: usize) -> Known {
    let error = match answer {
        Ok(result) => {
            assert_eq!(result.structured_content, Some(json!({ "n": number })));
            assert_eq!(ran, 1, "{number} was answered");
            return Known::Answered;
        }
        Err(error) => error,
    };
    match error.known() {
        Known::NotSent => assert_eq!(ran, 0, "{error}"),
        Known::Unknown => assert!(ran <= 1, "{number} ran {ran} times: {error}"),
        Known::Refused | Known::Answered => panic!("nobody said so: {error}"),
    }
    assert!(
        !matches!(error, CallError::InvalidRequest { .. }),
        "{error}"
    );
    error.known()
}

#[tokio::test(start_paused = true)]
async fn every_call_has_one_honest_outcome_through_a_loss() {
    all_have_one_honest_outcome(async |_, _, scripted| scripted.control().end()).await;
}

#[tokio::test(start_paused = true)]
async fn every_call_has_one_honest_outcome_through_a_reconnect() {
    all_have_one_honest_outcome(async |runtime, _, _| runtime.reconnect("a").await.unwrap()).await;
}

#[tokio::test(start_paused = true)]
async fn every_call_has_one_honest_outcome_through_a_report_that_it_is_broken() {
    all_have_one_honest_outcome(async |_, handle, _| {
        handle.report_broken(handle.status().generation);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn every_call_has_one_honest_outcome_through_a_disable() {
    all_have_one_honest_outcome(async |runtime, _, _| {
        runtime.disable("a").await.unwrap();
        runtime.enable("a").await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn every_call_has_one_honest_outcome_through_a_crash_of_the_actor() {
    all_have_one_honest_outcome(async |_, handle, _| handle.crash_actor()).await;
}

#[tokio::test(start_paused = true)]
async fn every_call_has_one_honest_outcome_through_a_crash_of_the_supervisor() {
    all_have_one_honest_outcome(async |runtime, _, _| runtime.crash_supervisor()).await;
}

#[tokio::test(start_paused = true)]
async fn every_call_has_one_honest_outcome_through_a_removal() {
    all_have_one_honest_outcome(async |runtime, _, _| runtime.remove("a").await.unwrap()).await;
}

#[tokio::test(start_paused = true)]
async fn every_call_has_one_honest_outcome_through_a_shutdown() {
    all_have_one_honest_outcome(async |runtime, _, _| {
        runtime.shutdown(secs(1)).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn every_call_has_one_honest_outcome_when_the_server_panics() {
    all_have_one_honest_outcome(async |_, handle, scripted| {
        let poison = Behaviour::choose(|_| panic!("the server panics"));
        scripted.control().update(|script| {
            *script = script.clone().tool("poison", poison);
        });
        let poisoned = handle.call_tool("poison", json!({}));
        poisoned.deadline(secs(1)).await.unwrap_err();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_passes_in_the_moment_of_the_loss_is_one_outcome() {
    for early in [true, false] {
        let script = Script::new().tool("silent", Behaviour::silence());
        let scripted = ScriptedServer::new(script);
        let (serving, end) = (scripted.clone(), Instant::now() + secs(10));
        let dies = Transport::channel(move |side| {
            let serving = serving.clone();
            async move {
                let generation = side.generation.get();
                let serving = serving.serve(side.incoming, side.outgoing, generation);
                if early {
                    let _ = tokio::time::timeout_at(end, serving).await;
                } else {
                    // Its timer was created after that of the deadline.
                    tokio::select! {
                        () = serving => {}
                        () = async { sleep(secs(5)).await; tokio::time::sleep_until(end).await } => {}
                    }
                }
            }
        });
        let (_runtime, handle) = ready(server("a", dies)).await;
        let silent = handle
            .call_tool("silent", json!({}))
            .deadline(end - Instant::now());
        let answer = tokio::time::timeout(secs(20), silent.into_future()).await;
        let lost = answer.expect("an outcome").unwrap_err();
        assert_eq!(lost.known(), Known::Unknown, "{lost}");
        assert_eq!(Instant::now(), end);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_has_one_honest_outcome_while_everything_happens_at_once() {
    const CALLERS: u64 = 32;
    const AT_LEAST: u64 = 60;
    const AT_MOST: u64 = 1_000_000;
    // Connections opened during the calls, at least.
    const GENERATIONS: u64 = 10;
    let script = Script::new().tool("work", Behaviour::answer().after(millis(1)));
    let (scripted, runtime, handle) = started(script, eager()).await;
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let handle = handle.clone();
        callers.spawn(async move {
            let mut answers = Vec::new();
            for done in 0..AT_MOST {
                if done >= AT_LEAST && handle.status().generation.get() >= GENERATIONS {
                    break;
                }
                let number = caller * AT_MOST + done;
                let call = handle.call_tool("work", json!({ "n": number }));
                answers.push((number, call.deadline(DEADLINE).await));
            }
            answers
        });
    }
    let chaos = tokio::spawn({
        let (runtime, handle, control) = (runtime.clone(), handle.clone(), scripted.control());
        async move {
            for fault in 0.. {
                match fault % 4 {
                    0 if !control.live().is_empty() => control.end(),
                    1 => handle.crash_actor(),
                    2 => drop(runtime.reconnect("a").await),
                    _ => handle.report_broken(handle.status().generation),
                }
                sleep(millis(3)).await;
            }
        }
    });
    let answers = tokio::time::timeout(DEADLINE, callers.join_all()).await;
    let answers = answers.expect("a call without an outcome");
    chaos.abort();
    let generation = handle.status().generation.get();
    assert!(generation >= GENERATIONS, "{generation} connections");
    runtime.shutdown(secs(5)).await;

    let mut runs = HashMap::<u64, usize>::new();
    for call in scripted.record().calls("work") {
        *runs
            .entry(call.arguments["n"].as_u64().unwrap())
            .or_default() += 1;
    }
    let answers: Vec<_> = answers.into_iter().flatten().collect();
    assert!(answers.len() as u64 >= CALLERS * AT_LEAST);
    let known = |(number, answer): (u64, Answer)| {
        honest(number, &answer, runs.get(&number).copied().unwrap_or(0))
    };
    let known: Vec<_> = answers.into_iter().map(known).collect();
    assert!(known.contains(&Known::Unknown), "nobody was hit");
}

#[tokio::test]
async fn every_call_to_a_child_has_one_honest_outcome_though_it_is_killed_again_and_again() {
    const CALLERS: usize = 16;
    const KILLS: u64 = 5;
    let marker = Marker::new("c1");
    let file = std::env::temp_dir().join(marker.value());
    let (runtime, handle) = ready(server("a", fixture(&marker, &[])).settings(eager())).await;
    let (stop, stopped) = watch::channel(false);
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (handle, file, stopped) = (handle.clone(), file.clone(), stopped.clone());
        callers.spawn(async move {
            let mut answers = Vec::new();
            while !*stopped.borrow() {
                let text = format!("{caller}-{}", answers.len());
                let arguments = json!({ "file": file, "text": text, "ms": 1 });
                answers.push((text, handle.call_tool("append", arguments).await));
            }
            answers
        });
    }
    for kill in 1..=KILLS {
        processes::kill(pid(&handle).await);
        ready_after(&handle, kill).await;
    }
    stop.send_replace(true);
    let answers = tokio::time::timeout(DEADLINE, callers.join_all()).await;
    runtime.shutdown(secs(5)).await;
    marker.assert_none_left(DEADLINE).await;

    let lines = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let mut unknown = 0;
    for (text, answer) in answers.unwrap().into_iter().flatten() {
        let ran = lines.lines().filter(|line| *line == text).count();
        match answer {
            Ok(_) => assert_eq!(ran, 1, "{text}"),
            Err(error) if error.known() == Known::Unknown => {
                assert!(ran <= 1, "{text} ran {ran} times");
                unknown += 1;
            }
            Err(error) => panic!("nothing is refused or too late here: {error}"),
        }
    }
    assert!(unknown > 0, "the kills met no call in flight");
}

#[tokio::test(start_paused = true)]
async fn an_outcome_says_what_is_known() {
    let refusal = ErrorData::new(ErrorCode(-32_000), "no such issue", None);
    let script = Script::new()
        .tool("refuse", Behaviour::error(refusal))
        .tool("fail", Behaviour::tool_error("no luck"))
        .tool("silent", Behaviour::silence())
        .tool("die", Behaviour::end());
    let (scripted, runtime, handle) = started(script, ServerSettings::default()).await;
    let call = |tool: &str| handle.call_tool(tool, json!({}));

    // Answered: with a result, with an error result, with an error.
    structured(call("echo").await);
    assert_eq!(call("fail").await.unwrap().is_error, Some(true));
    let refused = call("refuse").await.unwrap_err();
    assert_eq!(
        (refused.known(), refused.code()),
        (Known::Answered, "answered_with_error")
    );
    assert_eq!(
        refused.to_string(),
        "a: tools/call failed: no such issue (code -32000)"
    );
    // Sent, with an unknown outcome: lost, or too late.
    let lost = call("die").await.unwrap_err();
    assert_eq!(
        (lost.known(), lost.code()),
        (Known::Unknown, "outcome_unknown")
    );
    assert!(
        lost.to_string().contains("check whether it took effect"),
        "{lost}"
    );
    let late = call("silent").deadline(secs(1)).await.unwrap_err();
    assert_eq!((late.known(), late.code()), (Known::Unknown, "deadline"));
    // Not sent: wrong arguments, disabled.
    let wrong = handle.call_tool("echo", json!([1])).await.unwrap_err();
    assert_eq!(
        (wrong.known(), wrong.code()),
        (Known::NotSent, "invalid_request")
    );
    runtime.disable("a").await.unwrap();
    let off = call("echo").await.unwrap_err();
    assert_eq!((off.known(), off.code()), (Known::NotSent, "not_sent"));
    assert_eq!(
        off.to_string(),
        "a: not sent: the server is disabled; enable it first"
    );
    assert_eq!(scripted.record().calls("echo").len(), 1);
}

//! Every connection has a generation, and only the newest one counts.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

mod fleet;

use std::future::IntoFuture;

use fleet::{
    DEADLINE, eager, fleet, millis, reaches, ready, ready_after, secs, server, settings, structured,
};
use mcpvisor::rmcp::model::{
    CallToolResult, InitializeResult, ListToolsResult, ProtocolVersion, ServerCapabilities,
    ServerResult,
};
use mcpvisor::{CallError, Generation, ServerHandle, StateName};
use mcpvisor_testkit::eventually_in;
use mcpvisor_testkit::scripted::{Behaviour, Listing, Script, ScriptedServer, ToolCall, tool};
use serde_json::json;

/// Lets all pending work finish: under paused time, a timer fires only when every task is idle.
async fn settle() {
    tokio::time::sleep(millis(1)).await;
}

async fn in_flight(handle: &ServerHandle, calls: usize) {
    mcpvisor_testkit::eventually(DEADLINE, "calls in flight", || {
        handle.status().in_flight == calls
    })
    .await;
}

fn tool_names(handle: &ServerHandle) -> Vec<String> {
    let catalog = handle.catalog();
    catalog.tools.iter().map(|t| t.name.to_string()).collect()
}

// ---- G1: every generation is larger than all earlier ones

#[tokio::test(start_paused = true)]
async fn every_connection_has_a_larger_generation_than_all_before_it() {
    let good = Script::new();
    let scripted = ScriptedServer::new(good.clone());
    let (runtime, handle) = ready(server("a", scripted.transport()).settings(eager())).await;
    let control = scripted.control();
    let mut known = vec![handle.status().generation.get()];
    let mut reconnected = async |how: &str| {
        let last = *known.last().unwrap();
        ready_after(&handle, last).await;
        let now = handle.status().generation.get();
        assert_eq!(now, last + 1, "after {how}");
        known.push(now);
    };

    control.end();
    reconnected("a loss").await;
    runtime.reconnect("a").await.unwrap();
    reconnected("a wish").await;
    handle.report_broken(handle.status().generation);
    reconnected("a report").await;
    for _ in 0..3 {
        handle.crash_actor();
        reconnected("a crash of the actor").await;
    }
    runtime.disable("a").await.unwrap();
    handle.crash_actor();
    settle().await;
    runtime.enable("a").await.unwrap();
    reconnected("a time off, with a crash in it").await;

    // Failed attempts have generations too.
    control.set_script(good.clone().on("initialize", Behaviour::end()));
    control.end();
    let mut status = handle.watch();
    eventually_in(DEADLINE, "some failed connects", &mut status, |status| {
        status.attempt >= 4
    })
    .await;
    control.set_script(good);
    ready_after(&handle, 8).await;
    let last = handle.status().generation.get();
    assert!(last >= 12, "{last}");
    assert_eq!(scripted.record().opened(), (1..=last).collect::<Vec<_>>());
}

// ---- G2: only the current generation changes anything

#[tokio::test(start_paused = true)]
async fn a_late_result_of_an_old_generation_changes_nothing() {
    let late = Behaviour::answer_with(ListToolsResult::with_all_items(vec![tool("intruder")]));
    let first = Script::new().tool("slow", Behaviour::answer().held()).on(
        "tools/list",
        Behaviour::first(1, Behaviour::answer(), late.held()),
    );
    let scripted = ScriptedServer::new(Script::new()).on_generation(1, first);
    let (runtime, handle) = ready(server("a", scripted.transport())).await;
    let control = scripted.control();
    let before = handle.catalog();
    assert_eq!(tool_names(&handle), ["echo", "slow"]);

    // The old connection drains: it has a call to finish and a list to answer.
    let slow = tokio::spawn(handle.call_tool("slow", json!({ "n": 1 })).into_future());
    in_flight(&handle, 1).await;
    control.tools_changed();
    let asked_twice =
        |record: &mcpvisor_testkit::scripted::Record| record.received("tools/list").len() == 2;
    let record = scripted.record();
    record.until(DEADLINE, "the refresh", asked_twice).await;
    runtime.reconnect("a").await.unwrap();
    settle().await;
    assert_eq!(handle.status().state, StateName::Reconnecting);

    // Its list arrives late, and it announces another change.
    control.release("tools/list", 1);
    settle().await;
    control.tools_changed();
    settle().await;
    assert_eq!(tool_names(&handle), ["echo", "slow"]);
    assert_eq!(handle.catalog().revision, before.revision);
    assert_eq!(record.received("tools/list").len(), 2, "nobody asked again");
    assert_eq!(handle.status().state, StateName::Reconnecting);
    // Only its call is still delivered.
    control.release("slow", 1);
    assert_eq!(structured(slow.await.unwrap()), json!({ "n": 1 }));

    ready_after(&handle, 1).await;
    assert_eq!(tool_names(&handle), ["echo"]);
    assert_eq!(handle.catalog().generation.get(), 2);
    assert_eq!(record.opened(), [1, 2]);
    assert!(handle.status().dropped_late >= 2, "counted");
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_of_an_old_generation_proves_nothing() {
    let scripted = ScriptedServer::new(Script::new().tool("slow", Behaviour::answer().held()));
    let three = settings(|settings| settings.budget.attempts = 3);
    let (_runtime, handle) = ready(server("a", scripted.transport()).settings(three)).await;

    // Each connection answers its only caller after it was replaced.
    for generation in 1..=3 {
        reaches(&handle, StateName::Connected).await;
        let slow = tokio::spawn(handle.call_tool("slow", json!({})).into_future());
        in_flight(&handle, 1).await;
        handle.report_broken(Generation::from(generation));
        settle().await;
        scripted.control().release("slow", 1);
        structured(slow.await.unwrap());
    }
    reaches(&handle, StateName::Disconnected).await;
    assert_eq!(scripted.record().opened(), [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_a_request_of_an_earlier_connection_reaches_nobody() {
    let scripted = ScriptedServer::new(Script::new().tool("lost", Behaviour::silence()));
    let (_runtime, handle) = ready(server("a", scripted.transport())).await;
    let lost = tokio::spawn(handle.call_tool("lost", json!({})).into_future());
    in_flight(&handle, 1).await;
    let id = scripted.record().received("tools/call")[0]
        .id
        .clone()
        .unwrap();
    scripted.control().end();
    let unknown = lost.await.unwrap().unwrap_err();
    assert!(
        matches!(unknown, CallError::OutcomeUnknown { .. }),
        "{unknown}"
    );
    ready_after(&handle, 1).await;

    let next = tokio::spawn(handle.call_tool("lost", json!({})).into_future());
    in_flight(&handle, 1).await;
    let answer = CallToolResult::structured(json!({ "late": true }));
    scripted.control().answer(id, Ok(answer.into()));
    settle().await;
    assert!(!next.is_finished(), "another call's answer");
    assert_eq!(handle.status().strays, 1);
    assert_eq!(handle.status().generation.get(), 2);
}

// ---- G3: many callers that fail on one generation cause one reconnect

#[tokio::test(start_paused = true)]
async fn many_reports_of_one_broken_connection_cause_one_reconnect() {
    let scripted = ScriptedServer::new(Script::new());
    let (_runtime, handle) = ready(server("a", scripted.transport()).settings(eager())).await;
    structured(handle.call_tool("echo", json!({})).await);
    let broken = handle.status().generation;

    let reports = |count| {
        (0..count)
            .map(|_| {
                let handle = handle.clone();
                tokio::spawn(async move { handle.report_broken(broken) })
            })
            .collect::<Vec<_>>()
    };
    let early = reports(32);
    ready_after(&handle, 1).await;
    // The slow reports arrive at different times, when the next connection is already live.
    let late = reports(32);
    for report in early.into_iter().chain(late) {
        report.await.unwrap();
        settle().await;
    }
    tokio::time::sleep(secs(60)).await;
    assert_eq!(scripted.record().opened(), [1, 2]);
    assert_eq!(handle.status().state, StateName::Connected);
    // A report about the live connection counts.
    handle.report_broken(handle.status().generation);
    ready_after(&handle, 2).await;
    assert_eq!(scripted.record().opened(), [1, 2, 3]);
    assert!(handle.status().dropped_late >= 63);
}

// ---- G4: handles are stable

#[tokio::test(start_paused = true)]
async fn a_tool_handle_taken_before_a_reconnect_works_after_it() {
    let scripted = ScriptedServer::new(Script::new());
    let (runtime, handle) = ready(server("a", scripted.transport()).settings(eager())).await;
    let echo = handle.tool("echo");
    let mut number = 0;
    let mut works = async |generation: u64| {
        ready_after(&handle, generation - 1).await;
        number += 1;
        let arguments = json!({ "n": number });
        let answer = echo.call(arguments.as_object().unwrap().clone()).await;
        assert_eq!(structured(answer), arguments);
        assert_eq!(echo.definition().unwrap().name, "echo");
        ToolCall {
            generation,
            arguments,
        }
    };

    let mut calls = vec![works(1).await];
    runtime.reconnect("a").await.unwrap();
    calls.push(works(2).await);
    scripted.control().end();
    calls.push(works(3).await);
    handle.crash_actor();
    calls.push(works(4).await);
    runtime.disable("a").await.unwrap();
    assert!(echo.definition().is_none());
    runtime.enable("a").await.unwrap();
    calls.push(works(5).await);
    assert_eq!(scripted.record().calls("echo"), calls);
}

#[tokio::test(start_paused = true)]
async fn a_handle_of_a_removed_server_says_so_and_never_meets_its_namesake() {
    let old = ScriptedServer::new(Script::new());
    let new = ScriptedServer::new(Script::new().tools(Listing::of([tool("other")])));
    let (runtime, handle) = ready(server("a", old.transport())).await;
    runtime.remove("a").await.unwrap();
    runtime.add(server("a", new.transport())).await.unwrap();
    let other = runtime.server("a").unwrap();
    ready_after(&other, 0).await;

    let removed = handle.call_tool("echo", json!({})).await.unwrap_err();
    assert_eq!(
        removed.to_string(),
        "a: not sent: the server was removed; add it again and get a new handle"
    );
    assert_eq!(new.record().calls("echo"), []);
    structured(other.call_tool("other", json!({})).await);
}

#[tokio::test(start_paused = true)]
async fn what_a_server_said_of_itself_is_kept_until_it_says_something_else() {
    let saying = |text: &str| {
        let said = InitializeResult::new(ServerCapabilities::default())
            .with_protocol_version(ProtocolVersion::V_2025_06_18);
        let said = ServerResult::InitializeResult(said.with_instructions(text));
        Script::new().on("initialize", Behaviour::answer_with(said))
    };
    let scripted = ScriptedServer::new(saying("ask nicely"));
    let runtime = fleet([server("a", scripted.transport())]).await;
    let handle = runtime.server("a").unwrap();
    assert!(
        handle.info().is_none(),
        "nothing before the first connection"
    );
    runtime.ready(DEADLINE).await.unwrap();
    let said = || handle.info().unwrap().instructions.clone().unwrap();
    assert_eq!(said(), "ask nicely");

    runtime.disable("a").await.unwrap();
    assert_eq!(said(), "ask nicely");
    scripted.control().set_script(saying("do not ask"));
    runtime.enable("a").await.unwrap();
    reaches(&handle, StateName::Connected).await;
    assert_eq!(said(), "do not ask");
}

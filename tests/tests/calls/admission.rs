//! C5 and C6: calls are limited, scheduled fairly, and run concurrently.

use std::time::Duration;

use mcpvisor::{BusyLimit, CallError, Known, Priority, ServerSettings};
use mcpvisor_testkit::eventually;
use mcpvisor_testkit::processes::Marker;
use mcpvisor_testkit::scripted::{Behaviour, Script, ScriptedServer};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::fleet::{DEADLINE, fixture, fleet, millis, ready, secs, server, settings, structured};
use crate::{received, spawn, started};

#[tokio::test(start_paused = true)]
async fn a_full_line_refuses_at_once_and_takes_calls_again_when_there_is_room() {
    let script = Script::new().tool("slow", Behaviour::answer().held());
    let narrow = settings(|settings| {
        settings.admission.in_flight = 4;
        settings.admission.waiting = 8;
    });
    let (scripted, _runtime, handle) = started(script, narrow).await;
    let calls: Vec<_> = (0..12)
        .map(|_| spawn(handle.call_tool("slow", json!({}))))
        .collect();
    eventually(DEADLINE, "4 in flight, 8 in line", || {
        let status = handle.status();
        (status.in_flight, status.waiting) == (4, 8)
    })
    .await;
    assert_eq!(scripted.record().calls("slow").len(), 4);

    let begun = Instant::now();
    for _ in 0..100 {
        let busy = handle.call_tool("slow", json!({})).await.unwrap_err();
        let limit = BusyLimit::ServerQueue(12);
        assert!(
            matches!(busy, CallError::Busy { limit: found, .. } if found == limit),
            "{busy}"
        );
        assert_eq!(busy.known(), Known::NotSent);
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
    // Each answered call admits one queued call and one new call.
    scripted.control().release("slow", 1);
    received(&scripted.record(), "slow", 5).await;
    let more = spawn(handle.call_tool("slow", json!({})));
    scripted.control().release("slow", 12);
    for call in calls.into_iter().chain([more]) {
        structured(call.await.unwrap());
    }
    assert_eq!(scripted.record().calls("slow").len(), 13);
}

#[tokio::test(start_paused = true)]
async fn the_line_for_a_connection_is_bounded_too() {
    let held = Behaviour::answer().held();
    let scripted = ScriptedServer::new(Script::new().on("initialize", held));
    let narrow = settings(|settings| {
        settings.admission.in_flight = 2;
        settings.admission.waiting = 3;
    });
    let runtime = fleet([server("a", scripted.transport()).settings(narrow)]).await;
    let handle = runtime.server("a").unwrap();
    let calls: Vec<_> = (0..3)
        .map(|n| spawn(handle.call_tool("echo", json!({ "n": n }))))
        .collect();
    eventually(DEADLINE, "all wait", || handle.status().waiting == 3).await;
    let busy = handle.call_tool("echo", json!({})).await.unwrap_err();
    assert!(matches!(busy, CallError::Busy { .. }), "{busy}");
    scripted.control().release("initialize", 1);
    for call in calls {
        structured(call.await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_greedy_client_makes_nobody_else_busy() {
    let script = Script::new().tool("slow", Behaviour::answer().held());
    let (scripted, runtime, handle) = started(script, ServerSettings::default()).await;
    let greedy = runtime.client("greedy").build().server("a").unwrap();
    let call = |number: usize| spawn(greedy.call_tool("slow", json!({ "greedy": number })));
    let greedy_calls: Vec<_> = (0..1_088).map(call).collect();
    eventually(DEADLINE, "no room left", || {
        let status = handle.status();
        (status.in_flight, status.waiting) == (64, 1_024)
    })
    .await;
    let busy = greedy.call_tool("slow", json!({})).await.unwrap_err();
    assert!(matches!(busy, CallError::Busy { .. }), "{busy}");

    let mut modest_calls = Vec::new();
    for client in ["b", "c", "d"] {
        let modest = runtime.client(client).build().server("a").unwrap();
        modest_calls.extend((0..20).map(|_| spawn(modest.call_tool("slow", json!({})))));
    }
    // Each one replaces a call that was not sent.
    let mut evicted = Vec::new();
    for (number, call) in greedy_calls.into_iter().enumerate() {
        if number < 1_088 - 60 {
            continue;
        }
        let error = call.await.unwrap().unwrap_err();
        assert!(matches!(error, CallError::Busy { .. }), "{error}");
        assert_eq!(error.known(), Known::NotSent);
        evicted.push(number);
    }
    scripted.control().release("slow", 1_088);
    for call in modest_calls {
        structured(call.await.unwrap());
    }
    eventually(DEADLINE, "all ran", || handle.status().waiting == 0).await;
    let ran = scripted.record().calls("slow");
    let ran = ran
        .iter()
        .filter_map(|call| call.arguments["greedy"].as_u64());
    let both = ran.filter(|number| evicted.contains(&usize::try_from(*number).unwrap()));
    assert_eq!(both.count(), 0, "an evicted call ran");
}

#[tokio::test(start_paused = true)]
async fn clients_take_turns_however_many_calls_one_of_them_has() {
    let script = Script::new().tool("slow", Behaviour::answer().held());
    let one = settings(|settings| settings.admission.in_flight = 1);
    let (scripted, runtime, _handle) = started(script, one).await;
    let mut calls = Vec::new();
    for (client, count) in [("greedy", 6), ("modest", 2), ("single", 1)] {
        let handle = runtime.client(client).build().server("a").unwrap();
        for number in 1..=count {
            let call = handle.call_tool("slow", json!({ "who": format!("{client} {number}") }));
            calls.push(spawn(call));
            // Sequentially, so that their order is known.
            let waiting = calls.len() - 1;
            eventually(DEADLINE, "it waits", || handle.status().waiting == waiting).await;
        }
    }
    scripted.control().release("slow", calls.len());
    for call in calls {
        structured(call.await.unwrap());
    }
    let order: Vec<_> = scripted.record().calls("slow");
    let order: Vec<_> = order
        .iter()
        .map(|call| call.arguments["who"].as_str().unwrap())
        .collect();
    let expected = [
        "greedy 1", "greedy 2", "modest 1", "single 1", "greedy 3", "modest 2", "greedy 4",
        "greedy 5", "greedy 6",
    ];
    assert_eq!(order, expected);
}

#[tokio::test(start_paused = true)]
async fn an_urgent_call_goes_before_the_others_of_its_client_alone() {
    let script = Script::new().tool("slow", Behaviour::answer().held());
    let one = settings(|settings| settings.admission.in_flight = 1);
    let (scripted, runtime, _handle) = started(script, one).await;
    let asked = [
        ("planner", "first", Priority::Normal),
        ("planner", "some day", Priority::Low),
        ("planner", "second", Priority::Normal),
        ("planner", "urgent", Priority::High),
        ("coder", "of another", Priority::Low),
    ];
    let mut clients = std::collections::HashMap::new();
    let mut calls = Vec::new();
    for (client, what, priority) in asked {
        let client = clients
            .entry(client)
            .or_insert_with(|| runtime.client(client).build());
        let handle = client.server("a").unwrap();
        let call = handle.call_tool("slow", json!({ "what": what }));
        calls.push(spawn(call.priority(priority)));
        let waiting = calls.len() - 1;
        eventually(DEADLINE, "it waits", || handle.status().waiting == waiting).await;
    }
    scripted.control().release("slow", calls.len());
    for call in calls {
        structured(call.await.unwrap());
    }
    let order = scripted.record().calls("slow");
    let order: Vec<_> = order.iter().map(|call| &call.arguments["what"]).collect();
    let expected = ["first", "urgent", "of another", "second", "some day"];
    assert_eq!(order, expected);
}

#[tokio::test(start_paused = true)]
async fn a_client_runs_no_more_than_its_quota_and_holds_up_no_other() {
    let script = Script::new().tool("slow", Behaviour::answer().held());
    let (scripted, runtime, handle) = started(script, ServerSettings::default()).await;
    let client = runtime.client("planner").quota(2).build();
    let of_client = client.server("a").unwrap();
    let calls: Vec<_> = (0..5)
        .map(|_| spawn(of_client.call_tool("slow", json!({}))))
        .collect();
    received(&scripted.record(), "slow", 2).await;
    structured(handle.call_tool("echo", json!({})).await);
    sleep(secs(1)).await;
    assert_eq!(scripted.record().calls("slow").len(), 2);
    scripted.control().release("slow", 5);
    for call in calls {
        structured(call.await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn sixty_four_calls_are_under_way_at_once() {
    let script = Script::new().tool("slow", Behaviour::answer().after(millis(10)));
    let (scripted, _runtime, handle) = started(script, ServerSettings::default()).await;
    let begun = Instant::now();
    let calls: Vec<_> = (0..64)
        .map(|n| spawn(handle.call_tool("slow", json!({ "n": n }))))
        .collect();
    received(&scripted.record(), "slow", 64).await;
    assert_eq!(handle.status().in_flight, 64);
    for (number, call) in calls.into_iter().enumerate() {
        assert_eq!(structured(call.await.unwrap()), json!({ "n": number }));
    }
    assert_eq!(begun.elapsed(), millis(10), "not one after the other");
}

#[tokio::test]
async fn a_child_works_on_sixty_four_calls_at_once() {
    let marker = Marker::new("c6");
    let (runtime, handle) = ready(server("a", fixture(&marker, &[]))).await;
    let begun = Instant::now();
    let calls: Vec<_> = (0..64)
        .map(|_| spawn(handle.call_tool("sleep", json!({ "ms": 500 }))))
        .collect();
    eventually(DEADLINE, "all in flight", || {
        handle.status().in_flight == 64
    })
    .await;
    for call in calls {
        structured(call.await.unwrap());
    }
    // Sequentially they would take 32 s.
    assert!(begun.elapsed() < secs(16), "{:?}", begun.elapsed());
    runtime.shutdown(secs(5)).await;
    marker.assert_none_left(DEADLINE).await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_call_holds_up_no_quick_one() {
    let script = Script::new().tool("slow", Behaviour::answer().held());
    let (scripted, _runtime, handle) = started(script, ServerSettings::default()).await;
    let slow = spawn(handle.call_tool("slow", json!({})));
    received(&scripted.record(), "slow", 1).await;
    let begun = Instant::now();
    for _ in 0..100 {
        structured(handle.call_tool("echo", json!({})).await);
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
    scripted.control().release("slow", 1);
    structured(slow.await.unwrap());
}

//! Pools: which instance gets a call, and what the failure of one costs.

use mcpvisor::{CallError, Client, Runtime, ServerConfig, ServerHandle, StateName};
use mcpvisor_testkit::eventually;
use mcpvisor_testkit::scripted::{Behaviour, Script};
use serde_json::json;

use crate::fleet::{
    DEADLINE, eager, fleet, millis, secs, server, structured, without_reports_of_panics,
};
use crate::spawn;
use crate::stations::Stations;

fn held() -> Script {
    Script::new().tool("slow", Behaviour::answer().held())
}

fn pool(stations: &Stations, instances: usize) -> ServerConfig {
    server("a", stations.transport()).instances(instances)
}

/// Starts a pool and waits until every instance is listed.
async fn started(config: ServerConfig) -> (Runtime, ServerHandle) {
    let runtime = fleet([config]).await;
    runtime.settled(DEADLINE).await;
    let handle = runtime.server("a").unwrap();
    (runtime, handle)
}

fn states(handle: &ServerHandle) -> Vec<StateName> {
    handle.instances().iter().map(|it| it.state).collect()
}

/// Waits until every instance is connected and listed.
async fn all_ready(handle: &ServerHandle) {
    eventually(DEADLINE, "all instances are ready", || {
        let all = handle.instances();
        if all.iter().all(mcpvisor::ServerStatus::is_ready) {
            Ok(())
        } else {
            Err(states(handle))
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_are_spread_over_all_instances() {
    let stations = Stations::new(held());
    let (runtime, handle) = started(pool(&stations, 4)).await;
    let calls: Vec<_> = (0..12)
        .map(|n| spawn(handle.call_tool("slow", json!({ "n": n }))))
        .collect();
    stations.received("slow", 12).await;
    assert_eq!(stations.calls("slow"), [3, 3, 3, 3]);
    let status = runtime.status();
    let shown: Vec<_> = status
        .iter()
        .map(|it| (it.name.as_str(), it.in_flight))
        .collect();
    assert_eq!(shown, [("a", 3); 4], "the status shows each");
    let mut numbers: Vec<_> = status.iter().map(|it| it.instance).collect();
    numbers.dedup();
    assert_eq!(numbers.len(), 4, "{numbers:?}");
    stations.release("slow");
    for call in calls {
        structured(call.await.unwrap());
    }
    // One after the other, they take turns.
    for _ in 0..4 {
        handle.call_tool("echo", json!({})).await.unwrap();
    }
    assert_eq!(stations.calls("echo"), [1; 4]);
}

#[tokio::test(start_paused = true)]
async fn a_busy_instance_gets_no_call_while_another_is_free() {
    let stations = Stations::new(held());
    let (_runtime, handle) = started(pool(&stations, 2)).await;
    let long = spawn(handle.call_tool("slow", json!({})));
    stations.received("slow", 1).await;
    let busy = stations
        .calls("slow")
        .iter()
        .position(|it| *it == 1)
        .unwrap();
    for _ in 0..10 {
        handle.call_tool("echo", json!({})).await.unwrap();
    }
    assert_eq!(stations.calls("echo")[busy], 0);
    stations.release("slow");
    structured(long.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_lost_instance_costs_its_own_calls_and_gets_none_until_it_is_back() {
    let stations = Stations::new(held());
    let (runtime, handle) = started(pool(&stations, 3).settings(eager())).await;
    let calls: Vec<_> = (0..3)
        .map(|_| spawn(handle.call_tool("slow", json!({}))))
        .collect();
    stations.received("slow", 3).await;
    // It stays down: its next handshakes fail.
    let lost = stations.nth(1);
    lost.control().end();
    let mut unknown = 0;
    eventually(DEADLINE, "the call of the lost instance ends", || {
        calls.iter().any(tokio::task::JoinHandle::is_finished)
    })
    .await;
    for _ in 0..6 {
        handle.call_tool("echo", json!({})).await.unwrap();
    }
    stations.release("slow");
    for call in calls {
        match call.await.unwrap() {
            Ok(_) => {}
            Err(CallError::OutcomeUnknown { .. }) => unknown += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(unknown, 1);
    assert_eq!(lost.record().calls("echo").len(), 0);
    all_ready(&handle).await;
    let generations: Vec<_> = handle
        .instances()
        .iter()
        .map(|it| it.generation.get())
        .collect();
    assert_eq!(generations.iter().sum::<u64>(), 4, "{generations:?}");
    assert!(runtime.catalog().tool("a__slow").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_crashed_actor_restarts_its_own_instance_only() {
    without_reports_of_panics();
    let stations = Stations::new(held());
    let (_runtime, handle) = started(pool(&stations, 3).settings(eager())).await;
    let crashed = handle.instances()[1].instance;
    handle.crash_instance(crashed);
    eventually(DEADLINE, "it is restarted", || {
        handle.instances()[1].restarts == 1
    })
    .await;
    all_ready(&handle).await;
    let restarts: Vec<_> = handle.instances().iter().map(|it| it.restarts).collect();
    assert_eq!(restarts, [0, 1, 0]);
    assert_eq!(handle.instances()[0].generation.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pool_is_ready_with_its_first_instance_and_settled_with_its_last() {
    let stations = Stations::each(|number| match number {
        2 => Script::new(),
        _ => Script::new().on("initialize", Behaviour::silence()),
    });
    let runtime = fleet([pool(&stations, 3)]).await;
    runtime.ready(secs(5)).await.unwrap();
    let handle = runtime.server("a").unwrap();
    assert!(handle.catalog().tool("echo").is_some(), "of any instance");
    // Calls go to the one that is connected.
    for _ in 0..5 {
        let call = handle.call_tool("echo", json!({})).deadline(secs(1));
        call.await.unwrap();
    }
    assert_eq!(stations.nth(2).record().calls("echo").len(), 5);
    let settled = runtime.settled(secs(60)).await;
    assert_eq!(settled.len(), 3);
    let failed = settled.iter().filter(|it| it.last_error.is_some());
    assert_eq!(failed.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_catalog_of_a_pool_outlives_its_first_instance() {
    // The first instance comes back with another version of the protocol, which fails for good.
    let stations = Stations::each(|number| match number {
        0..3 => Script::new(),
        _ => Script::new().protocol("1999-01-01"),
    });
    let (runtime, handle) = started(pool(&stations, 3).settings(eager())).await;
    let mut changes = runtime.catalog_changes();
    let first = stations.all();
    let first = first.iter().find(|it| !it.control().live().is_empty());
    first.unwrap().control().end();
    eventually(DEADLINE, "one instance has failed", || {
        let states = states(&handle);
        match states.contains(&StateName::PermanentlyFailed) {
            true => Ok(()),
            false => Err(states),
        }
    })
    .await;
    assert_eq!(runtime.catalog().tool_count(), 1);
    assert!(!handle.catalog().stale, "the others confirm it");
    handle.call_tool("echo", json!({})).await.unwrap();
    let changed = tokio::time::timeout(millis(100), changes.changed()).await;
    assert!(changed.is_err(), "no reader saw a change");
    runtime.disable("a").await.unwrap();
    assert_eq!(runtime.catalog().tool_count(), 0);
}

fn clients(runtime: &Runtime, count: usize) -> Vec<Client> {
    let name = |number| format!("client {number}");
    let clients = (0..count).map(|number| runtime.client(name(number)).build());
    clients.collect()
}

/// The connection that got the last call.
async fn station_of(stations: &Stations, client: &Client) -> usize {
    let before = stations.calls("echo");
    let handle = client.server("a").unwrap();
    handle.call_tool("echo", json!({})).await.unwrap();
    let after = stations.calls("echo");
    let mut pairs = after.iter().enumerate();
    let changed = pairs.find(|(at, calls)| before.get(*at).copied().unwrap_or(0) < **calls);
    changed.unwrap().0
}

#[tokio::test(start_paused = true)]
async fn a_client_stays_on_its_instance_until_that_is_unavailable() {
    let stations = Stations::each(|number| match number {
        0..3 => Script::new(),
        // A lost instance stays away.
        _ => Script::new().on("initialize", Behaviour::silence()),
    });
    let config = pool(&stations, 3).affinity(true).settings(eager());
    let (runtime, _handle) = started(config).await;
    let clients = clients(&runtime, 3);
    let mut homes = Vec::new();
    for client in &clients {
        homes.push(station_of(&stations, client).await);
    }
    let mut sorted = homes.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [0, 1, 2], "new clients are spread");
    for _ in 0..5 {
        for (client, home) in clients.iter().zip(&homes) {
            assert_eq!(station_of(&stations, client).await, *home);
        }
    }
    stations.nth(homes[0]).control().end();
    eventually(DEADLINE, "its loss is known", || {
        let handle = runtime.server("a").unwrap();
        states(&handle).contains(&StateName::Reconnecting)
    })
    .await;
    let moved = station_of(&stations, &clients[0]).await;
    assert_ne!(moved, homes[0]);
    for _ in 0..5 {
        assert_eq!(station_of(&stations, &clients[0]).await, moved);
        assert_eq!(station_of(&stations, &clients[1]).await, homes[1]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lazy_pool_starts_as_many_instances_as_it_has_concurrent_calls() {
    let stations = Stations::new(held());
    let lazy = pool(&stations, 8).start(mcpvisor::StartMode::Lazy);
    let (_runtime, handle) = started(lazy).await;
    handle.call_tool("echo", json!({})).await.unwrap();
    handle.call_tool("echo", json!({})).await.unwrap();
    assert_eq!(stations.calls("echo"), [2], "one is enough");
    let calls: Vec<_> = (0..3)
        .map(|_| spawn(handle.call_tool("slow", json!({}))))
        .collect();
    stations.received("slow", 3).await;
    assert_eq!(stations.calls("slow"), [1, 1, 1]);
    stations.release("slow");
    for call in calls {
        structured(call.await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_instance_passes_calls_to_the_others_before_the_pool_is_busy() {
    let stations = Stations::new(held());
    let mut config = pool(&stations, 2);
    config.settings.admission.in_flight = 1;
    config.settings.admission.waiting = 1;
    let (_runtime, handle) = started(config).await;
    let calls: Vec<_> = (0..4)
        .map(|_| spawn(handle.call_tool("slow", json!({}))))
        .collect();
    stations.received("slow", 2).await;
    let busy = handle.call_tool("slow", json!({})).await.unwrap_err();
    assert!(matches!(busy, CallError::Busy { .. }), "{busy:?}");
    stations.release("slow");
    for call in calls {
        structured(call.await.unwrap());
    }
    assert_eq!(stations.calls("slow"), [2, 2]);
}

#[tokio::test(start_paused = true)]
#[allow(
    deprecated,
    reason = "servers of the older protocol versions still log"
)]
async fn subscriptions_stay_together_and_the_log_level_is_that_of_all_instances() {
    use mcpvisor::rmcp::model::LoggingLevel;
    let stations = Stations::new(Script::new());
    let (runtime, handle) = started(pool(&stations, 3)).await;
    for uri in ["test://1", "test://2", "test://3"] {
        handle.subscribe(uri).await.unwrap();
    }
    handle.unsubscribe("test://2").await.unwrap();
    let subscribed = |it: &mcpvisor_testkit::scripted::ScriptedServer| {
        it.record().received("resources/subscribe").len()
    };
    let counts: Vec<_> = stations.all().iter().map(subscribed).collect();
    assert_eq!(
        counts.iter().filter(|it| **it == 3).count(),
        1,
        "{counts:?}"
    );
    assert_eq!(counts.iter().sum::<usize>(), 3);
    handle.set_log_level(LoggingLevel::Debug).await.unwrap();
    let levels = |stations: &Stations| -> Vec<usize> {
        let all = stations.all();
        let level = all
            .iter()
            .map(|it| it.record().received("logging/setLevel").len());
        level.collect()
    };
    eventually(DEADLINE, "all log", || {
        let now = levels(&stations);
        if now == [1, 1, 1] { Ok(()) } else { Err(now) }
    })
    .await;
    runtime.reconnect("a").await.unwrap();
    eventually(DEADLINE, "all log again", || {
        let now = levels(&stations);
        if now == [1; 6] { Ok(()) } else { Err(now) }
    })
    .await;
}

//! `"scope": "client"`: every client has a connection of its own.

use std::collections::BTreeSet;
use std::future::IntoFuture;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use mcpvisor::{
    CallError, Callbacks, Client, Config, ConnectionScope, EventKind, NotSentReason, NotifyError,
    Runtime, ServerConfig, StateName, Transport,
};
use mcpvisor_testkit::eventually;
use mcpvisor_testkit::scripted::{Behaviour, Listing, Script, tool};
use rmcp::model::{CallToolResult, ElicitRequest, ElicitResult, ElicitationAction, ServerRequest};
use serde_json::{Value, json};

use crate::fleet::{
    DEADLINE, eager, fleet, millis, next_event, secs, server, structured, without_reports_of_panics,
};
use crate::spawn;
use crate::stations::Stations;

/// A server that keeps state: each connection remembers who called it.
fn keeper() -> Stations {
    Stations::each(|connection| {
        let callers: Arc<Mutex<Vec<String>>> = Arc::default();
        let remember = Behaviour::choose(move |call| {
            let who = call.params["arguments"]["who"].as_str().unwrap_or("");
            let mut callers = callers.lock().unwrap();
            callers.push(who.to_owned());
            let all: BTreeSet<String> = callers.iter().cloned().collect();
            let seen = json!({ "connection": connection, "callers": all, "count": callers.len() });
            Behaviour::answer_with(CallToolResult::structured(seen))
        });
        Script::new()
            .tool("remember", remember)
            .tool("slow", Behaviour::answer().held())
    })
}

fn scoped(stations: &Stations) -> ServerConfig {
    server("a", stations.transport()).scope(ConnectionScope::Client)
}

async fn remember(client: &Client) -> Value {
    try_remember(client).await.unwrap()
}

async fn try_remember(client: &Client) -> Result<Value, CallError> {
    let call = client.call("a__remember", json!({ "who": client.name() }));
    let result = call.unwrap().await?;
    Ok(structured(Ok(result)))
}

fn clients(runtime: &Runtime, count: usize) -> Vec<Client> {
    let client = |n| runtime.client(format!("agent-{n}")).build();
    (0..count).map(client).collect()
}

/// The states of the connections of clients, with the clients' names.
fn of_clients(runtime: &Runtime) -> Vec<(String, StateName)> {
    let rows = runtime.status().into_iter();
    let rows = rows.filter_map(|row| Some((row.client.as_deref()?.to_owned(), row.state)));
    rows.collect()
}

async fn client_rows(runtime: &Runtime, expected: &[(&str, StateName)]) {
    eventually(DEADLINE, format!("{expected:?}"), || {
        let rows = of_clients(runtime);
        let same = rows.len() == expected.len()
            && rows
                .iter()
                .zip(expected)
                .all(|(row, it)| row.0 == it.0 && row.1 == it.1);
        if same { Ok(()) } else { Err(rows) }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn each_client_has_a_connection_of_its_own_from_its_first_request_on() {
    let stations = keeper();
    let runtime = fleet([scoped(&stations)]).await;
    runtime.settled(DEADLINE).await;
    assert_eq!(stations.live(), 1, "the one that lists the tools");
    let agents = clients(&runtime, 3);
    assert_eq!(stations.live(), 1, "clients without requests have none");
    assert!(agents[0].catalog().tool("a__remember").is_some());
    for round in 1..=3 {
        for (at, agent) in agents.iter().enumerate() {
            let seen = remember(agent).await;
            let expected = json!({
                "connection": at + 1, "callers": [agent.name()], "count": round,
            });
            assert_eq!(seen, expected);
        }
    }
    let connected = StateName::Connected;
    let rows = [
        ("agent-0", connected),
        ("agent-1", connected),
        ("agent-2", connected),
    ];
    client_rows(&runtime, &rows).await;
    // Calls without a client have the first connection.
    let call = runtime
        .server("a")
        .unwrap()
        .call_tool("remember", json!({ "who": "" }));
    assert_eq!(structured(call.await)["connection"], 0);
    // The handle of a client shows its own connection.
    let status = agents[2].server("a").unwrap().status();
    assert_eq!(status.client.as_deref(), Some("agent-2"));
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_sleeps_and_its_client_gets_a_new_one_at_the_next_request() {
    let stations = keeper();
    let config = scoped(&stations).sleep_after(secs(10));
    let runtime = fleet([config]).await;
    let agents = clients(&runtime, 2);
    remember(&agents[0]).await;
    remember(&agents[1]).await;
    tokio::time::sleep(secs(8)).await;
    remember(&agents[0]).await;
    tokio::time::sleep(secs(5)).await;
    let rows = [
        ("agent-0", StateName::Connected),
        ("agent-1", StateName::Sleeping),
    ];
    client_rows(&runtime, &rows).await;
    let seen = remember(&agents[1]).await;
    assert_eq!(seen["callers"], json!(["agent-1"]));
    assert_eq!(seen["count"], 1, "the state ended with the connection");
}

#[tokio::test(start_paused = true)]
async fn without_a_setting_an_idle_connection_sleeps_after_five_minutes() {
    let stations = keeper();
    let runtime = fleet([scoped(&stations)]).await;
    let agent = runtime.client("agent").build();
    remember(&agent).await;
    tokio::time::sleep(secs(299)).await;
    client_rows(&runtime, &[("agent", StateName::Connected)]).await;
    tokio::time::sleep(secs(2)).await;
    client_rows(&runtime, &[("agent", StateName::Sleeping)]).await;
}

#[tokio::test(start_paused = true)]
async fn a_closed_or_dropped_client_ends_its_connections() {
    let stations = keeper();
    let runtime = fleet([scoped(&stations)]).await;
    let agents = clients(&runtime, 2);
    remember(&agents[0]).await;
    remember(&agents[1]).await;
    let held = spawn(agents[0].call("a__slow", json!({})).unwrap());
    stations.received("slow", 1).await;
    agents[0].close();
    assert!(matches!(
        held.await.unwrap(),
        Err(CallError::Cancelled { .. })
    ));
    client_rows(&runtime, &[("agent-1", StateName::Connected)]).await;
    let refused = try_remember(&agents[0]).await.unwrap_err();
    let closed = matches!(
        &refused,
        CallError::NotSent {
            reason: NotSentReason::ClientClosed,
            ..
        }
    );
    assert!(closed, "{refused:?}");
    // The last clone of the client is gone with its handles.
    let handle = agents[1].server("a").unwrap();
    drop(agents);
    tokio::time::sleep(secs(1)).await;
    client_rows(&runtime, &[("agent-1", StateName::Connected)]).await;
    drop(handle);
    client_rows(&runtime, &[]).await;
    eventually(DEADLINE, "only the first connection", || {
        stations.live() == 1
    })
    .await;
    let report = runtime.shutdown(secs(5)).await;
    assert_eq!(report.servers.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_least_recently_used_connection_gives_way_at_the_limit() {
    let stations = keeper();
    let runtime = fleet([scoped(&stations).max_connections(3)]).await;
    runtime.settled(DEADLINE).await;
    let agents = clients(&runtime, 4);
    // The first connection, which no client uses, gives way first.
    remember(&agents[0]).await;
    remember(&agents[1]).await;
    remember(&agents[2]).await;
    remember(&agents[0]).await;
    remember(&agents[3]).await;
    use StateName::{Connected, Sleeping};
    let rows = [
        ("agent-0", Connected),
        ("agent-1", Sleeping),
        ("agent-2", Connected),
        ("agent-3", Connected),
    ];
    client_rows(&runtime, &rows).await;
    assert_eq!(stations.live(), 3);
}

#[tokio::test(start_paused = true)]
async fn while_all_connections_have_calls_a_request_waits_within_its_deadline() {
    let stations = keeper();
    let runtime = fleet([scoped(&stations).max_connections(2)]).await;
    let agents = clients(&runtime, 4);
    let busy: Vec<_> = agents[..2]
        .iter()
        .map(|agent| spawn(agent.call("a__slow", json!({})).unwrap()))
        .collect();
    stations.received("slow", 2).await;
    let late = agents[2]
        .call("a__remember", json!({ "who": "agent-2" }))
        .unwrap();
    let late = late.deadline(secs(3)).await.unwrap_err();
    assert!(
        matches!(late, CallError::Deadline { sent: false, .. }),
        "{late:?}"
    );
    assert!(late.to_string().contains("maxConnections"), "{late}");
    let waiting = {
        let agent = agents[3].clone();
        tokio::spawn(async move { remember(&agent).await })
    };
    tokio::time::sleep(secs(5)).await;
    assert_eq!(stations.live(), 2);
    assert!(!waiting.is_finished());
    stations.release("slow");
    assert_eq!(waiting.await.unwrap()["callers"], json!(["agent-3"]));
    for call in busy {
        call.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_but_a_call_wakes_the_connection_of_a_client() {
    let stations = keeper();
    let transport = stations.transport();
    let config = |command: &Transport| {
        let config = server("a", command.clone()).scope(ConnectionScope::Client);
        config.sleep_after(secs(10))
    };
    let runtime = fleet([config(&transport)]).await;
    let agents = clients(&runtime, 5);
    for agent in &agents {
        remember(agent).await;
    }
    tokio::time::sleep(secs(20)).await;
    assert_eq!(stations.live(), 0);
    let asleep = || {
        of_clients(&runtime)
            .iter()
            .all(|row| row.1 == StateName::Sleeping)
    };
    let before = stations.all().len();
    runtime.reconnect("a").await.unwrap();
    runtime.disable("a").await.unwrap();
    runtime.enable("a").await.unwrap();
    let other = Config::new().server(config(&stations.transport()));
    runtime.reload(other).await.unwrap();
    runtime.settled(DEADLINE).await;
    assert!(asleep(), "{:?}", of_clients(&runtime));
    // Those of calls without a client.
    assert!(stations.all().len() - before <= 3);
    remember(&agents[0]).await;
}

#[tokio::test(start_paused = true)]
async fn a_reload_to_own_connections_counts_those_that_are_open() {
    let stations = keeper();
    let transport = stations.transport();
    let config = |scope, instances| {
        let config = server("a", transport.clone()).scope(scope);
        config.instances(instances).max_connections(2)
    };
    let runtime = fleet([config(ConnectionScope::Shared, 2)]).await;
    runtime.settled(DEADLINE).await;
    let held: Vec<_> = (0..2)
        .map(|_| spawn(runtime.call("a__slow", json!({})).unwrap()))
        .collect();
    stations.received("slow", 2).await;
    let own = Config::new().server(config(ConnectionScope::Client, 1));
    let reload = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.reload(own).await.unwrap() }
    });
    tokio::time::sleep(millis(100)).await;
    let agent = runtime.client("agent").build();
    let waiting = tokio::spawn(async move { remember(&agent).await });
    tokio::time::sleep(secs(2)).await;
    assert_eq!(stations.live(), 2, "those with calls");
    assert!(!waiting.is_finished());
    stations.release("slow");
    waiting.await.unwrap();
    reload.await.unwrap();
    for call in held {
        call.await.unwrap().unwrap();
    }
}

/// Two clients call in turn without a pause: the one that gave way comes after the one that waits.
#[tokio::test(start_paused = true)]
async fn clients_that_call_without_a_pause_take_turns_at_the_limit() {
    let stations = keeper();
    let runtime = fleet([scoped(&stations).max_connections(1)]).await;
    let callers: Vec<_> = clients(&runtime, 3)
        .into_iter()
        .map(|agent| {
            tokio::spawn(async move {
                for _ in 0..20 {
                    let call = agent.call("a__remember", json!({ "who": agent.name() }));
                    let seen = structured(call.unwrap().deadline(secs(60)).await);
                    assert_eq!(seen["callers"], json!([agent.name()]));
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn subscriptions_keep_a_connection_at_the_limit() {
    let stations = keeper();
    let runtime = fleet([scoped(&stations).max_connections(2)]).await;
    let agents = clients(&runtime, 3);
    agents[0]
        .server("a")
        .unwrap()
        .subscribe("test://one")
        .await
        .unwrap();
    remember(&agents[1]).await;
    remember(&agents[2]).await;
    use StateName::{Connected, Sleeping};
    let rows = [
        ("agent-0", Connected),
        ("agent-1", Sleeping),
        ("agent-2", Connected),
    ];
    client_rows(&runtime, &rows).await;
}

/// Every client calls three times, in an order that makes connections change hands all the time.
#[tokio::test(start_paused = true)]
async fn a_thousand_clients_share_twenty_connections_and_no_state() {
    let stations = keeper();
    let runtime = fleet([scoped(&stations).max_connections(20)]).await;
    let agents = clients(&runtime, 1_000);
    let most = Arc::new(Mutex::new(0));
    let calls = agents.iter().map(|agent| {
        let (agent, stations, most) = (agent.clone(), stations.clone(), Arc::clone(&most));
        tokio::spawn(async move {
            for _ in 0..3 {
                let seen = remember(&agent).await;
                assert_eq!(seen["callers"], json!([agent.name()]));
                let live = stations.live();
                let mut most = most.lock().unwrap();
                *most = live.max(*most);
            }
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    let most = *most.lock().unwrap();
    assert!((2..=20).contains(&most), "{most} connections at once");
    assert_eq!(of_clients(&runtime).len(), 1_000);
    drop(agents);
    client_rows(&runtime, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn no_state_is_shared_across_crashes_sleeps_and_reloads() {
    without_reports_of_panics();
    let stations = keeper();
    let transport = stations.transport();
    let config = |sleep| {
        let config = server("a", transport.clone()).settings(eager());
        let config = config.scope(ConnectionScope::Client).max_connections(4);
        config.sleep_after(secs(sleep))
    };
    let runtime = fleet([config(60)]).await;
    let agents = clients(&runtime, 8);
    for round in 0..20_u64 {
        let calls = agents.iter().map(|agent| {
            let agent = agent.clone();
            tokio::spawn(async move { try_remember(&agent).await })
        });
        for (at, call) in calls.collect::<Vec<_>>().into_iter().enumerate() {
            match call.await.unwrap() {
                Ok(seen) => assert_eq!(seen["callers"], json!([agents[at].name()])),
                // Its connection ended under it.
                Err(CallError::OutcomeUnknown { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
        match round % 4 {
            0 => {
                let all = stations.all();
                let live = all.iter().filter(|it| !it.control().live().is_empty());
                live.for_each(|it| it.control().end());
            }
            1 => agents
                .iter()
                .for_each(|it| it.server("a").unwrap().crash_actor()),
            2 => {
                let servers = Config::new().server(config(60 + round));
                runtime.reload(servers).await.unwrap();
            }
            _ => tokio::time::sleep(secs(120)).await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_reload_moves_clients_between_own_and_shared_connections() {
    let stations = keeper();
    let transport = stations.transport();
    let config = |scope| server("a", transport.clone()).scope(scope);
    let runtime = fleet([config(ConnectionScope::Client)]).await;
    let agents = clients(&runtime, 2);
    remember(&agents[0]).await;
    let held = spawn(agents[1].call("a__slow", json!({})).unwrap());
    stations.received("slow", 1).await;
    let shared = Config::new().server(config(ConnectionScope::Shared));
    let reload = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.reload(shared).await.unwrap() }
    });
    tokio::time::sleep(millis(100)).await;
    stations.release("slow");
    held.await.unwrap().unwrap();
    reload.await.unwrap();
    assert_eq!(of_clients(&runtime), []);
    assert_eq!(remember(&agents[0]).await["connection"], 0);
    assert_eq!(remember(&agents[1]).await["connection"], 0);
    let own = Config::new().server(config(ConnectionScope::Client));
    runtime.reload(own).await.unwrap();
    assert_eq!(remember(&agents[0]).await["callers"], json!(["agent-0"]));
    // A lower limit closes idle connections.
    remember(&agents[1]).await;
    let one = Config::new().server(config(ConnectionScope::Client).max_connections(1));
    runtime.reload(one).await.unwrap();
    eventually(DEADLINE, "one connection", || stations.live() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_removed_server_ends_the_connections_of_its_clients() {
    let stations = keeper();
    let runtime = fleet([scoped(&stations)]).await;
    let agents = clients(&runtime, 2);
    let handle = agents[0].server("a").unwrap();
    remember(&agents[0]).await;
    remember(&agents[1]).await;
    runtime.remove("a").await.unwrap();
    assert_eq!(stations.live(), 0);
    let refused = handle.call_tool("remember", json!({})).await.unwrap_err();
    let removed = matches!(
        &refused,
        CallError::NotSent {
            reason: NotSentReason::Removed,
            ..
        }
    );
    assert!(removed, "{refused:?}");
    // Another server of this name begins anew.
    runtime.add(scoped(&stations)).await.unwrap();
    assert_eq!(remember(&agents[0]).await["count"], 1);
}

#[tokio::test(start_paused = true)]
async fn disabling_and_shutdown_cover_the_connections_of_clients() {
    let stations = keeper();
    let runtime = fleet([scoped(&stations)]).await;
    let agents = clients(&runtime, 2);
    remember(&agents[0]).await;
    runtime.disable("a").await.unwrap();
    assert_eq!(stations.live(), 0);
    // One that has no connection yet is disabled too.
    for agent in &agents {
        let refused = try_remember(agent).await.unwrap_err();
        let disabled = matches!(
            &refused,
            CallError::NotSent {
                reason: NotSentReason::Disabled,
                ..
            }
        );
        assert!(disabled, "{refused:?}");
    }
    runtime.enable("a").await.unwrap();
    remember(&agents[0]).await;
    remember(&agents[1]).await;
    let report = runtime.shutdown(secs(5)).await;
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.servers.len(), 3);
    assert_eq!(stations.live(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_sees_the_lists_of_its_own_connection_and_no_other_does() {
    let stations = Stations::each(|connection| {
        let own = match connection {
            1 => vec![tool("remember"), tool("alices_own")],
            _ => vec![tool("remember")],
        };
        Script::new()
            .tool("remember", Behaviour::answer())
            .tools(Listing::of(own))
    });
    let runtime = fleet([scoped(&stations)]).await;
    runtime.settled(DEADLINE).await;
    let (alice, bob) = (
        runtime.client("alice").build(),
        runtime.client("bob").build(),
    );
    let mut changes = alice.catalog_changes();
    assert!(alice.catalog().tool("a__alices_own").is_none());
    for client in [&alice, &bob] {
        client
            .call("a__remember", json!({}))
            .unwrap()
            .await
            .unwrap();
    }
    let catalog = tokio::time::timeout(DEADLINE, changes.changed()).await;
    assert!(catalog.unwrap().unwrap().tool("a__alices_own").is_some());
    assert!(alice.catalog().revision() > 0);
    assert!(bob.catalog().tool("a__alices_own").is_none());
    assert!(runtime.catalog().tool("a__alices_own").is_none());
    let own = alice.server("a").unwrap().catalog();
    assert_eq!(own.tools.len(), 2);
    alice
        .call("a__alices_own", json!({}))
        .unwrap()
        .await
        .unwrap();
    assert_eq!(stations.calls("alices_own")[1], 1);
}

fn form_request(message: &str) -> ServerRequest {
    let params = json!({
        "mode": "form",
        "message": message,
        "requestedSchema": { "type": "object", "properties": {} },
    });
    ServerRequest::ElicitRequest(ElicitRequest::new(serde_json::from_value(params).unwrap()))
}

/// Calls of fifty agents are in flight at once, so on one shared connection it would be ambiguous.
#[tokio::test(start_paused = true)]
async fn a_request_of_the_server_reaches_the_client_of_its_connection() {
    let stations = keeper();
    let runtime = fleet([scoped(&stations).max_connections(60)]).await;
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let agents: Vec<Client> = (0..50)
        .map(|n| {
            let (name, asked) = (format!("agent-{n}"), Arc::clone(&asked));
            let who = name.clone();
            let callbacks = Callbacks::new().elicitation_form(move |ask| {
                let text = format!("{who}: {}", ask.params.message);
                asked.lock().unwrap().push(text);
                async { Ok(ElicitResult::new(ElicitationAction::Decline)) }
            });
            runtime.client(name).callbacks(callbacks).build()
        })
        .collect();
    let held: Vec<_> = agents
        .iter()
        .map(|agent| {
            spawn(
                agent
                    .call("a__slow", json!({ "who": agent.name() }))
                    .unwrap(),
            )
        })
        .collect();
    stations.received("slow", 50).await;
    let mut expected = BTreeSet::new();
    for station in stations.all() {
        let calls = station.record().calls("slow");
        let Some(call) = calls.first() else {
            continue;
        };
        let who = call.arguments["who"].as_str().unwrap().to_owned();
        station.control().request(form_request(&who));
        expected.insert(format!("{who}: {who}"));
    }
    eventually(DEADLINE, "all are asked", || {
        asked.lock().unwrap().len() == 50
    })
    .await;
    let asked: BTreeSet<String> = asked.lock().unwrap().iter().cloned().collect();
    assert_eq!(asked, expected);
    stations.release("slow");
    for call in held {
        call.await.unwrap().unwrap();
    }
    let ambiguous = runtime
        .status()
        .iter()
        .map(|it| it.ambiguous_requests)
        .sum::<u64>();
    assert_eq!(ambiguous, 0);
}

/// Also while no call is in flight, when a shared connection would ask the runtime.
#[tokio::test(start_paused = true)]
async fn a_connection_of_a_client_advertises_its_callbacks_and_asks_no_other() {
    let stations = keeper();
    let runtime = fleet([scoped(&stations)]).await;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let form = Callbacks::new().elicitation_form(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        async { Ok(ElicitResult::new(ElicitationAction::Decline)) }
    });
    let roots = Callbacks::new().roots(|_| async { Ok(Vec::new()) });
    let alice = runtime.client("alice").callbacks(form).build();
    let bob = runtime.client("bob").callbacks(roots).build();
    let carol = runtime.client("carol").build();
    for (at, client) in [&alice, &bob, &carol].into_iter().enumerate() {
        let connection = remember(client).await["connection"].as_u64().unwrap();
        let station = stations.nth(connection as usize);
        let offered = &station.record().received("initialize")[0].params["capabilities"];
        let expected = [
            json!({ "elicitation": { "form": {} } }),
            json!({ "roots": {} }),
            json!({}),
        ];
        assert_eq!(*offered, expected[at]);
        station.control().request(form_request("who?"));
    }
    eventually(DEADLINE, "alice is asked", || {
        asked.load(Ordering::Relaxed) == 1
    })
    .await;
    // The others have answered too, once their connections answer again.
    remember(&bob).await;
    remember(&carol).await;
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn events_name_the_client_of_a_connection() {
    let stations = keeper();
    let runtime = fleet([scoped(&stations)]).await;
    let mut events = runtime.events();
    let agent = runtime.client("agent").build();
    remember(&agent).await;
    let added = |event: &mcpvisor::Event| {
        matches!(event.kind, EventKind::InstanceAdded).then(|| event.client.clone())
    };
    assert_eq!(
        next_event(&mut events, added).await.as_deref(),
        Some("agent")
    );
    drop(agent);
    let removed = |event: &mcpvisor::Event| {
        matches!(event.kind, EventKind::InstanceRemoved).then(|| event.client.clone())
    };
    assert_eq!(
        next_event(&mut events, removed).await.as_deref(),
        Some("agent")
    );
}

/// A client whose slot was requested and not yet started when the supervisor ended.
#[tokio::test]
async fn requests_end_at_once_when_the_runtime_ends_while_clients_begin() {
    for _ in 0..20 {
        let stations = keeper();
        let runtime = fleet([scoped(&stations)]).await;
        runtime.settled(DEADLINE).await;
        let agents = clients(&runtime, 50);
        let calls: Vec<_> = agents
            .iter()
            .map(|agent| {
                let call = agent.call("a__remember", json!({ "who": "" })).unwrap();
                spawn(call.deadline(DEADLINE * 10))
            })
            .collect();
        let ended = tokio::spawn({
            let runtime = runtime.clone();
            async move { runtime.shutdown(secs(5)).await }
        });
        for call in calls {
            let outcome = tokio::time::timeout(DEADLINE, call).await;
            // Whatever the outcome is, there is one.
            let _ = outcome.expect("no outcome").unwrap();
        }
        ended.await.unwrap();
        // A new client of a runtime that has ended.
        let late = runtime.client("late").build();
        let handle = late.server("a").unwrap();
        let call = handle.call_tool("remember", json!({})).into_future();
        let refused = tokio::time::timeout(DEADLINE, call)
            .await
            .expect("no outcome");
        assert!(
            matches!(refused, Err(CallError::RuntimeGone { .. })),
            "{refused:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_removed_server_that_answered_calls_is_freed() {
    let held = Arc::new(());
    let freed = Arc::downgrade(&held);
    let stations = Stations::each(move |_| {
        let _held = &held;
        Script::new().tool("remember", Behaviour::answer())
    });
    let runtime = fleet([scoped(&stations)]).await;
    drop(stations);
    for agent in clients(&runtime, 3) {
        agent.call("a__remember", json!({})).unwrap().await.unwrap();
    }
    runtime.remove("a").await.unwrap();
    eventually(DEADLINE, "the server is freed", || {
        freed.upgrade().is_none()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_notification_of_a_client_never_uses_the_connection_of_others() {
    let stations = keeper();
    let runtime = fleet([scoped(&stations)]).await;
    runtime.settled(DEADLINE).await;
    let agent = runtime.client("agent").build();
    let handle = agent.server("a").unwrap();
    let roots = "notifications/roots/list_changed";
    let refused = handle.notify(roots, None).await.unwrap_err();
    assert!(
        matches!(refused, NotifyError::NotConnected { .. }),
        "{refused:?}"
    );
    remember(&agent).await;
    handle.notify(roots, None).await.unwrap();
    // Requests without a client have the main connection.
    runtime
        .server("a")
        .unwrap()
        .notify(roots, None)
        .await
        .unwrap();
}

#[tokio::test]
async fn control_requests_succeed_while_clients_come_and_go() {
    let stations = keeper();
    let config = |sleep| scoped(&stations).settings(eager()).sleep_after(secs(sleep));
    let config = |sleep| config(sleep).scope(ConnectionScope::Client);
    let runtime = fleet([config(60)]).await;
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let agents: Vec<_> = (0..8)
        .map(|_| {
            let (runtime, done) = (runtime.clone(), Arc::clone(&done));
            tokio::spawn(async move {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let agent = runtime.client("short").build();
                    // Refused while the server is disabled.
                    let _ = try_remember(&agent).await;
                }
            })
        })
        .collect();
    for round in 0..100 {
        runtime.reconnect("a").await.unwrap();
        runtime.disable("a").await.unwrap();
        runtime.enable("a").await.unwrap();
        let reload = Config::new().server(config(61 + round));
        let report = runtime.reload(reload).await.unwrap();
        assert_eq!(report.servers[0].problem, None);
    }
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    for agent in agents {
        agent.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
#[allow(deprecated, reason = "rmcp deprecates logging")]
async fn what_requests_without_a_client_cause_reaches_no_client() {
    use rmcp::model::LoggingLevel::Info;
    let stations = keeper();
    let runtime = fleet([scoped(&stations)]).await;
    runtime.settled(DEADLINE).await;
    let agent = runtime.client("agent").build();
    remember(&agent).await;
    let (mut own, mut of_runtime) = (agent.notifications(), runtime.notifications());
    let readers = [(&mut of_runtime, "main"), (&mut own, "agent")];
    for (connection, (reader, expected)) in readers.into_iter().enumerate() {
        stations
            .nth(connection)
            .control()
            .log(Info, json!(expected));
        let first = tokio::time::timeout(DEADLINE, reader.recv()).await;
        let text = format!("{:?}", first.unwrap());
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

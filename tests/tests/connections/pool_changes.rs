//! Pools under control requests, reloads and shutdown.

use mcpvisor::{
    CloseOutcome, Config, EventKind, Runtime, ServerChange, ServerConfig, ServerHandle, StateName,
};
use mcpvisor_testkit::event_chain::EventChains;
use mcpvisor_testkit::eventually;
use mcpvisor_testkit::processes::Marker;
use mcpvisor_testkit::scripted::{Behaviour, Script};
use serde_json::{Value, json};

use crate::fleet::{DEADLINE, fixture, fleet, secs, server, structured};
use crate::spawn;
use crate::stations::Stations;

fn held() -> Script {
    Script::new().tool("slow", Behaviour::answer().held())
}

fn pool(stations: &Stations, instances: usize) -> ServerConfig {
    server("a", stations.transport()).instances(instances)
}

async fn started(config: ServerConfig) -> (Runtime, ServerHandle) {
    let runtime = fleet([config]).await;
    runtime.settled(DEADLINE).await;
    let handle = runtime.server("a").unwrap();
    (runtime, handle)
}

async fn all_in(handle: &ServerHandle, count: usize, state: StateName) {
    eventually(DEADLINE, format!("{count} instances are {state}"), || {
        let all = handle.instances();
        let states: Vec<_> = all.iter().map(|it| it.state).collect();
        match states == vec![state; count] {
            true => Ok(()),
            false => Err(states),
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn control_requests_apply_to_all_instances() {
    let stations = Stations::new(Script::new());
    let (runtime, handle) = started(pool(&stations, 3)).await;
    runtime.disable("a").await.unwrap();
    all_in(&handle, 3, StateName::Disabled).await;
    assert_eq!(stations.live(), 0);
    let error = handle.call_tool("echo", Value::Null).await.unwrap_err();
    assert!(error.to_string().contains("disabled"), "{error}");
    runtime.enable("a").await.unwrap();
    all_in(&handle, 3, StateName::Connected).await;
    runtime.reconnect("a").await.unwrap();
    eventually(DEADLINE, "all were replaced", || {
        let all = handle.instances();
        let mut all = all.iter().map(|it| (it.state, it.generation.get()));
        all.all(|it| it == (StateName::Connected, 3))
    })
    .await;
    handle.report_broken(handle.status().generation);
    eventually(DEADLINE, "all were replaced again", || {
        let all = handle.instances();
        all.iter().all(|it| it.generation.get() == 4)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_reload_adds_and_removes_instances_and_their_calls_finish() {
    let stations = Stations::new(held());
    let mut first = pool(&stations, 2);
    first.settings.admission.in_flight = 1;
    let transport = first.transport.clone();
    let builder = Runtime::builder().server(first.clone());
    let mut events = builder.events();
    let runtime = builder.start().await.unwrap();
    let status = runtime.status();
    let status = status.into_iter();
    let mut chains = EventChains::of_instances(status.map(|it| (it.name, it.instance, it.state)));
    runtime.settled(DEADLINE).await;
    let handle = runtime.server("a").unwrap();
    let sized = |instances: usize| {
        let mut config = server("a", transport.clone()).instances(instances);
        config.settings.admission.in_flight = 1;
        Config::new().server(config)
    };

    let report = runtime.reload(sized(4)).await.unwrap();
    let what = vec!["instances"];
    assert_eq!(report.servers[0].change, ServerChange::Adjusted { what });
    all_in(&handle, 4, StateName::Connected).await;
    // Every instance has a call in flight, and one that waits for it.
    let calls: Vec<_> = (0..8)
        .map(|_| spawn(handle.call_tool("slow", json!({}))))
        .collect();
    stations.received("slow", 4).await;

    let smaller = {
        let runtime = runtime.clone();
        let config = sized(1);
        tokio::spawn(async move { runtime.reload(config).await })
    };
    eventually(DEADLINE, "three are leaving", || {
        handle.instances().len() == 1
    })
    .await;
    stations.release("slow");
    for call in calls {
        structured(call.await.unwrap());
    }
    smaller.await.unwrap().unwrap();
    assert_eq!(stations.live(), 1);
    assert_eq!(runtime.status().len(), 1);
    handle.call_tool("echo", json!({})).await.unwrap();
    assert_eq!(stations.calls("slow"), [2, 2, 2, 2], "none ran twice");

    let mut removed = 0;
    while let Some(event) = events.try_recv().unwrap() {
        removed += usize::from(matches!(event.kind, EventKind::InstanceRemoved));
        chains.observe(&event);
    }
    chains.finish(&runtime.status());
    chains.assert_valid();
    assert_eq!(removed, 3);
}

#[tokio::test(start_paused = true)]
async fn a_changed_command_restarts_every_instance() {
    let (old, new) = (Stations::new(held()), Stations::new(held()));
    let (runtime, handle) = started(pool(&old, 3)).await;
    let config = Config::new().server(pool(&new, 3));
    let report = runtime.reload(config).await.unwrap();
    let change = &report.servers[0].change;
    assert!(
        matches!(change, ServerChange::Restarted { .. }),
        "{change:?}"
    );
    eventually(DEADLINE, "all use the new one", || {
        (old.live(), new.live()) == (0, 3)
    })
    .await;
    handle.call_tool("echo", json!({})).await.unwrap();
    runtime.remove("a").await.unwrap();
    assert_eq!(new.live(), 0);
    runtime.add(pool(&new, 2)).await.unwrap();
    let handle = runtime.server("a").unwrap();
    all_in(&handle, 2, StateName::Connected).await;
}

#[tokio::test]
async fn a_shutdown_closes_every_instance_and_reports_each() {
    let marker = Marker::new("pool-shutdown");
    let config = server("a", fixture(&marker, &[])).instances(4);
    let (runtime, handle) = started(config).await;
    all_in(&handle, 4, StateName::Connected).await;
    assert_eq!(marker.processes().len(), 4);
    let report = runtime.shutdown(secs(10)).await;
    let mut closed: Vec<_> = report.servers.iter().map(|it| it.instance).collect();
    closed.dedup();
    assert_eq!(closed.len(), 4, "{report:?}");
    let how = report.servers.iter().map(|it| &it.how);
    assert!(how.into_iter().all(|it| *it == CloseOutcome::Clean));
    assert_eq!(marker.processes(), []);
}

#[test]
fn the_keys_of_a_pool_are_read_and_checked() {
    let read = |keys: &str| {
        let text = format!(r#"{{"mcpServers":{{"a":{{"command":"x",{keys}}}}}}}"#);
        Config::from_json(&text, |_| None).unwrap()
    };
    let config = read(r#""instances": 8, "affinity": true"#);
    let connections = &config.servers[0].settings.connections;
    assert_eq!((connections.instances, connections.affinity), (8, true));
    for instances in ["0", "65", "\"2\"", "1.5"] {
        let config = read(&format!("\"instances\": {instances}"));
        let problem = config.problems[0].message.clone();
        assert!(config.servers.is_empty(), "{problem}");
        assert!(problem.contains("instances"), "{problem}");
    }
}

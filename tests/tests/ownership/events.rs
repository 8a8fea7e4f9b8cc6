//! O4, G1: the events of a server form one chain without gaps, also across crashes of its actor.

use std::future::IntoFuture;
use std::time::Duration;

use mcpvisor::{
    Config, Event, EventKind, Events, EventsError, FaultClass, Runtime, StartMode, StateName,
};
use mcpvisor_testkit::event_chain::EventChains;
use mcpvisor_testkit::eventually;
use mcpvisor_testkit::scripted::{Behaviour, Script, ScriptedServer};
use serde_json::json;

use crate::fleet::{
    DEADLINE, eager, fleet, next_event, reaches, ready, ready_after, secs, server, settings, size,
    structured, without_reports_of_panics,
};

/// The chains of a fleet, starting from its current status.
fn chains(runtime: &Runtime) -> EventChains {
    let status = runtime.status().into_iter();
    EventChains::of_instances(status.map(|it| (it.name, it.instance, it.state)))
}

/// Checks the events so far.
fn follow(chains: &mut EventChains, events: &mut Events) {
    while let Some(event) = events.try_recv().unwrap() {
        chains.observe(&event);
    }
}

fn change(event: &Event) -> Option<(StateName, StateName, Option<FaultClass>)> {
    match &event.kind {
        EventKind::StateChanged { from, to, fault } => {
            Some((*from, *to, fault.as_ref().map(|fault| fault.class)))
        }
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_event_begins_with_what_the_status_shows_at_the_start() {
    let held = || ScriptedServer::new(Script::new().on("initialize", Behaviour::answer().held()));
    let [eager, lazy] = [held(), held()];
    let mut asleep = server("lazy", lazy.transport());
    asleep.settings.rest.lazy = true;
    let mut off = server("off", held().transport());
    off.enabled = false;
    let runtime = fleet([server("eager", eager.transport()), asleep, off]).await;
    let first: Vec<_> = runtime.status().iter().map(|it| it.state).collect();
    use StateName::{Connected, Connecting, Disabled, Sleeping};
    assert_eq!(first, [Connecting, Sleeping, Disabled]);
    let (mut chains, mut events) = (chains(&runtime), runtime.events());

    eager.control().release("initialize", 1);
    let connected = next_event(&mut events, |event| {
        chains.observe(event);
        change(event)
    });
    assert_eq!(connected.await, (Connecting, Connected, None));
    runtime.enable("off").await.unwrap();
    let handle = runtime.server("lazy").unwrap();
    let call = tokio::spawn(handle.call_tool("echo", json!({})).into_future());
    reaches(&handle, Connecting).await;
    lazy.control().release("initialize", 1);
    structured(call.await.unwrap());
    follow(&mut chains, &mut events);
    chains.finish(&runtime.status());
    chains.assert_valid();
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_events_go_on_from_the_state_that_was_shown() {
    let scripted = ScriptedServer::new(Script::new());
    let (runtime, handle) = ready(server("a", scripted.transport()).settings(eager())).await;
    let (mut chains, mut events) = (chains(&runtime), runtime.events());
    for round in 1..=20 {
        handle.crash_actor();
        let lost = next_event(&mut events, |event| {
            chains.observe(event);
            change(event)
        });
        let crashed = Some(FaultClass::ActorCrashed);
        let expected = (StateName::Connected, StateName::Reconnecting, crashed);
        assert_eq!(lost.await, expected);
        ready_after(&handle, round).await;
        let back = next_event(&mut events, |event| {
            chains.observe(event);
            change(event)
        });
        let expected = (StateName::Reconnecting, StateName::Connected, None);
        assert_eq!(back.await, expected, "a recovery carries no old fault");
        follow(&mut chains, &mut events);
    }
    chains.finish(&runtime.status());
    chains.assert_valid();
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_actor_crashes_while_it_is_disabled_says_that_it_is() {
    let script = Script::new().tool("slow", Behaviour::answer().held());
    let scripted = ScriptedServer::new(script);
    let (runtime, handle) = ready(server("a", scripted.transport())).await;
    let (mut chains, mut events) = (chains(&runtime), runtime.events());
    let _call = tokio::spawn(handle.call_tool("slow", json!({})).into_future());
    eventually(DEADLINE, "in flight", || handle.status().in_flight == 1).await;
    let disabling = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.disable("a").await }
    });
    reaches(&handle, StateName::Disabling).await;
    handle.crash_actor();
    reaches(&handle, StateName::Disabled).await;
    let _ = disabling.await.unwrap();
    follow(&mut chains, &mut events);
    chains.finish(&runtime.status());
    chains.assert_valid();
}

#[tokio::test(start_paused = true)]
async fn every_failed_attempt_has_an_event() {
    let scripted = ScriptedServer::new(Script::new());
    let budget = settings(|settings| {
        settings.budget.attempts = 3;
        settings.backoff.jitter = 0.0;
    });
    let mut config = server("a", scripted.transport()).settings(budget);
    config.enabled = false;
    let runtime = fleet([config]).await;
    let handle = runtime.server("a").unwrap();
    let (mut chains, mut events) = (chains(&runtime), runtime.events());
    let dead = Script::new().on("initialize", Behaviour::end());
    scripted.control().set_script(dead);
    runtime.enable("a").await.unwrap();
    reaches(&handle, StateName::Disconnected).await;
    let mut failed = Vec::new();
    while let Some(event) = events.try_recv().unwrap() {
        chains.observe(&event);
        if let EventKind::AttemptFailed {
            attempt, retry_in, ..
        } = &event.kind
        {
            failed.push((*attempt, retry_in.unwrap()));
        }
    }
    let millis = Duration::from_millis;
    let parked = failed.pop().unwrap();
    assert_eq!(failed, [(1, millis(500)), (2, millis(1_000))]);
    assert_eq!((parked.0, parked.1 >= secs(20)), (3, true));
    chains.finish(&runtime.status());
    chains.assert_valid();
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_added_again_is_another_instance_with_a_chain_of_its_own() {
    let scripted = ScriptedServer::new(Script::new());
    let config = || server("a", scripted.transport());
    let (runtime, _handle) = ready(config()).await;
    let (mut chains, mut events) = (chains(&runtime), runtime.events());
    let mut seen = vec![0];
    for _ in 0..3 {
        runtime.remove("a").await.unwrap();
        runtime.add(config()).await.unwrap();
        runtime.ready(DEADLINE).await.unwrap();
        let status = &runtime.status()[0];
        assert_eq!(status.generation.get(), 1);
        assert!(status.instance > seen[seen.len() - 1], "{seen:?}");
        let shown = serde_json::to_value(status).unwrap();
        assert_eq!(shown["instance"], status.instance);
        seen.push(status.instance);
    }
    follow(&mut chains, &mut events);
    chains.finish(&runtime.status());
    chains.assert_valid();
}

/// Control requests, crashes, removals and additions, concurrently from several tasks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_control_requests_and_crashes_keep_the_event_chain_valid() {
    without_reports_of_panics();
    let names = ["a", "b", "c"];
    let scripted = ScriptedServer::new(Script::new());
    let config = |name: &str| {
        let mut settings = eager();
        settings.close.drain = Duration::from_millis(5);
        server(name, scripted.transport()).settings(settings)
    };
    let runtime = fleet(names.map(config)).await;
    runtime.ready(DEADLINE).await.unwrap();
    let (mut chains, mut events) = (chains(&runtime), runtime.events());
    let reader = tokio::spawn(async move {
        let mut changes = 0;
        loop {
            match events.recv().await {
                Ok(event) => {
                    changes += u32::from(change(&event).is_some());
                    chains.observe(&event);
                }
                Err(EventsError::Lagged(_)) => chains.missed(),
                Err(_) => return (chains, changes),
            }
        }
    });
    let rounds = size(60, 1_000);
    let stormy = (0..4).map(|seed| {
        let runtime = runtime.clone();
        let configs = names.map(config);
        tokio::spawn(async move {
            let mut dice = fastrand::Rng::with_seed(seed);
            for _ in 0..rounds {
                let config = &configs[dice.usize(..configs.len())];
                let name = config.name.as_str();
                // Refusals, interrupted requests and unknown names are expected.
                match dice.u8(..12) {
                    0..3 => drop(runtime.disable(name).await),
                    3..6 => drop(runtime.enable(name).await),
                    6..8 => drop(runtime.reconnect(name).await),
                    8 => drop(runtime.remove(name).await),
                    9 => drop(runtime.add(config.clone()).await),
                    _ => {
                        if let Ok(handle) = runtime.server(name) {
                            handle.crash_actor();
                        }
                    }
                }
            }
        })
    });
    for task in stormy.collect::<Vec<_>>() {
        let ended = tokio::time::timeout(secs(120), task).await;
        ended.expect("a wish hangs").unwrap();
    }
    runtime.shutdown(secs(10)).await;
    let (mut chains, changes) = reader.await.unwrap();
    chains.finish(&runtime.status());
    chains.assert_valid();
    assert!(changes > 20, "only {changes} changes");
}

#[tokio::test(start_paused = true)]
async fn servers_that_are_made_lazy_before_their_actors_started_connect_as_their_status_says() {
    // Enough servers that the reload starts before the last of them.
    let servers: Vec<_> = (0..40)
        .map(|number| {
            let scripted = ScriptedServer::new(Script::new());
            server(&format!("server-{number}"), scripted.transport())
        })
        .collect();
    let builder = Runtime::builder();
    let mut events = builder.events();
    let builder = servers
        .iter()
        .cloned()
        .fold(builder, |it, one| it.server(one));
    let runtime = builder.start().await.unwrap();
    let mut chains = chains(&runtime);
    let lazy = servers.into_iter().map(|one| one.start(StartMode::Lazy));
    let config = lazy.fold(Config::new(), Config::server);
    runtime.reload(config).await.unwrap();
    for name in runtime.servers() {
        reaches(&runtime.server(name).unwrap(), StateName::Connected).await;
    }
    follow(&mut chains, &mut events);
    chains.assert_valid();
}

//! Figures 13 and 14: a flapping server, and a hundred connections lost at once.

use std::time::Duration;

use mcpvisor::{GovernorSettings, Runtime, ServerSettings, StateName};
use mcpvisor_testkit::processes::{self, Marker};
use mcpvisor_testkit::scripted::{Script, ScriptedServer};
use tokio::time::Instant;

use crate::fleet::*;

/// Six attempts, a few milliseconds apart.
fn few() -> ServerSettings {
    settings(|settings| {
        settings.budget.attempts = 6;
        settings.backoff.initial = millis(5);
        settings.backoff.max = millis(5);
    })
}

#[tokio::test]
async fn a_child_that_dies_after_every_handshake_runs_out_of_budget() {
    let marker = Marker::new("flap");
    let log = std::env::temp_dir().join(marker.value());
    let flags = ["--flap", "--received", log.to_str().unwrap()];
    let config = server("one", fixture(&marker, &flags)).settings(few());
    let runtime = fleet([config]).await;
    let handle = runtime.server("one").unwrap();
    reaches(&handle, StateName::Disconnected).await;
    let status = handle.status();
    assert_eq!(status.generation.get(), 6);
    assert!(status.retry_in().unwrap() > secs(20), "probed slowly");
    // Ten times the total duration of all attempts.
    tokio::time::sleep(millis(300)).await;
    assert_eq!(handle.status().generation.get(), 6);
    let handshakes = std::fs::read_to_string(&log).unwrap();
    assert_eq!(handshakes.matches(" initialize\n").count(), 6);
    assert_eq!(marker.processes(), []);
    runtime.shutdown(secs(5)).await;
    std::fs::remove_file(log).unwrap();
}

#[tokio::test]
async fn control_where_every_connection_is_proven_at_once_it_never_runs_out() {
    let marker = Marker::new("flap-control");
    let mut settings = few();
    settings.budget.proven_after = Duration::ZERO;
    settings.budget.first_probe = secs(3_600);
    settings.backoff.immediate_every = Duration::ZERO;
    let config = server("one", fixture(&marker, &[])).settings(settings);
    let (runtime, handle) = ready(config).await;
    // Three times the budget. The server dies slightly later than a flapping child, so that the
    // proof is registered.
    for round in 1..=18 {
        let [child] = &marker.processes()[..] else {
            panic!("one child in round {round}");
        };
        processes::kill(child.pid);
        ready_after(&handle, round).await;
    }
    runtime.shutdown(secs(5)).await;
    assert_eq!(marker.processes(), []);
}

/// When each of a hundred servers was reopened after all connections were lost at once.
async fn back_after_a_mass_loss(governor: GovernorSettings) -> Vec<Duration> {
    let servers: Vec<_> = (0..100)
        .map(|_| ScriptedServer::new(Script::new()))
        .collect();
    let mut builder = Runtime::builder().governor(governor);
    for (number, scripted_server) in servers.iter().enumerate() {
        let name = format!("server-{number}");
        builder = builder.server(server(&name, scripted(scripted_server)));
    }
    let runtime = builder.start().await.unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    // Proven connections are retried immediately, which is the worst case.
    let handles: Vec<_> = runtime
        .servers()
        .iter()
        .map(|name| runtime.server(name.as_str()).unwrap())
        .collect();
    for handle in &handles {
        handle.ping().await.unwrap();
    }
    let lost = Instant::now();
    for scripted_server in &servers {
        scripted_server.control().end();
    }
    for handle in &handles {
        ready_after(handle, 1).await;
    }
    let mut openings: Vec<Duration> = servers
        .iter()
        .map(|scripted_server| scripted_server.record().openings()[1] - lost)
        .collect();
    openings.sort();
    openings
}

/// Eleven openings, more than a tenth, within 100 ms.
fn crowded(openings: &[Duration]) -> Option<&[Duration]> {
    let mut elevens = openings.windows(11);
    elevens.find(|eleven| eleven[10] - eleven[0] < millis(100))
}

#[tokio::test(start_paused = true)]
async fn a_hundred_servers_that_are_lost_at_once_come_back_spread() {
    // The default governor.
    let openings = back_after_a_mass_loss(GovernorSettings::default()).await;
    assert_eq!(crowded(&openings), None);
    assert!(openings[99] <= secs(1), "and yet soon: {openings:?}");
}

#[tokio::test(start_paused = true)]
async fn control_without_a_governor_they_come_back_all_at_once() {
    let openings = back_after_a_mass_loss(no_governor()).await;
    assert!(crowded(&openings).is_some(), "{openings:?}");
}

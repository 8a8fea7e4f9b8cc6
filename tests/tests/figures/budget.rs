//! Figures 13 and 14: a server that flaps, and a hundred that are lost at once.

use std::time::Duration;

use mcpvisor::{Runtime, StateName};
use mcpvisor_testkit::processes::Marker;
use mcpvisor_testkit::scripted::{Script, ScriptedServer};
use tokio::time::Instant;

use crate::fleet::*;

#[tokio::test]
async fn a_child_that_dies_after_every_handshake_runs_out_of_budget() {
    let marker = Marker::new("flap");
    let log = std::env::temp_dir().join(marker.value());
    let flags = ["--flap", "--received", log.to_str().unwrap()];
    let few = settings(|settings| {
        settings.budget.attempts = 6;
        settings.backoff.initial = millis(5);
        settings.backoff.max = millis(5);
    });
    let config = server("one", fixture(&marker, &flags)).settings(few);
    let runtime = fleet([config]).await;
    let handle = runtime.server("one").unwrap();
    reaches(&handle, StateName::Disconnected).await;
    let status = handle.status();
    assert_eq!(status.generation.get(), 6);
    assert!(status.retry_in().unwrap() > secs(20), "probed slowly");
    // Ten times as long as all attempts were apart.
    tokio::time::sleep(millis(300)).await;
    assert_eq!(handle.status().generation.get(), 6);
    let handshakes = std::fs::read_to_string(&log).unwrap();
    assert_eq!(handshakes.matches(" initialize\n").count(), 6);
    assert_eq!(marker.processes(), []);
    runtime.shutdown(secs(5)).await;
    std::fs::remove_file(log).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_hundred_servers_that_are_lost_at_once_come_back_spread() {
    let servers: Vec<_> = (0..100)
        .map(|_| ScriptedServer::new(Script::new()))
        .collect();
    // The governor of every runtime, as it is by default.
    let mut builder = Runtime::builder();
    for (number, scripted_server) in servers.iter().enumerate() {
        let name = format!("server-{number}");
        builder = builder.server(server(&name, scripted(scripted_server)));
    }
    let runtime = builder.start().await.unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    // Proven connections want to be back at once, which is the worst case.
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
    for eleven in openings.windows(11) {
        let within = eleven[10] - eleven[0];
        assert!(
            within >= millis(100),
            "eleven within {within:?}: {eleven:?}"
        );
    }
    assert!(openings[99] <= secs(1), "and yet soon: {openings:?}");
}

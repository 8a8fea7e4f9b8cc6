//! How a server's era is detected, and the cost of that.

use std::time::Instant;

use mcpvisor::rmcp::model::ProtocolVersion;
use mcpvisor::{EventKind, FaultClass, StateName};
use mcpvisor_testkit::eventually_in;
use mcpvisor_testkit::processes::Marker;
use mcpvisor_testkit::scripted::{Script, ScriptedServer};
use serde_json::json;

use crate::fleet::*;
use crate::{Folder, child, protocol, received, started};

#[tokio::test]
async fn a_modern_server_is_met_without_a_handshake() {
    let (marker, folder) = (Marker::new("eras-modern"), Folder::new("modern"));
    let log = folder.file("received");
    let (_runtime, handle) = started(child(&marker, "modern", &log, &[])).await;
    assert_eq!(protocol(&handle), "2026-07-28");
    let status = handle.status();
    assert_eq!(status.server.unwrap().name, "fixture-server");
    assert!(status.tools > 0);
    let result = handle.call_tool("echo", json!({ "x": 1 })).await;
    assert_eq!(structured(result), json!({ "x": 1 }));
    let methods = &received(&log)[0];
    assert_eq!(methods[0], "server/discover");
    assert!(!methods.contains(&"initialize".to_owned()));
}

#[tokio::test]
async fn a_server_of_an_older_era_is_met_on_the_same_connection() {
    let (marker, folder) = (Marker::new("eras-legacy"), Folder::new("legacy"));
    let log = folder.file("received");
    let begin = Instant::now();
    let (_runtime, handle) = started(child(&marker, "legacy", &log, &[])).await;
    assert_eq!(protocol(&handle), "2025-11-25");
    let received = received(&log);
    assert_eq!(received.len(), 1, "one process");
    assert_eq!(received[0][..2], ["server/discover", "initialize"]);
    assert_eq!(handle.status().generation.get(), 1);
    assert!(begin.elapsed() < DEADLINE);
}

#[tokio::test]
async fn an_older_era_that_is_preferred_is_used_where_the_server_speaks_it() {
    for (era, version, said) in [
        (
            "both",
            "2025-11-25",
            ["initialize", "notifications/initialized"],
        ),
        (
            "legacy",
            "2025-11-25",
            ["initialize", "notifications/initialized"],
        ),
        ("modern", "2026-07-28", ["initialize", "server/discover"]),
    ] {
        let (marker, folder) = (
            Marker::new("eras-older"),
            Folder::new(&format!("older-{era}")),
        );
        let log = folder.file("received");
        let older = child(&marker, era, &log, &[]).prefer_older_protocol(true);
        let (runtime, handle) = started(older).await;
        assert_eq!(protocol(&handle), version, "{era}");
        assert_eq!(received(&log)[0][..2], said, "{era}");
        // What was learned meanwhile does not change the preference.
        let generation = handle.status().generation.get();
        runtime.reconnect("a").await.unwrap();
        let mut status = handle.watch();
        let again = |status: &mcpvisor::ServerStatus| {
            status.is_ready() && status.generation.get() > generation
        };
        status.wait_for(again).await.unwrap();
        assert_eq!(protocol(&handle), version, "{era}");
        assert_eq!(received(&log)[1][..2], said, "{era}");
        runtime.shutdown(DEADLINE).await;
    }
}

#[tokio::test]
async fn a_server_that_is_silent_on_the_question_costs_a_second_and_its_late_answer_nothing() {
    let (marker, folder) = (Marker::new("eras-silent"), Folder::new("silent"));
    let log = folder.file("received");
    let begin = Instant::now();
    let (_runtime, handle) = started(child(&marker, "silent", &log, &[])).await;
    let took = begin.elapsed();
    assert!(took >= secs(1) && took < secs(8), "{took:?}");
    assert_eq!(protocol(&handle), "2025-11-25");
    handle.ping().await.unwrap();
    let received = received(&log);
    assert_eq!(received.len(), 1, "one process");
    assert_eq!(received[0][..2], ["server/discover", "initialize"]);
    let status = handle.status();
    assert_eq!(status.generation.get(), 1);
    assert_eq!(
        protocol(&handle),
        "2025-11-25",
        "the late answer is dropped"
    );
    assert_eq!(status.strays, 1, "and counted");
}

#[tokio::test]
async fn a_server_that_ends_on_the_question_is_started_again_for_nothing() {
    let (marker, folder) = (Marker::new("eras-exit"), Folder::new("exit"));
    let log = folder.file("received");
    let (_runtime, handle) = started(child(&marker, "exit", &log, &[])).await;
    assert_eq!(protocol(&handle), "2025-11-25");
    let received = received(&log);
    assert_eq!(received.len(), 2, "two processes");
    assert_eq!(received[0], ["server/discover"]);
    assert_eq!(received[1][0], "initialize");
    let status = handle.status();
    assert_eq!(status.generation.get(), 2);
    assert_eq!(status.attempts_used, 1, "the second start cost nothing");
}

#[tokio::test]
async fn a_death_on_the_question_is_no_failed_attempt() {
    let (marker, folder) = (Marker::new("eras-no-failure"), Folder::new("no-failure"));
    let log = folder.file("received");
    let mut config = child(&marker, "exit", &log, &[]);
    config.enabled = false;
    let runtime = fleet([config]).await;
    let handle = runtime.server("a").unwrap();
    let mut events = runtime.events();
    let mut status = handle.watch();
    runtime.enable("a").await.unwrap();
    eventually_in(DEADLINE, "ready", &mut status, |status| {
        assert_eq!(status.last_error, None, "{status:?}");
        status.is_ready()
    })
    .await;
    assert_eq!(received(&log).len(), 2, "two processes");
    let mut changes = Vec::new();
    while let Some(event) = events.try_recv().unwrap() {
        match &event.kind {
            EventKind::StateChanged { from, to, .. } => changes.push((*from, *to)),
            EventKind::AttemptFailed { fault, .. } => panic!("{fault}"),
            _ => {}
        }
    }
    let expected = [
        (StateName::Disabled, StateName::Connecting),
        (StateName::Connecting, StateName::Connected),
    ];
    assert_eq!(changes, expected);
}

#[tokio::test]
async fn a_slow_server_of_the_modern_era_alone_is_met_all_the_same() {
    let (marker, folder) = (Marker::new("eras-slow"), Folder::new("slow"));
    let log = folder.file("received");
    let slow = child(&marker, "modern", &log, &["--start-delay", "1500"]);
    let (_runtime, handle) = started(slow).await;
    assert_eq!(protocol(&handle), "2026-07-28");
    assert_eq!(received(&log)[0][..2], ["server/discover", "initialize"]);
}

#[tokio::test]
async fn versions_that_nobody_shares_fail_for_good_and_name_both_sides() {
    let (marker, folder) = (Marker::new("eras-other"), Folder::new("other"));
    let log = folder.file("received");
    let runtime = fleet([child(&marker, "other", &log, &[])]).await;
    let handle = runtime.server("a").unwrap();
    reaches(&handle, StateName::PermanentlyFailed).await;
    let fault = handle.status().last_error.unwrap();
    assert_eq!(fault.class, FaultClass::IncompatibleVersion);
    assert!(fault.message.contains("2099-01-01"), "{fault}");
    assert!(fault.message.contains("2026-07-28, 2025-11-25"), "{fault}");
    assert_eq!(received(&log).len(), 1, "it is not tried again");
}

#[tokio::test]
async fn a_pinned_version_is_the_only_one() {
    let (marker, folder) = (Marker::new("eras-pinned"), Folder::new("pinned"));
    for (era, pin, methods) in [
        ("both", "2025-06-18", vec!["initialize"]),
        ("both", "2026-07-28", vec!["server/discover"]),
        ("exit", "2025-11-25", vec!["initialize"]),
    ] {
        let log = folder.file(&format!("{era}-{pin}"));
        let mut config = child(&marker, era, &log, &[]);
        config.protocol = Some(serde_json::from_value(json!(pin)).unwrap());
        let (_runtime, handle) = started(config).await;
        assert_eq!(protocol(&handle), pin);
        assert_eq!(received(&log)[0][..1], methods);
    }
    for (era, pin) in [("legacy", "2026-07-28"), ("legacy", "1999-01-01")] {
        let log = folder.file(&format!("no-{era}-{pin}"));
        let mut config = child(&marker, era, &log, &[]);
        config.protocol = Some(serde_json::from_value(json!(pin)).unwrap());
        let runtime = fleet([config]).await;
        let handle = runtime.server("a").unwrap();
        reaches(&handle, StateName::PermanentlyFailed).await;
        let status = handle.status();
        let fault = status.last_error.unwrap();
        assert_eq!(fault.class, FaultClass::IncompatibleVersion);
        assert!(fault.message.contains(pin), "{fault}");
        assert!(status.action.unwrap().to_string().contains("protocol"));
    }
}

#[tokio::test]
async fn a_service_in_this_process_is_not_asked_for_its_era() {
    let scripted = ScriptedServer::new(Script::new());
    let (_runtime, handle) = ready(server("a", scripted.transport())).await;
    assert_eq!(
        protocol(&handle),
        ProtocolVersion::LATEST_WITH_INITIALIZE.as_str()
    );
    assert_eq!(scripted.record().methods(1)[0], "initialize");
}

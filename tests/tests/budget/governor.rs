//! B7: a governor limits and spreads the connection attempts of a fleet.

use std::future::IntoFuture;
use std::ops::RangeInclusive;
use std::time::Duration;

use mcpvisor::rmcp::model::ToolListChangedNotification;
use mcpvisor::{GovernorSettings, Runtime, ServerSettings, Transport};
use mcpvisor_testkit::eventually;
use mcpvisor_testkit::processes::{MARKER, Marker};
use mcpvisor_testkit::scripted::{Behaviour, Script, ScriptedServer};
use serde_json::json;
use tokio::time::Instant;

use crate::fleet::{DEADLINE, fixture, millis, ready_after, secs, server, settings, structured};

async fn governed<'a>(
    governor: GovernorSettings,
    servers: impl IntoIterator<Item = (String, &'a ScriptedServer, ServerSettings)>,
) -> Runtime {
    let mut builder = Runtime::builder().governor(governor);
    for (name, scripted, settings) in servers {
        builder = builder.server(server(&name, scripted.transport()).settings(settings));
    }
    builder.start().await.unwrap()
}

/// The maximum number of connection attempts of these servers within any window of this length.
fn most_within(servers: &[ScriptedServer], window: Duration, which: RangeInclusive<u64>) -> usize {
    let mut openings: Vec<Instant> = Vec::new();
    for scripted in servers {
        let record = scripted.record();
        let numbered = record.opened().into_iter().zip(record.openings());
        openings.extend(
            numbered
                .filter(|(n, _)| which.contains(n))
                .map(|(_, at)| at),
        );
    }
    openings.sort();
    let from = |at: &Instant| {
        openings
            .iter()
            .filter(|o| **o >= *at && **o - *at < window)
            .count()
    };
    openings.iter().map(from).max().unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn silent_servers_are_started_a_few_at_a_time_and_hold_up_no_other_for_long() {
    let silent = Script::new().on("initialize", Behaviour::silence());
    let servers: Vec<_> = (0..20)
        .map(|_| ScriptedServer::new(silent.clone()))
        .collect();
    let good = ScriptedServer::new(Script::new());
    let mut governor = GovernorSettings::default();
    governor.max_connects = 4;
    let patient = settings(|settings| settings.timeouts.connect = secs(3_600));
    let hasty = settings(|settings| settings.timeouts.connect = secs(1));
    let mut fleet: Vec<_> = servers
        .iter()
        .enumerate()
        .map(|(n, scripted)| (format!("silent-{n:02}"), scripted, patient.clone()))
        .collect();
    // Its name sorts last, so it is last in the queue.
    fleet.push(("the-good-one".to_owned(), &good, hasty));
    let begun = Instant::now();
    let runtime = governed(governor, fleet).await;

    let handle = runtime.server("the-good-one").unwrap();
    ready_after(&handle, 0).await;
    // Five rounds of four that hold their slots for 2 s. Its own second started only then.
    let waited = begun.elapsed();
    assert!(waited >= secs(10) && waited <= millis(10_050), "{waited:?}");
    assert_eq!(good.record().opened(), [1]);
    assert_eq!(handle.status().last_error, None);
    assert_eq!(most_within(&servers, millis(1_999), 1..=1), 4);
    let opened = |scripted: &ScriptedServer| scripted.record().opened() == [1];
    assert!(servers.iter().all(opened), "all were tried");
}

/// Starts six children that never send anything, with this limit of concurrent starts. Returns how
/// many existed at once before the first slot is released. In the end all of them exist.
async fn most_mute_children(max_stdio: usize) -> usize {
    let marker = Marker::new("governed");
    let mut builder = Runtime::builder().governor(stdio_at_once(max_stdio));
    // Before any slot is taken.
    let begun = Instant::now();
    for number in 0..6 {
        let mute = Transport::stdio("sleep").arg("600");
        let mute = mute.env(MARKER, marker.value());
        builder = builder.server(server(&format!("mute-{number}"), mute));
    }
    let runtime = builder.start().await.unwrap();
    let mut most = 0;
    loop {
        let now = marker.processes().len();
        // The process listing itself takes a while.
        if begun.elapsed() > millis(1_900) {
            break;
        }
        most = most.max(now);
        tokio::time::sleep(millis(20)).await;
    }
    eventually(DEADLINE, "all six", || marker.processes().len() == 6).await;
    runtime.shutdown(secs(5)).await;
    assert_eq!(marker.processes(), []);
    most
}

#[tokio::test]
async fn children_that_say_nothing_are_started_a_few_at_a_time() {
    assert_eq!(most_mute_children(2).await, 2);
}

#[tokio::test]
async fn control_children_that_may_are_started_all_at_once() {
    let most = most_mute_children(6).await;
    assert!(most > 2, "{most}");
}

#[tokio::test(start_paused = true)]
async fn the_first_byte_of_a_slow_server_frees_its_slot() {
    // It sends a byte immediately, but the handshake is slow.
    let news = ToolListChangedNotification::default();
    let slow = Behaviour::answer().after(secs(20)).notifying(news);
    let slow = ScriptedServer::new(Script::new().on("initialize", slow));
    let next = ScriptedServer::new(Script::new());
    let mut governor = GovernorSettings::default();
    governor.max_connects = 1;
    let both = [
        ("a".to_owned(), &slow, ServerSettings::default()),
        ("b".to_owned(), &next, ServerSettings::default()),
    ];
    let begun = Instant::now();
    let runtime = governed(governor, both).await;
    ready_after(&runtime.server("b").unwrap(), 0).await;
    assert!(begun.elapsed() < millis(10), "{:?}", begun.elapsed());
    ready_after(&runtime.server("a").unwrap(), 0).await;
    assert!(begun.elapsed() >= secs(20));
}

#[tokio::test(start_paused = true)]
async fn servers_that_are_lost_all_at_once_come_back_one_after_the_other() {
    const FLEET: usize = 80;
    let servers: Vec<_> = (0..FLEET)
        .map(|_| ScriptedServer::new(Script::new()))
        .collect();
    let fleet = servers.iter().enumerate().map(|(n, scripted)| {
        (
            format!("server-{n:02}"),
            scripted,
            ServerSettings::default(),
        )
    });
    let runtime = governed(GovernorSettings::default(), fleet).await;
    runtime.ready(DEADLINE).await.unwrap();
    let mut handles = Vec::new();
    for name in runtime.servers() {
        let handle = runtime.server(name.as_str()).unwrap();
        structured(handle.call_tool("echo", json!({})).await);
        handles.push(handle);
    }

    let begun = Instant::now();
    let calls: Vec<_> = servers
        .iter()
        .zip(&handles)
        .map(|(scripted, handle)| {
            scripted.control().end();
            tokio::spawn(handle.call_tool("echo", json!({})).into_future())
        })
        .collect();
    for call in calls {
        structured(call.await.unwrap());
    }
    // A tenth of the fleet in any 100 ms, and no slower than that.
    assert_eq!(most_within(&servers, millis(100), 2..=2), FLEET / 10);
    assert!(begun.elapsed() <= millis(1_000), "{:?}", begun.elapsed());
}

fn stdio_at_once(max_stdio: usize) -> GovernorSettings {
    let mut settings = GovernorSettings::default();
    settings.max_stdio = max_stdio;
    settings
}

/// A server that stays silent during the second for era detection has not sent its first byte.
#[tokio::test]
async fn silence_is_no_first_byte() {
    let marker = Marker::new("governor-silence");
    let silent = Transport::stdio("sleep")
        .args(["60"])
        .env(MARKER, marker.value());
    let begun = Instant::now();
    let runtime = Runtime::builder()
        .governor(stdio_at_once(1))
        .server(server("a-silent-one", silent))
        .server(server("the-good-one", fixture(&marker, &[])))
        .start()
        .await
        .unwrap();
    ready_after(&runtime.server("the-good-one").unwrap(), 0).await;
    let waited = begun.elapsed();
    assert!(waited >= secs(2), "{waited:?}");
    runtime.shutdown(secs(5)).await;
}

//! The cache of a server's era, across connections and runs.

use mcpvisor::Runtime;
use mcpvisor_testkit::eventually;
use mcpvisor_testkit::processes::{self, Marker};

use crate::fleet::*;
use crate::{Folder, child, protocol, received, started};

#[tokio::test]
async fn the_era_is_remembered_from_one_connection_to_the_next() {
    let (marker, folder) = (Marker::new("eras-generations"), Folder::new("generations"));
    for (era, first) in [("silent", "initialize"), ("modern", "server/discover")] {
        let log = folder.file(era);
        let (runtime, handle) = started(child(&marker, era, &log, &[])).await;
        let before = protocol(&handle);
        runtime.reconnect("a").await.unwrap();
        ready_after(&handle, 1).await;
        assert_eq!(protocol(&handle), before);
        let received = received(&log);
        assert_eq!(received.len(), 2);
        assert_eq!(received[1][0], first, "{era}");
        assert!(!received[1].contains(&"no-meta".to_owned()));
    }
}

/// Runs a server once, with a folder for the cache.
async fn run_once(config: mcpvisor::ServerConfig, folder: &Folder) -> String {
    let runtime = Runtime::builder()
        .server(config)
        .state_dir(folder.file("state"))
        .start()
        .await
        .unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    let handle = runtime.server("a").unwrap();
    let protocol = protocol(&handle);
    runtime.shutdown(secs(5)).await;
    protocol
}

/// The files of the era cache with their contents.
fn kept(folder: &Folder) -> Vec<(std::path::PathBuf, String)> {
    let Ok(files) = std::fs::read_dir(folder.file("state/eras")) else {
        return Vec::new();
    };
    let files = files.map(|file| file.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|it| it == "json"));
    files
        .map(|path| (path.clone(), std::fs::read_to_string(path).unwrap()))
        .collect()
}

#[tokio::test]
async fn the_era_is_remembered_from_one_run_to_the_next() {
    let (marker, folder) = (Marker::new("eras-runs"), Folder::new("runs"));
    let log = folder.file("received");
    let config = || child(&marker, "silent", &log, &[]);
    assert_eq!(run_once(config(), &folder).await, "2025-11-25");
    eventually(DEADLINE, "the era is kept", || kept(&folder).len() == 1).await;
    assert_eq!(kept(&folder)[0].1, r#"{"era":"legacy"}"#);
    assert_eq!(run_once(config(), &folder).await, "2025-11-25");
    let received = received(&log);
    assert_eq!(received[0][..2], ["server/discover", "initialize"]);
    assert_eq!(received[1][0], "initialize", "it is not asked again");
}

#[tokio::test]
async fn a_remembered_era_that_no_longer_works_is_forgotten() {
    let (marker, folder) = (Marker::new("eras-forgotten"), Folder::new("forgotten"));
    let log = folder.file("received");
    assert_eq!(
        run_once(child(&marker, "modern", &log, &[]), &folder).await,
        "2026-07-28"
    );
    eventually(DEADLINE, "the era is kept", || kept(&folder).len() == 1).await;
    // The same command, as far as the cache knows, but another server answers.
    let memory = kept(&folder)[0].0.clone();
    std::fs::write(&memory, r#"{"era":"legacy"}"#).unwrap();
    assert_eq!(
        run_once(child(&marker, "modern", &log, &[]), &folder).await,
        "2026-07-28"
    );
    assert_eq!(received(&log)[1][..2], ["initialize", "server/discover"]);
    let modern = || {
        kept(&folder)
            .iter()
            .all(|(_, text)| text == r#"{"era":"modern"}"#)
    };
    eventually(DEADLINE, "the new era is kept", modern).await;
}

#[tokio::test]
async fn a_memory_that_cannot_be_read_is_learned_again() {
    let (marker, folder) = (Marker::new("eras-broken"), Folder::new("broken"));
    let log = folder.file("received");
    let config = || child(&marker, "legacy", &log, &[]);
    run_once(config(), &folder).await;
    eventually(DEADLINE, "the era is kept", || kept(&folder).len() == 1).await;
    let memory = kept(&folder)[0].0.clone();
    std::fs::write(&memory, [0xff, b'{', 0]).unwrap();
    assert_eq!(run_once(config(), &folder).await, "2025-11-25");
    assert_eq!(received(&log)[1][..2], ["server/discover", "initialize"]);
}

#[tokio::test]
async fn another_command_is_another_server() {
    let (marker, folder) = (Marker::new("eras-another"), Folder::new("another"));
    let log = folder.file("received");
    run_once(child(&marker, "legacy", &log, &[]), &folder).await;
    run_once(child(&marker, "both", &log, &[]), &folder).await;
    eventually(DEADLINE, "both are kept", || kept(&folder).len() == 2).await;
}

#[tokio::test]
async fn a_server_that_dies_on_everything_is_started_twice_once_and_once_from_then_on() {
    let (marker, folder) = (Marker::new("eras-dies"), Folder::new("dies"));
    let log = folder.file("starts");
    let script = format!("echo $$ x >> {}; exit 1", log.display());
    let command = mcpvisor::Transport::stdio("sh")
        .args(["-c", &script])
        .env(processes::MARKER, marker.value());
    let settings = settings(|settings| {
        settings.budget.attempts = 4;
        settings.backoff.initial = millis(1);
        settings.backoff.max = millis(2);
    });
    let runtime = fleet([server("a", command).settings(settings)]).await;
    let handle = runtime.server("a").unwrap();
    reaches(&handle, mcpvisor::StateName::Disconnected).await;
    let starts = std::fs::read_to_string(&log).unwrap().lines().count();
    assert_eq!(
        starts, 5,
        "four of the budget, and one that asked otherwise"
    );
}

#[tokio::test]
async fn what_an_old_command_taught_is_not_taken_for_a_new_one() {
    let (marker, folder) = (Marker::new("eras-renewed"), Folder::new("renewed"));
    let log = folder.file("received");
    // It exits on `server/discover`, and never answers `initialize`.
    let script = format!(
        "read -r line; case $line in *discover*) exit 1;; esac; echo $$ x >> {}; cat > /dev/null",
        log.display()
    );
    let command = mcpvisor::Transport::stdio("sh")
        .args(["-c", &script])
        .env(processes::MARKER, marker.value());
    let entry = server("a", command);
    let runtime = fleet([entry.clone()]).await;
    let handle = runtime.server("a").unwrap();
    let asked_otherwise = async |times| {
        eventually(DEADLINE, "it is asked otherwise", || {
            received(&log).len() == times
        })
        .await;
    };
    asked_otherwise(1).await;
    let other = child(&marker, "both", &folder.file("other"), &[]);
    let config = mcpvisor::Config::new().server(other.clone());
    runtime.reload(config).await.unwrap();
    ready_after(&handle, 2).await;
    assert_eq!(protocol(&handle), "2026-07-28");

    // The change has the same effect whether it also disables the server or finds it disabled.
    for before in [true, false] {
        let old = mcpvisor::Config::new().server(entry.clone());
        let times = received(&log).len() + 1;
        runtime.reload(old.clone()).await.unwrap();
        asked_otherwise(times).await;
        if !before {
            let off = mcpvisor::Config::new().server(entry.clone().enabled(false));
            runtime.reload(off).await.unwrap();
        }
        let off = mcpvisor::Config::new().server(other.clone().enabled(false));
        runtime.reload(off).await.unwrap();
        let generation = handle.status().generation.get();
        runtime.enable("a").await.unwrap();
        ready_after(&handle, generation).await;
        assert_eq!(protocol(&handle), "2026-07-28", "{before}");
    }
}

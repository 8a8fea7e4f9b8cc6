use std::time::Duration;

use rmcp::model::Resource;

use super::*;
use crate::Transport;
use crate::api::callbacks::Callbacks;
use crate::state::state_dir::StateDir;

const DEADLINE: Duration = Duration::from_secs(20);

/// Polls, since neither a file nor a thread that waits for a lock sends a signal.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waited = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(DEADLINE, waited).await.expect(what);
}

#[tokio::test]
async fn a_change_during_a_write_is_written_too() {
    let root = std::env::temp_dir().join(format!("mcpvisor-slot-{}", std::process::id()));
    let state = Some(StateDir::new(&root));
    let host = Host::new("test", "1", Callbacks::new(), state, Default::default());
    let config = ServerConfig::new("a", Transport::channel(|_| async {})).unwrap();
    let events = Arc::new(EventBus::default());
    let slot = ServerSlot::new(config, 0, Arc::new(host), events, Arc::default());
    let slot = Arc::new(slot);
    let list = |uri: &str| {
        let resources = [Resource::new(uri, "r")].into();
        slot.restart_state().lists.fetched = Arc::new(ServerCatalog {
            resources,
            ..ServerCatalog::default()
        });
        slot.schedule_save();
    };
    let is_saved = |uri: &str| {
        let saved = slot.catalog_cache.read(slot.config().fingerprint());
        saved.is_some_and(|saved| saved.resources.iter().any(|it| it.uri == uri))
    };
    let slow_disk = slot.catalog_cache.writing.lock();
    list("r://first");
    until("the write has begun", || {
        !slot.catalog_cache.pending().dirty
    })
    .await;
    list("r://second");
    drop(slow_disk);
    until("the second is saved", || is_saved("r://second")).await;
    let is_quiet = || slot.catalog_cache.pending().task.is_none();
    until("nothing left to write", is_quiet).await;
    std::fs::remove_dir_all(root).unwrap();
}

/// A token may be renewed between the load of the config and the connection that uses it.
#[cfg(feature = "stdio")]
#[tokio::test]
async fn secrets_that_a_connection_reads_later_than_the_config_are_redacted() {
    let script = "echo the token is \"$TOKEN\" >&2; exit 1";
    let command = Transport::stdio("sh").args(["-c", script]);
    let command = command.env("TOKEN", "canary-renewed");
    let server = ServerConfig::new("a", command).unwrap();
    let server = server.start(crate::config::StartMode::Lazy);
    let runtime = crate::Runtime::builder().server(server);
    let runtime = runtime.start().await.unwrap();
    let handle = runtime.server("a").unwrap();
    handle.slot.forget_secrets();
    assert_eq!(handle.slot.redact("canary-renewed"), "canary-renewed");
    runtime.reconnect("a").await.unwrap();
    let mut watched = handle.watch();
    let failed = watched.wait_for(|status| status.last_error.is_some());
    let failed = tokio::time::timeout(DEADLINE, failed)
        .await
        .expect("the connect fails");
    let error = format!("{:?}", failed.unwrap().last_error);
    assert!(error.contains("the token is ***"), "{error}");
    assert!(!handle.stderr_tail().contains("canary-renewed"));
    runtime.shutdown(DEADLINE).await;
}

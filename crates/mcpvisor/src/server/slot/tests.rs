use rmcp::model::Resource;

use super::*;
use crate::Transport;
use crate::api::callbacks::Callbacks;
use crate::state::state_dir::StateDir;

const DEADLINE: Duration = Duration::from_secs(20);

/// Waits without a signal: what is waited for is a file, or a thread that wants a lock.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waited = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(DEADLINE, waited).await.expect(what);
}

#[tokio::test]
async fn what_changes_while_it_is_being_written_is_written_too() {
    let root = std::env::temp_dir().join(format!("mcpvisor-slot-{}", std::process::id()));
    let state = Some(StateDir::new(&root));
    let host = Host::new("test", "1", Callbacks::new(), state, Default::default());
    let config = ServerConfig::new("a", Transport::channel(|_| async {})).unwrap();
    let events = Arc::new(EventBus::new());
    let slot = ServerSlot::new(config, Arc::new(host), events, Arc::default());
    let slot = Arc::new(slot);
    let list = |uri: &str| {
        let resources = [Resource::new(uri, "r")].into();
        slot.memory().listed = Arc::new(ServerCatalog {
            resources,
            ..ServerCatalog::default()
        });
        slot.keep_later();
    };
    let is_kept = |uri: &str| {
        let kept = slot.kept.read(slot.config().fingerprint());
        kept.is_some_and(|kept| kept.resources.iter().any(|it| it.uri == uri))
    };
    let slow_disk = slot.kept.writing.lock();
    list("r://first");
    until("the write is begun", || !slot.kept.pending().dirty).await;
    list("r://second");
    drop(slow_disk);
    until("the second is kept", || is_kept("r://second")).await;
    let is_quiet = || slot.kept.pending().task.is_none();
    until("nothing is left to write", is_quiet).await;
    std::fs::remove_dir_all(root).unwrap();
}

/// A token may be renewed between the reading of the config and the connection that uses it.
#[cfg(feature = "stdio")]
#[tokio::test]
async fn what_a_connection_reads_is_hidden_though_the_config_was_taken_before() {
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
        .expect("it fails");
    let said = format!("{:?}", failed.unwrap().last_error);
    assert!(said.contains("the token is ***"), "{said}");
    assert!(!handle.stderr_tail().contains("canary-renewed"));
    runtime.shutdown(DEADLINE).await;
}

//! Tasks: calls that a server runs on its own, in both versions of the protocol that have them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

#[path = "../fleet/mod.rs"]
mod fleet;

mod awaited;
mod http;
mod kept;

use std::path::PathBuf;

use fleet::*;
use mcpvisor::{Runtime, RuntimeBuilder, ServerConfig, ServerHandle, Transport};
use mcpvisor_testkit::eventually;
use mcpvisor_testkit::processes::{MARKER, Marker};

/// Both versions of the protocol that have tasks.
const ERAS: [&str; 2] = ["legacy", "modern"];

/// Longer than any test.
const ENDLESS: u64 = 3_600_000;

/// A server whose tasks survive its process, and the folder with its files.
struct TaskServer {
    marker: Marker,
    folder: PathBuf,
    era: &'static str,
}

impl TaskServer {
    fn new(name: &str, era: &'static str) -> Self {
        let name = format!("{name}-{era}");
        let folder = format!("mcpvisor-tasks-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        // Left over from a killed process with the same pid.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Self {
            marker: Marker::new(&name),
            folder,
            era,
        }
    }

    fn config(&self) -> ServerConfig {
        let command = Transport::stdio(env!("CARGO_BIN_EXE_task-server"))
            .arg(self.era)
            .arg(self.folder.join("store"))
            .arg(self.log())
            .env(MARKER, self.marker.value());
        server("a", command).settings(eager())
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// A runtime with a state folder, which outlives it.
    fn builder(&self) -> RuntimeBuilder {
        let builder = Runtime::builder().governor(no_governor());
        builder
            .server(self.config())
            .state_dir(self.folder.join("state"))
    }

    async fn start(&self) -> (Runtime, ServerHandle) {
        started(self.builder()).await
    }

    /// The received methods, each with the id of its task.
    fn received(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// How often a method was received.
    fn count(&self, method: &str) -> usize {
        let received = self.received();
        let methods = received.iter().map(|it| it.split(' ').next().unwrap());
        methods.filter(|it| *it == method).count()
    }

    async fn receives(&self, method: &str) {
        eventually(DEADLINE, method, || self.count(method) > 0).await;
    }
}

impl Drop for TaskServer {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

async fn started(builder: RuntimeBuilder) -> (Runtime, ServerHandle) {
    let runtime = builder.start().await.unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    let handle = runtime.server("a").unwrap();
    (runtime, handle)
}

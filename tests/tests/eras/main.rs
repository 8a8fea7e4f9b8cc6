//! The protocol's eras, and the requests that servers may send in each.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]
#![allow(
    deprecated,
    reason = "what servers of the older protocol versions still ask for"
)]

#[path = "../fleet/mod.rs"]
mod fleet;

mod callbacks;
mod era_cache;
mod input_rounds;
mod modern;
mod negotiation;

use std::path::{Path, PathBuf};

use mcpvisor::{Runtime, ServerConfig, ServerHandle};
use mcpvisor_testkit::processes::Marker;

use fleet::{DEADLINE, fixture, server};

/// A unique folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("mcpvisor-eras-{}-{name}", std::process::id()));
        // Left over from a killed process with the same pid.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A child that speaks these eras and logs what it receives.
fn child(marker: &Marker, era: &str, received: &Path, more: &[&str]) -> ServerConfig {
    let mut flags = vec!["--era", era, "--received", received.to_str().unwrap()];
    flags.extend(more);
    server("a", fixture(marker, &flags))
}

/// The methods that a child received, process by process.
fn received(file: &Path) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let mut processes: Vec<(String, Vec<String>)> = Vec::new();
    for line in text.lines() {
        let (pid, method) = line.split_once(' ').unwrap();
        match processes.iter_mut().find(|(known, _)| known == pid) {
            Some((_, methods)) => methods.push(method.to_owned()),
            None => processes.push((pid.to_owned(), vec![method.to_owned()])),
        }
    }
    processes.into_iter().map(|(_, methods)| methods).collect()
}

async fn started(config: ServerConfig) -> (Runtime, ServerHandle) {
    let runtime = Runtime::builder().server(config).start().await.unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    let handle = runtime.server("a").unwrap();
    (runtime, handle)
}

fn protocol(handle: &ServerHandle) -> String {
    handle.status().protocol.unwrap()
}

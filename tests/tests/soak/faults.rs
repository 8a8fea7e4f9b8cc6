//! Injects one fault after another, each into the next server, so that over time each server gets
//! all of them.

use mcpvisor::{Runtime, ServerHandle, StateName};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::callers::in_time;
use crate::fleet::CALL_FAULTS;
use crate::servers::{Kind, One, Servers};

/// Faults of the lists.
const OF_LISTS: [&str; 3] = ["endless-cursor", "huge-tool-list=20000", "change-tools"];

/// Faults that apply to any server.
#[derive(Debug, Clone, Copy)]
enum Any {
    Killed,
    Crashed,
    OffAndOn,
    Reconnected,
}

const ANY: [Any; 4] = [Any::Killed, Any::Crashed, Any::OffAndOn, Any::Reconnected];

#[derive(Default)]
pub(crate) struct Faults {
    count: usize,
    running: JoinSet<()>,
}

impl Faults {
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Injects everything once, so that one-time growth happens before the measurement.
    pub(crate) async fn warm_up(&mut self, servers: &Servers) {
        for _ in 0..2 * servers.all.len() {
            self.strike(servers);
        }
        self.are_over().await;
        self.count = 0;
    }

    /// Injects a fault into the next server, in the background.
    pub(crate) fn strike(&mut self, servers: &Servers) {
        let number = self.count;
        self.count += 1;
        let one = servers.all[number % servers.all.len()].clone();
        let runtime = servers.runtime.clone();
        // A server's turn comes once per round, with a different fault each time.
        let turn = number / servers.all.len() + number;
        self.running.spawn(strike(runtime, one, turn));
    }

    /// Waits for the last fault to finish.
    pub(crate) async fn are_over(&mut self) {
        while let Some(ended) = self.running.join_next().await {
            ended.unwrap();
        }
    }
}

async fn strike(runtime: Runtime, one: One, turn: usize) {
    match one.kind {
        Kind::Bad if !turn.is_multiple_of(8) => {
            let mut faults = CALL_FAULTS.iter().chain(&OF_LISTS).cycle();
            let fault = faults.nth(turn).unwrap();
            in_time(&one.handle, "misbehave", json!({ "fault": fault })).await;
            if fault.starts_with("spawn-") {
                // Its child processes would stay as long as it lives.
                let _ = runtime.reconnect(one.handle.name().as_str()).await;
            }
        }
        Kind::Bad | Kind::Good | Kind::InProcess => {
            befalls(&runtime, &one.handle, ANY[turn / 2 % ANY.len()]).await
        }
    }
}

async fn befalls(runtime: &Runtime, handle: &ServerHandle, what: Any) {
    let name = handle.name().as_str();
    match what {
        Any::Killed => {
            // An in-process server has no process to kill, and does not answer.
            in_time(handle, "kill_self", Value::Null).await;
        }
        Any::Crashed => handle.crash_actor(),
        Any::OffAndOn => {
            // An actor that crashes meanwhile returns an error, so enabling is retried.
            let _ = runtime.disable(name).await;
            while runtime.enable(name).await.is_err() {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        }
        Any::Reconnected => {
            let _ = runtime.reconnect(name).await;
        }
    }
    if handle.status().state == StateName::Disabled {
        runtime.enable(name).await.unwrap();
    }
}

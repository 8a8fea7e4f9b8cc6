//! One fault after the other, each for the next server, so that in time each meets all.

use mcpvisor::{Runtime, ServerHandle, StateName};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::callers::in_time;
use crate::fleet::CALL_FAULTS;
use crate::servers::{Kind, One, Servers};

/// Faults that strike its lists.
const OF_LISTS: [&str; 3] = ["endless-cursor", "huge-tool-list=20000", "change-tools"];

/// What befalls any server.
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

    /// Strikes everything once, so that what grows once has grown.
    pub(crate) async fn warm_up(&mut self, servers: &Servers) {
        for _ in 0..2 * servers.all.len() {
            self.strike(servers);
        }
        self.are_over().await;
        self.count = 0;
    }

    /// Strikes the next server, in the background.
    pub(crate) fn strike(&mut self, servers: &Servers) {
        let number = self.count;
        self.count += 1;
        let one = servers.all[number % servers.all.len()].clone();
        let runtime = servers.runtime.clone();
        // A server's turn comes once a round; its fault is another one each time.
        let turn = number / servers.all.len() + number;
        self.running.spawn(strike(runtime, one, turn));
    }

    /// Waits until the last one has struck.
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
                // What it started would stay for as long as it lives.
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
            // An in-process server has no process to kill and no answer.
            in_time(handle, "kill_self", Value::Null).await;
        }
        Any::Crashed => handle.crash_actor(),
        Any::OffAndOn => {
            // An actor that crashes meanwhile says so, and what it should be is asked for again.
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

//! Continuous calls, whose outcomes must arrive in time despite the faults.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mcpvisor::ServerHandle;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::fleet::millis;
use crate::servers::Servers;

/// The deadline of each call.
const CALL: Duration = Duration::from_secs(1);

/// How late an outcome may arrive on a busy machine.
const TOLERANCE: Duration = Duration::from_secs(4);

/// Calls a tool. Any outcome must arrive in time. Returns whether it was a result.
pub(crate) async fn in_time(handle: &ServerHandle, tool: &'static str, arguments: Value) -> bool {
    let begin = Instant::now();
    let outcome = handle.call_tool(tool, arguments).deadline(CALL).await;
    let took = begin.elapsed();
    assert!(took < CALL + TOLERANCE, "{took:?}: {outcome:?}");
    outcome.is_ok()
}

/// One caller for each server.
pub(crate) struct Callers {
    stop: Arc<AtomicBool>,
    callers: JoinSet<Calls>,
}

/// Counts of call outcomes.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    answered: usize,
    others: usize,
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { answered, others } = self;
        write!(
            f,
            "{answered} calls answered, {others} with another outcome"
        )
    }
}

impl Callers {
    pub(crate) fn start(servers: &Servers) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut callers = JoinSet::new();
        for one in &servers.all {
            callers.spawn(calls(one.handle.clone(), Arc::clone(&stop)));
        }
        Self { stop, callers }
    }

    pub(crate) async fn end(mut self) -> Calls {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Calls::default();
        while let Some(calls) = self.callers.join_next().await {
            let calls = calls.unwrap();
            assert!(calls.answered > 0, "a server that never answered");
            all.answered += calls.answered;
            all.others += calls.others;
        }
        all
    }
}

async fn calls(handle: ServerHandle, stop: Arc<AtomicBool>) -> Calls {
    let mut calls = Calls::default();
    while !stop.load(Ordering::Relaxed) {
        if in_time(&handle, "echo", json!({ "a": 1 })).await {
            calls.answered += 1;
        } else {
            calls.others += 1;
        }
        sleep(millis(10)).await;
    }
    calls
}

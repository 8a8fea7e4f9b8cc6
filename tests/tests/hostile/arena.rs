//! A bad server and a good neighbour in one fleet, and the checks for both.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mcpvisor::{CallError, Runtime, ServerHandle, ServerSettings, ShutdownReport};
use mcpvisor_testkit::processes::Marker;
use rmcp::model::CallToolResult;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

pub(crate) use crate::deadlines::*;
use crate::fleet::*;

/// The two servers.
pub(crate) struct Arena {
    pub(crate) runtime: Runtime,
    pub(crate) bad: ServerHandle,
    /// Set on all processes of the bad server.
    pub(crate) marker: Marker,
    neighbour: Neighbour,
}

impl Arena {
    /// Starts a fleet with both servers ready.
    pub(crate) async fn new(faults: &[&str]) -> Self {
        let arena = Self::start(faults, quick()).await;
        arena.runtime.ready(DEADLINE).await.unwrap();
        arena
    }

    /// Starts a fleet with the good server ready.
    pub(crate) async fn start(faults: &[&str], settings: ServerSettings) -> Self {
        let marker = Marker::new("bad");
        let of_neighbour = Marker::new("neighbour");
        let bad = server("bad", bad_server(&marker, faults)).settings(settings);
        let good = server("good", fixture(&of_neighbour, &[]));
        let runtime = fleet([bad, good]).await;
        let handle = runtime.server("good").unwrap();
        handle.ping().deadline(DEADLINE).await.unwrap();
        Self {
            bad: runtime.server("bad").unwrap(),
            neighbour: Neighbour::watch(handle, of_neighbour),
            runtime,
            marker,
        }
    }

    /// Injects a fault into a call.
    pub(crate) async fn inject(
        &self,
        fault: &str,
        deadline: Duration,
    ) -> (Result<CallToolResult, CallError>, Duration) {
        let call = self.bad.call_tool("misbehave", json!({ "fault": fault }));
        timed(call.deadline(deadline).idle_timeout(deadline)).await
    }

    /// Makes a call that returns a result despite a fault.
    pub(crate) async fn answered(&self, fault: &str) -> CallToolResult {
        self.inject(fault, DEADLINE).await.0.unwrap()
    }

    /// Makes a call that is never answered: it fails at its deadline, with an unknown outcome.
    pub(crate) async fn at_its_deadline(&self, fault: &str) {
        let (outcome, took) = self.inject(fault, SHORT).await;
        assert_sent_and_late(outcome, took, fault);
    }

    /// Makes a call that must fail before its deadline.
    pub(crate) async fn at_once(&self, fault: &str) -> CallError {
        let (outcome, took) = self.inject(fault, DEADLINE).await;
        let error = outcome.unwrap_err();
        assert!(took < tolerance(), "{fault}: {took:?}, {error}");
        error
    }

    /// Checks that the next call works, on the connection of this generation.
    pub(crate) async fn recovers(&self, generation: u64) {
        let call = self.bad.call_tool("echo", json!({ "a": 1 }));
        let echoed = structured(call.deadline(DEADLINE).await);
        assert_eq!(echoed, json!({ "a": 1 }));
        assert_eq!(self.bad.status().generation.get(), generation);
    }

    /// Checks that the neighbour was not affected, that the shutdown is in time, and that nothing
    /// is left.
    pub(crate) async fn end(self) -> ShutdownReport {
        self.neighbour.noticed_nothing().await;
        let (report, took) = timed(self.runtime.shutdown(secs(20))).await;
        let limit = GRACE.total() + secs(1) + tolerance();
        assert!(took < limit, "the shutdown took {took:?}");
        assert_eq!(self.marker.processes(), []);
        assert_eq!(self.neighbour.marker.processes(), []);
        report
    }
}

/// A good server that is called continuously.
struct Neighbour {
    handle: ServerHandle,
    marker: Marker,
    stop: Arc<AtomicBool>,
    /// Returns the duration of its slowest call.
    caller: tokio::sync::Mutex<JoinHandle<Duration>>,
}

impl Neighbour {
    fn watch(handle: ServerHandle, marker: Marker) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (caller, stopped) = (handle.clone(), Arc::clone(&stop));
        let caller = tokio::spawn(async move {
            let mut longest = Duration::ZERO;
            while !stopped.load(Ordering::Relaxed) {
                let call = caller.call_tool("echo", Value::Null).deadline(DEADLINE);
                let (outcome, took) = timed(call).await;
                outcome.unwrap();
                longest = longest.max(took);
                tokio::time::sleep(millis(1)).await;
            }
            longest
        });
        Self {
            handle,
            marker,
            stop,
            caller: caller.into(),
        }
    }

    async fn noticed_nothing(&self) {
        self.stop.store(true, Ordering::Relaxed);
        let mut caller = self.caller.lock().await;
        let longest = (&mut *caller).await.unwrap();
        assert!(longest < tolerance(), "a neighbour waited for {longest:?}");
        let status = self.handle.status();
        assert_eq!((status.generation.get(), status.restarts), (1, 0));
    }
}

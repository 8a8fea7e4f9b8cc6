//! A bad server and a good neighbour in one fleet, and what must hold of both.

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
    /// On all processes of the bad server.
    pub(crate) marker: Marker,
    neighbour: Neighbour,
}

impl Arena {
    /// Both ready.
    pub(crate) async fn new(faults: &[&str]) -> Self {
        let arena = Self::start(faults, quick()).await;
        arena.runtime.ready(DEADLINE).await.unwrap();
        arena
    }

    /// The good one ready.
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

    /// Lets a fault strike a call.
    pub(crate) async fn inject(
        &self,
        fault: &str,
        deadline: Duration,
    ) -> (Result<CallToolResult, CallError>, Duration) {
        let call = self.bad.call_tool("misbehave", json!({ "fault": fault }));
        timed(call.deadline(deadline).idle_timeout(deadline)).await
    }

    /// The outcome of a call that is answered in spite of a fault.
    pub(crate) async fn answered(&self, fault: &str) -> CallToolResult {
        self.inject(fault, DEADLINE).await.0.unwrap()
    }

    /// The outcome of a call that is never answered: at its deadline, and the server may have it.
    pub(crate) async fn at_its_deadline(&self, fault: &str) {
        let (outcome, took) = self.inject(fault, SHORT).await;
        assert_sent_and_late(outcome, took, fault);
    }

    /// The outcome of a call that need not wait for its deadline.
    pub(crate) async fn at_once(&self, fault: &str) -> CallError {
        let (outcome, took) = self.inject(fault, DEADLINE).await;
        let error = outcome.unwrap_err();
        assert!(took < tolerance(), "{fault}: {took:?}, {error}");
        error
    }

    /// The next call works, on the connection of this generation.
    pub(crate) async fn recovers(&self, generation: u64) {
        let call = self.bad.call_tool("echo", json!({ "a": 1 }));
        let echoed = structured(call.deadline(DEADLINE).await);
        assert_eq!(echoed, json!({ "a": 1 }));
        assert_eq!(self.bad.status().generation.get(), generation);
    }

    /// The neighbour noticed nothing, the end takes no longer than it may, and nothing is left.
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

/// A good server that is called all the time.
struct Neighbour {
    handle: ServerHandle,
    marker: Marker,
    stop: Arc<AtomicBool>,
    /// The longest of its calls.
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

//! The agents that share the fleet, and the counts of their outcomes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mcpvisor::{CallError, Client, Known, Runtime};
use serde::Serialize;
use serde_json::{Value, json};

use super::sandbox::{NOTES, ORDERS};
use crate::screen::{ScreenUpdate, UpdateSender};

const NAMES: [&str; 4] = ["planner", "coder", "reviewer", "tester"];

/// The deadline of every call.
const CALL_DEADLINE: Duration = Duration::from_secs(20);

/// Concurrent requests of one agent.
const QUOTA: usize = 8;

/// All agents.
#[derive(Debug)]
pub(super) struct Agents {
    pub(super) all: Vec<Agent>,
    pub(super) tally: Arc<Tally>,
}

impl Agents {
    /// With a story, the latency of every call is sent to the screen.
    pub(super) fn create(runtime: &Runtime, story: Option<UpdateSender>) -> Self {
        let tally = Arc::new(Tally::default());
        let create = |name| Agent {
            name,
            client: runtime.client(name).quota(QUOTA).build(),
            tally: Arc::clone(&tally),
            story: story.clone(),
        };
        Self {
            all: NAMES.map(create).into(),
            tally,
        }
    }

    pub(super) fn planner(&self) -> Agent {
        self.all[0].clone()
    }

    pub(super) fn coder(&self) -> Agent {
        self.all[1].clone()
    }

    pub(super) fn reviewer(&self) -> Agent {
        self.all[2].clone()
    }
}

/// One agent with its client.
#[derive(Debug, Clone)]
pub(super) struct Agent {
    pub(super) name: &'static str,
    client: Client,
    tally: Arc<Tally>,
    story: Option<UpdateSender>,
}

/// The outcome of a call.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Outcome {
    /// The server answered with this.
    Answered(Value),
    /// It was sent, but its answer was lost.
    Unknown(String),
    /// It was not sent.
    NotSent(String),
    /// Any other outcome, which the demo does not expect.
    Other(String),
}

/// An outcome with its time.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CallReport {
    pub(super) outcome: Outcome,
    pub(super) took: Duration,
    pub(super) at: Instant,
}

impl CallReport {
    /// The process that answered.
    pub(super) fn pid(&self) -> Option<u32> {
        match &self.outcome {
            Outcome::Answered(value) => u32::try_from(value.get("pid")?.as_u64()?).ok(),
            _ => None,
        }
    }

    pub(super) fn is_answered(&self) -> bool {
        matches!(self.outcome, Outcome::Answered(_))
    }
}

impl Agent {
    /// Calls a tool, and counts its outcome.
    pub(super) async fn call(&self, server: &str, tool: &str, arguments: Value) -> CallReport {
        let begun = Instant::now();
        self.tally.begun.fetch_add(1, Ordering::Relaxed);
        let outcome = match self.client.server(server) {
            Ok(server) => {
                let call = server.call_tool(tool, arguments).deadline(CALL_DEADLINE);
                Outcome::of(call.await)
            }
            Err(error) => Outcome::NotSent(error.to_string()),
        };
        self.tally.count(server, &outcome);
        let report = CallReport {
            outcome,
            took: begun.elapsed(),
            at: Instant::now(),
        };
        if let Some(story) = &self.story {
            let took = report.is_answered().then_some(report.took);
            let server = server.to_owned();
            story.send(ScreenUpdate::Measured { server, took });
        }
        report
    }

    /// Appends a note, and remembers it for the final check.
    pub(super) async fn append(&self, note: &str, hold: bool) -> CallReport {
        let report = self
            .call(NOTES, "append", json!({ "text": note, "hold": hold }))
            .await;
        if report.is_answered() {
            self.tally.written().push(note.to_owned());
        }
        report
    }

    /// Places an order, and remembers it for the final check.
    pub(super) async fn order(&self, item: &str) -> CallReport {
        let report = self.call(ORDERS, "place", json!({ "item": item })).await;
        if report.is_answered() {
            self.tally.placed().push(item.to_owned());
        }
        report
    }
}

impl Outcome {
    fn of(result: Result<mcpvisor::rmcp::model::CallToolResult, CallError>) -> Self {
        match result {
            Ok(result) if result.is_error == Some(true) => {
                Self::Other("the tool failed".to_owned())
            }
            Ok(result) => Self::Answered(result.structured_content.unwrap_or_default()),
            Err(error @ CallError::Deadline { .. }) => Self::Other(error.to_string()),
            Err(error) => match error.known() {
                Known::NotSent => Self::NotSent(error.to_string()),
                Known::Unknown => Self::Unknown(error.to_string()),
                Known::Refused | Known::Answered => Self::Other(error.to_string()),
            },
        }
    }
}

/// Counters of all calls.
#[derive(Debug, Default)]
pub(super) struct Tally {
    begun: AtomicU64,
    answered: AtomicU64,
    unknown: AtomicU64,
    not_sent: AtomicU64,
    other: AtomicU64,
    /// Failed calls to servers without a fault.
    unaffected_failures: AtomicU64,
    retried: AtomicU64,
    /// Notes whose append was answered.
    written: Mutex<Vec<String>>,
    /// Orders whose placement was answered.
    placed: Mutex<Vec<String>>,
}

/// A snapshot of the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    #[serde(rename = "calls")]
    pub(super) begun: u64,
    pub(super) answered: u64,
    pub(super) retried: u64,
    #[serde(rename = "outcome_unknown")]
    pub(super) unknown: u64,
    pub(super) not_sent: u64,
    #[serde(rename = "unexpected")]
    pub(super) other: u64,
}

impl Tally {
    fn count(&self, server: &str, outcome: &Outcome) {
        let counter = match outcome {
            Outcome::Answered(_) => &self.answered,
            Outcome::Unknown(_) => &self.unknown,
            Outcome::NotSent(_) => &self.not_sent,
            Outcome::Other(problem) => {
                tracing::error!(server, problem, "unexpected outcome");
                &self.other
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if server == super::sandbox::CLOCK && !matches!(outcome, Outcome::Answered(_)) {
            self.unaffected_failures.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a call that was sent to one process and answered by the next.
    pub(super) fn retried(&self) {
        self.retried.fetch_add(1, Ordering::Relaxed);
    }

    /// Failed calls to servers without a fault.
    pub(super) fn unaffected_failures(&self) -> u64 {
        self.unaffected_failures.load(Ordering::Relaxed)
    }

    pub(super) fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            begun: read(&self.begun),
            answered: read(&self.answered),
            retried: read(&self.retried),
            unknown: read(&self.unknown),
            not_sent: read(&self.not_sent),
            other: read(&self.other),
        }
    }

    /// Orders whose placement was answered.
    pub(super) fn placed(&self) -> MutexGuard<'_, Vec<String>> {
        self.placed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whose append was answered.
    pub(super) fn written(&self) -> MutexGuard<'_, Vec<String>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    /// Whether every call has exactly one expected outcome.
    pub(super) fn complete(&self) -> bool {
        self.begun == self.answered + self.unknown + self.not_sent && self.other == 0
    }
}

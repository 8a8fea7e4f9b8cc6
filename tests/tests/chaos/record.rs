//! Records what the tasks of a run issued and the outcomes they received.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::history::{Call, History, Outcome, Request, StatusRead};

/// Shared by all tasks of a run.
#[derive(Debug)]
pub(crate) struct Record {
    began: Instant,
    next: AtomicU64,
    stopped: AtomicBool,
    history: Mutex<History>,
    counts: Mutex<std::collections::BTreeMap<&'static str, u64>>,
}

impl Record {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            next: AtomicU64::new(1),
            stopped: AtomicBool::new(false),
            history: Mutex::default(),
            counts: Mutex::default(),
        })
    }

    /// The time since the start of the run.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Tells every task to end, or allows new ones to run.
    pub(crate) fn stop(&self, stopped: bool) {
        self.stopped.store(stopped, Ordering::Relaxed);
    }

    pub(crate) fn call(&self, call: Call) {
        lock(&self.history).calls.push(call);
    }

    pub(crate) fn outcome(&self, outcome: Outcome) {
        lock(&self.history).outcomes.push(outcome);
    }

    pub(crate) fn request(&self, request: Request) {
        lock(&self.history).requests.push(request);
    }

    pub(crate) fn read(&self, read: StatusRead) {
        lock(&self.history).reads.push(read);
    }

    /// Increments a counter for the report of the run.
    pub(crate) fn count(&self, what: &'static str) {
        *lock(&self.counts).entry(what).or_default() += 1;
    }

    /// All counters, as text.
    pub(crate) fn counts(&self) -> String {
        let counts = lock(&self.counts);
        let counts = counts.iter().map(|(what, count)| format!("{what} {count}"));
        counts.collect::<Vec<_>>().join(", ")
    }

    /// Takes the history recorded so far.
    pub(crate) fn take(&self) -> History {
        std::mem::take(&mut lock(&self.history))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Calls that take time, and their cancellation.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

/// The ids of cancelled requests that are still running.
#[derive(Debug, Default)]
pub struct PendingCalls {
    cancelled: Mutex<HashSet<String>>,
    changed: Condvar,
}

/// The client cancelled the request.
#[derive(Debug)]
pub struct Cancelled;

impl PendingCalls {
    /// Ends the wait of this request.
    pub fn cancel(&self, id: &Value) {
        let mut cancelled = self
            .cancelled
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        cancelled.insert(id.to_string());
        self.changed.notify_all();
    }

    /// Waits on behalf of a request, unless it is cancelled meanwhile.
    pub fn wait(&self, id: &Value, time: Duration) -> Result<(), Cancelled> {
        let id = id.to_string();
        let cancelled = self
            .cancelled
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (mut cancelled, _) = self
            .changed
            .wait_timeout_while(cancelled, time, |cancelled| !cancelled.contains(&id))
            .unwrap_or_else(PoisonError::into_inner);
        if cancelled.remove(&id) {
            return Err(Cancelled);
        }
        Ok(())
    }
}

//! Pauses the idle timeout of calls while the server waits for our answer.
//!
//! Before 2026-07-28 a request of the server does not name the call that it belongs to. While one
//! is unanswered, no call of the connection counts as idle. Deadlines are not paused.

use std::time::{Duration, Instant};

use super::event_loop::Session;
use crate::link::Link;
use crate::server::actor::now;

impl<L: Link> Session<'_, L> {
    /// When the idle timers must be refreshed again, if a request of the server is unanswered.
    pub(super) fn idle_refresh_due(&self) -> Option<Instant> {
        let requests = &self.server_requests;
        let refreshed_at = requests.idle_refreshed_at;
        let refreshed_at = refreshed_at.filter(|_| requests.has_unanswered())?;
        let idle = self.pending.calls().map(|call| call.idle).min()?;
        Some(refreshed_at + (idle / 3).max(Duration::from_millis(1)))
    }

    /// Marks all in-flight calls as progressing, with the next flush.
    pub(super) fn refresh_idle_timers(&mut self) {
        self.server_requests.idle_refreshed_at = Some(now());
        let calls = self.pending.calls().map(|call| call.id);
        self.batch.summary.progressed.extend(calls);
    }
}

//! The idle time of calls rests while the server waits for us.
//!
//! Which call a question belongs to is not said before the era of 2026-07-28, so as long as one of
//! them is open no call of the connection counts as silent. Their deadlines run on.

use std::time::{Duration, Instant};

use super::session::Session;
use crate::link::Link;
use crate::server::actor::now;

impl<L: Link> Session<'_, L> {
    /// When the calls in flight have to be told alive again, if a question is open.
    pub(super) fn rest_due(&self) -> Option<Instant> {
        let asked_at = self.rested_at.filter(|_| self.asked.is_open())?;
        let idle = self.pending.callers().map(|call| call.idle).min()?;
        Some(asked_at + (idle / 3).max(Duration::from_millis(1)))
    }

    /// Tells the calls in flight alive, with the next report.
    pub(super) fn rest(&mut self) {
        self.rested_at = Some(now());
        let calls = self.pending.callers().map(|call| call.id);
        self.observed.progressed.extend(calls);
    }
}

//! When the published lists expire, read by every reader of the catalog without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::actor::now;

const NEVER: u64 = u64::MAX;

/// The moment from which a list has to be fetched again when it is read.
#[derive(Debug)]
pub(crate) struct ListExpiry {
    epoch: Instant,
    /// In milliseconds since the epoch.
    at: AtomicU64,
}

impl ListExpiry {
    pub(super) fn never() -> Self {
        Self {
            epoch: now(),
            at: AtomicU64::new(NEVER),
        }
    }

    pub(super) fn set(&self, at: Option<Instant>) {
        let after = at.map(|at| at.saturating_duration_since(self.epoch).as_millis());
        let after = after.and_then(|after| u64::try_from(after).ok());
        self.at.store(after.unwrap_or(NEVER), Ordering::Relaxed);
    }

    /// Whether a list has expired. True once per expiry.
    pub(super) fn take_expired(&self) -> bool {
        let at = self.at.load(Ordering::Relaxed);
        let expired =
            at != NEVER && now().saturating_duration_since(self.epoch) >= Duration::from_millis(at);
        if expired {
            self.at.store(NEVER, Ordering::Relaxed);
        }
        expired
    }
}

//! What the runtime has learned about the idle connections of its servers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mcpvisor_core::KeepAlive;
use mcpvisor_core::keep_alive::MAX_REUSE;
use tokio::time::Instant;

use super::conn::Conn;
use super::target::Target;

/// What was learned from early closes, by origin. It outlives the links of one server.
#[derive(Debug, Default)]
pub(crate) struct Learned(Mutex<HashMap<String, KeepAlive>>);

impl Learned {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, KeepAlive>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one link knows about its server.
#[derive(Debug)]
pub(super) struct Lessons {
    origin: String,
    known: KeepAlive,
    shared: Arc<Learned>,
}

impl Lessons {
    /// What is known about this server by now.
    pub(super) fn about(target: &Target, shared: &Arc<Learned>) -> Self {
        let origin = format!("{}://{}", target.scheme, target.authority);
        let known = shared.lock().get(&origin).copied().unwrap_or_default();
        Self {
            origin,
            known,
            shared: Arc::clone(shared),
        }
    }

    /// How long a connection may be idle and still be reused.
    pub(super) fn reuse_for(&self, conn: &Conn, now: Instant) -> Duration {
        let now = now.into_std();
        self.known.reuse_for(conn.announced, conn.round_trip, now)
    }

    /// The same for any connection, whatever was announced on it.
    pub(super) fn longest(&self, now: Instant) -> Duration {
        let now = now.into_std();
        self.known.reuse_for(Some(MAX_REUSE), Duration::ZERO, now)
    }

    /// The server closed a connection that was idle for this long.
    pub(super) fn closed(&mut self, idle: Duration, now: Instant) {
        let now = now.into_std();
        self.known.closed_after(idle, now);
        let mut shared = self.shared.lock();
        shared.retain(|_, known| known.is_learned(now));
        let known = shared.entry(self.origin.clone()).or_default();
        known.closed_after(idle, now);
    }
}

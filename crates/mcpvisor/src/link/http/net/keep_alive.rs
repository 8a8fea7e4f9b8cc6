//! How long idle connections of a server may be reused, as learned from its early closes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mcpvisor_core::KeepAlive;
use mcpvisor_core::keep_alive::MAX_REUSE;
use tokio::time::Instant;

use super::conn::Conn;
use crate::link::http::target::Target;

/// What was learned, by origin. It is shared by the runtime and outlives the links of a server.
#[derive(Debug, Default)]
pub(crate) struct KeepAliveTable(Mutex<HashMap<String, KeepAlive>>);

impl KeepAliveTable {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, KeepAlive>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one link knows about its server.
#[derive(Debug)]
pub(crate) struct ServerKeepAlive {
    origin: String,
    known: KeepAlive,
    table: Arc<KeepAliveTable>,
}

impl ServerKeepAlive {
    pub(crate) fn new(target: &Target, table: &Arc<KeepAliveTable>) -> Self {
        let origin = target.origin_text();
        let known = table.lock().get(&origin).copied().unwrap_or_default();
        Self {
            origin,
            known,
            table: Arc::clone(table),
        }
    }

    /// How long this connection may be idle and still be reused.
    pub(super) fn reuse_for(&self, conn: &Conn, now: Instant) -> Duration {
        let (announced, round_trip) = (conn.keep_alive_timeout(), conn.round_trip());
        self.known.reuse_for(announced, round_trip, now.into_std())
    }

    /// The upper bound for every connection, whatever the server announced on it.
    pub(super) fn max_reuse(&self, now: Instant) -> Duration {
        let now = now.into_std();
        self.known.reuse_for(Some(MAX_REUSE), Duration::ZERO, now)
    }

    /// The server closed a connection that was idle for this long.
    pub(super) fn record_close(&mut self, idle: Duration, now: Instant) {
        let now = now.into_std();
        self.known.closed_after(idle, now);
        let mut table = self.table.lock();
        table.retain(|_, known| known.is_learned(now));
        let known = table.entry(self.origin.clone()).or_default();
        known.closed_after(idle, now);
    }
}

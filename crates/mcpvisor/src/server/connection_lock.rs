//! Allows one connection of a server at a time.

use std::sync::{Arc, OnceLock};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// The connection lock of one server. A connection task holds it from before opening to the end of
/// closing, so a new generation never opens beside an old one, not even across a crash of the
/// actor.
#[derive(Debug)]
pub(crate) struct ConnectionLock {
    own: Arc<Semaphore>,
    /// The locks of removed servers of this name whose connections were still closing when this
    /// server was added.
    predecessors: OnceLock<Vec<Arc<Semaphore>>>,
    /// The runtime is shutting down: a connection without an actor ends immediately.
    force_close: watch::Sender<bool>,
}

impl Default for ConnectionLock {
    fn default() -> Self {
        Self {
            own: Arc::new(Semaphore::new(1)),
            predecessors: OnceLock::new(),
            force_close: watch::Sender::new(false),
        }
    }
}

impl ConnectionLock {
    /// Opens no connection before these locks are free. Called once, before the actor starts.
    pub(crate) fn set_predecessors(&self, predecessors: Vec<Arc<Semaphore>>) {
        let _ = self.predecessors.set(predecessors);
    }

    pub(crate) fn predecessors(&self) -> &[Arc<Semaphore>] {
        self.predecessors.get().map_or(&[], Vec::as_slice)
    }

    /// The locks that connections of this name still hold.
    pub(crate) fn taken(&self) -> Vec<Arc<Semaphore>> {
        let all = std::iter::once(&self.own).chain(self.predecessors());
        all.filter(|lock| is_taken(lock)).cloned().collect()
    }

    /// Waits until a connection may open.
    pub(crate) async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        for predecessor in self.predecessors() {
            // Once free it stays free: its server has no actor that could open another connection.
            let _ = predecessor.acquire().await;
        }
        Arc::clone(&self.own).acquire_owned().await.ok()
    }

    /// Waits until the connection of this server has closed.
    pub(crate) async fn released(&self) {
        let _ = self.own.acquire().await;
    }

    /// Ends a connection that is closing, or whose actor is gone, without a grace period.
    pub(crate) fn force_close(&self) {
        self.force_close.send_replace(true);
    }

    /// Becomes true once the connection has to end without a grace period.
    pub(crate) fn watch_force_close(&self) -> watch::Receiver<bool> {
        self.force_close.subscribe()
    }
}

/// Whether a connection holds this lock.
pub(crate) fn is_taken(lock: &Arc<Semaphore>) -> bool {
    lock.available_permits() == 0
}

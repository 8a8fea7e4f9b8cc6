//! Tasks that a session has beside itself, and hears of one by one.

use tokio::task::{AbortHandle, JoinSet};

/// Tasks that end with the session.
pub(super) struct Tasks<T>(JoinSet<T>);

impl<T: Send + 'static> Tasks<T> {
    pub(super) fn new() -> Self {
        Self(JoinSet::new())
    }

    pub(super) fn spawn(&mut self, task: impl Future<Output = T> + Send + 'static) -> AbortHandle {
        self.0.spawn(task)
    }

    /// How many there are, those among them that were aborted and not let go of yet.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether [`next`](Self::next) has something to do.
    pub(super) fn is_busy(&self) -> bool {
        !self.0.is_empty()
    }

    pub(super) fn abort_all(&mut self) {
        self.0.abort_all();
    }

    /// Waits for what comes of the next task, and lets go of those that were aborted. Cancel-safe.
    /// Waits for ever while there is none.
    pub(super) async fn next(&mut self) -> T {
        loop {
            match self.0.join_next().await {
                Some(Ok(output)) => return output,
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// As a session does: it asks for the next one only while there is something to do.
    #[tokio::test(start_paused = true)]
    async fn what_was_aborted_is_let_go_of_though_nothing_else_runs() {
        let mut tasks: Tasks<u8> = Tasks::new();
        for _ in 0..1_000 {
            tasks.spawn(std::future::pending()).abort();
        }
        while tasks.is_busy() {
            let next = tokio::time::timeout(Duration::from_secs(1), tasks.next()).await;
            assert!(next.is_err());
        }
        assert_eq!(tasks.len(), 0);
        tasks.spawn(async { 7 });
        assert_eq!(tasks.next().await, 7);
        assert!(!tasks.is_busy());
    }
}

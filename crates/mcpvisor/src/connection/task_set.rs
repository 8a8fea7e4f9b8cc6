//! A set of tasks that a session waits for one by one.

use tokio::task::{AbortHandle, JoinSet};

/// Tasks that are aborted when the set is dropped.
pub(super) struct TaskSet<T>(JoinSet<T>);

impl<T: Send + 'static> TaskSet<T> {
    pub(super) fn new() -> Self {
        Self(JoinSet::new())
    }

    pub(super) fn spawn(&mut self, task: impl Future<Output = T> + Send + 'static) -> AbortHandle {
        self.0.spawn(task)
    }

    /// The number of tasks, including aborted ones that were not reaped yet.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether [`next`](Self::next) has tasks to wait for.
    pub(super) fn is_busy(&self) -> bool {
        !self.0.is_empty()
    }

    pub(super) fn abort_all(&mut self) {
        self.0.abort_all();
    }

    /// Waits for the output of the next task, forever if there is none, and reaps aborted tasks.
    /// Cancel-safe.
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

    /// Waits only while the set is busy, as a session does.
    #[tokio::test(start_paused = true)]
    async fn aborted_tasks_are_reaped_when_nothing_else_runs() {
        let mut tasks: TaskSet<u8> = TaskSet::new();
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

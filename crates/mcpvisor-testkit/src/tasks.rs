//! Counts tokio tasks.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;

/// Interval at which the live tasks of the current runtime are counted.
const EVERY: Duration = Duration::from_millis(1);

/// Runs a future. Returns the peak number of additional tasks, and the output.
pub async fn most_tasks<T>(during: impl Future<Output = T>) -> (T, usize) {
    let alive = || Handle::current().metrics().num_alive_tasks();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    // Includes the counting task.
    let before = alive() + 1;
    let counting = tokio::spawn(async move {
        let mut most = 0;
        while !stopped.load(Ordering::Relaxed) {
            most = most.max(alive());
            tokio::time::sleep(EVERY).await;
        }
        most
    });
    let output = during.await;
    stop.store(true, Ordering::Relaxed);
    let most = counting.await.unwrap_or(usize::MAX);
    (output, most.saturating_sub(before))
}

//! How many tasks of tokio's there are.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;

/// Interval at which the live tasks of the current runtime are counted.
const EVERY: Duration = Duration::from_millis(1);

/// The most tasks that there were in addition while something happened, and what came of it.
pub async fn most_tasks<T>(during: impl Future<Output = T>) -> (T, usize) {
    let alive = || Handle::current().metrics().num_alive_tasks();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    // Without the task that counts.
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

//! Runs blocking work that may never end on a new thread.
//!
//! Tokio's blocking pool belongs to the embedding program: work that hangs there occupies its
//! threads, and a runtime that is dropped waits for it.

use std::io;
use std::thread;

use tokio::sync::oneshot;

/// Starts the work. The thread is never joined, and its result is dropped if the receiver is gone.
pub(crate) fn detached<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<oneshot::Receiver<T>> {
    let (sender, result) = oneshot::channel();
    thread::Builder::new()
        .name(format!("mcpvisor-{name}"))
        .spawn(move || {
            let _ = sender.send(work());
        })?;
    Ok(result)
}

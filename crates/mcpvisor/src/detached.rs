//! Blocking work that may never end, on a thread of its own.
//!
//! The blocking pool of tokio belongs to the embedding program: work that hangs there takes the
//! threads of others, and a runtime that is dropped waits for it.

use std::io;
use std::thread;

use tokio::sync::oneshot;

/// Starts the work. Its result is lost if nothing receives it; nothing waits for its end.
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

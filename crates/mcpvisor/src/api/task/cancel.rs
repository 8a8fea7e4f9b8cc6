//! Cancels a task at its server when its caller no longer waits for it.

use std::task::{Context, Waker};
use std::time::Duration;

use tokio::runtime::Handle;

use super::TaskHandle;

/// The limit of a cancellation. The caller does not wait for it.
const CANCEL_DEADLINE: Duration = Duration::from_secs(30);

/// Cancels a task when it is dropped, unless it is disarmed.
#[derive(Debug)]
pub(crate) struct CancelOnDrop {
    task: TaskHandle,
    /// Where to cancel: the caller may drop its future outside of any runtime.
    runtime: Handle,
    armed: bool,
}

impl CancelOnDrop {
    /// Must be called within a tokio runtime.
    pub(crate) fn new(task: &TaskHandle) -> Self {
        let mut task = task.clone();
        // Not as a request of its client, which may have been closed.
        task.server.agent = None;
        Self {
            task,
            runtime: Handle::current(),
            armed: true,
        }
    }

    /// The task has ended.
    pub(crate) fn disarm(&mut self) {
        self.armed = false;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let task = self.task.clone();
        let mut cancel = Box::pin(async move {
            let request = task.request_cancel().deadline(CANCEL_DEADLINE);
            if let Err(problem) = request.await {
                tracing::debug!(server = %task.server.name(), %problem, "could not cancel a task");
            }
            task.forget().await;
        });
        let _context = self.runtime.enter();
        // The first poll hands the request to the server's actor, so that it is sent even if the
        // runtime is shut down next.
        let polled = cancel
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        if polled.is_pending() {
            drop(self.runtime.spawn(cancel));
        }
    }
}

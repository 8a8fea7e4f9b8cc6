//! Reads what a child says on its stderr, always, so that it never blocks.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinHandle;

use crate::link::StderrRing;

/// So much is read at once. It is part of the task of every child, so it is small.
const CHUNK: usize = 2 * 1024;

/// The task that reads a child's stderr to its end; aborted when dropped.
#[derive(Debug)]
pub(super) struct StderrDrain {
    task: JoinHandle<()>,
    ended: bool,
}

impl StderrDrain {
    pub(super) fn start(
        stderr: impl AsyncRead + Unpin + Send + 'static,
        ring: Arc<StderrRing>,
    ) -> Self {
        Self {
            task: tokio::spawn(drain(stderr, ring)),
            ended: false,
        }
    }

    /// Waits until all that was written is in the ring and nobody can write any more.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.ended {
            let _ = ready!(Pin::new(&mut self.task).poll(cx));
            self.ended = true;
        }
        Poll::Ready(())
    }

    /// Ends the task: by itself within the patience, else by force, because someone who outlived the
    /// child may hold the pipe for ever.
    pub(super) async fn end(&mut self, patience: Duration) {
        let ended = std::future::poll_fn(|cx| self.poll_end(cx));
        if tokio::time::timeout(patience, ended).await.is_err() {
            self.task.abort();
            std::future::poll_fn(|cx| self.poll_end(cx)).await;
        }
    }
}

impl Drop for StderrDrain {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn drain(mut stderr: impl AsyncRead + Unpin, ring: Arc<StderrRing>) {
    let mut chunk = [0; CHUNK];
    loop {
        match stderr.read(&mut chunk).await {
            Ok(0) | Err(_) => return,
            Ok(length) => ring.push(&chunk[..length]),
        }
    }
}

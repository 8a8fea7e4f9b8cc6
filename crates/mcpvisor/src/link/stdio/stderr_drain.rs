//! Reads the stderr of a child continuously, so that the child never blocks on it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinHandle;

use crate::link::StderrRing;

/// Bytes per read. The buffer is part of every child's task, so it is small.
const CHUNK_BYTES: usize = 2 * 1024;

/// Bytes between pauses, the capacity of a pipe. During a pause a flooding child blocks and leaves
/// the CPU to other servers.
const PAUSE_AFTER: usize = 64 * 1024;

const PAUSE: Duration = Duration::from_millis(1);

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

    /// Waits until all writers closed the pipe and their output is in the ring.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.ended {
            let _ = ready!(Pin::new(&mut self.task).poll(cx));
            self.ended = true;
        }
        Poll::Ready(())
    }

    /// Waits for the task to end, and aborts it after the timeout, because a process that outlived
    /// the child may hold the pipe forever.
    pub(super) async fn end(&mut self, timeout: Duration) {
        let ended = std::future::poll_fn(|cx| self.poll_end(cx));
        if tokio::time::timeout(timeout, ended).await.is_err() {
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
    let mut chunk = [0; CHUNK_BYTES];
    let mut since_pause = 0;
    loop {
        match stderr.read(&mut chunk).await {
            Ok(0) | Err(_) => return,
            Ok(length) => {
                ring.push(&chunk[..length]);
                since_pause += length;
            }
        }
        if since_pause >= PAUSE_AFTER {
            since_pause = 0;
            tokio::time::sleep(PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::ReadBuf;

    use super::*;

    /// Floods the reader; the end exists only so that a reader that never pauses ends, too.
    struct Flood(Arc<AtomicUsize>);

    const ALL: usize = 256 * 1024 * 1024;

    impl AsyncRead for Flood {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<std::io::Result<()>> {
            let read = buffer.remaining();
            if self.0.fetch_add(read, Ordering::Relaxed) < ALL {
                buffer.initialize_unfilled();
                buffer.advance(read);
            }
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_read_with_pauses() {
        let read = Arc::new(AtomicUsize::new(0));
        let ring = Arc::new(StderrRing::new(1024));
        let drain = StderrDrain::start(Flood(Arc::clone(&read)), ring);
        tokio::time::sleep(Duration::from_millis(100)).await;
        let read = read.load(Ordering::Relaxed);
        assert!((PAUSE_AFTER..=101 * PAUSE_AFTER).contains(&read), "{read}");
        drop(drain);
    }
}

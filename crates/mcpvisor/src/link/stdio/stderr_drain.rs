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

/// After so many bytes, which is as much as a pipe holds, it is left alone for a moment: the child waits
/// then, and leaves the processor to other servers.
const REST_AFTER: usize = 64 * 1024;

/// For so long.
const REST: Duration = Duration::from_millis(1);

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
    let mut unrested = 0;
    loop {
        match stderr.read(&mut chunk).await {
            Ok(0) | Err(_) => return,
            Ok(length) => {
                ring.push(&chunk[..length]);
                unrested += length;
            }
        }
        if unrested >= REST_AFTER {
            unrested = 0;
            tokio::time::sleep(REST).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::ReadBuf;

    use super::*;

    /// Says more than anyone can read, and ends only so that a reader that never rests does, too.
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
    async fn a_flood_is_read_with_rests() {
        let read = Arc::new(AtomicUsize::new(0));
        let ring = Arc::new(StderrRing::new(1024));
        let drain = StderrDrain::start(Flood(Arc::clone(&read)), ring);
        tokio::time::sleep(Duration::from_millis(100)).await;
        let read = read.load(Ordering::Relaxed);
        assert!((REST_AFTER..=101 * REST_AFTER).contains(&read), "{read}");
        drop(drain);
    }
}

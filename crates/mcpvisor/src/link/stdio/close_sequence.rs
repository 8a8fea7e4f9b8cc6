//! The close sequence of a child: close stdin, then SIGTERM, then SIGKILL, then wait for the rest
//! of its process group.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use mcpvisor_core::settings::CloseSettings;
use rustix::process::Signal;
use tokio::time::Instant;

use super::link::{DRAIN_TIMEOUT, StdioLink};

/// How long to wait for the exit after SIGKILL.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// How long to wait for the rest of the process group after SIGKILL. A signal takes effect when its
/// receiver next runs, and then another process has to reap the receiver.
const GROUP_TIMEOUT: Duration = Duration::from_millis(500);

impl StdioLink {
    pub(super) async fn run_close_sequence(&mut self, grace: CloseSettings) -> Result<(), String> {
        // Writes queued messages, such as cancellations, as far as the pipe accepts them at once.
        // Requests that were withdrawn are no longer queued.
        poll_fn(|cx| {
            self.poll_write(cx);
            Poll::Ready(())
        })
        .await;
        self.stdin = None;
        let ended = self.end_process(grace).await;
        self.wait_for_group(grace).await;
        self.stderr.end(DRAIN_TIMEOUT).await;
        ended
    }

    /// Waits for the exit, with SIGTERM and SIGKILL once the grace periods are over.
    async fn end_process(&mut self, grace: CloseSettings) -> Result<(), String> {
        if self.exits_within(grace.stdin).await {
            return Ok(());
        }
        self.process.group.signal(Signal::TERM);
        if self.exits_within(grace.terminate).await {
            return Ok(());
        }
        self.process.group.signal(Signal::KILL);
        if self.exits_within(KILL_TIMEOUT).await {
            return Err("the process had to be killed".to_owned());
        }
        Err("the process did not exit after SIGKILL".to_owned())
    }

    /// Waits for the exit. Reads and discards output meanwhile, so that the child does not block on
    /// a full pipe.
    async fn exits_within(&mut self, limit: Duration) -> bool {
        let exit = poll_fn(|cx| {
            let _ = self.input.poll_discard(cx);
            self.process.poll_exit(cx).map(drop)
        });
        tokio::time::timeout(limit, exit).await.is_ok()
    }

    /// Waits for the rest of the process group, which was killed when the child exited. The wait is
    /// no longer than the grace periods, so that a short close stays short.
    async fn wait_for_group(&self, grace: CloseSettings) {
        let mut pause = Duration::from_micros(500);
        let limit = grace
            .stdin
            .saturating_add(grace.terminate)
            .min(GROUP_TIMEOUT);
        let deadline = Instant::now() + limit;
        while self.process.group.has_members() && Instant::now() < deadline {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }
}

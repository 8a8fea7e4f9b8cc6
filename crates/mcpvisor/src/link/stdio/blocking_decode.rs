//! Decodes a large line on a blocking thread, so that it does not hold an async worker for long.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use mcpvisor_core::settings::MessageSettings;
use tokio::task::JoinHandle;

use super::input::decode_line;
use super::line_buffer::DetachedLine;
use crate::link::PendingSnapshot;
use crate::link::codec::{Decoded, check_limits};
use crate::link::cpu_quota::cpu_time;
use crate::link::flood_gate::Capacity;

/// A line that is being decoded. Dropping this does not stop the thread; its result is discarded.
#[derive(Debug)]
pub(super) struct BlockingDecode {
    /// Returns the message and the CPU time that decoding took.
    thread: JoinHandle<(Decoded, Duration)>,
}

impl BlockingDecode {
    /// Starts decoding with the pending requests and the capacity of this moment.
    pub(super) fn start(
        line: DetachedLine,
        limits: MessageSettings,
        pending: PendingSnapshot,
        capacity: Capacity,
        is_last: bool,
    ) -> Self {
        let thread = tokio::task::spawn_blocking(move || {
            let started = cpu_time();
            let line = line.bytes();
            let limit_check = check_limits(line, &limits);
            let fits = |bytes| capacity.fits(bytes);
            let decoded = decode_line(line, limit_check, &pending, fits, is_last);
            (decoded, cpu_time().saturating_sub(started))
        });
        Self { thread }
    }

    /// Delays the result until the channel receives a message.
    #[cfg(test)]
    pub(super) fn hold(mut self, release: std::sync::mpsc::Receiver<()>) -> Self {
        let inner = std::mem::replace(&mut self.thread, tokio::spawn(std::future::pending()));
        self.thread = tokio::spawn(async move {
            let held = tokio::task::spawn_blocking(move || release.recv());
            let _ = held.await;
            match inner.await {
                Ok(decoded) => decoded,
                Err(error) => panic!("{error}"),
            }
        });
        self
    }

    /// Waits for the message and the CPU time that decoding took. The error says that the thread
    /// failed.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(Decoded, Duration), String>> {
        Pin::new(&mut self.thread)
            .poll(cx)
            .map_err(|error| format!("cannot decode a line: {error}"))
    }
}

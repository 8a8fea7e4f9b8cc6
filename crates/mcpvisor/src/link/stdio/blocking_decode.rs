//! A line that would hold an async worker for long, read by a thread for such work.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use mcpvisor_core::settings::MessageSettings;
use tokio::task::JoinHandle;

use super::lines::DetachedLine;
use super::without_broken;
use crate::link::PendingSnapshot;
use crate::link::codec::{Decoded, check_limits, decode};
use crate::link::cpu_quota::cpu_time;
use crate::link::flood_gate::Capacity;

/// A line on its way. Dropped, it is read to its end for nobody.
#[derive(Debug)]
pub(super) struct HeavyLine {
    /// With the CPU time that it took.
    reader: JoinHandle<(Decoded, Duration)>,
}

impl HeavyLine {
    /// Has a line read, with what was pending and the room that there was when it came. `is_rest`: it
    /// lacks its end.
    pub(super) fn read(
        line: DetachedLine,
        bounds: MessageSettings,
        pending: PendingSnapshot,
        capacity: Capacity,
        is_rest: bool,
    ) -> Self {
        let reader = tokio::task::spawn_blocking(move || {
            let begun = cpu_time();
            let limit_check = check_limits(line.bytes(), &bounds);
            let decoded = decode(line.bytes(), limit_check, &pending, |bytes| {
                capacity.fits(bytes)
            });
            let decoded = if is_rest {
                without_broken(decoded)
            } else {
                decoded
            };
            (decoded, cpu_time().saturating_sub(begun))
        });
        Self { reader }
    }

    /// Holds a line back until something comes through the channel.
    #[cfg(test)]
    pub(super) fn hold(mut self, release: std::sync::mpsc::Receiver<()>) -> Self {
        let inner = std::mem::replace(&mut self.reader, tokio::spawn(std::future::pending()));
        self.reader = tokio::spawn(async move {
            let held = tokio::task::spawn_blocking(move || release.recv());
            let _ = held.await;
            match inner.await {
                Ok(decoded) => decoded,
                Err(error) => panic!("{error}"),
            }
        });
        self
    }

    /// Waits for what is in it, and the CPU time that it took; the error is that it could not be looked at.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(Decoded, Duration), String>> {
        let reader = Pin::new(&mut self.reader);
        reader
            .poll(cx)
            .map_err(|error| format!("a line could not be read: {error}"))
    }
}

//! A line that would hold an async worker for long, read by a thread for such work.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use mcpvisor_core::settings::MessageSettings;
use tokio::task::JoinHandle;

use super::lines::DetachedLine;
use super::without_broken;
use crate::link::Snapshot;
use crate::link::codec::{Decoded, decode, judge};
use crate::link::gate::Room;

/// A line on its way. Dropped, it is read to its end for nobody.
#[derive(Debug)]
pub(super) struct HeavyLine {
    reader: JoinHandle<Decoded>,
}

impl HeavyLine {
    /// Has a line read, with what was pending and the room that there was when it came. `is_rest`: it
    /// lacks its end.
    pub(super) fn read(
        line: DetachedLine,
        bounds: MessageSettings,
        expect: Snapshot,
        room: Room,
        is_rest: bool,
    ) -> Self {
        let reader = tokio::task::spawn_blocking(move || {
            let verdict = judge(line.bytes(), &bounds);
            let decoded = decode(line.bytes(), verdict, &expect, |bytes| room.has(bytes));
            if is_rest {
                without_broken(decoded)
            } else {
                decoded
            }
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

    /// Waits for what is in it; the error is that it could not be looked at.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Decoded, String>> {
        let reader = Pin::new(&mut self.reader);
        reader
            .poll(cx)
            .map_err(|error| format!("a line could not be read: {error}"))
    }
}

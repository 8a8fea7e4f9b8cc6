//! The queue of outgoing messages, as encoded bytes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use mcpvisor_core::CallId;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest};
use tokio::io::AsyncWrite;

use crate::link::codec::{encode, encode_request};

/// Queued bytes; further messages are rejected.
const MAX_QUEUED: usize = 64 * 1024 * 1024;

/// A larger buffer shrinks once it is empty, and a longer written prefix is removed.
const RETAINED_BYTES: usize = 256 * 1024;

/// Messages that are not yet written. Positions are offsets in the byte stream, so a message was
/// sent in part as soon as more bytes than its position were written.
#[derive(Debug, Default)]
pub(in crate::link) struct Outbox {
    bytes: Vec<u8>,
    /// The length of the written prefix of `bytes`.
    written: usize,
    /// Bytes that were written and removed from `bytes`.
    earlier: u64,
}

impl Outbox {
    pub(in crate::link) fn push(&mut self, message: &ClientJsonRpcMessage) -> Result<u64, String> {
        self.append(|bytes| encode(message, bytes))
    }

    pub(in crate::link) fn push_request(
        &mut self,
        id: CallId,
        request: &ClientRequest,
    ) -> Result<u64, String> {
        self.append(|bytes| encode_request(id, request, bytes))
    }

    fn append(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> serde_json::Result<()>,
    ) -> Result<u64, String> {
        if !self.has_capacity() {
            return Err(format!(
                "the server does not read its input: {} MiB are queued",
                MAX_QUEUED / 1024 / 1024
            ));
        }
        if self.written > RETAINED_BYTES {
            self.bytes.drain(..self.written);
            self.earlier += self.written as u64;
            self.written = 0;
        }
        let position = self.earlier + self.bytes.len() as u64;
        write(&mut self.bytes)
            .map_err(|problem| format!("cannot encode the message as JSON: {problem}"))?;
        Ok(position)
    }

    /// Whether another message is accepted.
    pub(in crate::link) fn has_capacity(&self) -> bool {
        self.bytes.len() - self.written < MAX_QUEUED
    }

    /// Discards messages at this position and after. A message that was written in part stays, so
    /// that the next one does not end up inside it.
    pub(in crate::link) fn withdraw(&mut self, from: u64) {
        let keep = from.saturating_sub(self.earlier);
        let keep = usize::try_from(keep).unwrap_or(usize::MAX);
        self.bytes.truncate(keep.max(self.written));
    }

    /// The number of bytes written so far.
    pub(in crate::link) fn written(&self) -> u64 {
        self.earlier + self.written as u64
    }

    pub(in crate::link) fn is_empty(&self) -> bool {
        self.written == self.bytes.len()
    }

    /// Writes until the queue is empty.
    pub(in crate::link) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        writer: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        while !self.is_empty() {
            let rest = &self.bytes[self.written..];
            match ready!(Pin::new(&mut *writer).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                length => self.written += length,
            }
        }
        self.earlier += self.written as u64;
        self.written = 0;
        self.bytes.clear();
        self.bytes.shrink_to(RETAINED_BYTES);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::PingRequest;

    use super::*;
    use crate::link::outgoing::cancel_notification;

    /// Accepts this many bytes, and then blocks.
    struct Narrow(usize, Vec<u8>);

    impl AsyncWrite for Narrow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            self.1.extend_from_slice(&bytes[..taken]);
            match taken {
                0 => Poll::Pending,
                taken => Poll::Ready(Ok(taken)),
            }
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn write(outbox: &mut Outbox, pipe: &mut Narrow) {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let _ = outbox.poll_write(&mut cx, pipe);
    }

    #[test]
    fn withdrawn_messages_are_not_written_and_a_partly_written_one_is_completed() {
        let ping = || PingRequest::default().into();
        for taken in [0, 5, 60, 1_000] {
            let mut outbox = Outbox::default();
            let mut pipe = Narrow(taken, Vec::new());
            outbox.push_request(CallId(1), &ping()).unwrap();
            outbox
                .push(&cancel_notification(CallId(1), "given up"))
                .unwrap();
            write(&mut outbox, &mut pipe);
            let position = outbox.push_request(CallId(2), &ping()).unwrap();
            outbox
                .push(&cancel_notification(CallId(2), "behind it"))
                .unwrap();
            outbox.withdraw(position);
            pipe.0 = usize::MAX;
            write(&mut outbox, &mut pipe);
            let written = String::from_utf8(pipe.1).unwrap();
            let lines: Vec<&str> = written.lines().collect();
            assert_eq!(lines.len(), 2, "{written}");
            assert!(lines[1].contains("given up") && written.ends_with('\n'));
            assert_eq!(outbox.written(), written.len() as u64);
            assert!(outbox.is_empty());
        }
    }
}

//! Messages that wait to be written, as the bytes that will be.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use mcpvisor_core::CallId;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest};
use tokio::io::AsyncWrite;

use crate::link::codec::{encode, encode_request};

/// Once so many bytes wait for a server to read them, no further message is taken.
pub(crate) const MAX_QUEUED: usize = 64 * 1024 * 1024;

/// A buffer that grew beyond this is given back once it is empty, and written bytes are not kept in
/// front of the others beyond it.
const KEPT: usize = 256 * 1024;

/// What was pushed and not yet written. Positions are offsets in the stream of bytes, so a message
/// was handed over in part as soon as more than its position was written.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    /// So many of `bytes` were written.
    written: usize,
    /// So many bytes were written before `bytes`.
    earlier: u64,
}

impl Outbox {
    pub(super) fn push(&mut self, message: &ClientJsonRpcMessage) -> Result<u64, String> {
        self.append(|bytes| encode(message, bytes))
    }

    pub(super) fn push_request(
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
        let waiting = self.bytes.len() - self.written;
        if waiting >= MAX_QUEUED {
            return Err(format!(
                "{} MiB wait for the server, which does not read them",
                MAX_QUEUED / 1024 / 1024
            ));
        }
        if self.written > KEPT {
            self.bytes.drain(..self.written);
            self.earlier += self.written as u64;
            self.written = 0;
        }
        let position = self.earlier + self.bytes.len() as u64;
        write(&mut self.bytes)
            .map_err(|problem| format!("the message cannot be written as JSON: {problem}"))?;
        Ok(position)
    }

    /// How many bytes were written so far.
    pub(super) fn written(&self) -> u64 {
        self.earlier + self.written as u64
    }

    pub(super) fn is_empty(&self) -> bool {
        self.written == self.bytes.len()
    }

    /// Writes until nothing is left.
    pub(super) fn poll_write(
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
        self.bytes.shrink_to(KEPT);
        Poll::Ready(Ok(()))
    }
}

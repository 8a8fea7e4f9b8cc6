//! The byte stream of one connection, plain or encrypted.
//!
//! A server that writes its response in two small parts with Nagle's algorithm enabled waits for
//! our acknowledgement of the first part, which the kernel delays by 40 ms. So a reader that has to
//! wait for more acknowledges what it has read at once.
//!
//! tokio's readiness of a socket dates from its last poll of the reactor. Before an idle connection
//! is reused, the kernel is queried directly: the server may have closed it a moment ago.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use super::coalescing_stream::{CoalescingStream, NetStream};

/// Bytes read before the task yields. hyper reads on until it has something to return, so a flood
/// of ignored bytes would otherwise block the worker.
const YIELD_AFTER: usize = 64 * 1024;

/// Bytes per read, for the same reason.
const MAX_READ: usize = 32 * 1024;

/// What a read counts for at least, in bytes.
const MIN_READ_COST: usize = 4 * 1024;

/// A connection that acknowledges early and can be read without the reactor.
#[derive(Debug)]
pub(super) struct Socket {
    stream: CoalescingStream,
    /// Bytes were read that may not be acknowledged yet.
    unacknowledged: bool,
    /// Bytes read since the task last yielded.
    read_since_yield: usize,
    direct_reads: DirectReads,
}

/// Makes reads query the kernel instead of tokio. The owner of the connection sets it, because the
/// socket itself is buried inside hyper. Both ends belong to one task, so relaxed access will do.
pub(super) type DirectReads = Arc<AtomicBool>;

impl Socket {
    pub(super) fn new(stream: NetStream, direct_reads: DirectReads) -> Self {
        Self {
            stream: CoalescingStream::new(stream),
            unacknowledged: false,
            read_since_yield: 0,
            direct_reads,
        }
    }

    /// Reads what the kernel has now, with one system call if there is nothing. Registers no waker.
    fn read_now(&mut self, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // Nearly always empty, and a peek needs no initialized buffer.
        let fd = self.stream.fd()?;
        let peeked = recv(fd, &mut [0_u8; 1][..], RecvFlags::PEEK);
        let read = match peeked {
            Ok((0, _)) => Ok(0),
            Ok(_) => recv(fd, buf.initialize_unfilled(), RecvFlags::empty()).map(|(read, _)| read),
            Err(problem) => Err(problem),
        };
        match read.map_err(io::Error::from) {
            Ok(read) => {
                buf.advance(read);
                Poll::Ready(Ok(()))
            }
            Err(problem) if problem.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            Err(problem) => Poll::Ready(Err(problem)),
        }
    }

    /// Sets quick acknowledgement. The kernel resets it with the next write, so it is set every
    /// time.
    fn acknowledge(&mut self) {
        if std::mem::take(&mut self.unacknowledged) {
            #[cfg(any(target_os = "linux", target_os = "android"))]
            self.stream.acknowledge();
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.direct_reads.load(Ordering::Relaxed) {
            return self.read_now(buf);
        }
        if self.read_since_yield >= YIELD_AFTER {
            self.read_since_yield = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let read = if buf.remaining() > MAX_READ {
            let mut part = ReadBuf::new(buf.initialize_unfilled_to(MAX_READ));
            let read = Pin::new(&mut self.stream).poll_read(cx, &mut part);
            let length = part.filled().len();
            buf.advance(length);
            read
        } else {
            Pin::new(&mut self.stream).poll_read(cx, buf)
        };
        match &read {
            Poll::Ready(_) => {
                let length = buf.filled().len() - before;
                self.read_since_yield += length.max(MIN_READ_COST);
                self.unacknowledged |= length > 0;
            }
            Poll::Pending => self.acknowledge(),
        }
        read
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream.for_write()?.poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream.for_write()?.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// A socket needs no flush, and this must work while it is detached from the reactor.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.registered()?.poll_shutdown(cx)
    }
}

/// A plain or encrypted connection.
pub(super) type MaybeTls = Either<Socket, Box<TlsStream<Socket>>>;

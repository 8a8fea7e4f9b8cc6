//! The bytes of one connection, plain or encrypted.
//!
//! A server that writes its answer in two small parts and leaves Nagle's algorithm on waits for our
//! acknowledgement of the first before it sends the second, and the system delays that by 40 ms. So
//! whoever waits for more after reading something acknowledges it at once.
//!
//! What tokio knows of a socket is as old as its last look at all of them. Before a connection that
//! waited is used, the system itself is asked: a server may have closed it a moment ago.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::trickle::Tcp;

/// After so many bytes the task is yielded, though more may be there: the code above reads on as
/// long as there is nothing for it in them, and a flood would hold the worker.
const YIELD_AFTER: usize = 64 * 1024;

/// So much is read at once, for the same reason.
const READ: usize = 32 * 1024;

/// A read counts as so many bytes at least.
const LEAST_READ: usize = 4 * 1024;

/// A TCP connection that acknowledges early.
#[derive(Debug)]
pub(super) struct Socket {
    tcp: Tcp,
    /// Something was read that may not be acknowledged yet.
    unacknowledged: bool,
    /// Bytes that were read since the task was last yielded.
    unyielded: usize,
    fresh: Fresh,
}

/// Whether reads ask the system what has come, and not tokio. Whoever holds the connection says so,
/// while the socket is deep inside of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Fresh(Arc<AtomicBool>);

impl Fresh {
    pub(super) fn set(&self, fresh: bool) {
        // Both ends are in the hands of one task.
        self.0.store(fresh, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Socket {
    pub(super) fn new(tcp: TcpStream, fresh: Fresh) -> Self {
        Self {
            tcp: Tcp::new(tcp),
            unacknowledged: false,
            unyielded: 0,
            fresh,
        }
    }

    /// Reads what the system has now, with one system call where there is nothing. Nobody is woken
    /// when something comes later.
    fn read_now(&mut self, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // There is nearly never anything, and a look needs no room to be made for it.
        let tcp = self.tcp.fd()?;
        let seen = recv(tcp, &mut [0_u8; 1][..], RecvFlags::PEEK);
        let read = match seen {
            Ok((0, _)) => Ok(0),
            Ok(_) => recv(tcp, buf.initialize_unfilled(), RecvFlags::empty()).map(|(read, _)| read),
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

    /// The system forgets the wish with the next write, so it is said anew.
    fn acknowledge(&mut self) {
        if std::mem::take(&mut self.unacknowledged) {
            #[cfg(any(target_os = "linux", target_os = "android"))]
            self.tcp.acknowledge();
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.fresh.is_set() {
            return self.read_now(buf);
        }
        if self.unyielded >= YIELD_AFTER {
            self.unyielded = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let read = if buf.remaining() > READ {
            let mut part = ReadBuf::new(buf.initialize_unfilled_to(READ));
            let read = Pin::new(&mut self.tcp).poll_read(cx, &mut part);
            let length = part.filled().len();
            buf.advance(length);
            read
        } else {
            Pin::new(&mut self.tcp).poll_read(cx, buf)
        };
        match &read {
            Poll::Ready(_) => {
                let length = buf.filled().len() - before;
                self.unyielded += length.max(LEAST_READ);
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
        Pin::new(&mut self.tcp).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

/// A connection to a server.
#[derive(Debug)]
pub(super) enum Wire {
    Plain(Socket),
    Tls(Box<TlsStream<Socket>>),
}

macro_rules! either {
    ($wire:expr, $io:ident => $do:expr) => {
        match $wire {
            Wire::Plain($io) => $do,
            Wire::Tls($io) => $do,
        }
    };
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(self.get_mut(), io => Pin::new(io).poll_read(cx, buf))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        either!(self.get_mut(), io => Pin::new(io).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self.get_mut(), io => Pin::new(io).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        either!(self, io => io.is_write_vectored())
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), io => Pin::new(io).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), io => Pin::new(io).poll_shutdown(cx))
    }
}

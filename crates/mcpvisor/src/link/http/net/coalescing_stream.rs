//! A connection over TCP or a Unix socket that coalesces tiny reads.
//!
//! Each segment that arrives wakes tokio's reactor, whether or not anything reads it. So a
//! connection with very many tiny reads is detached from the reactor for a moment after each, while
//! the bytes collect in the kernel.

use std::future::Future as _;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, Sleep};
use tokio_util::either::Either;

/// A connection over TCP or a Unix socket.
pub(super) type NetStream = Either<TcpStream, UnixStream>;

/// The same without tokio.
type StdStream = Either<std::net::TcpStream, std::os::unix::net::UnixStream>;

/// A read of fewer bytes is tiny.
const TINY_READ: usize = 1024;

/// Consecutive tiny reads that start detaching, if they come within as many milliseconds.
const TINY_READS: u32 = 64;

/// How long the connection stays detached after a tiny read.
const DETACH_TIME: Duration = Duration::from_millis(10);

/// A read this soon after reattaching detaches again, if it empties the socket.
const REPEAT_WINDOW: Duration = Duration::from_secs(1);

/// A connection.
#[derive(Debug)]
pub(super) struct CoalescingStream {
    state: State,
    tiny_reads: u32,
    /// When the first of the tiny reads came.
    since: Instant,
    attached_at: Option<Instant>,
}

#[derive(Debug)]
enum State {
    Registered(NetStream),
    /// Removed from the reactor until the timer fires.
    Detached(StdStream, Pin<Box<Sleep>>),
    /// Adding it to the reactor or removing it failed.
    Lost,
}

impl CoalescingStream {
    pub(super) fn new(stream: NetStream) -> Self {
        Self {
            state: State::Registered(stream),
            tiny_reads: 0,
            since: Instant::now(),
            attached_at: None,
        }
    }

    /// Acknowledges at once what was read (`TCP_QUICKACK`).
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn acknowledge(&self) {
        if let State::Registered(Either::Left(tcp)) = &self.state {
            // A failure only delays a response.
            let _ = tcp.set_quickack(true);
        }
    }

    /// The descriptor, for direct system calls.
    pub(super) fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        match &self.state {
            State::Registered(Either::Left(tcp)) => Ok(tcp.as_fd()),
            State::Registered(Either::Right(unix)) => Ok(unix.as_fd()),
            State::Detached(Either::Left(tcp), _) => Ok(tcp.as_fd()),
            State::Detached(Either::Right(unix), _) => Ok(unix.as_fd()),
            State::Lost => Err(lost()),
        }
    }

    /// The stream, added to the reactor again if it was detached.
    pub(super) fn registered(&mut self) -> io::Result<Pin<&mut NetStream>> {
        if let State::Detached(..) = self.state
            && let State::Detached(stream, _) = std::mem::replace(&mut self.state, State::Lost)
        {
            self.attached_at = Some(Instant::now());
            self.state = State::Registered(match stream {
                Either::Left(tcp) => Either::Left(TcpStream::from_std(tcp)?),
                Either::Right(unix) => Either::Right(UnixStream::from_std(unix)?),
            });
        }
        match &mut self.state {
            State::Registered(stream) => Ok(Pin::new(stream)),
            State::Detached(..) | State::Lost => Err(lost()),
        }
    }

    /// Like [`Self::registered`], for a write. A write resets the count of tiny reads, because
    /// short responses to many requests are normal.
    pub(super) fn for_write(&mut self) -> io::Result<Pin<&mut NetStream>> {
        self.registered()?;
        self.tiny_reads = 0;
        self.attached_at = None;
        self.registered()
    }

    /// Records a read, and detaches the connection if tiny reads pile up.
    fn record_read(&mut self, length: usize, is_all: bool) -> io::Result<()> {
        if length == 0 || !is_all {
            return Ok(());
        }
        let now = Instant::now();
        let repeats = self.attached_at.is_some_and(|at| now - at < REPEAT_WINDOW);
        if length >= TINY_READ && !repeats {
            self.tiny_reads = 0;
            return Ok(());
        }
        if self.tiny_reads == 0 {
            self.since = now;
        }
        self.tiny_reads += 1;
        let many = self.tiny_reads >= TINY_READS;
        if many {
            self.tiny_reads = 0;
        }
        let is_fast = many && now - self.since < Duration::from_millis(TINY_READS.into());
        if (repeats || is_fast)
            && let State::Registered(stream) = std::mem::replace(&mut self.state, State::Lost)
        {
            let timer = Box::pin(tokio::time::sleep(DETACH_TIME));
            let stream = match stream {
                Either::Left(tcp) => Either::Left(tcp.into_std()?),
                Either::Right(unix) => Either::Right(unix.into_std()?),
            };
            self.state = State::Detached(stream, timer);
        }
        Ok(())
    }
}

fn lost() -> io::Error {
    io::Error::other("the socket could not be moved to or from the reactor")
}

impl AsyncRead for CoalescingStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let State::Detached(_, timer) = &mut self.state {
            ready!(timer.as_mut().poll(cx));
        }
        let before = buf.filled().len();
        ready!(self.registered()?.poll_read(cx, buf))?;
        let length = buf.filled().len() - before;
        Poll::Ready(self.record_read(length, buf.remaining() > 0))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Both ends of a connection of each kind.
    async fn connections() -> [(CoalescingStream, NetStream); 2] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap());
        let (tcp, accepted) = tokio::join!(tcp, listener.accept());
        let accepted = accepted.unwrap().0;
        accepted.set_nodelay(true).unwrap();
        let (unix, other) = UnixStream::pair().unwrap();
        [
            (
                CoalescingStream::new(Either::Left(tcp.unwrap())),
                Either::Left(accepted),
            ),
            (
                CoalescingStream::new(Either::Right(unix)),
                Either::Right(other),
            ),
        ]
    }

    #[tokio::test]
    async fn single_bytes_are_read_in_few_reads_and_none_is_lost() {
        const BYTES: usize = 20_000;
        for (mut stream, mut writer) in connections().await {
            let writing = tokio::spawn(async move {
                for number in 0..BYTES {
                    writer.write_all(&[number as u8]).await.unwrap();
                }
                writer
            });
            let (mut read, mut reads) = (Vec::new(), 0);
            while read.len() < BYTES {
                assert_ne!(stream.read_buf(&mut read).await.unwrap(), 0);
                reads += 1;
            }
            let expected: Vec<u8> = (0..BYTES).map(|number| number as u8).collect();
            assert_eq!(read, expected);
            assert!(reads < BYTES / 10, "{reads} reads");
            let mut writer = writing.await.unwrap();
            let text = b"still here";
            stream.for_write().unwrap().write_all(text).await.unwrap();
            let mut received = [0; 10];
            writer.read_exact(&mut received).await.unwrap();
            drop(writer);
            assert_eq!(
                stream.read_buf(&mut read).await.unwrap(),
                0,
                "the end is seen"
            );
        }
    }

    #[tokio::test]
    async fn short_responses_to_many_requests_do_not_detach_the_connection() {
        for (mut stream, mut server) in connections().await {
            let answering = tokio::spawn(async move {
                let mut request = [0; 1];
                while server.read_exact(&mut request).await.is_ok() {
                    server.write_all(b"x").await.unwrap();
                }
            });
            let mut answer = [0; 1];
            for _ in 0..20 * TINY_READS {
                stream.for_write().unwrap().write_all(b"x").await.unwrap();
                stream.read_exact(&mut answer).await.unwrap();
                // A read that fills its buffer is not counted, so it is recorded by hand.
                stream.record_read(1, true).unwrap();
                assert!(matches!(stream.state, State::Registered(_)));
            }
            drop(stream);
            answering.await.unwrap();
        }
    }
}

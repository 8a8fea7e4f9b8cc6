//! A TCP connection whose bytes are left to gather when they come one by one.
//!
//! Each segment that arrives wakes the reactor of tokio, whether anything reads it or not. So a
//! connection with very many tiny reads is taken away from the reactor for a moment after each.

use std::future::Future as _;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

/// A read of fewer bytes is tiny.
const TINY: usize = 1024;

/// So many tiny reads in a row, in less than that many milliseconds, are a trickle.
const MANY: u32 = 64;

/// How long bytes are left to gather.
const GATHER: Duration = Duration::from_millis(10);

/// A read so soon after that is more of the trickle, if it takes all that has come.
const AGAIN: Duration = Duration::from_secs(1);

/// A TCP connection.
#[derive(Debug)]
pub(super) struct Tcp {
    state: State,
    tiny: u32,
    /// When the first of the tiny reads came.
    since: Instant,
    gathered_at: Option<Instant>,
}

#[derive(Debug)]
enum State {
    Watched(TcpStream),
    /// Not known to the reactor until then.
    Gathering(std::net::TcpStream, Pin<Box<Sleep>>),
    /// It could not be given to the reactor or taken away from it.
    Lost,
}

impl Tcp {
    pub(super) fn new(tcp: TcpStream) -> Self {
        Self {
            state: State::Watched(tcp),
            tiny: 0,
            since: Instant::now(),
            gathered_at: None,
        }
    }

    /// Acknowledges at once what was read.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn acknowledge(&self) {
        if let State::Watched(tcp) = &self.state {
            // Without it an answer is late, and that is all.
            let _ = tcp.set_quickack(true);
        }
    }

    /// For system calls of the caller's own.
    pub(super) fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        match &self.state {
            State::Watched(tcp) => Ok(tcp.as_fd()),
            State::Gathering(tcp, _) => Ok(tcp.as_fd()),
            State::Lost => Err(lost()),
        }
    }

    /// What reads and writes, known to the reactor.
    fn watched(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        if let State::Gathering(..) = self.state
            && let State::Gathering(tcp, _) = std::mem::replace(&mut self.state, State::Lost)
        {
            self.gathered_at = Some(Instant::now());
            self.state = State::Watched(TcpStream::from_std(tcp)?);
        }
        match &mut self.state {
            State::Watched(tcp) => Ok(Pin::new(tcp)),
            State::Gathering(..) | State::Lost => Err(lost()),
        }
    }

    /// The same, for a write. A request starts the count of tiny reads anew: short answers to many
    /// requests are no trickle.
    fn written(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        self.watched()?;
        self.tiny = 0;
        self.gathered_at = None;
        self.watched()
    }

    /// Takes note of a read, and leaves the next bytes to gather if it is one of a trickle.
    fn note(&mut self, length: usize, is_all: bool) -> io::Result<()> {
        if length == 0 || !is_all {
            return Ok(());
        }
        let now = Instant::now();
        let again = self.gathered_at.is_some_and(|at| now - at < AGAIN);
        if length >= TINY && !again {
            self.tiny = 0;
            return Ok(());
        }
        if self.tiny == 0 {
            self.since = now;
        }
        self.tiny += 1;
        let many = self.tiny >= MANY;
        if many {
            self.tiny = 0;
        }
        let is_trickle = many && now - self.since < Duration::from_millis(MANY.into());
        if (again || is_trickle)
            && let State::Watched(tcp) = std::mem::replace(&mut self.state, State::Lost)
        {
            let rest = Box::pin(tokio::time::sleep(GATHER));
            self.state = State::Gathering(tcp.into_std()?, rest);
        }
        Ok(())
    }
}

fn lost() -> io::Error {
    io::Error::other("the connection was given up")
}

impl AsyncRead for Tcp {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let State::Gathering(_, rest) = &mut self.state {
            ready!(rest.as_mut().poll(cx));
        }
        let before = buf.filled().len();
        ready!(self.watched()?.poll_read(cx, buf))?;
        let length = buf.filled().len() - before;
        Poll::Ready(self.note(length, buf.remaining() > 0))
    }
}

impl AsyncWrite for Tcp {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.written()?.poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.written()?.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// There is nothing to flush in a socket, and it is asked for while bytes gather.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.watched()?.poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn bytes_that_come_one_by_one_are_read_in_few_reads_and_none_is_lost() {
        const BYTES: usize = 20_000;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap());
        let (tcp, accepted) = tokio::join!(tcp, listener.accept());
        let (mut tcp, mut writer) = (Tcp::new(tcp.unwrap()), accepted.unwrap().0);
        writer.set_nodelay(true).unwrap();
        let writing = tokio::spawn(async move {
            for number in 0..BYTES {
                writer.write_all(&[number as u8]).await.unwrap();
            }
            writer
        });
        let (mut read, mut reads) = (Vec::new(), 0);
        while read.len() < BYTES {
            assert_ne!(tcp.read_buf(&mut read).await.unwrap(), 0);
            reads += 1;
        }
        let expected: Vec<u8> = (0..BYTES).map(|number| number as u8).collect();
        assert_eq!(read, expected);
        assert!(reads < BYTES / 10, "{reads} reads");
        let mut writer = writing.await.unwrap();
        tcp.write_all(b"still here").await.unwrap();
        let mut said = [0; 10];
        writer.read_exact(&mut said).await.unwrap();
        drop(writer);
        assert_eq!(tcp.read_buf(&mut read).await.unwrap(), 0, "its end is seen");
    }

    #[tokio::test]
    async fn short_answers_to_many_requests_are_no_trickle() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap());
        let (tcp, accepted) = tokio::join!(tcp, listener.accept());
        let (mut tcp, mut server) = (Tcp::new(tcp.unwrap()), accepted.unwrap().0);
        let answering = tokio::spawn(async move {
            let mut request = [0; 1];
            while server.read_exact(&mut request).await.is_ok() {
                server.write_all(b"x").await.unwrap();
            }
        });
        let mut answer = [0; 1];
        for _ in 0..20 * MANY {
            tcp.write_all(b"x").await.unwrap();
            tcp.read_exact(&mut answer).await.unwrap();
            // A read that fills its buffer is none of a trickle, so it is noted by hand.
            tcp.note(1, true).unwrap();
            assert!(matches!(tcp.state, State::Watched(_)));
        }
        drop(tcp);
        answering.await.unwrap();
    }
}

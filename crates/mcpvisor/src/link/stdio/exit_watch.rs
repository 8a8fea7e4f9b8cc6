//! Notices the exit of a child without reaping it.

use std::io;
use std::task::{Context, Poll, ready};

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::process_group::ProcessGroup;

/// Waits for the exit of one child.
#[derive(Debug)]
pub(super) enum ExitWatch {
    /// A pidfd, which becomes readable when the child exits.
    #[cfg(target_os = "linux")]
    Pidfd(tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>),
    /// SIGCHLD, for systems and old kernels without pidfds.
    Signal(Signal),
}

impl ExitWatch {
    /// Must be called within a tokio runtime.
    pub(super) fn new(group: &ProcessGroup) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        if let Ok(watch) = Self::by_pidfd(group) {
            return Ok(watch);
        }
        let _ = group;
        Self::by_signal()
    }

    #[cfg(target_os = "linux")]
    fn by_pidfd(group: &ProcessGroup) -> io::Result<Self> {
        use rustix::process::{PidfdFlags, pidfd_open};
        use tokio::io::Interest;
        use tokio::io::unix::AsyncFd;

        let pidfd = pidfd_open(group.pid(), PidfdFlags::empty())?;
        AsyncFd::with_interest(pidfd, Interest::READABLE).map(Self::Pidfd)
    }

    pub(super) fn by_signal() -> io::Result<Self> {
        signal(SignalKind::child()).map(Self::Signal)
    }

    /// Waits until the child exited, and stays ready from then on.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, group: &ProcessGroup) -> Poll<()> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Pidfd(pidfd) => loop {
                let Ok(mut readable) = ready!(pidfd.poll_read_ready(cx)) else {
                    // The tokio runtime is shutting down and drops everything.
                    return Poll::Pending;
                };
                if group.has_exited() {
                    return Poll::Ready(());
                }
                readable.clear_ready();
            },
            Self::Signal(signal) => loop {
                if group.has_exited() {
                    return Poll::Ready(());
                }
                if ready!(signal.poll_recv(cx)).is_none() {
                    return Poll::Pending;
                }
            },
        }
    }
}

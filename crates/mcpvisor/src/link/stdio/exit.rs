//! Notices that a child ended, without reaping it.

use std::io;
use std::task::{Context, Poll, ready};

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::process_group::Leader;

/// Waits for the end of one child.
#[derive(Debug)]
pub(super) enum ExitWatch {
    /// By a descriptor that is readable once the child ended.
    #[cfg(target_os = "linux")]
    Descriptor(tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>),
    /// By the signal that some child ended; for systems and old kernels without such descriptors.
    Signal(Signal),
}

impl ExitWatch {
    /// Must be called within a tokio runtime.
    pub(super) fn new(leader: &Leader) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        if let Ok(watch) = Self::by_descriptor(leader) {
            return Ok(watch);
        }
        let _ = leader;
        Self::by_signal()
    }

    #[cfg(target_os = "linux")]
    fn by_descriptor(leader: &Leader) -> io::Result<Self> {
        use rustix::process::{PidfdFlags, pidfd_open};
        use tokio::io::Interest;
        use tokio::io::unix::AsyncFd;

        let descriptor = pidfd_open(leader.pid(), PidfdFlags::empty())?;
        AsyncFd::with_interest(descriptor, Interest::READABLE).map(Self::Descriptor)
    }

    pub(super) fn by_signal() -> io::Result<Self> {
        signal(SignalKind::child()).map(Self::Signal)
    }

    /// Waits until the child ended. It stays ready from then on.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, leader: &Leader) -> Poll<()> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Descriptor(descriptor) => loop {
                let Ok(mut readable) = ready!(descriptor.poll_read_ready(cx)) else {
                    // The tokio runtime is shutting down, and everything is dropped.
                    return Poll::Pending;
                };
                if leader.has_exited() {
                    return Poll::Ready(());
                }
                readable.clear_ready();
            },
            Self::Signal(signal) => loop {
                if leader.has_exited() {
                    return Poll::Ready(());
                }
                if ready!(signal.poll_recv(cx)).is_none() {
                    return Poll::Pending;
                }
            },
        }
    }
}

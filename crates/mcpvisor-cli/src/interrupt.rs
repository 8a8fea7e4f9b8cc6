//! Ctrl-C, and the polite signals that mean the same.

/// The wishes of a person, or of the system, that the process should end. From the moment when this
/// is made the signals no longer kill the process, so that the fleet can be shut down: listen before
/// anything is started.
#[cfg(unix)]
#[derive(Debug)]
pub(crate) struct Interrupts(Option<[tokio::signal::unix::Signal; 3]>);

#[cfg(unix)]
impl Interrupts {
    pub(crate) fn listen() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        let signals = [
            signal(SignalKind::interrupt()),
            signal(SignalKind::terminate()),
            signal(SignalKind::hangup()),
        ];
        match signals {
            [Ok(interrupt), Ok(terminate), Ok(hangup)] => {
                Self(Some([interrupt, terminate, hangup]))
            }
            // A signal without a handler keeps its default: it ends the process.
            _ => Self(None),
        }
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        let Some([interrupt, terminate, hangup]) = &mut self.0 else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

/// The wishes of a person that the process should end.
#[cfg(not(unix))]
#[derive(Debug)]
pub(crate) struct Interrupts;

#[cfg(not(unix))]
impl Interrupts {
    pub(crate) fn listen() -> Self {
        Self
    }

    pub(crate) async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

//! Ctrl-C and the signals that ask the process to end.

/// SIGINT, SIGTERM and SIGHUP. Once this exists they no longer kill the process, so the fleet can be
/// shut down. Create it before starting any server.
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
            // Without a handler a signal keeps its default: it ends the process.
            _ => Self(None),
        }
    }

    /// Waits for the next signal.
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

/// Ctrl-C.
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

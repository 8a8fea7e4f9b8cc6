//! Ctrl-C, and the polite signals that mean the same.

/// A future that ends when the process is asked to stop. From this call on the signals no longer
/// kill the process, so that the fleet can be shut down: listen before anything is started.
#[cfg(unix)]
pub(crate) fn listen() -> impl Future<Output = ()> {
    use tokio::signal::unix::{SignalKind, signal};
    let signals = [
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
        signal(SignalKind::hangup()),
    ];
    async move {
        let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = signals else {
            // A signal without a handler keeps its default: it ends the process.
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

/// A future that ends when Ctrl-C is pressed.
#[cfg(not(unix))]
pub(crate) fn listen() -> impl Future<Output = ()> {
    async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

//! Detects a closed stdout without writing to it.

/// Waits until the reader of stdout is gone. For a file this never returns.
#[cfg(unix)]
pub(crate) async fn stdout_closed() {
    use std::os::fd::AsFd;
    use tokio::io::Interest;
    use tokio::net::unix::pipe::Sender;
    // Nothing is written through it, so it need not be a pipe, and stays blocking.
    let stdout = std::io::stdout().as_fd().try_clone_to_owned();
    if let Ok(stdout) = stdout.and_then(Sender::from_owned_fd_unchecked)
        && stdout.ready(Interest::ERROR).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Not supported here: the next write fails instead.
#[cfg(not(unix))]
pub(crate) async fn stdout_closed() {
    std::future::pending().await
}

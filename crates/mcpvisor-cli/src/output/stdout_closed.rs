//! The end of a reader, as it is seen without writing to it.

/// Waits until nobody reads our stdout any more. What cannot be asked, a file for one, is read for
/// ever.
#[cfg(unix)]
pub(crate) async fn stdout_closed() {
    use std::os::fd::AsFd;
    use tokio::io::Interest;
    use tokio::net::unix::pipe::Sender;
    // Nothing is written through it, so it need not be a pipe, and stays as it blocks.
    let stdout = std::io::stdout().as_fd().try_clone_to_owned();
    if let Ok(stdout) = stdout.and_then(Sender::from_owned_fd_unchecked)
        && stdout.ready(Interest::ERROR).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Nobody can be asked: the next write tells.
#[cfg(not(unix))]
pub(crate) async fn stdout_closed() {
    std::future::pending().await
}

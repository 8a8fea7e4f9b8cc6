//! The server's port and its accepted connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use super::control::Shared;
use super::exchange;
use super::wire::Wire;

/// Pending connections in the accept queue.
const BACKLOG: u32 = 1_024;

/// An open port. Dropping it closes the port and all connections.
#[derive(Debug)]
pub(super) struct Listener {
    address: SocketAddr,
    close: Option<oneshot::Sender<()>>,
    refuse: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Listener {
    pub(super) async fn open(address: SocketAddr, shared: &Arc<Shared>) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        // Old connections of the port must not prevent the next server from listening.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        let address = listener.local_addr()?;
        let (close, closed) = oneshot::channel();
        let refuse = Arc::new(Notify::new());
        let accepting = accept(listener, Arc::clone(shared), closed, Arc::clone(&refuse));
        let task = tokio::spawn(accepting);
        Ok(Self {
            address,
            close: Some(close),
            refuse,
            task,
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes the port. The connections stay.
    pub(super) fn refuse(&self) {
        self.refuse.notify_one();
    }

    /// Closes the port and every connection, and waits until they are closed.
    pub(super) async fn close(mut self) {
        drop(self.close.take());
        let _ = (&mut self.task).await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(
    listener: TcpListener,
    shared: Arc<Shared>,
    mut close: oneshot::Receiver<()>,
    refuse: Arc<Notify>,
) {
    let mut listener = Some(listener);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = next(listener.as_ref()) => {
                if let Ok((stream, _)) = accepted {
                    connections.spawn(connection(stream, Arc::clone(&shared)));
                }
            }
            () = refuse.notified() => listener = None,
            Some(_) = connections.join_next() => {}
            _ = &mut close => break,
        }
    }
    drop(listener);
    connections.shutdown().await;
}

/// The next connection; waits forever if the port is closed.
async fn next(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    let _open = Open::count(&shared);
    let options = shared.options();
    let _ = stream.set_nodelay(options.nodelay);
    let mut wire = Wire::new(stream, options.announced);
    loop {
        shared.thawed().await;
        let idle = options.keep_alive.unwrap_or(Duration::MAX);
        let request = tokio::select! {
            request = wire.request() => request,
            () = tokio::time::sleep(idle) => return,
            () = frozen(&shared) => continue,
        };
        let Ok(Some(request)) = request else {
            return;
        };
        if exchange::serve(&mut wire, &shared, request).await.is_err() {
            return;
        }
    }
}

/// Counts a connection while it is open.
struct Open<'a>(&'a Shared);

impl<'a> Open<'a> {
    fn count(shared: &'a Shared) -> Self {
        let mut record = shared.record();
        record.connects += 1;
        record.open += 1;
        Self(shared)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.record().open -= 1;
    }
}

/// Waits until the server is frozen.
async fn frozen(shared: &Shared) {
    let mut frozen = shared.frozen().subscribe();
    let _ = frozen.wait_for(|frozen| *frozen).await;
}

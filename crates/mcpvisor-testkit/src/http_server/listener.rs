//! The port of the server and the connections that came in on it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use super::control::Shared;
use super::exchange;
use super::wire::Wire;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1_024;

/// An open port. Dropping it closes the port and all connections.
#[derive(Debug)]
pub(super) struct Listener {
    address: SocketAddr,
    close: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Listener {
    pub(super) async fn open(address: SocketAddr, shared: &Arc<Shared>) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        // Old connections of a port do not keep its next server from listening.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        let address = listener.local_addr()?;
        let (close, closed) = oneshot::channel();
        let task = tokio::spawn(accept(listener, Arc::clone(shared), closed));
        Ok(Self {
            address,
            close: Some(close),
            task,
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes the port and every connection, and waits until they are.
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

async fn accept(listener: TcpListener, shared: Arc<Shared>, mut close: oneshot::Receiver<()>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    connections.spawn(connection(stream, Arc::clone(&shared)));
                }
            }
            Some(_) = connections.join_next() => {}
            _ = &mut close => break,
        }
    }
    drop(listener);
    connections.shutdown().await;
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    let _open = Open::count(&shared);
    let _ = stream.set_nodelay(shared.manners().nodelay);
    let mut wire = Wire::new(stream);
    loop {
        shared.thawed().await;
        let request = tokio::select! {
            request = wire.request() => request,
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

/// Counts a connection as long as it is open.
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

/// Waits until nothing more is to be read.
async fn frozen(shared: &Shared) {
    let mut frozen = shared.frozen().subscribe();
    let _ = frozen.wait_for(|frozen| *frozen).await;
}

//! A server's port and its accepted connections. What is served there is left to a [`Service`].

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use crate::eventually::INTERVAL;

/// Pending connections in the accept queue.
const BACKLOG: u32 = 1_024;

/// How long the port of a stopped server may stay taken when it resumes.
const PORT_TAKEN: Duration = Duration::from_secs(10);

/// What a server does with its connections.
pub(crate) trait Service: Send + Sync + 'static {
    /// Serves a connection until it ends.
    fn connection(self: Arc<Self>, stream: TcpStream) -> impl Future<Output = ()> + Send;
}

/// An open port. Dropping it closes the port and all connections.
#[derive(Debug)]
pub(crate) struct Listener {
    address: SocketAddr,
    close: Option<oneshot::Sender<()>>,
    refuse: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Listener {
    pub(crate) async fn open<S: Service>(
        address: SocketAddr,
        service: &Arc<S>,
    ) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        // Old connections of the port must not prevent the next server from listening.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        let address = listener.local_addr()?;
        let (close, closed) = oneshot::channel();
        let refuse = Arc::new(Notify::new());
        let accepting = accept(listener, Arc::clone(service), closed, Arc::clone(&refuse));
        let task = tokio::spawn(accepting);
        Ok(Self {
            address,
            close: Some(close),
            refuse,
            task,
        })
    }

    /// Opens the port of a stopped server. The port may be taken for a moment.
    pub(crate) async fn reopen<S: Service>(address: SocketAddr, service: &Arc<S>) -> Self {
        let until = Instant::now() + PORT_TAKEN;
        loop {
            match Self::open(address, service).await {
                Ok(opened) => return opened,
                Err(problem) if Instant::now() > until => {
                    panic!("its port is taken for {PORT_TAKEN:?}: {problem}")
                }
                Err(_) => tokio::time::sleep(INTERVAL).await,
            }
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes the port. The connections stay.
    pub(crate) fn refuse(&self) {
        self.refuse.notify_one();
    }

    /// Closes the port and every connection, and waits until they are closed.
    pub(crate) async fn close(mut self) {
        drop(self.close.take());
        let _ = (&mut self.task).await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept<S: Service>(
    listener: TcpListener,
    service: Arc<S>,
    mut close: oneshot::Receiver<()>,
    refuse: Arc<Notify>,
) {
    let mut listener = Some(listener);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = next(listener.as_ref()) => {
                if let Ok((stream, _)) = accepted {
                    connections.spawn(Arc::clone(&service).connection(stream));
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

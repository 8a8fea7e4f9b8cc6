//! A TCP proxy on loopback that adds latency, as a network does, and counts connections.
//!
//! Bytes and the end of a stream are delayed by the same time, stay in order, and are never merged
//! into fewer packets. So a close can cross a request that travels in the opposite direction.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

/// A running proxy. Dropping it closes its port and all connections.
#[derive(Debug)]
pub struct DelayProxy {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl DelayProxy {
    /// Starts a proxy to an address. It adds this delay in each direction.
    pub async fn start(to: SocketAddr, each_way: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let task = tokio::spawn(async move {
            let mut passed = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                passed.spawn(pass(stream, to, each_way));
                while passed.try_join_next().is_some() {}
            }
        });
        Ok(Self {
            address,
            connections,
            task,
        })
    }

    /// The address that the proxy listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of accepted connections.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for DelayProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(client: TcpStream, to: SocketAddr, each_way: Duration) {
    let Ok(server) = TcpStream::connect(to).await else {
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // A closed side receives nothing more, so the other direction ends with it.
    tokio::select! {
        () = direction(from_client, to_server, each_way) => {}
        () = direction(from_server, to_client, each_way) => {}
    }
}

/// Forwards one direction until its end has arrived.
async fn direction(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, each_way: Duration) {
    let (sent, mut travelling) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let reading = async move {
        loop {
            let mut bytes = vec![0; 16 * 1024];
            let read = from.read(&mut bytes).await.unwrap_or(0);
            bytes.truncate(read);
            let end = bytes.is_empty();
            if sent.send((Instant::now() + each_way, bytes)).is_err() || end {
                return;
            }
        }
    };
    let writing = async move {
        while let Some((at, bytes)) = travelling.recv().await {
            tokio::time::sleep_until(at).await;
            if bytes.is_empty() || to.write_all(&bytes).await.is_err() {
                break;
            }
        }
        let _ = to.shutdown().await;
    };
    tokio::join!(reading, writing);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bytes_and_the_end_arrive_later_and_in_order() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let to = listener.local_addr().unwrap();
        let each_way = Duration::from_millis(50);
        let proxy = DelayProxy::start(to, each_way).await.unwrap();
        let begun = Instant::now();
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        server.write_all(b"one").await.unwrap();
        server.write_all(b"two").await.unwrap();
        drop(server);
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"onetwo");
        assert!(begun.elapsed() >= each_way);
        assert_eq!(proxy.connections(), 1);
    }
}

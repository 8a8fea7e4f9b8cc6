//! The process of `orders`, a server over HTTP: the demo starts it, kills it and starts it again, as
//! whoever runs such a server would. The fleet only knows its address.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::sandbox::Sandbox;
use crate::failure::Failure;

/// The server listens by then.
const LISTENS: Duration = Duration::from_secs(15);

/// How often it is looked whether it does.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A server that is run by the demo. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct OrdersProcess {
    command: Command,
    address: SocketAddr,
    child: Option<Child>,
}

impl OrdersProcess {
    /// Starts it on a port of its own.
    pub(super) async fn spawn(sandbox: &Sandbox) -> Result<Self, Failure> {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let address = free.map_err(|error| Failure::unexpected(format!("no port: {error}")))?;
        let mut command = sandbox.orders(address);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut orders = Self {
            command,
            address,
            child: None,
        };
        orders.start().await?;
        Ok(orders)
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Starts the process and waits until its port is open.
    pub(super) async fn start(&mut self) -> Result<(), Failure> {
        let child = self.command.spawn();
        let child = child.map_err(|error| Failure::unexpected(format!("orders: {error}")))?;
        self.child = Some(child);
        let until = Instant::now() + LISTENS;
        while TcpStream::connect(self.address).is_err() {
            if Instant::now() > until {
                return Err(Failure::unexpected("orders does not listen"));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// `kill -9`, and its remains are taken away.
    pub(super) fn kill(&mut self) -> Option<u32> {
        let mut child = self.child.take()?;
        let pid = child.id();
        let _ = child.kill();
        let _ = child.wait();
        Some(pid)
    }
}

impl Drop for OrdersProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

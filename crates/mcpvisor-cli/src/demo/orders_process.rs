//! The process of the HTTP server `orders`. The demo starts and kills it; the fleet only knows its
//! URL.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::processes::wait_until;
use super::sandbox::Sandbox;
use crate::failure::Failure;

/// Limit for the server to open its port.
const START_TIMEOUT: Duration = Duration::from_secs(15);

/// The server process. Dropping this kills it.
#[derive(Debug)]
pub(super) struct OrdersProcess {
    command: Command,
    address: SocketAddr,
    child: Option<Child>,
}

impl OrdersProcess {
    /// Starts the server on a free port.
    pub(super) async fn spawn(sandbox: &Sandbox) -> Result<Self, Failure> {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let address =
            free.map_err(|error| Failure::unexpected(format!("no free port: {error}")))?;
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
        let address = self.address;
        match wait_until(START_TIMEOUT, || TcpStream::connect(address).is_ok()).await {
            true => Ok(()),
            false => Err(Failure::unexpected("orders did not open its port")),
        }
    }

    /// Kills and reaps the process.
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

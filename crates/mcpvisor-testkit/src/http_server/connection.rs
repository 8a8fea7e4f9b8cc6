//! One connection of a client: its requests in order, until it ends or is idle for too long.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;

use super::control::Shared;
use super::exchange;
use super::listener::Service;
use super::wire::Wire;

impl Service for Shared {
    async fn connection(self: Arc<Self>, stream: TcpStream) {
        serve(&self, stream).await;
    }
}

async fn serve(shared: &Arc<Shared>, stream: TcpStream) {
    let _open = Open::count(shared);
    let options = shared.options();
    let _ = stream.set_nodelay(options.nodelay);
    let mut wire = Wire::new(stream, options.announced);
    loop {
        shared.thawed().await;
        let idle = options.keep_alive.unwrap_or(Duration::MAX);
        let request = tokio::select! {
            request = wire.request() => request,
            () = tokio::time::sleep(idle) => return,
            () = frozen(shared) => continue,
        };
        let Ok(Some(request)) = request else {
            return;
        };
        if exchange::serve(&mut wire, shared, request).await.is_err() {
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

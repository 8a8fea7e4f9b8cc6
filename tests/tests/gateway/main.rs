//! What a gateway needs: raw requests, metadata, settings per client, notifications per client, and
//! input rounds in the caller's hands. Each against a server that shows the wire.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]
#![allow(
    deprecated,
    reason = "log levels and callbacks of the protocol's older versions"
)]

#[path = "../fleet/mod.rs"]
mod fleet;

mod metadata;
mod notifications;
mod peer;
mod raw;
mod rounds;
mod settings;

use mcpvisor::{Runtime, ServerHandle};

use fleet::DEADLINE;
use peer::Peer;

/// A fleet of one that is connected.
async fn started(peer: &Peer) -> (Runtime, ServerHandle) {
    let runtime = Runtime::builder().server(peer.config("a"));
    let runtime = runtime.start().await.unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    let handle = runtime.server("a").unwrap();
    // The events of the first lists are sent before its answer.
    handle.ping().deadline(DEADLINE).await.unwrap();
    (runtime, handle)
}

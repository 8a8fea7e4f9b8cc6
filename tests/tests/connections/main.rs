//! Servers with several connections: pools of instances, and connections of clients.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

#[path = "../fleet/mod.rs"]
mod fleet;

mod client_scope;
mod pool;
mod pool_changes;
mod pool_kills;
mod stations;

use std::future::IntoFuture;

use mcpvisor::{CallError, FromResult, Request};
use tokio::task::JoinHandle;

fn spawn<R: FromResult + Send + 'static>(request: Request<R>) -> JoinHandle<Result<R, CallError>> {
    tokio::spawn(request.into_future())
}

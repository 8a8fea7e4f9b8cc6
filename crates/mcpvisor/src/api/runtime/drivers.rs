//! Whether the tokio runtime has the drivers that are needed.
//!
//! Tokio does not say which drivers a runtime has: what needs a missing one panics. So a timer and a
//! socket are made as a probe, and the panic is caught. The panic hook of the program is its own: it
//! reports the panic of a probe that fails, which happens only where the start is refused.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::api::error::{ControlError, MissingDriver};
use crate::api::transport::Transport;
use crate::config::ServerConfig;

/// Refuses a tokio runtime without timers.
pub(super) fn check_time() -> Result<(), MissingDriver> {
    let probe = || drop(tokio::time::sleep(Duration::ZERO));
    survives(probe).then_some(()).ok_or(MissingDriver::Time)
}

/// Refuses a tokio runtime without I/O, for servers that need it.
pub(super) fn check_io(transport: &Transport) -> Result<(), MissingDriver> {
    if !transport.needs_io() {
        return Ok(());
    }
    survives(probe_io).then_some(()).ok_or(MissingDriver::Io)
}

/// Refuses a server that comes, or is reached in another way, at run time.
pub(crate) fn check_drivers(config: &ServerConfig) -> Result<(), ControlError> {
    check_io(&config.transport).map_err(|problem| ControlError::MissingDriver {
        server: config.name.clone(),
        problem,
    })
}

#[cfg(all(unix, any(feature = "stdio", feature = "http")))]
fn probe_io() {
    // An error is not about the driver: descriptors may have run out.
    let _ = tokio::net::UnixStream::pair();
}

#[cfg(not(all(unix, any(feature = "stdio", feature = "http"))))]
fn probe_io() {}

/// Whether a probe ends without a panic.
fn survives(probe: impl FnOnce()) -> bool {
    // A panic during a panic would end the program.
    std::thread::panicking() || catch_unwind(AssertUnwindSafe(probe)).is_ok()
}

//! Checks that the tokio runtime has the required drivers.
//!
//! Tokio has no query for its drivers: using a missing one panics. So a timer and a socket are
//! created as a probe, and the panic is caught. The program's panic hook still reports a failed
//! probe, which happens only when the start fails.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::api::error::{ControlError, MissingDriver};
use crate::api::transport::Transport;
use crate::config::ServerConfig;

/// Rejects a tokio runtime without timers.
pub(super) fn check_time() -> Result<(), MissingDriver> {
    let probe = || drop(tokio::time::sleep(Duration::ZERO));
    survives(probe).then_some(()).ok_or(MissingDriver::Time)
}

/// Rejects a tokio runtime without I/O for a server that needs it.
pub(super) fn check_io(transport: &Transport) -> Result<(), MissingDriver> {
    if !transport.needs_io() {
        return Ok(());
    }
    survives(probe_io).then_some(()).ok_or(MissingDriver::Io)
}

/// Checks the drivers for a server that is added or changed at run time.
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

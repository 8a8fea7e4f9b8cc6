//! Whether the tokio runtime has the drivers that are needed.
//!
//! Tokio does not say which drivers a runtime has: what needs a missing one panics. So a timer and a
//! socket are made as a probe, and the panic is caught. A filter keeps it from the panic hook of the
//! program; all other panics reach the hook as before.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;
use std::time::Duration;

use crate::error::MissingDriver;
use crate::transport::Transport;

thread_local! {
    /// This thread runs a probe.
    static PROBING: Cell<bool> = const { Cell::new(false) };
}

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

#[cfg(all(unix, any(feature = "stdio", feature = "http")))]
fn probe_io() {
    // An error is not about the driver: descriptors may have run out.
    let _ = tokio::net::UnixStream::pair();
}

#[cfg(not(all(unix, any(feature = "stdio", feature = "http"))))]
fn probe_io() {}

/// Whether a probe ends without a panic.
fn survives(probe: impl FnOnce()) -> bool {
    // The hook cannot be changed then, and another panic would end the program.
    if std::thread::panicking() {
        return true;
    }
    static FILTER: Once = Once::new();
    FILTER.call_once(|| {
        let hook = take_hook();
        set_hook(Box::new(move |panic| {
            if !PROBING.get() {
                hook(panic);
            }
        }));
    });
    PROBING.set(true);
    let survived = catch_unwind(AssertUnwindSafe(probe)).is_ok();
    PROBING.set(false);
    survived
}

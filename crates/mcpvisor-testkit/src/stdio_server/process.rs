//! The process of a server: the processes it spawns, and how it resists termination.

use std::io;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Processes that refuse to end exit after this time, so that a failed test leaks nothing
/// permanently.
pub const LINGER: Duration = Duration::from_secs(900);

/// The only argument of a lingering process.
const FLAG: &str = "--linger";

/// Starts the same binary as a lingering process in the same process group. It keeps stdout open if
/// it inherits it.
pub fn spawn_lingering(stdout: Stdio) -> io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .arg(FLAG)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(Stdio::null())
        .spawn()
}

/// Lingers if [`spawn_lingering`] started this process. A binary that uses it calls this first.
pub fn linger_if_requested() {
    if std::env::args().nth(1).as_deref() == Some(FLAG) {
        std::thread::sleep(LINGER);
        std::process::exit(0);
    }
}

/// Makes SIGTERM have no effect. Tokio's handler replaces the default action permanently, even
/// without a listener.
pub fn ignore_sigterm() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let _inside = runtime.enter();
    signal(SignalKind::terminate()).map(drop)
}

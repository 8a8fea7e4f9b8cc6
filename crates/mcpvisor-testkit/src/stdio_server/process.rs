//! The process around a server: what it starts, and what it takes to end it.

use std::io;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Whatever refuses to end ends after this, so that a failed test leaves nothing for ever.
pub const LINGER: Duration = Duration::from_secs(900);

/// The only argument of a process that only stays alive.
const FLAG: &str = "--linger";

/// Starts the same binary as a process that only stays, in the same process group. It holds stdout
/// open if it is given it.
pub fn spawn_lingering(stdout: Stdio) -> io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .arg(FLAG)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(Stdio::null())
        .spawn()
}

/// Stays if this is what [`spawn_lingering`] started. A binary that uses it calls this first.
pub fn linger_if_requested() {
    if std::env::args().nth(1).as_deref() == Some(FLAG) {
        std::thread::sleep(LINGER);
        std::process::exit(0);
    }
}

/// Makes SIGTERM have no effect. Tokio's handler replaces the default action for good, even when
/// nobody listens.
pub fn ignore_sigterm() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let _inside = runtime.enter();
    signal(SignalKind::terminate()).map(drop)
}

//! The process's own record of its life, for tests that compare it with what a client reports.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::OnceLock;

use rustix::fs::{FlockOperation, flock};

use super::output::append_line;

/// The variable that names the journal of a server's processes.
pub const JOURNAL: &str = "MCPVISOR_TEST_JOURNAL";

/// Appends one line to the journal that [`JOURNAL`] names, if it names one: `opened PID`, or `beside
/// PID` if another process with the same journal is alive.
///
/// A lock beside the journal decides which. The process holds it until it ends, and the kernel releases
/// it whatever the process ends of, before its parent can reap it.
pub fn write_journal_if_requested() -> io::Result<()> {
    std::env::var_os(JOURNAL).map_or(Ok(()), write_journal)
}

fn write_journal(journal: OsString) -> io::Result<()> {
    static LOCK: OnceLock<File> = OnceLock::new();
    let mut beside = journal.clone();
    beside.push(".lock");
    let lock = OpenOptions::new().create(true).append(true).open(beside)?;
    let word = match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => "opened",
        Err(_) => "beside",
    };
    LOCK.get_or_init(|| lock);
    append_line(
        Path::new(&journal),
        &format!("{word} {}", std::process::id()),
    )
}

//! A server process's record of its own starts, for comparison with a client's reports.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::OnceLock;

use rustix::fs::{FlockOperation, flock};

use super::output::append_line;

/// The variable with the path of a server's journal.
pub const JOURNAL: &str = "MCPVISOR_TEST_JOURNAL";

/// Appends one line to the journal named by [`JOURNAL`], if it is set: `opened PID`, or `beside
/// PID` if another process with the same journal is alive.
///
/// A lock beside the journal decides which. The process holds it until it exits. The kernel
/// releases it however the process ends, and before the parent can reap it.
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

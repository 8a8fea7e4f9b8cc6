//! What a new process is made of, and what comes of it.
//!
//! How it is started depends on the system: `vfork` ties its life to ours, `portable` cannot.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{ChildStderr, ChildStdin, ChildStdout};

use super::process_group::Leader;

/// A process to be.
#[derive(Debug)]
pub(super) struct Image {
    /// The file to run; relative to `cwd` if it is relative.
    pub(super) file: PathBuf,
    /// What the process sees as its own name.
    pub(super) name: OsString,
    pub(super) args: Vec<OsString>,
    /// Nothing else is in its environment. The last value of a name counts.
    pub(super) environment: Vec<(OsString, OsString)>,
    pub(super) cwd: Option<PathBuf>,
}

/// A process that was started, and our ends of its pipes.
#[derive(Debug)]
pub(super) struct Newborn {
    pub(super) leader: Leader,
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

impl Image {
    /// Starts it as the leader of a group of its own.
    pub(super) fn start(&self) -> io::Result<Newborn> {
        #[cfg(target_os = "linux")]
        return super::spawn_linux::start(self);
        #[cfg(not(target_os = "linux"))]
        return super::portable::start(self);
    }
}

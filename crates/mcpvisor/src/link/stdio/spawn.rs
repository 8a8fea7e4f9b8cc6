//! The description of a process to spawn, and the spawned process.
//!
//! On Linux `spawn_linux` ties the life of the child to ours; `spawn_portable` cannot.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{ChildStderr, ChildStdin, ChildStdout};

use super::process_group::ProcessGroup;

/// A process to spawn.
#[derive(Debug)]
pub(super) struct ProcessSpec {
    /// The file to execute; a relative path is relative to `cwd`.
    pub(super) file: PathBuf,
    /// `argv[0]`.
    pub(super) name: OsString,
    pub(super) args: Vec<OsString>,
    /// The complete environment. The last value of a name counts.
    pub(super) environment: Vec<(OsString, OsString)>,
    pub(super) cwd: Option<PathBuf>,
}

/// A spawned process and our ends of its pipes.
#[derive(Debug)]
pub(super) struct SpawnedProcess {
    pub(super) group: ProcessGroup,
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

impl ProcessSpec {
    /// Spawns the process as the leader of a new process group.
    pub(super) fn spawn(&self) -> io::Result<SpawnedProcess> {
        #[cfg(target_os = "linux")]
        return super::spawn_linux::spawn(self);
        #[cfg(not(target_os = "linux"))]
        return super::spawn_portable::spawn(self);
    }
}

//! The exit codes. Scripts depend on them.

use std::process::ExitCode;

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Ok = 0,
    /// A usage error, or an unexpected failure.
    Usage = 1,
    /// Authorization is needed.
    Authorization = 3,
    /// The server is unreachable, or the call was not sent.
    Unreachable = 4,
    /// The tool, prompt or resource failed or does not exist.
    Failed = 5,
    /// The call was sent, but its answer was lost.
    Unknown = 6,
    /// The deadline passed.
    Deadline = 7,
    /// Interrupted by a signal.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

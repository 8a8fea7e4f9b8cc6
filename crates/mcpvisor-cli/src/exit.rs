//! The exit codes, which scripts rely on.

use std::process::ExitCode;

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It worked.
    Ok = 0,
    /// Wrong use, or something unexpected.
    Usage = 1,
    /// A person has to authorize first.
    Authorization = 3,
    /// The server is unreachable, or the call was not sent.
    Unreachable = 4,
    /// The tool failed or does not exist.
    Failed = 5,
    /// The call was sent and its answer is lost.
    Unknown = 6,
    /// The time was up.
    Deadline = 7,
    /// Someone pressed Ctrl-C.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

//! What every command gets from the command line: its config, its deadline, its output.

use std::path::Path;

use crate::config::source::Source;
use crate::failure::Failure;
use crate::output::Output;
use crate::request::deadlines::Deadline;

/// The options that all commands share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Invocation<'a> {
    /// The path of `--config`.
    pub(crate) config: Option<&'a Path>,
    pub(crate) deadline: Deadline,
    pub(crate) output: Output,
}

impl Invocation<'_> {
    pub(crate) fn source(&self) -> Result<Source, Failure> {
        Source::locate(self.config)
    }
}

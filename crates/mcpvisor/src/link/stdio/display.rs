//! Displays a command, finds its file and recognises its process, without starting it.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use super::command::StdioCommand;
use super::resolve::resolve;
use crate::state::file_ops::{FileOps, READ_TIMEOUT};

/// Limits the time of the search for programs.
static LOCATE_OPS: LazyLock<FileOps> = LazyLock::new(FileOps::default);

impl StdioCommand {
    /// The file that the command would execute, or why it is not found and what to do about it.
    ///
    /// ```
    /// use mcpvisor::Transport;
    ///
    /// assert!(Transport::stdio("sh").locate().is_ok());
    /// assert!(Transport::stdio("no-such-command").locate().is_err());
    /// ```
    pub fn locate(&self) -> Result<PathBuf, String> {
        let command = self.clone();
        let locate = move || {
            let environment = command.environment(std::env::vars_os());
            Ok(resolve(&command, &environment))
        };
        let program = Path::new(&self.program);
        let located = LOCATE_OPS.run_blocking(program, READ_TIMEOUT, locate);
        // The path of the error may contain a secret.
        let timed_out = |_| {
            let program = self.shown(&self.program);
            format!("the search for {program} timed out; check the directories in PATH")
        };
        located
            .map_err(timed_out)?
            .map_err(|failure| match failure.action {
                Some(action) => format!("{}; {}", failure.message, action.instruction()),
                None => failure.message,
            })
    }

    /// Whether a process with this command line may be a child of this command. A process that
    /// replaced itself with another program is not recognised.
    pub fn runs_as(&self, command_line: &[OsString]) -> bool {
        let Some((program, args)) = command_line.split_first() else {
            return false;
        };
        let ours = self.args.iter().map(|arg| arg.expose());
        *program == self.program && args.iter().eq(ours)
    }
}

/// The program, the number of arguments and the names of variables; the rest may be secret.
impl fmt::Display for StdioCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown(&self.program))?;
        match self.args.len() {
            0 => {}
            1 => f.write_str(" with 1 argument")?,
            count => write!(f, " with {count} arguments")?,
        }
        let names: Vec<_> = self
            .set_variables()
            .map(|(name, _)| name.to_string_lossy())
            .collect();
        if !names.is_empty() {
            write!(f, ", sets {}", names.join(", "))?;
        }
        if let Some(cwd) = &self.cwd {
            write!(f, ", in {}", self.shown(cwd))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_displayed_without_its_secrets() {
        let command = StdioCommand::new("npx")
            .args(["-y", "s3cret"])
            .env("TOKEN", "s3cret")
            .cwd("/srv");
        assert_eq!(
            command.to_string(),
            "npx with 2 arguments, sets TOKEN, in /srv"
        );
        assert_eq!(StdioCommand::new("true").to_string(), "true");
    }

    #[test]
    fn a_process_is_recognised_by_its_whole_command_line() {
        let command = StdioCommand::new("npx").args(["-y", "files"]);
        let line = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        assert!(command.runs_as(&line(&["npx", "-y", "files"])));
        for other in [&["npx", "-y"][..], &["npx", "-y", "other"], &["node"], &[]] {
            assert!(!command.runs_as(&line(other)), "{other:?}");
        }
    }
}

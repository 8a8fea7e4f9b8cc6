//! Finds the program of a command, and says in a person's words why it cannot be started.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use mcpvisor_core::machine::Action;
use rustix::fs::{Access, access};

use super::command::StdioCommand;
use crate::link::{OpenFailure, OpenFailureClass};

/// The file to run, for a child with this environment.
///
/// Searching here and not in the child keeps the cheap way of starting a process open, which the
/// standard library leaves when it would have to search the child's own path, and tells a missing
/// command from a missing directory.
pub(super) fn resolve(
    command: &StdioCommand,
    environment: &[(OsString, OsString)],
) -> Result<PathBuf, OpenFailure> {
    let program = &command.program;
    if program.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(program));
    }
    let path = environment.iter().rev().find(|(name, _)| name == "PATH");
    let candidates = path
        .map(|(_, path)| std::env::split_paths(path).collect())
        .unwrap_or_else(|| vec![PathBuf::from("/usr/bin"), PathBuf::from("/bin")]);
    let mut found_but_locked = None;
    for directory in candidates.iter().filter(|_| !program.is_empty()) {
        let file = match &command.cwd {
            // The search happens in the child's directory, as the child itself would do it.
            Some(cwd) => cwd.join(directory).join(program),
            None => directory.join(program),
        };
        match file.metadata() {
            Ok(data) if !data.is_file() => {}
            Ok(_) if access(&file, Access::EXEC_OK).is_ok() => return Ok(absolute(file)),
            Ok(_) => found_but_locked = Some(file),
            Err(_) => {}
        }
    }
    Err(match found_but_locked {
        Some(file) => not_executable(
            format!("{} is not executable", command.shown(file)),
            Action::MakeExecutable,
        ),
        None => not_found(command),
    })
}

/// A file that was found from here must also be found after the child changed its directory.
fn absolute(file: PathBuf) -> PathBuf {
    std::path::absolute(&file).unwrap_or(file)
}

/// Why starting the file failed.
pub(super) fn explain(command: &StdioCommand, file: &Path, error: &io::Error) -> OpenFailure {
    let program = command.shown(&command.program);
    if let Some(cwd) = &command.cwd
        && !cwd.is_dir()
    {
        return not_executable(
            format!(
                "its working directory {} does not exist",
                command.shown(cwd)
            ),
            Action::CreateWorkingDirectory,
        );
    }
    match error.kind() {
        ErrorKind::NotFound if in_directory(command, file).exists() => not_executable(
            format!("{program} names an interpreter that does not exist"),
            Action::InstallInterpreter,
        ),
        ErrorKind::NotFound | ErrorKind::NotADirectory => not_found(command),
        ErrorKind::PermissionDenied => not_executable(
            format!("{program} may not be run: permission denied"),
            Action::MakeExecutable,
        ),
        ErrorKind::InvalidInput | ErrorKind::ArgumentListTooLong => not_executable(
            format!("{program} cannot be run as configured: {error}"),
            Action::FixKeys("\"command\", \"args\" or \"env\"".to_owned()),
        ),
        _ if error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => {
            not_executable(
                format!("{program} is in no format that this system can run"),
                Action::UseNativeBuild,
            )
        }
        _ => OpenFailure {
            class: OpenFailureClass::Transient,
            message: format!("{program} could not be started: {error}"),
            action: None,
        },
    }
}

/// Refuses what no program could be given.
pub(super) fn check(command: &StdioCommand) -> Result<(), OpenFailure> {
    command.check_given().map_err(|problem| {
        let action = Action::FixKeys(format!("{:?}", problem.name));
        not_executable(problem.to_string(), action)
    })
}

fn in_directory(command: &StdioCommand, file: &Path) -> PathBuf {
    command
        .cwd
        .as_ref()
        .map_or_else(|| file.to_owned(), |cwd| cwd.join(file))
}

fn not_found(command: &StdioCommand) -> OpenFailure {
    let searched_path = !command.program.as_bytes().contains(&b'/');
    OpenFailure {
        class: OpenFailureClass::CommandNotFound,
        message: format!(
            "the command {:?} was not found",
            command.shown(&command.program)
        ),
        action: Some(Action::InstallCommand { searched_path }),
    }
}

fn not_executable(message: String, action: Action) -> OpenFailure {
    OpenFailure {
        class: OpenFailureClass::NotExecutable,
        message,
        action: Some(action),
    }
}

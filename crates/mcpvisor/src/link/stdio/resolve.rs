//! Finds the program of a command, and explains why it cannot be started.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use mcpvisor_core::machine::Action;
use rustix::fs::{Access, access};

use super::command::StdioCommand;
use crate::link::{OpenFailure, OpenFailureClass};

/// The file to execute, for a child with this environment.
///
/// `execve` does not search `PATH`. Searching before the spawn also distinguishes a missing command
/// from a missing working directory.
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
    let mut not_executable_file = None;
    for directory in candidates.iter().filter(|_| !program.is_empty()) {
        let file = match &command.cwd {
            // Relative entries of PATH are relative to the child's working directory.
            Some(cwd) => cwd.join(directory).join(program),
            None => directory.join(program),
        };
        match file.metadata() {
            Ok(data) if !data.is_file() => {}
            Ok(_) if access(&file, Access::EXEC_OK).is_ok() => return Ok(absolute(file)),
            Ok(_) => not_executable_file = Some(file),
            Err(_) => {}
        }
    }
    Err(match not_executable_file {
        Some(file) => not_executable(
            format!("{} is not executable", command.shown(file)),
            Action::MakeExecutable,
        ),
        None => not_found(command),
    })
}

/// The path must stay valid after the child changed its directory.
fn absolute(file: PathBuf) -> PathBuf {
    std::path::absolute(&file).unwrap_or(file)
}

/// Explains why spawning failed.
pub(super) fn explain(command: &StdioCommand, file: &Path, error: &io::Error) -> OpenFailure {
    let program = command.shown(&command.program);
    if let Some(cwd) = &command.cwd
        && !cwd.is_dir()
    {
        let cwd = command.shown(cwd);
        return not_executable(
            format!("its working directory {cwd} does not exist"),
            Action::CreateWorkingDirectory,
        );
    }
    match error.kind() {
        ErrorKind::NotFound if in_directory(command, file).exists() => not_executable(
            format!("the interpreter of {program} does not exist"),
            Action::InstallInterpreter,
        ),
        ErrorKind::NotFound | ErrorKind::NotADirectory => not_found(command),
        ErrorKind::PermissionDenied => not_executable(
            format!("cannot run {program}: permission denied"),
            Action::MakeExecutable,
        ),
        ErrorKind::InvalidInput | ErrorKind::ArgumentListTooLong => not_executable(
            format!("cannot run {program} as configured: {error}"),
            Action::FixKeys("\"command\", \"args\" or \"env\"".to_owned()),
        ),
        _ if error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => {
            not_executable(
                format!("{program} is not an executable of this system"),
                Action::UseNativeBuild,
            )
        }
        _ => OpenFailure::transient(format!("cannot start {program}: {error}")),
    }
}

/// Rejects arguments and variables that cannot be passed to any program.
pub(super) fn check(command: &StdioCommand) -> Result<(), OpenFailure> {
    command.check_given().map_err(|problem| {
        let action = Action::FixKeys(format!("{:?}", problem.name));
        not_executable(problem.to_string(), action)
    })
}

fn in_directory(command: &StdioCommand, file: &Path) -> PathBuf {
    let cwd = command.cwd.as_ref();
    cwd.map_or_else(|| file.to_owned(), |cwd| cwd.join(file))
}

fn not_found(command: &StdioCommand) -> OpenFailure {
    let searched_path = !command.program.as_bytes().contains(&b'/');
    let program = command.shown(&command.program);
    let place = if searched_path { " in PATH" } else { "" };
    let message = format!("the command {program:?} was not found{place}");
    let action = Action::InstallCommand { searched_path };
    OpenFailure::new(OpenFailureClass::CommandNotFound, message, action)
}

fn not_executable(message: String, action: Action) -> OpenFailure {
    OpenFailure::new(OpenFailureClass::NotExecutable, message, action)
}

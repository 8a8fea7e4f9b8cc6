//! Checks whether the command of a server can run, without running it.

use std::path::Path;

use mcpvisor::Transport;

use super::report::Check;

/// Checks the command of a stdio server.
pub(super) fn check(transport: &Transport) -> Option<Check> {
    let command = transport.as_stdio()?;
    let folder = transport.folder();
    if folder.as_deref().is_some_and(|folder| !folder.is_dir()) {
        return Some(Check::bad(
            "command",
            "the working directory does not exist",
            "Create it, or correct \"cwd\".",
        ));
    }
    Some(match command.locate() {
        Ok(file) => {
            // A relative path starts at the child's working directory.
            let place = folder.map_or_else(|| file.clone(), |folder| folder.join(&file));
            match trouble(&place) {
                None => Check::good("command", command.shown(&file)),
                Some(("does not exist", _))
                    if command.program().to_string_lossy().contains(' ') =>
                {
                    Check::bad(
                        "command",
                        format!("{command}: the file does not exist"),
                        "Move the arguments from \"command\" to \"args\".",
                    )
                }
                Some((problem, action)) => {
                    Check::bad("command", format!("{command}: the file {problem}"), action)
                }
            }
        }
        Err(problem) => Check::bad("command", problem, ""),
    })
}

/// Why a file cannot run, and what to do.
fn trouble(file: &Path) -> Option<(&'static str, &'static str)> {
    match file.metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Some((
            "cannot be accessed: permission denied",
            "Change the permissions of its folder, or correct \"command\".",
        )),
        Err(_) => Some((
            "does not exist",
            "Install it, or correct the path in \"command\".",
        )),
        Ok(data) if data.is_dir() => Some(("is a folder", "Correct the path in \"command\".")),
        Ok(data) if !is_executable(&data) => Some((
            "is not executable",
            "Make it executable with \"chmod +x\", or correct \"command\".",
        )),
        Ok(_) => None,
    }
}

#[cfg(unix)]
fn is_executable(data: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    data.permissions().mode() & 0o111 != 0
}

#[cfg(not(unix))]
fn is_executable(_: &std::fs::Metadata) -> bool {
    true
}

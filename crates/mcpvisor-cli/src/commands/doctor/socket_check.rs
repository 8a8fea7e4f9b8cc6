//! Checks whether the Unix socket of a server exists, without connecting to it.

use std::io::ErrorKind;

use mcpvisor::Transport;

use super::report::Check;

/// The name of the check.
pub(super) const SOCKET: &str = "socket";

/// Checks the socket of a server over HTTP.
pub(super) fn check(transport: &Transport) -> Option<Check> {
    let endpoint = transport.as_http()?;
    let path = endpoint.socket_path()?;
    let shown = endpoint.shown(path);
    Some(match path.metadata() {
        Ok(data) if is_socket(&data) => Check::good(SOCKET, shown),
        Ok(_) => Check::bad(
            SOCKET,
            format!("{shown} is not a socket"),
            "Correct \"socketPath\".",
        ),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Check::bad(
            SOCKET,
            format!("{shown} cannot be accessed: permission denied"),
            "Change the permissions of its folder, or correct \"socketPath\".",
        ),
        Err(_) => Check::bad(
            SOCKET,
            format!("{shown} does not exist"),
            "Start the server, or correct \"socketPath\".",
        ),
    })
}

#[cfg(unix)]
fn is_socket(data: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    data.file_type().is_socket()
}

#[cfg(not(unix))]
fn is_socket(_: &std::fs::Metadata) -> bool {
    true
}

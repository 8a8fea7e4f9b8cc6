//! Faults: what went wrong, for status, errors and logs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

/// Bytes of the message of a fault. A server may send a long text, and the fault is copied to every
/// waiting call.
pub const MAX_FAULT_MESSAGE: usize = 2 * 1024;

/// Bytes of stderr that a fault carries, the last ones.
pub const MAX_FAULT_STDERR: usize = 2 * 1024;

/// Lines of stderr in the text of a fault, the last ones.
const SHOWN_LINES: usize = 3;

/// Bytes of stderr in the text of a fault.
const SHOWN_STDERR: usize = 300;

/// What went wrong, for status, errors and logs.
///
/// It is copied to every status and to every call that fails with it, so the message is short. The text,
/// and the JSON of a status, adds the last lines of [`Fault::stderr`] to the message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// The kind of fault.
    pub class: FaultClass,
    /// What happened: a sentence fragment of at most [`MAX_FAULT_MESSAGE`] bytes, without stderr.
    pub message: String,
    /// The end of the child's stderr, at most [`MAX_FAULT_STDERR`] bytes.
    pub stderr: Option<Arc<str>>,
    /// The scopes that a login has to request, if the server named them.
    pub scopes: Vec<String>,
    /// When a retry may help, if nothing has to be done before: the issuer cannot renew a login for
    /// now.
    pub retry_in: Option<Duration>,
}

impl Fault {
    /// A fault with a message, which is truncated if it is too long. Redact secrets before that: half a
    /// secret would not be recognized.
    pub fn new(class: FaultClass, message: impl Into<String>) -> Self {
        let mut message = message.into();
        truncate_text(&mut message, MAX_FAULT_MESSAGE);
        Self {
            class,
            message,
            stderr: None,
            scopes: Vec::new(),
            retry_in: None,
        }
    }

    /// Adds the scopes that a login has to request.
    #[must_use]
    pub fn with_scopes(mut self, scopes: Vec<String>) -> Self {
        self.scopes = scopes;
        self
    }

    /// Adds when a retry may help.
    #[must_use]
    pub fn with_retry_in(mut self, retry_in: Duration) -> Self {
        self.retry_in = Some(retry_in);
        self
    }

    /// Adds the end of the server's stderr. Redact secrets before that.
    #[must_use]
    pub fn with_stderr(mut self, stderr: &str) -> Self {
        let end = tail(stderr.trim_end(), MAX_FAULT_STDERR);
        self.stderr = (!end.is_empty()).then(|| end.into());
        self
    }
}

/// The last `limit` bytes of a text.
fn tail(text: &str, limit: usize) -> &str {
    let mut start = text.len().saturating_sub(limit);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

/// The last lines of stderr on one line, to append to a message.
///
/// ```
/// use mcpvisor_core::machine::summarize_stderr;
///
/// let text = "Traceback:\n  File \"a.py\"\n\nImportError: no module b\n";
/// assert_eq!(
///     summarize_stderr(Some(text)),
///     "; its stderr ends with: Traceback: | File \"a.py\" | ImportError: no module b"
/// );
/// assert_eq!(summarize_stderr(None), "");
/// ```
pub fn summarize_stderr(stderr: Option<&str>) -> String {
    let lines = stderr.unwrap_or_default().lines().map(str::trim);
    let mut last: Vec<&str> = lines
        .rev()
        .filter(|line| !line.is_empty())
        .take(SHOWN_LINES)
        .collect();
    last.reverse();
    let shown = last.join(" | ");
    match tail(&shown, SHOWN_STDERR) {
        "" => String::new(),
        end if end.len() < shown.len() => format!("; its stderr ends with: …{end}"),
        end => format!("; its stderr ends with: {end}"),
    }
}

/// Truncates a text to `limit` bytes and marks that it was truncated.
pub fn truncate_text(text: &mut String, limit: usize) {
    const MARK: &str = "…";
    if text.len() <= limit {
        return;
    }
    let mut end = limit.saturating_sub(MARK.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text.push_str(MARK);
    // The removed part may be a line of many megabytes.
    text.shrink_to_fit();
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        f.write_str(&summarize_stderr(self.stderr.as_deref()))
    }
}

impl Serialize for Fault {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fault = serializer.serialize_struct("Fault", 2)?;
        fault.serialize_field("class", &self.class)?;
        fault.serialize_field("message", &self.to_string())?;
        fault.end()
    }
}

/// The kinds of fault that a status shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FaultClass {
    /// The entry of the config cannot be used.
    Config,
    /// The command does not exist.
    CommandNotFound,
    /// The command, its folder or its arguments cannot be used.
    InvalidCommand,
    /// The address, a header or a certificate cannot be used.
    InvalidAddress,
    /// The server could not be started or reached.
    ConnectFailed,
    /// The server did not answer in time.
    Timeout,
    /// The server's process ended.
    Exited,
    /// The connection ended.
    ConnectionLost,
    /// The server broke the protocol.
    Protocol,
    /// No protocol version is shared.
    IncompatibleVersion,
    /// The server refused the handshake.
    Refused,
    /// The server forgot the session.
    SessionExpired,
    /// The server failed a request, or its answer broke off.
    ServerFault,
    /// The server does not accept the authorization: its credential is missing, refused or lacks a
    /// scope.
    Authorization,
    /// The server's listings cannot be read.
    Discovery,
    /// The actor of the server panicked.
    ActorCrashed,
    /// Closing was not clean.
    Close,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_truncated_between_characters_and_marked() {
        let fault = Fault::new(FaultClass::Refused, "é".repeat(10_000));
        assert_eq!(
            fault.message.len(),
            MAX_FAULT_MESSAGE - 1,
            "no half of a character"
        );
        assert!(fault.message.ends_with("é…"));
        assert_eq!(fault.to_string(), fault.message);
        let fits = "x".repeat(MAX_FAULT_MESSAGE);
        assert_eq!(Fault::new(FaultClass::Refused, &*fits).message, fits);
    }

    #[test]
    fn the_text_shows_the_last_lines_of_stderr_and_the_field_has_more() {
        let traceback = (0..100).map(|line| format!("  line {line} of a traceback\n"));
        let stderr: String = traceback
            .chain(["ImportError: no b\n\n".to_owned()])
            .collect();
        let fault = Fault::new(FaultClass::Exited, "exited with code 1").with_stderr(&stderr);
        assert_eq!(fault.message, "exited with code 1");
        let expected = "exited with code 1; its stderr ends with: line 98 of a traceback | line 99 of a traceback | ImportError: no b";
        assert_eq!(fault.to_string(), expected);
        let stderr = fault.stderr.unwrap();
        assert!(stderr.len() <= MAX_FAULT_STDERR && stderr.len() > MAX_FAULT_STDERR / 2);
        assert!(stderr.ends_with("ImportError: no b"));
    }

    #[test]
    fn one_long_line_of_stderr_is_truncated_at_its_start() {
        let fault = Fault::new(FaultClass::Exited, "exited").with_stderr(&"é".repeat(10_000));
        let text = fault.to_string();
        assert!(text.len() < 400, "{}", text.len());
        assert!(text.starts_with("exited; its stderr ends with: …é"));
        let quiet = Fault::new(FaultClass::Exited, "exited").with_stderr(" \n");
        assert_eq!(
            (quiet.to_string(), quiet.stderr),
            ("exited".to_owned(), None)
        );
    }
}

//! What went wrong, in words that are kept and repeated.

use std::fmt;
use std::sync::Arc;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

/// The longest message of a fault, in bytes. What a server says of a failure may be as long as a line,
/// and every call that waits gets it.
pub const MAX_FAULT_MESSAGE: usize = 2 * 1024;

/// The end of stderr that a fault carries, in bytes.
pub const MAX_FAULT_STDERR: usize = 2 * 1024;

/// Lines of stderr that the text of a fault repeats, the last ones.
const SHOWN_LINES: usize = 3;

/// Bytes of stderr that the text of a fault repeats.
const SHOWN_STDERR: usize = 300;

/// What went wrong, for status, errors and logs.
///
/// It is copied for every status and every call that it ends, so its message is short. As text, and in
/// the JSON of a status, the message is followed by the last lines of [`Fault::stderr`], if there are any.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// The kind of fault, one word in snake_case.
    pub class: FaultClass,
    /// What happened, in a sentence fragment of at most [`MAX_FAULT_MESSAGE`] bytes, without the stderr.
    pub message: String,
    /// The end of what a child wrote on stderr, at most [`MAX_FAULT_STDERR`] bytes.
    pub stderr: Option<Arc<str>>,
}

impl Fault {
    /// A fault of a class, with its message, which is cut if it is too long. Secrets must be hidden in
    /// it before that, so that no part of one stays.
    pub fn new(class: FaultClass, message: impl Into<String>) -> Self {
        let mut message = message.into();
        truncate_text(&mut message, MAX_FAULT_MESSAGE);
        Self {
            class,
            message,
            stderr: None,
        }
    }

    /// Adds the end of what the server wrote on stderr. Secrets must be hidden in it before that.
    #[must_use]
    pub fn with_stderr(mut self, written: &str) -> Self {
        let end = tail(written.trim_end(), MAX_FAULT_STDERR);
        self.stderr = (!end.is_empty()).then(|| end.into());
        self
    }
}

/// The end of a text, at most so many bytes.
fn tail(text: &str, limit: usize) -> &str {
    let mut start = text.len().saturating_sub(limit);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

/// The last lines of stderr as part of a sentence: few, short and on one line.
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

/// Cuts a text to at most so many bytes, and marks that it was cut.
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
    // What was cut off may be most of a line of many megabytes.
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
    /// The server failed a request, or broke its answer off.
    ServerFault,
    /// The server has to be authorized by a person.
    Unauthorized,
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
    fn a_long_message_is_cut_between_characters_and_marked() {
        let fault = Fault::new(FaultClass::Refused, "é".repeat(10_000));
        assert_eq!(
            fault.message.len(),
            MAX_FAULT_MESSAGE - 1,
            "no half of an é"
        );
        assert!(fault.message.ends_with("é…"));
        assert_eq!(fault.to_string(), fault.message);
        let fits = "x".repeat(MAX_FAULT_MESSAGE);
        assert_eq!(Fault::new(FaultClass::Refused, &*fits).message, fits);
    }

    #[test]
    fn the_text_repeats_only_the_last_lines_of_stderr_and_the_rest_is_kept_beside_it() {
        let traceback = (0..100).map(|line| format!("  line {line} of a traceback\n"));
        let stderr: String = traceback
            .chain(["ImportError: no b\n\n".to_owned()])
            .collect();
        let fault = Fault::new(FaultClass::Exited, "exited with code 1").with_stderr(&stderr);
        assert_eq!(fault.message, "exited with code 1");
        let said = "exited with code 1; its stderr ends with: line 98 of a traceback | line 99 of a traceback | ImportError: no b";
        assert_eq!(fault.to_string(), said);
        let kept = fault.stderr.unwrap();
        assert!(kept.len() <= MAX_FAULT_STDERR && kept.len() > MAX_FAULT_STDERR / 2);
        assert!(kept.ends_with("ImportError: no b"));
    }

    #[test]
    fn one_long_line_of_stderr_is_cut_at_its_beginning() {
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

//! What went wrong, in words that are kept and repeated.

use std::fmt;

use serde::Serialize;

/// The longest message of a fault, in bytes. What a server says of a failure may be as long as a line,
/// and every call that waits gets it.
pub const MAX_MESSAGE: usize = 2 * 1024;

/// What went wrong, for status, errors and logs.
///
/// It is copied for every status and every call that it ends, so its message is short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Fault {
    /// The kind of fault, one word in snake_case.
    pub class: FaultClass,
    /// What happened, in a sentence fragment of at most [`MAX_MESSAGE`] bytes.
    pub message: String,
}

impl Fault {
    /// A fault of a class, with its message, which is cut if it is too long. Secrets must be hidden in
    /// it before that, so that no part of one stays.
    pub fn new(class: FaultClass, message: impl Into<String>) -> Self {
        let mut message = message.into();
        cut(&mut message, MAX_MESSAGE);
        Self { class, message }
    }
}

/// Cuts a text to at most so many bytes, and marks that it was cut.
pub fn cut(text: &mut String, limit: usize) {
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
        f.write_str(&self.message)
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
        assert_eq!(fault.message.len(), MAX_MESSAGE - 1, "no half of an é");
        assert!(fault.message.ends_with("é…"));
        let fits = "x".repeat(MAX_MESSAGE);
        assert_eq!(Fault::new(FaultClass::Refused, &*fits).message, fits);
    }
}

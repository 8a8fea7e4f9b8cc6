//! Why a link could not be opened, and why it ended.

use mcpvisor_core::machine::Action;
#[cfg(feature = "http")]
use mcpvisor_core::machine::{PermanentFailure, RenewalFailure};

/// Why a link ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinkDown {
    /// The kind of end.
    pub(crate) kind: DownKind,
    /// A message fragment for people, such as "the process exited with code 3".
    pub(crate) message: String,
}

impl LinkDown {
    pub(crate) fn new(kind: DownKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// Whether the server cannot have received any request.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.kind == DownKind::Unreachable
    }
}

/// How a link ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DownKind {
    /// The process exited.
    Exited,
    /// The process was killed by a signal.
    Killed,
    /// The server closed its side.
    Closed,
    /// The server cannot be reached.
    Unreachable,
    /// Writing to the server failed.
    WriteFailed,
    /// The server violated the transport, for example with an endless line.
    Broken,
    /// The server directs messages to an address that must not be used; no retry helps.
    #[cfg(feature = "http")]
    Misdirected,
}

/// Why a link could not be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenFailure {
    /// Decides whether a retry can help.
    pub(crate) class: OpenFailureClass,
    /// A message fragment for people.
    pub(crate) message: String,
    /// What the user should do about it.
    pub(crate) action: Option<Action>,
}

impl OpenFailure {
    /// A failure that a retry does not help.
    pub(crate) fn new(class: OpenFailureClass, message: impl Into<String>, action: Action) -> Self {
        Self {
            class,
            message: message.into(),
            action: Some(action),
        }
    }

    /// A failure that may pass.
    pub(crate) fn transient(message: String) -> Self {
        Self {
            class: OpenFailureClass::Transient,
            message,
            action: None,
        }
    }
}

#[cfg(feature = "http")]
impl From<RenewalFailure> for OpenFailure {
    fn from(failure: RenewalFailure) -> Self {
        match failure {
            RenewalFailure::Permanent(PermanentFailure { fault, action }) => Self {
                class: OpenFailureClass::Unauthorized,
                message: fault.message,
                action: Some(action),
            },
            RenewalFailure::Transient(fault) => Self::transient(fault.message),
        }
    }
}

/// The kinds of failures to open a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenFailureClass {
    /// The command does not exist.
    CommandNotFound,
    /// The command exists but cannot be run as configured.
    NotExecutable,
    /// The address, a header or a certificate is invalid.
    InvalidAddress,
    /// Credentials are missing.
    Unauthorized,
    /// The stream exists for one connection, which has ended.
    #[cfg(feature = "stream")]
    StreamUsedUp,
    /// A condition that may pass, such as a lack of descriptors or memory.
    Transient,
}

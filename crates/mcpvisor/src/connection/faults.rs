//! Faults of a connection: their class, their text and the stderr of the server.

use mcpvisor_core::machine::{Action, ConnectionEnd, Fault, FaultClass, PermanentFailure};
use mcpvisor_core::retry::RequestFailure;

use crate::link::{DownKind, LinkDown, OpenFailure, OpenFailureClass};
use crate::server::slot::ServerSlot;

/// The end of a connection whose link could not be opened.
pub(super) fn open_failed(failure: OpenFailure, slot: &ServerSlot) -> ConnectionEnd {
    let message = slot.redact(failure.message);
    let class = match failure.class {
        OpenFailureClass::CommandNotFound => FaultClass::CommandNotFound,
        OpenFailureClass::NotExecutable => FaultClass::InvalidCommand,
        OpenFailureClass::InvalidAddress => FaultClass::InvalidAddress,
        OpenFailureClass::Unauthorized => FaultClass::Authorization,
        #[cfg(feature = "stream")]
        OpenFailureClass::StreamUsedUp => FaultClass::ConnectionLost,
        OpenFailureClass::Transient => {
            return ConnectionEnd::Failed {
                fault: Fault::new(FaultClass::ConnectFailed, message),
                retry_after: None,
            };
        }
    };
    ConnectionEnd::Permanent(PermanentFailure {
        fault: Fault::new(class, message),
        action: failure.action.unwrap_or(Action::FixEntry(None)),
    })
}

/// The fault of a link that went down.
pub(super) fn link_down(down: &LinkDown, slot: &ServerSlot) -> Fault {
    let class = match down.kind {
        DownKind::Exited | DownKind::Killed => FaultClass::Exited,
        DownKind::Closed | DownKind::WriteFailed => FaultClass::ConnectionLost,
        DownKind::Unreachable => FaultClass::ConnectFailed,
        DownKind::Broken => FaultClass::Protocol,
        #[cfg(feature = "http")]
        DownKind::Misdirected => FaultClass::InvalidAddress,
    };
    with_stderr(class, &down.message, slot)
}

/// A fault with the tail of the server's stderr, without secrets.
pub(super) fn with_stderr(class: FaultClass, message: &str, slot: &ServerSlot) -> Fault {
    // Redact before the texts are cut, so that no part of a secret remains.
    Fault::new(class, slot.redact(message)).with_stderr(&slot.present_stderr_tail())
}

/// The class of a failed request.
pub(super) fn request_failure_class(failure: RequestFailure, status: Option<u16>) -> FaultClass {
    match failure {
        // The server knows the user and denies access: new credentials are needed here too.
        RequestFailure::Denied if status == Some(403) => FaultClass::Authorization,
        RequestFailure::NotWritten | RequestFailure::ConnectTimedOut => FaultClass::ConnectFailed,
        RequestFailure::ConnectionLost => FaultClass::ConnectionLost,
        RequestFailure::SessionLost => FaultClass::SessionExpired,
        RequestFailure::Unauthorized { .. } | RequestFailure::ScopeNeeded => {
            FaultClass::Authorization
        }
        RequestFailure::Busy { .. } | RequestFailure::ServerFault => FaultClass::ServerFault,
        RequestFailure::Denied => FaultClass::Refused,
    }
}

//! Why a handshake failed, and what that means for the next connect.

use mcpvisor_core::CredentialRevision;
use mcpvisor_core::machine::{Action, ConnectionEnd, Fault, FaultClass, PermanentFailure};
use mcpvisor_core::retry::RequestFailure;
use rmcp::ErrorData;
use rmcp::model::ErrorCode;
use serde_json::Value;

use crate::connection::{era, faults};
#[cfg(feature = "http")]
use crate::link::DownKind;
use crate::link::{FailedRequest, LinkDown};
use crate::server::slot::ServerSlot;

/// What to do about a server that names another origin as its endpoint.
#[cfg(feature = "http")]
const MISDIRECTED: &str =
    "correct \"url\", or the public address in the settings of the server, then reconnect it";

/// Why there is no session.
pub(crate) enum HandshakeError {
    /// The actor closed the connection or has stopped.
    CloseRequested,
    /// The link went down.
    LinkDown(LinkDown),
    /// The link went down on `server/discover`: the server may speak the legacy era.
    OtherEra(LinkDown),
    /// The server answered with an error.
    Refused(ErrorData),
    /// No common version; what is known about the server's versions.
    Incompatible(String),
    /// A handshake request failed without an answer.
    RequestFailed(Box<FailedRequest>),
    /// The server's reply is not a valid one.
    InvalidReply(String),
}

impl HandshakeError {
    pub(super) fn no_answer() -> Self {
        Self::InvalidReply("no answer".to_owned())
    }

    /// The credential that the server refused, if that is why.
    pub(crate) fn refused_credential(&self) -> Option<CredentialRevision> {
        match self {
            Self::RequestFailed(failed) => match failed.failure {
                RequestFailure::Unauthorized { credential } => Some(credential),
                _ => None,
            },
            _ => None,
        }
    }

    /// The end of the connection. The link must be closed, so that all of stderr has been read.
    pub(crate) fn into_end(
        self,
        slot: &ServerSlot,
        close_problem: Option<String>,
    ) -> ConnectionEnd {
        let failed = |class, message: &str| ConnectionEnd::Failed {
            fault: faults::with_stderr(class, message, slot),
            retry_after: None,
        };
        match self {
            Self::CloseRequested => ConnectionEnd::Closed {
                problem: close_problem,
            },
            #[cfg(feature = "http")]
            Self::LinkDown(down) if down.kind == DownKind::Misdirected => {
                ConnectionEnd::Permanent(PermanentFailure {
                    fault: faults::link_down(&down, slot),
                    action: Action::Custom(MISDIRECTED.to_owned()),
                })
            }
            Self::LinkDown(down) => ConnectionEnd::Failed {
                fault: faults::link_down(&down, slot),
                retry_after: None,
            },
            Self::OtherEra(down) => ConnectionEnd::TryOtherEra(faults::link_down(&down, slot)),
            Self::Refused(error) if refuses_version(&error) => {
                incompatible(slot, &format!("it answered {}", offered_versions(&error)))
            }
            Self::Refused(error) => failed(
                FaultClass::Refused,
                &format!(
                    "refused the handshake: {} (code {})",
                    error.message, error.code.0
                ),
            ),
            Self::Incompatible(theirs) => incompatible(slot, &theirs),
            Self::RequestFailed(failed) => request_failed(slot, &failed),
            Self::InvalidReply(problem) => failed(
                FaultClass::Protocol,
                &format!("not an MCP server: {problem}"),
            ),
        }
    }
}

/// The end of a connection whose link is up but could not deliver a handshake request.
fn request_failed(slot: &ServerSlot, failed: &FailedRequest) -> ConnectionEnd {
    let fault = |class| faults::with_stderr(class, &failed.message, slot);
    #[cfg(feature = "http")]
    if matches!(failed.failure, RequestFailure::Unauthorized { .. }) || failed.status == Some(403) {
        let message = slot.redact(&failed.message).into_owned();
        return ConnectionEnd::Permanent(slot.auth().authorization_needed(message));
    }
    let retry_after = match failed.failure {
        // The reconnect budget caps it.
        RequestFailure::Busy { retry_after } => retry_after,
        _ => None,
    };
    ConnectionEnd::Failed {
        fault: fault(FaultClass::ConnectFailed),
        retry_after,
    }
}

/// Whether the server refused the protocol version: by the code of the modern era, or by naming the
/// versions that it supports, as older ones do.
fn refuses_version(error: &ErrorData) -> bool {
    let supported = error.data.as_ref().and_then(|data| data.get("supported"));
    error.code == ErrorCode::UNSUPPORTED_PROTOCOL_VERSION || supported.is_some_and(Value::is_array)
}

/// The text of a refusal, with the versions that it names.
fn offered_versions(error: &ErrorData) -> String {
    let supported = error.data.as_ref().and_then(|data| data.get("supported"));
    match supported {
        Some(versions) => format!("{:?} and speaks {versions}", error.message),
        None => format!("{:?}", error.message),
    }
}

fn incompatible(slot: &ServerSlot, theirs: &str) -> ConnectionEnd {
    let theirs = slot.redact(theirs);
    let (ours, action) = match &slot.config().protocol {
        Some(pinned) => (
            format!("its config requires {pinned}"),
            Action::ChangeProtocol,
        ),
        None => (
            format!("we speak {}", era::join_versions(&era::our_versions())),
            Action::UpdateServer,
        ),
    };
    ConnectionEnd::Permanent(PermanentFailure {
        fault: Fault::new(
            FaultClass::IncompatibleVersion,
            format!("no protocol version in common: {theirs}, {ours}"),
        ),
        action,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_refused_version_is_recognised_by_code_or_data_and_never_by_its_text() {
        let error = |code, data| ErrorData::new(ErrorCode(code), "protocol version", data);
        let versions = json!({ "supported": ["2024-11-05"] });
        assert!(refuses_version(&error(-32022, None)));
        assert!(refuses_version(&error(-32602, Some(versions))));
        assert!(!refuses_version(&error(-32602, None)));
    }
}

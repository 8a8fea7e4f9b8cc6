//! Why a handshake led to no session, and what that means for the next connect.

use mcpvisor_core::machine::{Action, ConnectionEnd, Fault, FaultClass, PermanentFailure};
use mcpvisor_core::retry::RequestFailure;
use rmcp::ErrorData;

use super::{Task, era, fault_with_stderr};
use crate::link::LinkDown;

/// Why there is no session.
pub(super) enum Stop {
    /// The actor wants it closed, or is gone.
    Asked,
    /// The link broke.
    Down(LinkDown),
    /// The link broke on the question for the modern era.
    OtherEra(LinkDown),
    /// The server refused.
    Refused(ErrorData),
    /// There is no version in common; what is known of the server's.
    Incompatible(String),
    /// The handshake met trouble on the way.
    Failed {
        trouble: RequestFailure,
        status: Option<u16>,
        message: String,
    },
    /// The answer makes no sense.
    Nonsense(String),
}

impl Stop {
    /// The end of the connection, once the link is closed and its stderr was read.
    pub(super) fn into_end(self, task: &Task, problem: Option<String>) -> ConnectionEnd {
        let failed = |class, message: &str| ConnectionEnd::Failed {
            fault: fault_with_stderr(class, message, &task.slot),
            retry_after: None,
        };
        match self {
            Self::Asked => ConnectionEnd::Closed { problem },
            Self::Down(down) => ConnectionEnd::Failed {
                fault: task.fault_of(&down),
                retry_after: None,
            },
            Self::OtherEra(down) => ConnectionEnd::TryOtherEra(task.fault_of(&down)),
            Self::Refused(error) if speaks_of_version(&error) => {
                incompatible(task, &format!("it answered {}", offered(&error)))
            }
            Self::Refused(error) => failed(
                FaultClass::Refused,
                &format!(
                    "refused the handshake: {} (code {})",
                    error.message, error.code.0
                ),
            ),
            Self::Incompatible(theirs) => incompatible(task, &theirs),
            Self::Failed {
                trouble,
                status,
                message,
            } => trouble_at_the_door(task, trouble, status, &message),
            Self::Nonsense(problem) => failed(
                FaultClass::Protocol,
                &format!("not an MCP server: {problem}"),
            ),
        }
    }
}

/// What a transport that lives makes of a handshake that it could not finish.
fn trouble_at_the_door(
    task: &Task,
    trouble: RequestFailure,
    status: Option<u16>,
    message: &str,
) -> ConnectionEnd {
    let fault = |class| fault_with_stderr(class, message, &task.slot);
    let unauthorized = trouble == RequestFailure::Unauthorized || status == Some(403);
    if unauthorized {
        return ConnectionEnd::Permanent(PermanentFailure {
            fault: fault(FaultClass::Unauthorized),
            action: Action::Authorize,
        });
    }
    let retry_after = match trouble {
        // How much of it is honoured is for the budget to say.
        RequestFailure::Busy { retry_after } => retry_after,
        _ => None,
    };
    ConnectionEnd::Failed {
        fault: fault(FaultClass::ConnectFailed),
        retry_after,
    }
}

fn speaks_of_version(error: &ErrorData) -> bool {
    error
        .message
        .to_ascii_lowercase()
        .contains("protocol version")
}

/// What a refusal says of the server's own versions.
fn offered(error: &ErrorData) -> String {
    let supported = error.data.as_ref().and_then(|data| data.get("supported"));
    match supported {
        Some(versions) => format!("{:?} and speaks {versions}", error.message),
        None => format!("{:?}", error.message),
    }
}

fn incompatible(task: &Task, theirs: &str) -> ConnectionEnd {
    let theirs = task.slot.redact(theirs);
    let (ours, action) = match &task.slot.config().protocol {
        Some(pinned) => (
            format!("its config wants {pinned} alone"),
            Action::ChangeProtocol,
        ),
        None => (
            format!("we speak {}", era::names(&era::spoken())),
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

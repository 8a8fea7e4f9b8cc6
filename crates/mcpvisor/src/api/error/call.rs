//! The error of a request.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mcpvisor_core::ServerName;
use mcpvisor_core::glob::FilterRejection;
use mcpvisor_core::machine::{Action, Fault, FaultClass, NotSent, summarize_stderr};
use mcpvisor_core::retry::Known;
use rmcp::ErrorData;
use rmcp::model::CallToolResult;

use super::busy::{BusyLimit, when};
use super::join;

/// Why a request has no result.
///
/// ```
/// use mcpvisor::{CallError, Known};
///
/// fn is_safe_to_retry(error: &CallError) -> bool {
///     // Nothing ran: the server never saw the request, or refused it before running it.
///     matches!(error.known(), Known::NotSent | Known::Refused)
/// }
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The server never saw the request.
    #[error("{server}: not sent: {reason}")]
    NotSent {
        /// Which server.
        server: ServerName,
        /// Why, and what to do about it.
        reason: NotSentReason,
    },
    /// A limit of the server's queue or of the client's quota is reached; nothing was sent.
    #[error("{server}: busy: {limit}; try again {}{}", when(*.retry_in), limit.remedy())]
    Busy {
        /// Which server.
        server: ServerName,
        /// Which limit.
        limit: BusyLimit,
        /// The time after which a retry is likely to be admitted, if it can be estimated.
        retry_in: Option<Duration>,
    },
    /// The request was sent and its reply was lost: it may or may not have run.
    #[error(
        "{server}: {method} was sent, but its outcome is unknown: {cause}{}; check whether it took effect before retrying",
        summarize_stderr(.stderr.as_deref())
    )]
    OutcomeUnknown {
        /// Which server.
        server: ServerName,
        /// Which request.
        method: Arc<str>,
        /// What happened to the connection.
        cause: String,
        /// The tail of the server's stderr: [`CallError::stderr`].
        stderr: Option<Arc<str>>,
    },
    /// The server rejected the request before running it.
    #[error("{server}: refused {method}: {cause}{}{}", try_again(*.retry_in), summarize_stderr(.stderr.as_deref()))]
    Refused {
        /// Which server.
        server: ServerName,
        /// Which request.
        method: Arc<str>,
        /// What kind of refusal: [`FaultClass::Authorization`] if a person has to authorize first.
        class: FaultClass,
        /// The server's reason.
        cause: String,
        /// The tail of the server's stderr: [`CallError::stderr`].
        stderr: Option<Arc<str>>,
        /// The scopes that a login has to request, if the server named them (403
        /// `insufficient_scope`).
        scopes: Vec<String>,
        /// When a retry may help, if nothing has to be done before: the issuer could not renew the
        /// login for now.
        retry_in: Option<Duration>,
    },
    /// The deadline or the idle timeout passed. If the request was sent, it was cancelled at the
    /// server and its outcome is unknown.
    #[error("{server}: {method} {} {after:?}; {}", if *idle { "was silent for" } else { "did not finish within" }, whether_sent(*sent, .cause.as_deref(), .stderr.as_deref()))]
    Deadline {
        /// Which server.
        server: ServerName,
        /// Which request.
        method: Arc<str>,
        /// The deadline or the idle timeout that passed.
        after: Duration,
        /// Whether any of it may have reached the server.
        sent: bool,
        /// Nothing arrived for the idle timeout, though the deadline had not passed.
        idle: bool,
        /// Why it was not sent, if known.
        cause: Option<String>,
        /// The tail of the server's stderr, if it was not sent: [`CallError::stderr`].
        stderr: Option<Arc<str>>,
    },
    /// The caller cancelled it.
    #[error("{server}: {method} was cancelled by its caller")]
    Cancelled {
        /// Which server.
        server: ServerName,
        /// Which request.
        method: Arc<str>,
    },
    /// The server answered with a JSON-RPC error.
    #[error("{server}: {method} failed: {} (code {})", error.message, error.code.0)]
    Answered {
        /// Which server.
        server: ServerName,
        /// Which request.
        method: Arc<str>,
        /// The server's error.
        error: ErrorData,
    },
    /// The server answered, but the reply cannot be read.
    #[error("{server}: invalid reply to {method}: {problem}; the request did run")]
    Unreadable {
        /// Which server.
        server: ServerName,
        /// Which request.
        method: Arc<str>,
        /// What is wrong with the reply.
        problem: String,
    },
    /// The server requested input that was not provided.
    #[error("{server}: {method} needs input: {problem}")]
    InputRequired {
        /// Which server.
        server: ServerName,
        /// Which request.
        method: Arc<str>,
        /// Which input, and why it was not provided.
        problem: String,
    },
    /// The tool's definition changed across a reconnect, so the call was not retried.
    #[error(
        "{server}: the tool {tool} changed across a reconnect; {}, and it was not retried",
        first_call(*.known)
    )]
    ToolChanged {
        /// Which server.
        server: ServerName,
        /// Which tool.
        tool: String,
        /// What is known about the first attempt.
        known: Known,
    },
    /// The tool is gone after a reconnect, so the call was not retried.
    #[error(
        "{server}: the tool {tool} no longer exists after a reconnect; {}",
        first_call(*.known)
    )]
    ToolGone {
        /// Which server.
        server: ServerName,
        /// Which tool.
        tool: String,
        /// What is known about the first attempt.
        known: Known,
    },
    /// The server does not know the task, or not any more, so the outcome of its call is unknown.
    #[error("{server}: the server does not know task {task}; check whether its call took effect")]
    TaskUnknown {
        /// Which server.
        server: ServerName,
        /// The id of the task.
        task: String,
    },
    /// The task was cancelled at the server before it ended; what it did until then is unknown.
    #[error("{server}: task {task} was cancelled at the server{}", detail(.message.as_deref()))]
    TaskCancelled {
        /// Which server.
        server: ServerName,
        /// The id of the task.
        task: String,
        /// The server's text about it.
        message: Option<String>,
    },
    /// The server runs the task, but its status cannot be read, so the outcome is unknown.
    #[error("{server}: the outcome of task {task} is unknown: {cause}")]
    TaskUnreachable {
        /// Which server.
        server: ServerName,
        /// The id of the task.
        task: String,
        /// Why the status cannot be read.
        #[source]
        cause: Box<CallError>,
    },
    /// The protocol does not allow this request; nothing was sent.
    #[error("{server}: {problem}")]
    InvalidRequest {
        /// Which server.
        server: ServerName,
        /// What is wrong with the request.
        problem: String,
    },
    /// The arguments do not match the tool's schema; nothing was sent.
    #[error("{server}: invalid arguments of {tool}: {}", join(.problems, "; "))]
    InvalidArguments {
        /// Which server.
        server: ServerName,
        /// Which tool.
        tool: String,
        /// What is wrong, field by field.
        problems: Vec<SchemaProblem>,
    },
    /// The tool ran, but its result does not match its output schema, and the config says
    /// [`ResultCheck::Fail`](crate::ResultCheck::Fail). [`CallError::result`] has the result.
    #[error(
        "{server}: {tool} ran, but its result does not match its output schema: {}; fix the server, or set checkResults to \"warn\"",
        join(.problems, "; ")
    )]
    InvalidResult {
        /// Which server.
        server: ServerName,
        /// Which tool.
        tool: String,
        /// What is wrong, field by field.
        problems: Vec<SchemaProblem>,
        /// The result, as the server sent it.
        result: Box<CallToolResult>,
    },
    /// A filter hides the tool from the caller; nothing was sent.
    #[error("{server}: the tool {tool} is hidden {reason}; change the filter")]
    ToolHidden {
        /// Which server.
        server: ServerName,
        /// Which tool.
        tool: String,
        /// Which filter hides it, and how.
        reason: String,
    },
    /// The tool needs a person's approval; nothing was sent.
    #[error(
        "{server}: the tool {tool} is held back: {reason}; {}",
        Action::ApproveTool
    )]
    HeldBack {
        /// Which server.
        server: ServerName,
        /// Which tool.
        tool: String,
        /// Why.
        reason: String,
    },
    /// The runtime has ended; nothing was sent.
    #[error("{server}: the runtime has shut down; start a new one")]
    RuntimeGone {
        /// Which server.
        server: ServerName,
    },
}

/// What is wrong with one field of a call's arguments or of its structured result.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchemaProblem {
    /// The field, as a JSON pointer; empty for the value as a whole.
    pub field: String,
    /// What is wrong with it, without its value.
    pub problem: String,
}

impl fmt::Display for SchemaProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_str() {
            "" => f.write_str(&self.problem),
            field => write!(f, "{field}: {}", self.problem),
        }
    }
}

/// Why a request was not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotSentReason {
    /// The server is disabled.
    Disabled,
    /// The server or the runtime is shutting down.
    Stopping,
    /// The server was removed.
    Removed,
    /// The client was closed, or cancelled its requests, before it was sent.
    ClientClosed,
    /// A person has to act first.
    Failed {
        /// What is wrong.
        fault: String,
        /// What to do about it.
        action: Action,
        /// The tail of the server's stderr.
        stderr: Option<Arc<str>>,
    },
    /// The reconnect budget is spent, and the last attempt failed too.
    Parked(Option<Fault>),
    /// The connection was not restored in time.
    NoConnection(Option<Fault>),
    /// The server does not read its input, and the send buffer is full.
    NotRead,
    /// The actor of the server crashed while the request was queued.
    ActorRestarted,
}

impl NotSentReason {
    /// The cause, without advice.
    pub fn cause(&self) -> String {
        match self {
            Self::Disabled => "the server is disabled".to_owned(),
            Self::Stopping => "the server is shutting down".to_owned(),
            Self::Removed => "the server was removed".to_owned(),
            Self::ClientClosed => "its client was closed or cancelled it".to_owned(),
            Self::Failed { fault, stderr, .. } => {
                format!("{fault}{}", summarize_stderr(stderr.as_deref()))
            }
            Self::Parked(fault) => {
                let cause = cause(fault.as_ref());
                format!("the server is disconnected after too many failed connects{cause}")
            }
            Self::NoConnection(fault) => format!("no connection in time{}", cause(fault.as_ref())),
            Self::NotRead => {
                "the server does not read its input, and the send buffer is full".to_owned()
            }
            Self::ActorRestarted => {
                "the server's actor restarted while the request was queued".to_owned()
            }
        }
    }

    /// What a person should do about it.
    pub fn action(&self) -> Option<Action> {
        match self {
            Self::Disabled => Some(Action::Enable),
            Self::Stopping | Self::ClientClosed => None,
            Self::Removed => Some(Action::AddServer),
            Self::Failed { action, .. } => Some(action.clone()),
            Self::Parked(_) => Some(Action::FixServer),
            Self::NoConnection(_) | Self::ActorRestarted => Some(Action::Retry),
            Self::NotRead => Some(Action::RetryLater),
        }
    }
}

impl fmt::Display for NotSentReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause())?;
        match self.action() {
            Some(action) => write!(f, "; {action}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for NotSentReason {}

/// What is known about the first attempt of a call that is not retried.
fn first_call(known: Known) -> &'static str {
    match known {
        Known::NotSent => "the call was not sent",
        Known::Unknown => "the outcome of the first attempt is unknown",
        Known::Refused => "the first attempt was rejected before it ran",
        Known::Answered => "the first attempt was answered",
    }
}

fn whether_sent(sent: bool, cause: Option<&str>, stderr: Option<&str>) -> String {
    match (sent, cause) {
        (true, _) => "it was sent, so it may have taken effect".to_owned(),
        (false, None) => "it was not sent".to_owned(),
        (false, Some(cause)) => format!("it was not sent: {cause}{}", summarize_stderr(stderr)),
    }
}

fn try_again(retry_in: Option<Duration>) -> String {
    retry_in.map_or_else(String::new, |retry_in| {
        format!("; try again in {} s", retry_in.as_secs().max(1))
    })
}

fn detail(text: Option<&str>) -> String {
    text.map_or_else(String::new, |text| format!(": {text}"))
}

fn cause(fault: Option<&Fault>) -> String {
    fault.map_or_else(String::new, |fault| format!(": {fault}"))
}

impl CallError {
    /// The error for a tool that a filter hides.
    pub(super) fn not_sent(server: ServerName, reason: NotSentReason) -> Self {
        Self::NotSent { server, reason }
    }

    pub(crate) fn hidden(
        server: ServerName,
        tool: impl Into<String>,
        whose: &str,
        hidden: &FilterRejection,
    ) -> Self {
        Self::ToolHidden {
            server,
            tool: tool.into(),
            reason: format!("by the filter of {whose}, {hidden}"),
        }
    }

    /// What is known about the request.
    pub fn known(&self) -> Known {
        match self {
            Self::NotSent { .. }
            | Self::Busy { .. }
            | Self::InvalidRequest { .. }
            | Self::InvalidArguments { .. }
            | Self::ToolHidden { .. }
            | Self::HeldBack { .. }
            | Self::RuntimeGone { .. }
            | Self::Deadline { sent: false, .. } => Known::NotSent,
            Self::OutcomeUnknown { .. }
            | Self::Deadline { sent: true, .. }
            | Self::Cancelled { .. }
            | Self::TaskUnknown { .. }
            | Self::TaskCancelled { .. }
            | Self::TaskUnreachable { .. } => Known::Unknown,
            Self::ToolChanged { known, .. } | Self::ToolGone { known, .. } => *known,
            Self::Refused { .. } => Known::Refused,
            Self::Answered { .. }
            | Self::Unreadable { .. }
            | Self::InvalidResult { .. }
            | Self::InputRequired { .. } => Known::Answered,
        }
    }

    /// What a person should do about it, if that is more than the text says.
    pub fn action(&self) -> Option<Action> {
        match self {
            Self::NotSent { reason, .. } => reason.action(),
            Self::HeldBack { .. } => Some(Action::ApproveTool),
            Self::Refused {
                retry_in: Some(_), ..
            } => Some(Action::RetryLater),
            Self::Refused {
                class: FaultClass::Authorization,
                ..
            } => Some(Action::Authorize),
            Self::TaskUnreachable { cause, .. } => cause.action(),
            _ => None,
        }
    }

    /// The server that the request was for.
    pub fn server(&self) -> &ServerName {
        match self {
            Self::NotSent { server, .. }
            | Self::Busy { server, .. }
            | Self::OutcomeUnknown { server, .. }
            | Self::Refused { server, .. }
            | Self::Deadline { server, .. }
            | Self::Cancelled { server, .. }
            | Self::Answered { server, .. }
            | Self::Unreadable { server, .. }
            | Self::InputRequired { server, .. }
            | Self::ToolChanged { server, .. }
            | Self::ToolGone { server, .. }
            | Self::TaskUnknown { server, .. }
            | Self::TaskCancelled { server, .. }
            | Self::TaskUnreachable { server, .. }
            | Self::InvalidRequest { server, .. }
            | Self::InvalidArguments { server, .. }
            | Self::InvalidResult { server, .. }
            | Self::ToolHidden { server, .. }
            | Self::HeldBack { server, .. }
            | Self::RuntimeGone { server } => server,
        }
    }

    /// The tail of the server's stderr before it failed: at most 2 KiB, with the secrets of its
    /// config redacted. `None` if stderr is unrelated to the error. The error's text repeats the
    /// last lines; [`ServerHandle::stderr_tail`](crate::ServerHandle::stderr_tail) has more.
    pub fn stderr(&self) -> Option<&str> {
        match self {
            Self::OutcomeUnknown { stderr, .. }
            | Self::Refused { stderr, .. }
            | Self::Deadline { stderr, .. } => stderr.as_deref(),
            Self::NotSent { reason, .. } => reason.stderr(),
            Self::TaskUnreachable { cause, .. } => cause.stderr(),
            _ => None,
        }
    }

    /// The result of a tool that ran, if the error is only that the result does not match the
    /// tool's output schema.
    pub fn result(&self) -> Option<&CallToolResult> {
        match self {
            Self::InvalidResult { result, .. } => Some(result),
            _ => None,
        }
    }

    /// The error code, as in the JSON output of the command line.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotSent { .. } => "not_sent",
            Self::Busy { .. } => "busy",
            Self::OutcomeUnknown { .. } => "outcome_unknown",
            Self::Refused { .. } => "refused",
            Self::Deadline { .. } => "deadline",
            Self::Cancelled { .. } => "cancelled",
            Self::Answered { .. } => "answered_with_error",
            Self::Unreadable { .. } => "unreadable_reply",
            Self::InputRequired { .. } => "input_required",
            Self::ToolChanged { .. } => "tool_changed",
            Self::ToolGone { .. } => "tool_gone",
            Self::TaskUnknown { .. } => "task_unknown",
            Self::TaskCancelled { .. } => "task_cancelled",
            Self::TaskUnreachable { .. } => "task_unreachable",
            Self::InvalidRequest { .. } => "invalid_request",
            Self::InvalidArguments { .. } => "invalid_arguments",
            Self::InvalidResult { .. } => "invalid_result",
            Self::ToolHidden { .. } => "tool_hidden",
            Self::HeldBack { .. } => "held_back",
            Self::RuntimeGone { .. } => "runtime_gone",
        }
    }
}

impl NotSentReason {
    fn stderr(&self) -> Option<&str> {
        match self {
            Self::Failed { stderr, .. } => stderr.as_deref(),
            Self::Parked(fault) | Self::NoConnection(fault) => fault.as_ref()?.stderr.as_deref(),
            _ => None,
        }
    }
}

impl From<NotSent> for NotSentReason {
    fn from(reason: NotSent) -> Self {
        match reason {
            NotSent::Disabled => Self::Disabled,
            NotSent::Stopping => Self::Stopping,
            NotSent::Failed(failure) => Self::Failed {
                fault: failure.fault.message,
                action: failure.action,
                stderr: failure.fault.stderr,
            },
            NotSent::Parked(fault) => Self::Parked(fault),
            NotSent::NoConnection(fault) => Self::NoConnection(fault),
        }
    }
}

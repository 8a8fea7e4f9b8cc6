//! What a caller is told when its request has no result.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mcpvisor_core::ServerName;
use mcpvisor_core::glob::FilterRejection;
use mcpvisor_core::machine::{Fault, FaultClass, NotSent, Outcome, summarize_stderr};
use mcpvisor_core::retry::Known;
use rmcp::ErrorData;

use crate::api::reply::Failure;

/// Why a request has no result.
///
/// ```
/// use mcpvisor::{CallError, Known};
///
/// fn may_ask_again(error: &CallError) -> bool {
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
    /// Too many calls run and wait at this server already; nothing was sent.
    #[error(
        "{server}: busy: {limit} calls run or wait already; try again later, or raise limits.waiting"
    )]
    Busy {
        /// Which server.
        server: ServerName,
        /// How many calls may run and wait.
        limit: usize,
    },
    /// The request was sent and its answer is lost: it may or may not have run.
    #[error(
        "{server}: {method} was sent, but its outcome is unknown: {cause}{}; check whether it took effect before asking again",
        summarize_stderr(.stderr.as_deref())
    )]
    OutcomeUnknown {
        /// Which server.
        server: ServerName,
        /// Which request.
        method: &'static str,
        /// What happened to the connection.
        cause: String,
        /// The end of what the server wrote on stderr: [`CallError::stderr`].
        stderr: Option<Arc<str>>,
    },
    /// The server refused the request before running it.
    #[error("{server}: refused {method}: {cause}{}", summarize_stderr(.stderr.as_deref()))]
    Refused {
        /// Which server.
        server: ServerName,
        /// Which request.
        method: &'static str,
        /// What kind of refusal: [`FaultClass::Unauthorized`] if a person has to authorize first.
        class: FaultClass,
        /// What the server said.
        cause: String,
        /// The end of what the server wrote on stderr: [`CallError::stderr`].
        stderr: Option<Arc<str>>,
    },
    /// The time was up. If it was sent, the server was told to stop and its outcome is unknown.
    #[error("{server}: {method} {} {after:?}; {}", if *idle { "was silent for" } else { "did not finish within" }, whether_sent(*sent, .cause.as_deref(), .stderr.as_deref()))]
    Deadline {
        /// Which server.
        server: ServerName,
        /// Which request.
        method: &'static str,
        /// The deadline or the idle timeout that passed.
        after: Duration,
        /// Whether any of it may have reached the server.
        sent: bool,
        /// Nothing arrived for the idle timeout, though the deadline had not passed.
        idle: bool,
        /// What kept it from being sent, as far as it is known.
        cause: Option<String>,
        /// The end of what the server wrote on stderr, if that kept it: [`CallError::stderr`].
        stderr: Option<Arc<str>>,
    },
    /// The caller gave it up.
    #[error("{server}: {method} was cancelled by its caller")]
    Cancelled {
        /// Which server.
        server: ServerName,
        /// Which request.
        method: &'static str,
    },
    /// The server answered with a JSON-RPC error.
    #[error("{server}: {method} failed: {} (code {})", error.message, error.code.0)]
    Answered {
        /// Which server.
        server: ServerName,
        /// Which request.
        method: &'static str,
        /// The server's error.
        error: ErrorData,
    },
    /// The server answered, but the reply cannot be read.
    #[error("{server}: the reply to {method} cannot be read: {problem}; it did run")]
    Unreadable {
        /// Which server.
        server: ServerName,
        /// Which request.
        method: &'static str,
        /// What is wrong with the reply.
        problem: String,
    },
    /// The server answered with a question, and did not get what it asked for.
    #[error("{server}: {method} did not finish, because the server needs input: {problem}")]
    InputRequired {
        /// Which server.
        server: ServerName,
        /// Which request.
        method: &'static str,
        /// What it needs, and why it did not get it.
        problem: String,
    },
    /// The tool's definition changed in a reconnect, so the call was not repeated.
    #[error(
        "{server}: the tool {tool} changed while the connection was replaced; {}, and it was not repeated",
        first_call(*.known)
    )]
    ToolChanged {
        /// Which server.
        server: ServerName,
        /// Which tool.
        tool: String,
        /// What is known of the call from when it was sent.
        known: Known,
    },
    /// The tool is gone after a reconnect, so the call was not repeated.
    #[error(
        "{server}: the tool {tool} no longer exists after the connection was replaced; {}",
        first_call(*.known)
    )]
    ToolGone {
        /// Which server.
        server: ServerName,
        /// Which tool.
        tool: String,
        /// What is known of the call from when it was sent.
        known: Known,
    },
    /// The arguments are not what the protocol allows; nothing was sent.
    #[error("{server}: {problem}")]
    InvalidRequest {
        /// Which server.
        server: ServerName,
        /// What is wrong with the request.
        problem: String,
    },
    /// The arguments do not fit the schema of the tool; nothing was sent.
    #[error("{server}: the arguments of {tool} do not fit: {}", list(.problems))]
    InvalidArguments {
        /// Which server.
        server: ServerName,
        /// Which tool.
        tool: String,
        /// What is wrong, field by field.
        problems: Vec<ArgumentProblem>,
    },
    /// A filter hides the tool from the caller; nothing was sent.
    #[error(
        "{server}: the tool {tool} was not called: {reason}; change the filter, or call another"
    )]
    ToolHidden {
        /// Which server.
        server: ServerName,
        /// Which tool.
        tool: String,
        /// Whose filter hides it, and how.
        reason: String,
    },
    /// The tool waits for the approval of a person; nothing was sent.
    #[error(
        "{server}: the tool {tool} is held back: {reason}; look at it, then: mcpvisor approve {server} {tool}"
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

/// What is wrong with one argument.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArgumentProblem {
    /// The field, as a JSON pointer; empty for the arguments as a whole.
    pub field: String,
    /// What is wrong with it, without its value.
    pub problem: String,
}

impl fmt::Display for ArgumentProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_str() {
            "" => f.write_str(&self.problem),
            field => write!(f, "{field}: {}", self.problem),
        }
    }
}

/// Why a request was not sent, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotSentReason {
    /// The server is switched off.
    #[error("the server is disabled; enable it first")]
    Disabled,
    /// The server or the runtime is being shut down.
    #[error("the server is shutting down")]
    Stopping,
    /// The server was removed.
    #[error("the server was removed; take a new handle after adding it again")]
    Removed,
    /// A person has to act first.
    #[error("{fault}{}; {action}", summarize_stderr(.stderr.as_deref()))]
    Failed {
        /// What is wrong.
        fault: String,
        /// What to do about it.
        action: String,
        /// The end of what the server wrote on stderr.
        stderr: Option<Arc<str>>,
    },
    /// The reconnect budget is spent and the last try failed too.
    #[error("the server is disconnected after too many failed connects{}; mend it, then call again or reconnect it", cause(.0.as_ref()))]
    Parked(Option<Fault>),
    /// The connection did not come back in time.
    #[error("no connection in time{}; try again, or see the server's status", cause(.0.as_ref()))]
    NoConnection(Option<Fault>),
    /// The server does not read what is sent to it, and so much waits for it that there is no room for
    /// more.
    #[error(
        "the server does not read what is sent to it, and there is no room for more; try again later, or reconnect it"
    )]
    NotRead,
    /// The actor of the server crashed while the request waited.
    #[error("the server's actor restarted while the request waited; ask again")]
    ActorRestarted,
}

fn list(problems: &[ArgumentProblem]) -> String {
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    problems.join("; ")
}

/// What became of a call that is not repeated.
fn first_call(known: Known) -> &'static str {
    match known {
        Known::NotSent => "the call was not sent",
        Known::Unknown => "the first call's outcome is unknown",
        Known::Refused => "the first call was refused before it ran",
        Known::Answered => "the first call was answered",
    }
}

fn whether_sent(sent: bool, cause: Option<&str>, stderr: Option<&str>) -> String {
    match (sent, cause) {
        (true, _) => "it was sent, so it may have taken effect".to_owned(),
        (false, None) => "it was not sent".to_owned(),
        (false, Some(cause)) => format!("it was not sent: {cause}{}", summarize_stderr(stderr)),
    }
}

fn cause(fault: Option<&Fault>) -> String {
    fault.map_or_else(String::new, |fault| format!(": {fault}"))
}

impl CallError {
    /// A tool that somebody's filter hides.
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
            | Self::Cancelled { .. } => Known::Unknown,
            Self::ToolChanged { known, .. } | Self::ToolGone { known, .. } => *known,
            Self::Refused { .. } => Known::Refused,
            Self::Answered { .. } | Self::Unreadable { .. } | Self::InputRequired { .. } => {
                Known::Answered
            }
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
            | Self::InvalidRequest { server, .. }
            | Self::InvalidArguments { server, .. }
            | Self::ToolHidden { server, .. }
            | Self::HeldBack { server, .. }
            | Self::RuntimeGone { server } => server,
        }
    }

    /// The end of what the server wrote on stderr before it failed, at most 2 KiB, without the secrets of
    /// its config; none if nothing of it bears on the error. The text of the error repeats its last
    /// lines; [`ServerHandle::stderr_tail`](crate::ServerHandle::stderr_tail) has more.
    pub fn stderr(&self) -> Option<&str> {
        let stderr = match self {
            Self::OutcomeUnknown { stderr, .. }
            | Self::Refused { stderr, .. }
            | Self::Deadline { stderr, .. } => stderr,
            Self::NotSent { reason, .. } => return reason.stderr(),
            Self::Busy { .. }
            | Self::Cancelled { .. }
            | Self::Answered { .. }
            | Self::Unreadable { .. }
            | Self::InputRequired { .. }
            | Self::ToolChanged { .. }
            | Self::ToolGone { .. }
            | Self::InvalidRequest { .. }
            | Self::InvalidArguments { .. }
            | Self::ToolHidden { .. }
            | Self::HeldBack { .. }
            | Self::RuntimeGone { .. } => return None,
        };
        stderr.as_deref()
    }

    /// One word for this error, as the command line's JSON spells it.
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
            Self::InvalidRequest { .. } => "invalid_request",
            Self::InvalidArguments { .. } => "invalid_arguments",
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
            Self::Disabled
            | Self::Stopping
            | Self::Removed
            | Self::NotRead
            | Self::ActorRestarted => None,
        }
    }
}

/// What a caller asked, as far as its error needs to say it.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) server: ServerName,
    pub(crate) method: &'static str,
    pub(crate) tool: Option<String>,
    pub(crate) deadline: Duration,
    pub(crate) idle: Duration,
    pub(crate) limit: usize,
    /// What keeps requests from being sent to the server at the moment.
    pub(crate) obstacle: Option<Obstacle>,
}

/// What keeps requests from being sent, in the words of an error.
#[derive(Debug, Clone)]
pub(crate) struct Obstacle {
    pub(crate) cause: String,
    pub(crate) stderr: Option<Arc<str>>,
}

impl Asked {
    /// Puts a failure into words.
    pub(crate) fn error(self, failure: Failure) -> CallError {
        let Self { server, method, .. } = self;
        match failure {
            Failure::Outcome(Outcome::NotSent(reason)) => CallError::NotSent {
                server,
                reason: reason.into(),
            },
            Failure::Outcome(Outcome::Busy) => CallError::Busy {
                server,
                limit: self.limit,
            },
            Failure::Outcome(Outcome::Unknown(fault)) => CallError::OutcomeUnknown {
                server,
                method,
                cause: fault.message,
                stderr: fault.stderr,
            },
            Failure::Outcome(Outcome::Refused(fault)) => CallError::Refused {
                server,
                method,
                class: fault.class,
                cause: fault.message,
                stderr: fault.stderr,
            },
            Failure::Outcome(Outcome::Answered(fault)) => CallError::Unreadable {
                server,
                method,
                problem: fault.message,
            },
            Failure::Outcome(Outcome::Deadline { sent, idle }) => {
                let obstacle = self.obstacle.filter(|_| !sent);
                let (cause, stderr) = obstacle.map(|it| (it.cause, it.stderr)).unzip();
                CallError::Deadline {
                    server,
                    method,
                    after: if idle { self.idle } else { self.deadline },
                    sent,
                    idle,
                    cause,
                    stderr: stderr.flatten(),
                }
            }
            Failure::Outcome(Outcome::Cancelled) => CallError::Cancelled { server, method },
            Failure::Error(error) => CallError::Answered {
                server,
                method,
                error,
            },
            Failure::Unreadable(problem) => CallError::Unreadable {
                server,
                method,
                problem,
            },
            Failure::NoInput(problem) => CallError::InputRequired {
                server,
                method,
                problem,
            },
            Failure::Invalid(problem) => CallError::InvalidRequest { server, problem },
            Failure::Hidden(whose, hidden) => {
                CallError::hidden(server, self.tool.unwrap_or_default(), whose, &hidden)
            }
            #[cfg(feature = "schema-check")]
            Failure::InvalidArguments(problems) => CallError::InvalidArguments {
                server,
                tool: self.tool.unwrap_or_default(),
                problems,
            },
            Failure::HeldBack(reason) => CallError::HeldBack {
                server,
                tool: self.tool.unwrap_or_default(),
                reason,
            },
            Failure::ToolChanged(known) => CallError::ToolChanged {
                server,
                tool: self.tool.unwrap_or_default(),
                known,
            },
            Failure::ToolGone(known) => CallError::ToolGone {
                server,
                tool: self.tool.unwrap_or_default(),
                known,
            },
            Failure::NoRoom => CallError::NotSent {
                server,
                reason: NotSentReason::NotRead,
            },
            Failure::ActorGone => CallError::NotSent {
                server,
                reason: NotSentReason::ActorRestarted,
            },
            Failure::Removed => CallError::NotSent {
                server,
                reason: NotSentReason::Removed,
            },
            Failure::RuntimeGone => CallError::RuntimeGone { server },
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

//! Why a command failed: the exit code, and the message.

use std::fmt::Display;

use mcpvisor::config::{ConfigError, ConfigProblem};
use mcpvisor::{Action, CallError, Fault, FaultClass, Known, ServerStatus, raw_definition};
use serde::Serialize;
use serde_json::Value;

use crate::exit::Exit;
use crate::output::{Diagnostic, Output, action_text, after_command, suggest_command};
use crate::request::deadlines::Deadline;

/// The code of a failure that needs authorization.
const AUTHORIZATION: &str = "authorization_needed";

/// A failed command. As JSON: `code`, `message` and `server`, with `sent` if the code leaves it open,
/// and `data` of a JSON-RPC error or the result that does not match its schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Failure {
    #[serde(skip)]
    pub(crate) exit: Exit,
    /// For programs.
    pub(crate) code: &'static str,
    /// What happened and what to do, for people.
    pub(crate) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<String>,
    /// Whether the server may have received the request, if the code does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sent: Option<bool>,
    /// The `data` of the server's JSON-RPC error, or the result that does not match its schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<Box<Value>>,
    /// Shown to people instead of the message, for a problem at a line of a config.
    #[serde(skip)]
    pub(crate) diagnostic: Option<Box<Diagnostic>>,
    /// It was shown already.
    #[serde(skip)]
    pub(crate) shown: bool,
}

impl Failure {
    pub(crate) fn usage(message: impl Display) -> Self {
        Self::new(Exit::Usage, "usage", message)
    }

    pub(crate) fn config(message: impl Display) -> Self {
        Self::new(Exit::Usage, "config", message)
    }

    /// A config that cannot be read.
    pub(crate) fn unreadable(error: ConfigError) -> Self {
        Self {
            diagnostic: Some(Box::new(Diagnostic::from(&error))),
            ..Self::config(error)
        }
    }

    /// A config entry that cannot be used.
    pub(crate) fn unusable(problem: &ConfigProblem) -> Self {
        Self {
            diagnostic: Some(Box::new(Diagnostic::from(problem))),
            ..Self::config(problem)
        }
    }

    pub(crate) fn untrusted(message: impl Display) -> Self {
        Self::new(Exit::Usage, "untrusted_config", message)
    }

    pub(crate) fn unexpected(message: impl Display) -> Self {
        Self::new(Exit::Usage, "unexpected", message)
    }

    pub(crate) fn unknown_server(message: impl Display) -> Self {
        Self::new(Exit::Usage, "unknown_server", message)
    }

    pub(crate) fn unknown_tool(message: impl Display) -> Self {
        Self::new(Exit::Failed, "unknown_tool", message)
    }

    pub(crate) fn unknown_prompt(message: impl Display) -> Self {
        Self::new(Exit::Failed, "unknown_prompt", message)
    }

    /// Some links of a result were not followed.
    pub(crate) fn links_not_read(message: impl Display) -> Self {
        Self::new(Exit::Failed, "links_not_read", message)
    }

    pub(crate) fn unknown_task(message: impl Display) -> Self {
        Self::new(Exit::Failed, "unknown_task", message)
    }

    /// A task that was to be cancelled, but had ended before.
    pub(crate) fn task_ended(message: impl Display) -> Self {
        Self::new(Exit::Failed, "task_ended", message)
    }

    /// The wait for a task was interrupted.
    pub(crate) fn wait_interrupted(server: &str, task: &str) -> Self {
        let message = format!("interrupted: task {task} of {server} goes on");
        Self::new(Exit::Interrupted, "interrupted", message).with_server(server)
    }

    /// The arguments do not match the tool or prompt; nothing was sent.
    pub(crate) fn invalid_arguments(message: impl Display) -> Self {
        Self::new(Exit::Usage, "invalid_arguments", message)
    }

    pub(crate) fn deadline(message: impl Display) -> Self {
        Self::new(Exit::Deadline, "deadline", message)
    }

    /// A server was not ready in time: exit 7 if `--timeout` passed, 4 if a limit of its entry did.
    pub(crate) fn late(server: &str, message: impl Display, deadline: &Deadline) -> Self {
        match deadline.timeout() {
            Some(_) => Self::deadline(format!("{message}. Allow more with `--timeout`.")),
            None => Self::new(Exit::Unreachable, "unreachable", message),
        }
        .with_server(server)
    }

    pub(crate) fn interrupted() -> Self {
        Self::new(Exit::Interrupted, "interrupted", "interrupted")
    }

    /// An interrupt before a request was sent, or while it ran.
    pub(crate) fn interrupted_at(server: &str, method: &str, sent: bool) -> Self {
        let message = match sent {
            true => {
                format!(
                    "interrupted: {method} of {server} was cancelled, but may have taken effect"
                )
            }
            false => format!("interrupted: {method} of {server} was not sent"),
        };
        let failure = Self::new(Exit::Interrupted, "interrupted", message);
        Self {
            sent: Some(sent),
            ..failure.with_server(server)
        }
    }

    /// Shows it, unless it was shown before.
    pub(crate) fn show_once(mut self, output: &Output) -> Self {
        if !self.shown {
            output.failure(&self);
        }
        self.shown = true;
        self
    }

    /// The same failure, interrupted while the fleet was shutting down.
    pub(crate) fn then_interrupted(self) -> Self {
        Self {
            exit: Exit::Interrupted,
            ..self
        }
    }

    /// The server is connected, but a list cannot be fetched.
    pub(crate) fn listing_failed(server: &str, fault: &Fault) -> Self {
        let message = format!("{server} is connected, but listing failed: {fault}");
        let (exit, code) = match fault.class {
            FaultClass::Authorization => (Exit::Authorization, AUTHORIZATION),
            _ => (Exit::Unreachable, "listing_failed"),
        };
        Self::new(exit, code, message).with_server(server)
    }

    /// A tool that has to be approved first; nothing was sent.
    pub(crate) fn held_back(message: impl Display) -> Self {
        Self::new(Exit::Unreachable, "held_back", message)
    }

    /// A call of a tool that has to be approved first; nothing was sent.
    pub(crate) fn tool_held_back(server: &str, tool: &str, reason: &str) -> Self {
        let approve = suggest_command(&["approve", server, tool]);
        let message =
            format!("{server} holds {tool:?} back: {reason}. Review it, then run `{approve}`.");
        Self::held_back(message).with_server(server)
    }

    /// A disabled server; nothing was sent.
    pub(crate) fn disabled(server: &str) -> Self {
        let action = action_text(server, &Action::Enable);
        let message = format!("{server}: not sent: the server is disabled. {action}");
        Self::new(Exit::Unreachable, "not_sent", message).with_server(server)
    }

    /// A request that the server refused for missing authorization, and what to do about it.
    pub(crate) fn unauthorized(error: &CallError, action: &Action) -> Self {
        let server = error.server().as_str();
        let action = action_text(server, action);
        let message = join_sentences([Some(error.to_string()), Some(action)]);
        Self::new(Exit::Authorization, AUTHORIZATION, message).with_server(server)
    }

    /// A login that was refused, by this client or by the issuer.
    pub(crate) fn login_refused(message: impl Display) -> Self {
        Self::new(Exit::Authorization, AUTHORIZATION, message)
    }

    /// A server that could not be connected, or needs a person.
    pub(crate) fn unreachable(status: &ServerStatus) -> Self {
        let (exit, code) = match needs_authorization(status) {
            true => (Exit::Authorization, AUTHORIZATION),
            false => (Exit::Unreachable, "unreachable"),
        };
        let problem = match &status.last_error {
            Some(fault) => fault.to_string(),
            None => status.state.to_string(),
        };
        let message = format!("{}: {problem}", status.name);
        let message = join_sentences([Some(message), after_command(status)]);
        Self::new(exit, code, message).with_server(status.name.as_str())
    }

    pub(crate) fn with_server(mut self, server: &str) -> Self {
        self.server = Some(server.to_owned());
        self
    }

    fn new(exit: Exit, code: &'static str, message: impl Display) -> Self {
        Self {
            exit,
            code,
            message: message.to_string(),
            server: None,
            sent: None,
            data: None,
            diagnostic: None,
            shown: false,
        }
    }
}

/// Joins a problem and what to do about it. A last fragment has no period.
pub(crate) fn join_sentences(parts: impl IntoIterator<Item = Option<String>>) -> String {
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let (last, before) = match parts.split_last() {
        Some((last, before)) => (last.as_str(), before),
        None => ("", &[][..]),
    };
    let before = before.iter().map(|part| match part.ends_with(['.', '?']) {
        true => format!("{part} "),
        false => format!("{part}. "),
    });
    before.chain([last.to_owned()]).collect()
}

pub(crate) fn needs_authorization(status: &ServerStatus) -> bool {
    let class = status.last_error.as_ref().map(|fault| fault.class);
    class == Some(FaultClass::Authorization)
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        let server = error.server().as_str();
        let action = || error.action().map(|action| action_text(server, &action));
        let (exit, code, message) = match &error {
            CallError::HeldBack {
                server,
                tool,
                reason,
            } => return Self::tool_held_back(server.as_str(), tool, reason),
            CallError::NotSent { server, reason } => {
                let message = format!("{server}: not sent: {}", reason.cause());
                let message = join_sentences([Some(message), action()]);
                (exit_of(&error), error.code(), message)
            }
            // The text says when to try again.
            CallError::Refused {
                retry_in: Some(_), ..
            } => (Exit::Authorization, AUTHORIZATION, error.to_string()),
            CallError::Refused {
                class: FaultClass::Authorization,
                ..
            } => return Self::unauthorized(&error, &Action::Authorize),
            CallError::Deadline { idle: true, .. } => {
                let action = "Raise \"timeouts.idle\" in its entry to allow more.".to_owned();
                let message = join_sentences([Some(error.to_string()), Some(action)]);
                (exit_of(&error), error.code(), message)
            }
            other => (exit_of(other), other.code(), other.to_string()),
        };
        let sent = match &error {
            CallError::Deadline { sent, .. } => Some(*sent),
            _ => None,
        };
        let failure = Self::new(exit, code, message).with_server(error.server().as_str());
        let data = match error {
            CallError::Answered { error, .. } => error.data.map(Box::new),
            CallError::InvalidResult { result, .. } => Some(Box::new(raw_definition(&result))),
            _ => None,
        };
        Self {
            sent,
            data,
            ..failure
        }
    }
}

/// The exit code of a failed request.
fn exit_of(error: &CallError) -> Exit {
    match error {
        CallError::Deadline { .. } => Exit::Deadline,
        CallError::Cancelled { .. } => Exit::Interrupted,
        CallError::InvalidRequest { .. } => Exit::Usage,
        other => match other.known() {
            Known::NotSent | Known::Refused => Exit::Unreachable,
            Known::Unknown => Exit::Unknown,
            Known::Answered => Exit::Failed,
        },
    }
}

//! Why a command failed: the exit code, and what is shown.
//!
//! The words of a failed call are the library's; here they get their code.

use mcpvisor::config::{ConfigError, ConfigProblem};
use mcpvisor::{CallError, Fault, FaultClass, Known, ServerStatus};
use serde::Serialize;

use crate::exit::Exit;
use crate::output::hints;
use crate::output::suggest_command;
use crate::output::{Diagnostic, Output};
use crate::request::deadlines::Deadline;

/// The code of what a person has to authorize first.
const AUTHORIZATION: &str = "authorization_needed";

/// A failed command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// One word for programs.
    pub(crate) code: &'static str,
    /// What happened and what to do, for people.
    pub(crate) message: String,
    /// Which server, if it is about one.
    pub(crate) server: Option<String>,
    /// Whether the server may have seen the request, where the code does not say it.
    pub(crate) sent: Option<bool>,
    /// How it is shown to people instead, if it is about a line of a config.
    pub(crate) diagnostic: Option<Diagnostic>,
    /// It was shown already.
    pub(crate) told: bool,
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, "usage", message)
    }

    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, "config", message)
    }

    /// A config that cannot be read.
    pub(crate) fn unreadable(error: &ConfigError) -> Self {
        Self {
            diagnostic: Some(Diagnostic::from(error)),
            ..Self::config(error.to_string())
        }
    }

    /// An entry of a config that cannot be used.
    pub(crate) fn unusable(problem: &ConfigProblem) -> Self {
        Self {
            diagnostic: Some(Diagnostic::from(problem)),
            ..Self::config(problem.to_string())
        }
    }

    /// A config that may not be started yet.
    pub(crate) fn untrusted(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, "untrusted_config", message)
    }

    pub(crate) fn unexpected(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, "unexpected", message)
    }

    pub(crate) fn unknown_server(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, "unknown_server", message)
    }

    pub(crate) fn unknown_tool(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, "unknown_tool", message)
    }

    pub(crate) fn unknown_prompt(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, "unknown_prompt", message)
    }

    /// What was written cannot be the arguments of what was meant; nothing was sent.
    pub(crate) fn invalid_arguments(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, "invalid_arguments", message)
    }

    pub(crate) fn deadline(message: impl Into<String>) -> Self {
        Self::new(Exit::Deadline, "deadline", message)
    }

    /// A server was not ready in time: the deadline passed if the command has one (7), else a limit of
    /// the server's entry did (4).
    pub(crate) fn late(server: &str, message: impl Into<String>, deadline: &Deadline) -> Self {
        let message = message.into();
        match deadline.timeout() {
            Some(_) => Self::deadline(format!("{message}; allow more with --timeout")),
            None => Self::new(Exit::Unreachable, "unreachable", message),
        }
        .at(server)
    }

    pub(crate) fn interrupted() -> Self {
        Self::new(Exit::Interrupted, "interrupted", "interrupted")
    }

    /// An interrupt while a request was prepared, or ran.
    pub(crate) fn interrupted_at(server: &str, method: &str, sent: bool) -> Self {
        let message = match sent {
            true => format!(
                "interrupted: {method} of {server} was cancelled; it was sent, so it may have taken \
                 effect"
            ),
            false => format!("interrupted: {method} of {server} was not sent"),
        };
        let failure = Self::new(Exit::Interrupted, "interrupted", message).at(server);
        Self {
            sent: Some(sent),
            ..failure
        }
    }

    /// Shows it, unless that was done before.
    pub(crate) fn told(mut self, output: &Output) -> Self {
        if !self.told {
            output.failure(&self);
        }
        self.told = true;
        self
    }

    /// The interrupt of someone who has read it and waits no longer.
    pub(crate) fn then_interrupted(self) -> Self {
        Self {
            exit: Exit::Interrupted,
            ..self
        }
    }

    /// A list of a server that is connected cannot be fetched.
    pub(crate) fn listing_failed(server: &str, fault: &Fault) -> Self {
        let message = format!("{server} is connected, but not listed: {fault}");
        Self::new(Exit::Unreachable, "listing_failed", message).at(server)
    }

    /// A tool that a person has to look at first; nothing was sent.
    pub(crate) fn held_back(message: impl Into<String>) -> Self {
        Self::new(Exit::Unreachable, "held_back", message)
    }

    /// A server that its entry switches off; nothing was sent.
    pub(crate) fn disabled(server: &str) -> Self {
        let message = format!(
            "{server}: not sent: the server is disabled; write \"enabled\": true in its entry, or \
             remove \"disabled\" from it"
        );
        Self::new(Exit::Unreachable, "not_sent", message).at(server)
    }

    /// A server that could not be connected, or waits for a person.
    pub(crate) fn unreachable(status: &ServerStatus) -> Self {
        let (exit, code) = match needs_authorization(status) {
            true => (Exit::Authorization, AUTHORIZATION),
            false => (Exit::Unreachable, "unreachable"),
        };
        let fault = status.last_error.as_ref().map(ToString::to_string);
        let mut message = format!("{}: cannot be reached ({})", status.name, status.state);
        let action = hints::of(status);
        for (before, part) in [(": ", fault.as_deref()), ("; ", action.as_deref())] {
            if let Some(part) = part {
                message.push_str(before);
                message.push_str(part);
            }
        }
        Self::new(exit, code, message).at(status.name.as_str())
    }

    /// Names the server.
    pub(crate) fn at(mut self, server: &str) -> Self {
        self.server = Some(server.to_owned());
        self
    }

    fn new(exit: Exit, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            exit,
            code,
            message: message.into(),
            server: None,
            sent: None,
            diagnostic: None,
            told: false,
        }
    }
}

pub(crate) fn needs_authorization(status: &ServerStatus) -> bool {
    let class = status.last_error.as_ref().map(|fault| fault.class);
    class == Some(FaultClass::Unauthorized)
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        let (exit, code) = match &error {
            CallError::Refused {
                class: FaultClass::Unauthorized,
                ..
            } => (Exit::Authorization, AUTHORIZATION),
            other => (exit_of(other), other.code()),
        };
        let mut message = match &error {
            CallError::HeldBack {
                server,
                tool,
                reason,
            } => {
                let approve = suggest_command(&["approve", server.as_str(), tool]);
                format!("{server} holds {tool:?} back: {reason}; look at it, then: {approve}")
            }
            other => hints::here(&other.to_string()),
        };
        if let CallError::Deadline { idle: true, .. } = &error {
            message.push_str(
                "; a server may be silent longer with \"timeouts\": { \"idle\": \"…\" } in its entry",
            );
        }
        let sent = match &error {
            CallError::Deadline { sent, .. } => Some(*sent),
            _ => None,
        };
        Self {
            sent,
            ..Self::new(exit, code, message).at(error.server().as_str())
        }
    }
}

/// What is known of a request as an exit code.
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

/// As JSON: `{"error":{"code":"…","message":"…","server":"…"}}`, and `sent` where the code leaves it
/// open.
impl Serialize for Failure {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Envelope<'a> {
            error: Body<'a>,
        }
        #[derive(Serialize)]
        struct Body<'a> {
            code: &'a str,
            message: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            server: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            sent: Option<bool>,
        }
        let error = Body {
            code: self.code,
            message: &self.message,
            server: self.server.as_deref(),
            sent: self.sent,
        };
        Envelope { error }.serialize(serializer)
    }
}

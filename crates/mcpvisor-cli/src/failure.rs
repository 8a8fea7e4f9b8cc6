//! Why a command failed: the exit code, and what is shown.
//!
//! The words of a failed call are the library's; here they get their code.

use mcpvisor::config::{ConfigError, ConfigProblem};
use mcpvisor::{CallError, FaultClass, Known, ServerStatus, StateName};
use serde::Serialize;

use crate::exit::Exit;
use crate::output::Drawn;

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
    /// How it is shown to people instead, if it is about a line of a config.
    pub(crate) drawn: Option<Drawn>,
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
            drawn: Some(Drawn::from(error)),
            ..Self::config(error.to_string())
        }
    }

    /// An entry of a config that cannot be used.
    pub(crate) fn unusable(problem: &ConfigProblem) -> Self {
        Self {
            drawn: Some(Drawn::from(problem)),
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

    pub(crate) fn interrupted() -> Self {
        Self::new(Exit::Interrupted, "interrupted", "interrupted")
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

    /// A server that could not be connected, waits for a person, or does not list what it has.
    pub(crate) fn unreachable(status: &ServerStatus) -> Self {
        let (exit, code) = if needs_authorization(status) {
            (Exit::Authorization, AUTHORIZATION)
        } else if status.state == StateName::Connected {
            (Exit::Unreachable, "listing_failed")
        } else {
            (Exit::Unreachable, "unreachable")
        };
        let fault = status
            .last_error
            .as_ref()
            .map(|fault| fault.message.as_str());
        let mut message = match status.state {
            StateName::Connected => format!("{} is connected, but not listed", status.name),
            state => format!("{}: cannot be reached ({state})", status.name),
        };
        for (before, part) in [(": ", fault), ("; ", status.action.as_deref())] {
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
            drawn: None,
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
        let mut message = error.to_string();
        if let CallError::Deadline { idle: true, .. } = &error {
            message.push_str(
                "; a server may be silent longer with \"timeouts\": { \"idle\": \"…\" } in its entry",
            );
        }
        Self::new(exit, code, message).at(error.server().as_str())
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

/// As JSON: `{"error":{"code":"…","message":"…","server":"…"}}`.
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
        }
        let error = Body {
            code: self.code,
            message: &self.message,
            server: self.server.as_deref(),
        };
        Envelope { error }.serialize(serializer)
    }
}

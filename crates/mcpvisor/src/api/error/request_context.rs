//! Turns the failure of a request into the error that its caller gets.

use std::sync::Arc;
use std::time::Duration;

use mcpvisor_core::ServerName;
use mcpvisor_core::machine::Outcome;

use super::{BusyLimit, CallError, NotSentReason};
use crate::api::reply::Failure;

/// The facts about a request that its error reports.
#[derive(Debug, Clone)]
pub(crate) struct RequestContext {
    pub(crate) server: ServerName,
    pub(crate) method: Arc<str>,
    pub(crate) tool: Option<String>,
    pub(crate) deadline: Duration,
    pub(crate) idle: Duration,
    pub(crate) limit: usize,
    /// How long a refused client should wait.
    pub(crate) expected_wait: Option<Duration>,
    /// Why requests cannot be sent to the server at present.
    pub(crate) obstacle: Option<Obstacle>,
}

/// Why requests cannot be sent, worded for an error.
#[derive(Debug, Clone)]
pub(crate) struct Obstacle {
    pub(crate) cause: String,
    pub(crate) stderr: Option<Arc<str>>,
}

impl RequestContext {
    /// Builds the error for a failure of this request.
    pub(crate) fn error(self, failure: Failure) -> CallError {
        let Self { server, method, .. } = self;
        match failure {
            Failure::Outcome(Outcome::NotSent(reason)) => {
                CallError::not_sent(server, reason.into())
            }
            Failure::Outcome(Outcome::Busy) => CallError::Busy {
                server,
                limit: BusyLimit::ServerQueue(self.limit),
                retry_in: self.expected_wait,
            },
            Failure::ClientQueueFull(limit) => CallError::Busy {
                server,
                limit: BusyLimit::ClientQueue(limit),
                retry_in: None,
            },
            Failure::ClientRateExceeded(wait) => CallError::Busy {
                server,
                limit: BusyLimit::ClientRate,
                retry_in: Some(wait),
            },
            Failure::ClientClosed => CallError::not_sent(server, NotSentReason::ClientClosed),
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
                scopes: fault.scopes,
                retry_in: fault.retry_in,
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
            Failure::InputUnavailable(problem) => CallError::InputRequired {
                server,
                method,
                problem,
            },
            Failure::InvalidRequest(problem) => CallError::InvalidRequest { server, problem },
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
            Failure::SendBufferFull => CallError::not_sent(server, NotSentReason::NotRead),
            Failure::ActorGone => CallError::not_sent(server, NotSentReason::ActorRestarted),
            Failure::Removed => CallError::not_sent(server, NotSentReason::Removed),
            Failure::RuntimeGone => CallError::RuntimeGone { server },
        }
    }
}

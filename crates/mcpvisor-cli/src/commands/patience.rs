//! How long a command for one request may take: as `--timeout` says, or as the server's entry does.

use std::time::Duration;

use mcpvisor::{CallError, Config, Request};
use tokio::time::Instant;

use crate::deadline::Deadline;
use crate::failure::Failure;

/// The time of one command.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// What `--timeout` said: it is for everything.
    deadline: Deadline,
    /// Until when the server may connect and list what it has.
    ready_until: Instant,
    /// What the entry gives a request, once the server is there.
    call: Duration,
}

impl Patience {
    /// Without a deadline of the command's own the request pays for nothing but itself: connecting and
    /// listing have their own limits in the entry.
    pub(super) fn new(config: &Config, deadline: Deadline) -> Self {
        let timeouts = config
            .servers
            .first()
            .map(|server| &server.settings.timeouts);
        Self {
            deadline,
            ready_until: deadline.ready_until(config),
            call: timeouts.map(|it| it.call).unwrap_or_default(),
        }
    }

    /// Until when the server may connect and list what it has.
    pub(super) fn ready_until(&self) -> Instant {
        self.ready_until
    }

    /// The terms of a request that is sent now. Whoever says how long a command may take means the
    /// silence of the server too; and people think, during which it is silent.
    pub(super) fn terms<R>(&self, request: Request<R>, person: bool) -> Request<R> {
        match self.deadline.left() {
            Some(left) => {
                let left = in_millis(left);
                request.deadline(left).idle_timeout(left)
            }
            None if person => request.idle_timeout(self.call),
            None => request,
        }
    }

    /// An error with the number that somebody wrote, instead of what was left of it.
    pub(super) fn in_their_words(&self, mut error: CallError) -> CallError {
        if let (Some(timeout), CallError::Deadline { after, idle, .. }) =
            (self.deadline.timeout(), &mut error)
        {
            (*after, *idle) = (timeout, false);
        }
        error
    }

    /// The time was up before a request could be sent.
    pub(super) fn too_late(&self, server: &str, did_not: &str, cause: &str) -> Failure {
        let within = self.deadline.words();
        let message = format!("{server} did not {did_not} {within}{cause}");
        Failure {
            sent: Some(false),
            ..Failure::late(server, message, &self.deadline)
        }
    }
}

/// In milliseconds: nobody reads nanoseconds.
fn in_millis(duration: Duration) -> Duration {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

//! Deadlines of a command and of its one request.
//!
//! `--timeout` limits the whole command; without it the server's entry limits connecting, listing and
//! the call. Which of the two passed decides the exit code: 7 or 4.

use std::time::Duration;

use mcpvisor::{CallError, Config, Request};
use tokio::time::Instant;

use crate::failure::Failure;

/// The deadline of one command, from when it began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    begun: Instant,
    timeout: Option<Duration>,
}

impl Deadline {
    /// The command begins now.
    pub(crate) fn new(timeout: Option<Duration>) -> Self {
        Self {
            begun: Instant::now(),
            timeout,
        }
    }

    /// What `--timeout` said.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// When the command has to end, if `--timeout` was given.
    pub(crate) fn at(&self) -> Option<Instant> {
        Some(self.begun + self.timeout?)
    }

    /// The time that is left, if it is limited.
    pub(crate) fn left(&self) -> Option<Duration> {
        Some(self.at()?.saturating_duration_since(Instant::now()))
    }

    /// Waits until it passes.
    pub(crate) async fn passed(&self) {
        match self.at() {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Until when the servers may connect and list what they have. Without `--timeout` their entries
    /// say it: both eras of the protocol may be tried, and then a list is fetched.
    pub(crate) fn ready_until(&self, config: &Config) -> Instant {
        let of_entries = config.servers.iter().map(|server| {
            let timeouts = &server.settings.timeouts;
            let connect = timeouts.connect.saturating_mul(2);
            connect.saturating_add(timeouts.listing)
        });
        let longest = || of_entries.max().unwrap_or_default();
        self.at().unwrap_or_else(|| Instant::now() + longest())
    }

    /// The time that a server did not keep to.
    pub(crate) fn words(&self) -> String {
        match self.timeout {
            Some(timeout) => format!("within {timeout:?}"),
            None => "in time".to_owned(),
        }
    }
}

/// The time of one command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestDeadlines {
    /// What `--timeout` said: it is for everything.
    deadline: Deadline,
    /// Until when the server may connect and list what it has.
    ready_until: Instant,
    /// What the entry gives a request, once the server is there.
    call: Duration,
}

impl RequestDeadlines {
    /// Without a deadline of the command's own the request pays for nothing but itself: connecting and
    /// listing have their own limits in the entry.
    pub(crate) fn new(config: &Config, deadline: Deadline) -> Self {
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
    pub(crate) fn ready_until(&self) -> Instant {
        self.ready_until
    }

    /// The terms of a request that is sent now. Whoever says how long a command may take means the
    /// silence of the server too; and people think, during which it is silent.
    pub(crate) fn terms<R>(&self, request: Request<R>, person: bool) -> Request<R> {
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
    pub(crate) fn in_their_words(&self, mut error: CallError) -> CallError {
        if let (Some(timeout), CallError::Deadline { after, idle, .. }) =
            (self.deadline.timeout(), &mut error)
        {
            (*after, *idle) = (timeout, false);
        }
        error
    }

    /// The time was up before a request could be sent.
    pub(crate) fn too_late(&self, server: &str, did_not: &str, cause: &str) -> Failure {
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

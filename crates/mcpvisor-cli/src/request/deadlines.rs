//! Deadlines of a command and of its one request.
//!
//! `--timeout` limits the whole command; without it the server's entry limits connecting, listing and
//! the call. Which of the two passed decides the exit code: 7 or 4.

use std::time::Duration;

use mcpvisor::{CallError, Config, Request};
use tokio::time::Instant;

/// The deadline of a command, counted from its start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    started: Instant,
    timeout: Option<Duration>,
}

impl Deadline {
    /// The command starts now.
    pub(crate) fn new(timeout: Option<Duration>) -> Self {
        Self {
            started: Instant::now(),
            timeout,
        }
    }

    /// The value of `--timeout`.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// When the command must end, if `--timeout` was given.
    pub(crate) fn at(&self) -> Option<Instant> {
        Some(self.started + self.timeout?)
    }

    /// The remaining time, if it is limited.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        Some(self.at()?.saturating_duration_since(Instant::now()))
    }

    /// Waits until it passes.
    pub(crate) async fn passed(&self) {
        match self.at() {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Until when servers may connect and list. Without `--timeout` the entries limit it: two
    /// connects, because both protocol eras may be tried, and one listing.
    pub(crate) fn ready_until(&self, config: &Config) -> Instant {
        let limits = config.servers.iter().map(|server| {
            let timeouts = &server.settings.timeouts;
            let connect = timeouts.connect.saturating_mul(2);
            connect.saturating_add(timeouts.listing)
        });
        let longest = || limits.max().unwrap_or_default();
        self.at().unwrap_or_else(|| Instant::now() + longest())
    }

    /// "within 10s", or "in time" without `--timeout`.
    pub(crate) fn describe(&self) -> String {
        match self.timeout {
            Some(timeout) => format!("within {timeout:?}"),
            None => "in time".to_owned(),
        }
    }
}

/// The deadlines of a command with one request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestDeadlines {
    /// Limits everything.
    pub(crate) deadline: Deadline,
    /// Until when the server may connect and list.
    pub(crate) ready_until: Instant,
    /// The call timeout of the server's entry.
    call: Duration,
}

impl RequestDeadlines {
    /// Without `--timeout`, connecting and listing do not count against the call timeout.
    pub(crate) fn new(config: &Config, deadline: Deadline) -> Self {
        let server = config.servers.first();
        let call = server.map(|server| server.settings.timeouts.call);
        Self {
            deadline,
            ready_until: deadline.ready_until(config),
            call: call.unwrap_or_default(),
        }
    }

    /// Sets the timeouts of a request that is sent now. `--timeout` replaces the idle timeout too, and
    /// a server may be silent while the user answers its question.
    pub(crate) fn apply<R>(&self, request: Request<R>, may_ask_user: bool) -> Request<R> {
        match self.deadline.remaining() {
            Some(remaining) => {
                // Whole milliseconds, because messages show the value.
                let millis = u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX);
                let remaining = Duration::from_millis(millis);
                request.deadline(remaining).idle_timeout(remaining)
            }
            None if may_ask_user => request.idle_timeout(self.call),
            None => request,
        }
    }

    /// Shows the value of `--timeout` in an error, instead of the remaining time that passed.
    pub(crate) fn restore_timeout(&self, mut error: CallError) -> CallError {
        if let (Some(timeout), CallError::Deadline { after, idle, .. }) =
            (self.deadline.timeout(), &mut error)
        {
            (*after, *idle) = (timeout, false);
        }
        error
    }
}

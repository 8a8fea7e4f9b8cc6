//! How long a command may take, as `--timeout` says.
//!
//! Whether the time that `--timeout` gives passed, or a limit of a server's entry, decides the exit
//! code: 7 or 4.

use std::time::Duration;

use mcpvisor::Config;
use tokio::time::Instant;

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

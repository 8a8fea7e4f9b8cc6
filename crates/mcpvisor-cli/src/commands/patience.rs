//! How long a command for one request may take: as it was told, or as the server's entry says.

use std::time::Duration;

use mcpvisor::{CallError, Config, Request};
use tokio::time::Instant;

use crate::failure::Failure;

/// The time of one command.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// What `--timeout` said: it is for everything.
    told: Option<Duration>,
    /// Until when the server may connect and list what it has.
    ready_until: Instant,
    /// What the entry gives a request, once the server is there.
    call: Duration,
}

impl Patience {
    /// From when the command began. Without a deadline of the command's own the request pays for
    /// nothing but itself: connecting and listing have their own limits in the entry.
    pub(super) fn new(config: &Config, told: Option<Duration>, begun: Instant) -> Self {
        let timeouts = config
            .servers
            .first()
            .map(|server| &server.settings.timeouts);
        let of_entry = timeouts.map(|it| it.connect.saturating_add(it.listing));
        let patience = told.or(of_entry).unwrap_or_default();
        Self {
            told,
            ready_until: begun + patience,
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
        match self.told {
            Some(_) => {
                let left = left(self.ready_until);
                request.deadline(left).idle_timeout(left)
            }
            None if person => request.idle_timeout(self.call),
            None => request,
        }
    }

    /// An error with the number that somebody wrote, instead of what was left of it.
    pub(super) fn in_their_words(&self, mut error: CallError) -> CallError {
        if let (Some(told), CallError::Deadline { after, idle, .. }) = (self.told, &mut error) {
            (*after, *idle) = (told, false);
        }
        error
    }

    /// The time was up before a request could be sent.
    pub(super) fn too_late(&self, server: &str, did_not: &str, cause: &str) -> Failure {
        let within = match self.told {
            Some(told) => format!("within {told:?}"),
            None => "in time".to_owned(),
        };
        let message =
            format!("{server} did not {did_not} {within}{cause}; allow more with --timeout");
        let failure = Failure::deadline(message).at(server);
        Failure {
            sent: Some(false),
            ..failure
        }
    }
}

/// The time that is left, in milliseconds: nobody reads nanoseconds.
fn left(until: Instant) -> Duration {
    let left = until.saturating_duration_since(Instant::now());
    Duration::from_millis(u64::try_from(left.as_millis()).unwrap_or(u64::MAX))
}

//! The status of a server.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mcpvisor_core::machine::{Action, Fault, FaultClass};
use mcpvisor_core::{Generation, ListKind, ServerName, StateName};
use rmcp::model::Implementation;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::config::{ConfigProblem, Severity};

/// A snapshot of one server, or of one of its connections: an instance of a pool, or the connection of
/// a client.
///
/// Its JSON form has exactly the fields that the command line documents.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServerStatus {
    /// The server's name.
    pub name: ServerName,
    /// Distinguishes the instances of a server, and servers that had this name: 0 for the first
    /// instance of a server that was present at the start; every other one gets a number of its own,
    /// larger than those of earlier ones. Name, instance and generation identify one connection of
    /// a runtime.
    pub instance: u32,
    /// The client whose connection it is, by name; `None` unless the scope of the server is
    /// [`ConnectionScope::Client`](crate::ConnectionScope::Client).
    pub client: Option<Arc<str>>,
    /// Its state.
    pub state: StateName,
    /// The latest connection.
    pub generation: Generation,
    /// When it entered this state.
    pub since: SystemTime,
    /// Connects since the last proven connection.
    pub attempt: u32,
    /// Connects and actor restarts within the budget's window.
    pub attempts_used: u32,
    /// Connects that the budget allows within the window.
    pub attempts_limit: u32,
    /// When the next connect is due, if one is scheduled.
    pub retry_at: Option<Instant>,
    /// The protocol version of the latest connection.
    pub protocol: Option<String>,
    /// The name and version that the server reports.
    pub server: Option<Implementation>,
    /// The kind of transport; empty for a config entry that cannot be used.
    pub transport: &'static str,
    /// Published tools.
    pub tools: usize,
    /// Published prompts.
    pub prompts: usize,
    /// Published resources.
    pub resources: usize,
    /// Published resource templates.
    pub templates: usize,
    /// The catalog was not yet fetched on the current connection.
    pub stale: bool,
    /// Calls in flight.
    pub in_flight: usize,
    /// Queued calls.
    pub waiting: usize,
    /// The last fault, until a connection is proven.
    pub last_error: Option<Fault>,
    /// How to fix it.
    pub action: Option<Action>,
    /// Whether [`crate::Runtime::ready`] waits for it.
    pub required: bool,
    /// Number of restarts of its actor.
    pub restarts: u64,
    /// Events of older connections that were dropped.
    pub dropped_late: u64,
    /// Unparseable or unexpected messages from the server that were ignored.
    pub strays: u64,
    /// Notifications and requests from the server that exceeded the rate or size limit and were
    /// dropped. Replies and list-changed notifications are never dropped.
    pub dropped_flood: u64,
    /// Requests of the server that were declined because calls of several clients may have caused
    /// them. Servers of protocol 2026-07-28 name the call; for older ones a connection per client
    /// does.
    pub ambiguous_requests: u64,
    /// Structured results that did not match the output schema of their tool:
    /// [`ResultCheck`](crate::ResultCheck).
    pub invalid_results: u64,
    /// Suspicious entries of the catalog: [`crate::ServerCatalog::findings`].
    pub findings: usize,
    /// Tools that need a person's approval: [`crate::ServerCatalog::held`].
    pub held: usize,
    /// A renewed login that exists only in memory, until it is saved.
    pub unsaved_login: Option<UnsavedLogin>,
    /// The state of each list, in the order of [`ListKind::ALL`].
    pub(crate) lists: [ListState; 4],
}

/// A renewed login that could not be saved. It is used from memory, saving is retried, and it is
/// lost with the process. The issuer may refuse the stored one by then, so a person would have to log
/// in again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UnsavedLogin {
    /// Why it could not be saved.
    pub problem: String,
    /// What to do about it.
    pub action: Action,
}

impl UnsavedLogin {
    /// A login that could not be saved for this reason.
    pub fn new(problem: impl Into<String>, action: Action) -> Self {
        Self {
            problem: problem.into(),
            action,
        }
    }
}

/// The state of one list of a server. Lists fail independently.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub enum ListState {
    /// The server is not connected: the published list is from an earlier connection.
    #[default]
    Unlisted,
    /// The server has no such list.
    Missing,
    /// It is being fetched on the current connection.
    Pending,
    /// It was fetched on the current connection and is up to date.
    Fresh,
    /// The last fetch on the current connection failed; it is retried.
    Failed(Fault),
}

impl ListState {
    /// Whether no fetch is pending: it was fetched, does not exist, or failed.
    pub fn is_settled(&self) -> bool {
        match self {
            Self::Missing | Self::Fresh | Self::Failed(_) => true,
            Self::Unlisted | Self::Pending => false,
        }
    }
}

/// Whether a server is usable, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Readiness {
    /// It is connecting for the first time, or its lists are being fetched.
    Pending,
    /// It is connected and its lists are fetched, or it sleeps until the next call.
    Ready,
    /// A connect or a listing failed, or the connection was lost; `last_error` has the reason. It
    /// is retried unless its state is [`StateName::PermanentlyFailed`].
    Failed,
    /// It is disabled.
    Disabled,
}

impl ServerStatus {
    /// The initial status.
    pub(crate) fn initial(name: ServerName, state: StateName, transport: &'static str) -> Self {
        Self {
            name,
            instance: 0,
            client: None,
            state,
            generation: Generation::NONE,
            since: SystemTime::now(),
            attempt: 0,
            attempts_used: 0,
            attempts_limit: 0,
            retry_at: None,
            protocol: None,
            server: None,
            transport,
            tools: 0,
            prompts: 0,
            resources: 0,
            templates: 0,
            stale: true,
            in_flight: 0,
            waiting: 0,
            last_error: None,
            action: None,
            required: false,
            restarts: 0,
            dropped_late: 0,
            strays: 0,
            dropped_flood: 0,
            ambiguous_requests: 0,
            invalid_results: 0,
            findings: 0,
            held: 0,
            unsaved_login: None,
            lists: Default::default(),
        }
    }

    /// The status of a config entry that cannot be used. Its transport is unknown, so
    /// [`ServerStatus::transport`] is empty.
    pub(crate) fn unusable(name: &str, problem: &ConfigProblem) -> Self {
        let state = match problem.severity {
            Severity::Disabled => StateName::Disabled,
            Severity::Warning | Severity::Excluded => StateName::PermanentlyFailed,
        };
        let place = problem.location.as_ref().map(ToString::to_string);
        Self {
            last_error: Some(Fault::new(FaultClass::Config, &*problem.message)),
            action: Some(Action::FixEntry(place)),
            ..Self::initial(ServerName::unchecked(name), state, "")
        }
    }

    /// Whether the server is usable.
    pub fn readiness(&self) -> Readiness {
        match self.state {
            _ if self.is_ready() => Readiness::Ready,
            StateName::Connected if self.lists.iter().all(ListState::is_settled) => {
                let failed = |list: &ListState| matches!(list, ListState::Failed(_));
                // A stale list is being fetched again.
                match self.lists.iter().any(failed) {
                    true => Readiness::Failed,
                    false => Readiness::Pending,
                }
            }
            StateName::Reconnecting if self.last_error.is_some() => Readiness::Failed,
            // A connect may follow `disabling`: an `enable` waits for the close.
            StateName::Connecting
            | StateName::Connected
            | StateName::Reconnecting
            | StateName::Disabling
            | StateName::Sleeping => Readiness::Pending,
            StateName::Disconnected | StateName::PermanentlyFailed => Readiness::Failed,
            StateName::Disabled => Readiness::Disabled,
        }
    }

    /// Time until the next connect.
    pub fn retry_in(&self) -> Option<Duration> {
        self.retry_at
            .map(|at| at.saturating_duration_since(tokio::time::Instant::now().into_std()))
    }

    /// The state of one of the server's lists.
    pub fn list(&self, list: ListKind) -> &ListState {
        match list {
            ListKind::Tools => &self.lists[0],
            ListKind::Prompts => &self.lists[1],
            ListKind::Resources => &self.lists[2],
            ListKind::Templates => &self.lists[3],
        }
    }

    /// Connected, with a catalog fetched on this connection; or sleeping until the next call.
    pub fn is_ready(&self) -> bool {
        match self.state {
            StateName::Connected => !self.stale,
            StateName::Sleeping => true,
            StateName::Connecting
            | StateName::Reconnecting
            | StateName::Disabling
            | StateName::Disabled
            | StateName::Disconnected
            | StateName::PermanentlyFailed => false,
        }
    }
}

impl Serialize for ServerStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Server<'a> {
            name: &'a str,
            version: &'a str,
        }
        let mut status = serializer.serialize_struct("ServerStatus", 22)?;
        status.serialize_field("name", &self.name)?;
        status.serialize_field("instance", &self.instance)?;
        if let Some(client) = &self.client {
            status.serialize_field("client", &**client)?;
        }
        status.serialize_field("state", &self.state)?;
        status.serialize_field("generation", &self.generation)?;
        // An unusable entry has no transport and no history.
        let usable = !self.transport.is_empty();
        status.serialize_field("since", &usable.then(|| rfc3339(self.since)))?;
        status.serialize_field("attempt", &self.attempt)?;
        let retry_in = self.retry_in().map(|wait| wait.as_millis() as u64);
        status.serialize_field("retry_in_ms", &retry_in)?;
        status.serialize_field("protocol", &self.protocol)?;
        let server = self.server.as_ref().map(|server| Server {
            name: &server.name,
            version: &server.version,
        });
        status.serialize_field("server", &server)?;
        status.serialize_field("transport", &usable.then_some(self.transport))?;
        status.serialize_field("tools", &self.tools)?;
        status.serialize_field("prompts", &self.prompts)?;
        status.serialize_field("resources", &self.resources)?;
        status.serialize_field("stale", &self.stale)?;
        status.serialize_field("in_flight", &self.in_flight)?;
        status.serialize_field("last_error", &self.last_error)?;
        status.serialize_field("action", &self.action)?;
        if self.findings > 0 {
            status.serialize_field("findings", &self.findings)?;
        }
        if self.held > 0 {
            status.serialize_field("held", &self.held)?;
        }
        if self.invalid_results > 0 {
            status.serialize_field("invalid_results", &self.invalid_results)?;
        }
        if let Some(unsaved) = &self.unsaved_login {
            status.serialize_field("unsaved_login", unsaved)?;
        }
        status.end()
    }
}

/// Formats a time as RFC 3339 in UTC, to the second.
pub(crate) fn rfc3339(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3_600, rest % 3_600 / 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The date of a day counted from 1970-01-01, in the Gregorian calendar.
fn civil(days: u64) -> (u64, u64, u64) {
    // Years are counted from March, so that the leap day is the last day of its year.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_as_rfc_3339() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(rfc3339(at(0)), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(at(951_782_399)), "2000-02-28T23:59:59Z");
        assert_eq!(rfc3339(at(951_782_400)), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(at(1_794_800_096)), "2026-11-16T03:34:56Z");
    }
}

//! The retry table: what is known about a request that failed, and what may be done about it.
//!
//! The whole table is one function over plain values. The links say which failure it was; waiting,
//! reconnecting and sending again is up to the machine.

use std::time::Duration;

use serde::Serialize;

use crate::ids::CredentialRevision;
use crate::settings::{RetrySettings, ServerSettings};

/// Retries of one request, all layers together. Following a redirect and answering a demand for a nonce
/// are parts of one sending.
pub const MAX_RETRIES: u8 = 1;

/// The default of [`BackoffSettings::max_retry_after`](crate::settings::BackoffSettings).
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(120);

/// The pause before a retry at a busy server that sent no `Retry-After`.
pub const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// What is known about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Known {
    /// The server never saw it.
    NotSent,
    /// It was sent; whether it ran is unknown.
    Unknown,
    /// The server refused it before running it.
    Refused,
    /// The server answered it.
    Answered,
}

/// Whether a request may run twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Safety {
    /// It only lists, reads, gets, completes, pings, subscribes or sets the log level.
    Repeatable,
    /// It calls a tool, or an unknown method, which may have effects.
    Effectful,
    /// It calls a tool that the config trusts to be read-only or idempotent.
    TrustedTool,
}

impl Safety {
    /// The safety of a request with this method, other than a tool call. What an unknown method does
    /// is not known, so it counts as a tool call.
    pub fn of_method(method: &str) -> Self {
        match method {
            "ping"
            | "tools/list"
            | "prompts/list"
            | "prompts/get"
            | "resources/list"
            | "resources/templates/list"
            | "resources/read"
            | "resources/subscribe"
            | "resources/unsubscribe"
            | "completion/complete"
            | "logging/setLevel"
            | "tasks/get"
            | "tasks/list"
            | "tasks/result"
            | "tasks/update"
            | "tasks/cancel" => Self::Repeatable,
            _ => Self::Effectful,
        }
    }

    /// The safety of a tool call. The hints of the server count, and are looked up, only if the config
    /// trusts the server.
    pub fn of_tool(
        name: &str,
        settings: &RetrySettings,
        hints: impl FnOnce() -> ToolHints,
    ) -> Self {
        let is_hinted = || {
            let hints = hints();
            hints.read_only || hints.idempotent
        };
        let by_name = settings.idempotent_tools.iter().any(|tool| tool == name);
        if by_name || (settings.trusted && is_hinted()) {
            Self::TrustedTool
        } else {
            Self::Effectful
        }
    }
}

/// The annotations of a tool that concern retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ToolHints {
    /// The tool does not change anything.
    pub read_only: bool,
    /// Calling it twice has the effect of calling it once.
    pub idempotent: bool,
}

/// Whether the caller allows a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RetryPolicy {
    /// Retry what is safe to repeat.
    #[default]
    Default,
    /// Never send it twice.
    Never,
    /// The caller declares it safe to repeat.
    Always,
}

/// What happened to a request that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestFailure {
    /// It was queued when the connection ended, or the connect failed: nothing was written.
    NotWritten,
    /// No connection could be opened for it in time, while the link stays up for the requests in flight:
    /// nothing was written.
    ConnectTimedOut,
    /// The connection was lost after it was written.
    ConnectionLost,
    /// The server reports, by status or by a known text, that the session is lost, or that it no longer
    /// speaks the version of the connection.
    SessionLost,
    /// The server requires authorization (401).
    Unauthorized {
        /// The credential that the refused request carried.
        credential: CredentialRevision,
    },
    /// The credential lacks a scope (403 `insufficient_scope`): another login is needed.
    ScopeNeeded,
    /// The server refuses it for good (403 and most other 4xx).
    Denied,
    /// The server is busy (429, 503).
    Busy {
        /// When to retry (`Retry-After`).
        retry_after: Option<Duration>,
    },
    /// Another 5xx, a broken stream, a stalled body.
    ServerFault,
}

/// What to do with a request that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RetryAction {
    /// Send it again as soon as there is a connection.
    Retry,
    /// Send it again after this time.
    RetryAfter(Duration),
    /// Open a new session, then send it again.
    ReconnectThenRetry,
    /// Refresh the authorization, then send it again.
    RefreshThenRetry,
    /// Answer the caller.
    Fail,
}

/// What is known about a request that failed, and what to do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RetryDecision {
    /// What is known about the request.
    pub known: Known,
    /// What to do with it.
    pub action: RetryAction,
}

/// Decides what happens to a request that was retried `retries_used` times before.
///
/// ```
/// use mcpvisor_core::retry::{Known, RequestFailure, RetryAction, RetryPolicy, Safety, decide};
/// use mcpvisor_core::settings::ServerSettings;
///
/// let settings = ServerSettings::default();
/// let lost = RequestFailure::ConnectionLost;
/// let decision = decide(lost, Safety::Effectful, RetryPolicy::Default, 0, &settings);
/// assert_eq!((decision.known, decision.action), (Known::Unknown, RetryAction::Fail));
/// ```
pub fn decide(
    failure: RequestFailure,
    safety: Safety,
    policy: RetryPolicy,
    retries_used: u8,
    settings: &ServerSettings,
) -> RetryDecision {
    let (known, action) = retry_table(failure, safety, policy, settings);
    // Sending what was never sent is not a retry: no policy forbids it and it is not counted.
    let first_sending = known == Known::NotSent;
    let allowed = policy != RetryPolicy::Never && retries_used < MAX_RETRIES;
    RetryDecision {
        known,
        action: if first_sending || allowed {
            action
        } else {
            RetryAction::Fail
        },
    }
}

/// The table, for a request that may still be retried.
fn retry_table(
    failure: RequestFailure,
    safety: Safety,
    policy: RetryPolicy,
    settings: &ServerSettings,
) -> (Known, RetryAction) {
    let if_safe = |action| match (safety, policy) {
        (Safety::Repeatable | Safety::TrustedTool, _) => action,
        (Safety::Effectful, RetryPolicy::Always) => action,
        (Safety::Effectful, RetryPolicy::Default | RetryPolicy::Never) => RetryAction::Fail,
    };
    match failure {
        RequestFailure::NotWritten => (Known::NotSent, RetryAction::Retry),
        // The link has tried for as long as a call waits for a reconnect.
        RequestFailure::ConnectTimedOut => (Known::NotSent, RetryAction::Fail),
        RequestFailure::ConnectionLost | RequestFailure::ServerFault => {
            (Known::Unknown, if_safe(RetryAction::Retry))
        }
        RequestFailure::SessionLost => {
            (Known::Refused, after_session_loss(safety, &settings.retry))
        }
        RequestFailure::Unauthorized { .. } => (Known::Refused, RetryAction::RefreshThenRetry),
        // A renewed credential has the same scopes.
        RequestFailure::ScopeNeeded | RequestFailure::Denied => (Known::Refused, RetryAction::Fail),
        RequestFailure::Busy {
            retry_after: Some(pause),
        } => (
            Known::Refused,
            RetryAction::RetryAfter(pause.min(settings.backoff.max_retry_after)),
        ),
        // Without Retry-After it may be a gateway whose upstream broke off while running the request,
        // so it is treated like another 5xx.
        RequestFailure::Busy { retry_after: None } => {
            (Known::Unknown, if_safe(RetryAction::RetryAfter(BUSY_PAUSE)))
        }
    }
}

/// A server normally refuses a request of an expired session before running it. The setting is for
/// servers that run it first.
fn after_session_loss(safety: Safety, settings: &RetrySettings) -> RetryAction {
    match safety {
        Safety::Repeatable => RetryAction::ReconnectThenRetry,
        Safety::Effectful | Safety::TrustedTool if settings.retry_expired_calls => {
            RetryAction::ReconnectThenRetry
        }
        Safety::Effectful | Safety::TrustedTool => RetryAction::Fail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RetryAction::{Fail, ReconnectThenRetry, RefreshThenRetry, Retry, RetryAfter};
    use Safety::{Effectful, Repeatable, TrustedTool};

    const POLICIES: [RetryPolicy; 3] = [
        RetryPolicy::Default,
        RetryPolicy::Never,
        RetryPolicy::Always,
    ];

    const SAFETIES: [Safety; 3] = [Repeatable, Effectful, TrustedTool];

    type Row = (RequestFailure, Known, RetryAction, RetryAction, RetryAction);

    /// What happened; what is known; list, read, get; tools/call; a trusted tool.
    #[rustfmt::skip]
    fn table() -> Vec<Row> {
        use Known::{NotSent, Refused, Unknown};
        let busy = |secs| RequestFailure::Busy { retry_after: Some(Duration::from_secs(secs)) };
        let unauthorized = RequestFailure::Unauthorized { credential: CredentialRevision(1) };
        let after = |secs| RetryAfter(Duration::from_secs(secs));
        vec![
            (RequestFailure::NotWritten,     NotSent,  Retry,              Retry,              Retry),
            (RequestFailure::ConnectTimedOut,     NotSent,  Fail,               Fail,               Fail),
            (RequestFailure::ConnectionLost, Unknown,  Retry,              Fail,               Retry),
            (RequestFailure::SessionLost,    Refused,  ReconnectThenRetry, ReconnectThenRetry, ReconnectThenRetry),
            (unauthorized,                   Refused,  RefreshThenRetry,   RefreshThenRetry,   RefreshThenRetry),
            (RequestFailure::ScopeNeeded,    Refused,  Fail,               Fail,               Fail),
            (RequestFailure::Denied,         Refused,  Fail,               Fail,               Fail),
            (busy(7),                 Refused,  after(7),           after(7),           after(7)),
            (busy(9_999),             Refused,  after(120),         after(120),         after(120)),
            (RequestFailure::Busy { retry_after: None },
                                      Unknown,  after(1),           Fail,               after(1)),
            (RequestFailure::ServerFault,    Unknown,  Retry,              Fail,               Retry),
        ]
    }

    fn action(
        failure: RequestFailure,
        safety: Safety,
        policy: RetryPolicy,
        used: u8,
    ) -> RetryAction {
        decide(failure, safety, policy, used, &ServerSettings::default()).action
    }

    #[test]
    fn the_table_of_the_documentation_holds() {
        for (failure, known, repeatable, effectful, trusted) in table() {
            for (safety, action) in SAFETIES.into_iter().zip([repeatable, effectful, trusted]) {
                let settings = ServerSettings::default();
                assert_eq!(
                    decide(failure, safety, RetryPolicy::Default, 0, &settings),
                    RetryDecision { known, action },
                    "{failure:?} {safety:?}"
                );
            }
        }
    }

    #[test]
    fn retry_after_is_honoured_up_to_the_setting() {
        let busy = RequestFailure::Busy {
            retry_after: Some(Duration::from_secs(600)),
        };
        for most in [5, 300] {
            let mut settings = ServerSettings::default();
            settings.backoff.max_retry_after = Duration::from_secs(most);
            let decision = decide(busy, Effectful, RetryPolicy::Default, 0, &settings);
            assert_eq!(decision.action, RetryAfter(Duration::from_secs(most)));
        }
    }

    #[test]
    fn there_is_one_retry_in_total_and_an_unsent_request_does_not_use_it() {
        for (failure, ..) in table() {
            for safety in SAFETIES {
                for policy in POLICIES {
                    let unsent = failure == RequestFailure::NotWritten;
                    let expected = if unsent { Retry } else { Fail };
                    assert_eq!(action(failure, safety, policy, 1), expected, "{failure:?}");
                    assert_eq!(
                        action(failure, safety, policy, u8::MAX),
                        expected,
                        "{failure:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_policy_never_allows_no_retry() {
        for (failure, ..) in table() {
            for safety in SAFETIES {
                let unsent = failure == RequestFailure::NotWritten;
                let expected = if unsent { Retry } else { Fail };
                assert_eq!(
                    action(failure, safety, RetryPolicy::Never, 0),
                    expected,
                    "{failure:?}"
                );
            }
        }
    }

    #[test]
    fn the_policy_always_treats_a_tool_like_a_trusted_one() {
        for (failure, _, _, _, trusted) in table() {
            assert_eq!(
                action(failure, Effectful, RetryPolicy::Always, 0),
                trusted,
                "{failure:?}"
            );
        }
    }

    #[test]
    fn what_is_known_depends_on_the_failure_alone() {
        for (failure, known, ..) in table() {
            for safety in SAFETIES {
                for policy in POLICIES {
                    for used in [0, 1] {
                        let decision =
                            decide(failure, safety, policy, used, &ServerSettings::default());
                        assert_eq!(decision.known, known, "{failure:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_setting_disables_the_retry_of_expired_tool_calls_only() {
        let mut settings = ServerSettings::default();
        settings.retry.retry_expired_calls = false;
        let expired = |safety| {
            decide(
                RequestFailure::SessionLost,
                safety,
                RetryPolicy::Default,
                0,
                &settings,
            )
        };
        assert_eq!(expired(Repeatable).action, ReconnectThenRetry);
        assert_eq!(expired(Effectful).action, Fail);
        assert_eq!(expired(TrustedTool).action, Fail);
    }

    #[test]
    fn hints_of_a_tool_count_only_if_the_config_trusts_the_server() {
        let mut settings = RetrySettings::default();
        let safety = |name, read_only, idempotent, settings: &RetrySettings| {
            let hints = ToolHints {
                read_only,
                idempotent,
            };
            Safety::of_tool(name, settings, || hints)
        };
        assert_eq!(safety("get", true, true, &settings), Effectful);
        settings.idempotent_tools.push("get".into());
        assert_eq!(safety("get", false, false, &settings), TrustedTool);
        assert_eq!(safety("put", false, true, &settings), Effectful);
        settings.trusted = true;
        assert_eq!(safety("put", false, true, &settings), TrustedTool);
        assert_eq!(safety("put", true, false, &settings), TrustedTool);
        assert_eq!(safety("put", false, false, &settings), Effectful);
    }
}

//! What is known about a request that met trouble, and what may be done about it.
//!
//! The whole decision table is one function over plain values. Which trouble it was is said by the
//! transports; waiting, reconnecting and repeating is left to the machine.

use std::time::Duration;

use serde::Serialize;

use crate::settings::{RetrySettings, ServerSettings};

/// A request is repeated at most this often, all layers together.
pub const MAX_RETRIES: u8 = 1;

/// A server's wish (`Retry-After`) is honoured up to this, unless the settings say otherwise.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(120);

/// The pause before a repeat at a busy server that did not say how long.
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
    /// It calls a tool, which may have effects.
    Effectful,
    /// It calls a tool that the config trusts as read-only or idempotent.
    TrustedTool,
}

impl Safety {
    /// The safety of a tool, of which the server says that it is `read_only` or `idempotent`.
    ///
    /// A server's word counts only when the config trusts that server.
    pub fn of_tool(
        name: &str,
        read_only: bool,
        idempotent: bool,
        settings: &RetrySettings,
    ) -> Self {
        let by_name = settings.idempotent_tools.iter().any(|tool| tool == name);
        if by_name || (settings.trusted && (read_only || idempotent)) {
            Self::TrustedTool
        } else {
            Self::Effectful
        }
    }
}

/// What the caller wishes about retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RetryPolicy {
    /// Repeat what is safe to repeat.
    #[default]
    Default,
    /// Never send it twice.
    Never,
    /// The caller says that repeating is safe.
    Always,
}

/// What happened to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestFailure {
    /// It was queued when the connection went, or the connect failed: nothing was written.
    NotWritten,
    /// No connection could be opened for it in time, and the link lives on with what is in flight:
    /// nothing was written.
    ConnectTimedOut,
    /// Writing it failed; a part may have arrived.
    WriteFailed,
    /// The connection was lost after it was written.
    ConnectionLost,
    /// The server says that the session is gone, by status or by a known text, or that it no longer
    /// speaks the version of the connection.
    SessionLost,
    /// The server wants authorization (401).
    Unauthorized,
    /// The server refuses it for good (403 and most other 4xx).
    Denied,
    /// The server is busy (429, 503).
    Busy {
        /// When it wants to be asked again (`Retry-After`).
        retry_after: Option<Duration>,
    },
    /// Another 5xx, a broken stream, a stalled body.
    ServerFault,
    /// Its deadline passed after it was written.
    DeadlinePassed,
    /// The caller cancelled it after it was written.
    Cancelled,
    /// The answer is too large or cannot be read.
    Unreadable,
    /// The server answered, be it with an error.
    Answered,
    /// The server does not know the method (404 in the protocol of 2026-07-28).
    MethodGone,
}

/// What to do with a request that met trouble.
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
    /// Tell the caller.
    Fail,
}

/// What is known, and what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RetryDecision {
    /// What is known about the request.
    pub known: Known,
    /// What to do with it.
    pub decision: RetryAction,
}

/// Rules what becomes of a request that was repeated `retries_used` times before.
///
/// ```
/// use mcpvisor_core::retry::{RetryAction, Known, RetryPolicy, Safety, RequestFailure, rule};
/// use mcpvisor_core::settings::ServerSettings;
///
/// let settings = ServerSettings::default();
/// let ruling = rule(RequestFailure::ConnectionLost, Safety::Effectful, RetryPolicy::Default, 0, &settings);
/// assert_eq!((ruling.known, ruling.decision), (Known::Unknown, RetryAction::Fail));
/// ```
pub fn rule(
    trouble: RequestFailure,
    safety: Safety,
    wish: RetryPolicy,
    retries_used: u8,
    settings: &ServerSettings,
) -> RetryDecision {
    let (known, decision) = by_table(trouble, safety, wish, settings);
    // Sending what was never sent is no retry: no wish forbids it and it uses nothing up.
    let first_sending = known == Known::NotSent;
    let allowed = wish != RetryPolicy::Never && retries_used < MAX_RETRIES;
    RetryDecision {
        known,
        decision: if first_sending || allowed {
            decision
        } else {
            RetryAction::Fail
        },
    }
}

/// The table itself, for a request that may be retried once.
fn by_table(
    trouble: RequestFailure,
    safety: Safety,
    wish: RetryPolicy,
    settings: &ServerSettings,
) -> (Known, RetryAction) {
    let if_safe = |decision| match (safety, wish) {
        (Safety::Repeatable | Safety::TrustedTool, _) => decision,
        (Safety::Effectful, RetryPolicy::Always) => decision,
        (Safety::Effectful, RetryPolicy::Default | RetryPolicy::Never) => RetryAction::Fail,
    };
    match trouble {
        RequestFailure::NotWritten => (Known::NotSent, RetryAction::Retry),
        // The link has tried for as long as a call waits for a reconnect.
        RequestFailure::ConnectTimedOut => (Known::NotSent, RetryAction::Fail),
        RequestFailure::WriteFailed
        | RequestFailure::ConnectionLost
        | RequestFailure::ServerFault => (Known::Unknown, if_safe(RetryAction::Retry)),
        RequestFailure::SessionLost => (Known::Refused, if_expired(safety, &settings.retry)),
        RequestFailure::Unauthorized => (Known::Refused, RetryAction::RefreshThenRetry),
        RequestFailure::Denied => (Known::Refused, RetryAction::Fail),
        RequestFailure::Busy {
            retry_after: Some(wish),
        } => (
            Known::Refused,
            RetryAction::RetryAfter(wish.min(settings.backoff.max_retry_after)),
        ),
        // Without Retry-After it may as well be a gateway whose upstream broke off in the middle:
        // another 5xx, and only what is safe is repeated.
        RequestFailure::Busy { retry_after: None } => {
            (Known::Unknown, if_safe(RetryAction::RetryAfter(BUSY_PAUSE)))
        }
        RequestFailure::DeadlinePassed | RequestFailure::Cancelled => {
            (Known::Unknown, RetryAction::Fail)
        }
        RequestFailure::Unreadable | RequestFailure::Answered | RequestFailure::MethodGone => {
            (Known::Answered, RetryAction::Fail)
        }
    }
}

/// A session that expired refuses before running; the switch is for servers that run first.
fn if_expired(safety: Safety, settings: &RetrySettings) -> RetryAction {
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

    const WISHES: [RetryPolicy; 3] = [
        RetryPolicy::Default,
        RetryPolicy::Never,
        RetryPolicy::Always,
    ];

    const SAFETIES: [Safety; 3] = [Repeatable, Effectful, TrustedTool];

    type Row = (RequestFailure, Known, RetryAction, RetryAction, RetryAction);

    /// What happened; what is known; list, read, get; tools/call; a trusted tool.
    #[rustfmt::skip]
    fn table() -> Vec<Row> {
        use Known::{Answered, NotSent, Refused, Unknown};
        let busy = |secs| RequestFailure::Busy { retry_after: Some(Duration::from_secs(secs)) };
        let after = |secs| RetryAfter(Duration::from_secs(secs));
        vec![
            (RequestFailure::NotWritten,     NotSent,  Retry,              Retry,              Retry),
            (RequestFailure::ConnectTimedOut,     NotSent,  Fail,               Fail,               Fail),
            (RequestFailure::WriteFailed,    Unknown,  Retry,              Fail,               Retry),
            (RequestFailure::ConnectionLost, Unknown,  Retry,              Fail,               Retry),
            (RequestFailure::SessionLost,    Refused,  ReconnectThenRetry, ReconnectThenRetry, ReconnectThenRetry),
            (RequestFailure::MethodGone,     Answered, Fail,               Fail,               Fail),
            (RequestFailure::Unauthorized,   Refused,  RefreshThenRetry,   RefreshThenRetry,   RefreshThenRetry),
            (RequestFailure::Denied,         Refused,  Fail,               Fail,               Fail),
            (busy(7),                 Refused,  after(7),           after(7),           after(7)),
            (busy(9_999),             Refused,  after(120),         after(120),         after(120)),
            (RequestFailure::Busy { retry_after: None },
                                      Unknown,  after(1),           Fail,               after(1)),
            (RequestFailure::ServerFault,    Unknown,  Retry,              Fail,               Retry),
            (RequestFailure::DeadlinePassed, Unknown,  Fail,               Fail,               Fail),
            (RequestFailure::Cancelled,      Unknown,  Fail,               Fail,               Fail),
            (RequestFailure::Unreadable,     Answered, Fail,               Fail,               Fail),
            (RequestFailure::Answered,       Answered, Fail,               Fail,               Fail),
        ]
    }

    fn decide(trouble: RequestFailure, safety: Safety, wish: RetryPolicy, used: u8) -> RetryAction {
        rule(trouble, safety, wish, used, &ServerSettings::default()).decision
    }

    #[test]
    fn the_table_of_the_documentation_holds() {
        for (trouble, known, repeatable, effectful, trusted) in table() {
            for (safety, decision) in SAFETIES.into_iter().zip([repeatable, effectful, trusted]) {
                let settings = ServerSettings::default();
                assert_eq!(
                    rule(trouble, safety, RetryPolicy::Default, 0, &settings),
                    RetryDecision { known, decision },
                    "{trouble:?} {safety:?}"
                );
            }
        }
    }

    #[test]
    fn a_servers_wish_is_honoured_as_far_as_the_settings_say() {
        let busy = RequestFailure::Busy {
            retry_after: Some(Duration::from_secs(600)),
        };
        for most in [5, 300] {
            let mut settings = ServerSettings::default();
            settings.backoff.max_retry_after = Duration::from_secs(most);
            let ruling = rule(busy, Effectful, RetryPolicy::Default, 0, &settings);
            assert_eq!(ruling.decision, RetryAfter(Duration::from_secs(most)));
        }
    }

    #[test]
    fn there_is_one_retry_in_total_but_an_unsent_request_uses_none_up() {
        for (trouble, ..) in table() {
            for safety in SAFETIES {
                for wish in WISHES {
                    let unsent = trouble == RequestFailure::NotWritten;
                    let expected = if unsent { Retry } else { Fail };
                    assert_eq!(decide(trouble, safety, wish, 1), expected, "{trouble:?}");
                    assert_eq!(
                        decide(trouble, safety, wish, u8::MAX),
                        expected,
                        "{trouble:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_caller_who_wishes_no_retry_gets_none() {
        for (trouble, ..) in table() {
            for safety in SAFETIES {
                let unsent = trouble == RequestFailure::NotWritten;
                let expected = if unsent { Retry } else { Fail };
                assert_eq!(
                    decide(trouble, safety, RetryPolicy::Never, 0),
                    expected,
                    "{trouble:?}"
                );
            }
        }
    }

    #[test]
    fn a_caller_who_says_that_repeating_is_safe_gets_what_a_trusted_tool_gets() {
        for (trouble, _, _, _, trusted) in table() {
            assert_eq!(
                decide(trouble, Effectful, RetryPolicy::Always, 0),
                trusted,
                "{trouble:?}"
            );
        }
    }

    #[test]
    fn what_is_known_depends_on_the_trouble_alone() {
        for (trouble, known, ..) in table() {
            for safety in SAFETIES {
                for wish in WISHES {
                    for used in [0, 1] {
                        let ruling = rule(trouble, safety, wish, used, &ServerSettings::default());
                        assert_eq!(ruling.known, known, "{trouble:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_switch_turns_off_the_retry_of_expired_tool_calls_only() {
        let mut settings = ServerSettings::default();
        settings.retry.retry_expired_calls = false;
        let expired = |safety| {
            rule(
                RequestFailure::SessionLost,
                safety,
                RetryPolicy::Default,
                0,
                &settings,
            )
        };
        assert_eq!(expired(Repeatable).decision, ReconnectThenRetry);
        assert_eq!(expired(Effectful).decision, Fail);
        assert_eq!(expired(TrustedTool).decision, Fail);
    }

    #[test]
    fn a_servers_word_about_its_tools_counts_only_when_the_config_trusts_it() {
        let mut settings = RetrySettings::default();
        assert_eq!(Safety::of_tool("get", true, true, &settings), Effectful);
        settings.idempotent_tools.push("get".into());
        assert_eq!(Safety::of_tool("get", false, false, &settings), TrustedTool);
        assert_eq!(Safety::of_tool("put", false, true, &settings), Effectful);
        settings.trusted = true;
        assert_eq!(Safety::of_tool("put", false, true, &settings), TrustedTool);
        assert_eq!(Safety::of_tool("put", true, false, &settings), TrustedTool);
        assert_eq!(Safety::of_tool("put", false, false, &settings), Effectful);
    }
}

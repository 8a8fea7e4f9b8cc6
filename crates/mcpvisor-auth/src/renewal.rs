//! When a token is renewed, and what a failed renewal means. Pure: times are arguments.

use std::time::Duration;

use crate::config::{CredentialConfig, ResourceChoice};
use crate::error::AuthError;
use crate::record::{CredentialRecord, TokenSet};
use crate::token_endpoint::response::INVALID_RESPONSE;

/// A token is refreshed this long before it expires, or a tenth of its lifetime if that is less.
pub const MAX_LEAD: Duration = Duration::from_secs(60);

/// Times are stored in whole seconds, so a token may expire this much earlier than they say. A token
/// with a short lifetime is refreshed at least this long before.
pub const CLOCK_RESOLUTION: Duration = Duration::from_secs(1);

/// A renewed credential is not renewed again earlier than this, however soon it expires.
pub const MIN_RENEWAL_INTERVAL: Duration = Duration::from_secs(1);

/// The delay after the first failed renewal. It doubles with each further failure.
pub const FIRST_RETRY: Duration = Duration::from_secs(1);

/// The longest delay between two renewals that fail.
pub const MAX_RETRY: Duration = Duration::from_secs(60);

/// A refreshed token that a server refuses within this time, without having accepted it before,
/// shows that refreshing does not help.
pub const FRESH: Duration = Duration::from_secs(60);

/// How long a token stays usable, and when to refresh it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// Until it expires; `None` if unknown.
    pub expires_in: Option<Duration>,
    /// Until it should be refreshed; `None`: when the server refuses it.
    pub refresh_in: Option<Duration>,
}

impl Lifetime {
    /// The lifetime of stored tokens at this time, in seconds since 1970. A clock that moved back
    /// makes it unknown.
    pub fn of(tokens: &TokenSet, now: u64) -> Self {
        let unknown = Self {
            expires_in: None,
            refresh_in: None,
        };
        let Some(expires_at) = tokens.expires_at else {
            return unknown;
        };
        if now < tokens.obtained_at {
            return unknown;
        }
        let total = Duration::from_secs(expires_at.saturating_sub(tokens.obtained_at));
        let left = Duration::from_secs(expires_at.saturating_sub(now));
        let lead = MAX_LEAD.min(total / 10).max(CLOCK_RESOLUTION);
        Self {
            expires_in: Some(left),
            // Without a refresh token, the grant itself may still renew it.
            refresh_in: Some(left.saturating_sub(lead)),
        }
    }

    /// Whether it has to be renewed before it is used.
    pub fn is_due(&self) -> bool {
        self.refresh_in.is_some_and(|left| left.is_zero())
    }
}

/// The record that serves this config: the latest login that matches what the config fixes.
/// `records` are sorted, latest login first.
pub fn matching_record(
    config: &CredentialConfig,
    records: Vec<CredentialRecord>,
) -> Option<CredentialRecord> {
    records.into_iter().find(|record| serves(config, record))
}

/// Whether a record serves this config: it matches what the config fixes.
pub fn serves(config: &CredentialConfig, record: &CredentialRecord) -> bool {
    let issuer = config
        .issuer
        .as_ref()
        .is_none_or(|it| *it == record.key.issuer);
    let client = config
        .client
        .as_ref()
        .is_none_or(|it| it.id == record.client.id);
    let resource = match &config.resource {
        ResourceChoice::Discovered => true,
        ResourceChoice::Fixed(resource) => record.key.resource.as_ref() == Some(resource),
        ResourceChoice::Omitted => record.key.resource.is_none(),
    };
    issuer && client && resource
}

/// What a failed refresh means for the stored credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefreshFailure {
    /// The refresh token is rejected (`invalid_grant`): a person has to log in.
    GrantRejected,
    /// The client is rejected (`invalid_client`): register and log in again.
    ClientRejected,
    /// No complete answer: the issuer may have rotated the token. Repeat it at once.
    OutcomeUnknown,
    /// Everything else: keep the token and retry later.
    Transient,
}

/// Classifies the error of a refresh.
pub fn classify_refresh(error: &AuthError) -> RefreshFailure {
    match error {
        AuthError::Refused { error, .. } if error == "invalid_grant" => {
            RefreshFailure::GrantRejected
        }
        AuthError::Refused { error, .. } if error == "invalid_client" => {
            RefreshFailure::ClientRejected
        }
        AuthError::Http { error, .. } if error.may_have_been_processed() => {
            RefreshFailure::OutcomeUnknown
        }
        // A success that cannot be read, such as one that was cut off.
        AuthError::Refused { status, error, .. }
            if (200..300).contains(status) && error == INVALID_RESPONSE =>
        {
            RefreshFailure::OutcomeUnknown
        }
        AuthError::Refused { .. }
        | AuthError::Http { .. }
        | AuthError::LoginNeeded { .. }
        | AuthError::Unavailable { .. }
        | AuthError::RenewalFailed { .. }
        | AuthError::Invalid(_)
        | AuthError::Store(_)
        | AuthError::Cancelled(_) => RefreshFailure::Transient,
    }
}

/// The delay before the next renewal after this number of failures in a row.
pub fn retry_delay(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    FIRST_RETRY.saturating_mul(1 << doublings).min(MAX_RETRY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http_client::HttpError;
    use crate::secret::Secret;

    fn tokens(obtained_at: u64, expires_at: Option<u64>) -> TokenSet {
        TokenSet {
            access: Secret::new("a"),
            refresh: None,
            obtained_at,
            expires_at,
        }
    }

    fn seconds(lifetime: Lifetime) -> (Option<u64>, Option<u64>) {
        let secs = |it: Option<Duration>| it.map(|it| it.as_secs());
        (secs(lifetime.expires_in), secs(lifetime.refresh_in))
    }

    #[test]
    fn a_token_is_refreshed_a_minute_or_a_tenth_of_its_lifetime_early() {
        let hour = tokens(1_000, Some(4_600));
        assert_eq!(
            seconds(Lifetime::of(&hour, 1_000)),
            (Some(3_600), Some(3_540))
        );
        let short = tokens(1_000, Some(1_050));
        assert_eq!(seconds(Lifetime::of(&short, 1_010)), (Some(40), Some(35)));
        assert!(Lifetime::of(&short, 1_046).is_due());
        assert!(Lifetime::of(&short, 2_000).is_due());
        assert!(!Lifetime::of(&short, 1_010).is_due());
    }

    #[test]
    fn a_short_token_is_refreshed_before_it_expires_wherever_the_second_begins() {
        let short = tokens(1_000, Some(1_005));
        for now in 1_000..1_004 {
            let refresh_in = Lifetime::of(&short, now).refresh_in.unwrap();
            // The true time is at most a second later.
            let latest = Duration::from_secs(now + 1) + refresh_in;
            assert!(latest <= Duration::from_secs(1_005), "{now}: {latest:?}");
        }
        assert!(Lifetime::of(&short, 1_004).is_due());
    }

    #[test]
    fn an_unknown_expiry_or_a_clock_that_moved_back_waits_for_a_refusal() {
        assert_eq!(
            seconds(Lifetime::of(&tokens(1_000, None), 9_999)),
            (None, None)
        );
        assert_eq!(
            seconds(Lifetime::of(&tokens(1_000, Some(4_600)), 999)),
            (None, None)
        );
    }

    #[test]
    fn only_invalid_grant_rejects_a_token() {
        let refused = |error: &str, status| AuthError::Refused {
            request: "token request".to_owned(),
            status,
            error: error.to_owned(),
            description: None,
        };
        let lost = |error| AuthError::Http {
            request: "token request".to_owned(),
            error,
        };
        for status in [200, 400, 401, 500] {
            assert_eq!(
                classify_refresh(&refused("invalid_grant", status)),
                RefreshFailure::GrantRejected
            );
        }
        assert_eq!(
            classify_refresh(&refused("invalid_client", 401)),
            RefreshFailure::ClientRejected
        );
        for error in ["invalid_request", "http_500", "temporarily_unavailable"] {
            assert_eq!(
                classify_refresh(&refused(error, 400)),
                RefreshFailure::Transient,
                "{error}"
            );
        }
        assert_eq!(
            classify_refresh(&lost(HttpError::Interrupted("reset".to_owned()))),
            RefreshFailure::OutcomeUnknown
        );
        assert_eq!(
            classify_refresh(&refused(INVALID_RESPONSE, 200)),
            RefreshFailure::OutcomeUnknown
        );
        assert_eq!(
            classify_refresh(&refused(INVALID_RESPONSE, 400)),
            RefreshFailure::Transient
        );
        assert_eq!(
            classify_refresh(&lost(HttpError::NotSent("refused".to_owned()))),
            RefreshFailure::Transient
        );
    }

    #[test]
    fn failed_renewals_back_off_to_a_minute() {
        let delays: Vec<u64> = (1..9).map(|n| retry_delay(n).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(retry_delay(u32::MAX), MAX_RETRY);
    }
}

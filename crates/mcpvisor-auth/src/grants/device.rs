//! Device authorization (RFC 8628): a person logs in on another device.

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::{Instant, sleep_until};

use super::GrantTarget;
use super::authorization_code::web_url;
use crate::error::AuthError;
use crate::http_client::METADATA_TIMEOUT;
use crate::secret::Secret;
use crate::token_endpoint::response::{clean, lifetime_seconds, text};
use crate::token_endpoint::{TokenResponse, is_transient};

const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// Time between polls if the issuer does not name one, and what `slow_down` adds.
pub const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// The longest time between polls.
pub const MAX_POLL_INTERVAL: Duration = Duration::from_secs(60);

/// The longest time for a person to log in, whatever the issuer allows.
pub const MAX_WAIT: Duration = Duration::from_secs(30 * 60);

/// Characters of a user code.
const MAX_USER_CODE_CHARS: usize = 64;

/// A device authorization that waits for a person.
#[derive(Clone)]
pub struct DeviceAuthorization {
    device_code: Secret,
    user_code: String,
    verification_uri: String,
    verification_uri_complete: Option<String>,
    interval: Duration,
    expires_at: Instant,
}

impl DeviceAuthorization {
    /// Asks the issuer for a user code.
    pub async fn request(target: &GrantTarget<'_>) -> Result<Self, AuthError> {
        let server = &target.discovered.server;
        let url = server.device_authorization_endpoint.as_deref();
        let url = url.ok_or_else(|| {
            AuthError::Invalid(format!("{} does not support device codes", server.issuer))
        })?;
        let scope = target.scopes.join(" ");
        let parameters = target.parameters(&[], &scope);
        let requested_at = Instant::now();
        let (exchange, response) = target
            .endpoint()
            .post("device request", url, &parameters, METADATA_TIMEOUT)
            .await?;
        let fields = exchange.fields(&response)?;
        if text(&fields, "device_code").is_none() {
            let problem = "the response has no device code";
            return Err(exchange.refusal(response.status(), &fields, problem));
        }
        Self::parse(&fields, requested_at)
    }

    fn parse(fields: &Map<String, Value>, requested_at: Instant) -> Result<Self, AuthError> {
        let missing =
            |name: &str| AuthError::Invalid(format!("the device authorization has no {name}"));
        let seconds = |name| fields.get(name).and_then(lifetime_seconds);
        // Some issuers still use the name of a draft.
        let uri = text(fields, "verification_uri").or_else(|| text(fields, "verification_url"));
        let interval = seconds("interval").map_or(POLL_INTERVAL, Duration::from_secs);
        let lifetime = seconds("expires_in").map_or(MAX_WAIT, Duration::from_secs);
        Ok(Self {
            device_code: Secret::new(
                text(fields, "device_code").ok_or_else(|| missing("device_code"))?,
            ),
            user_code: text(fields, "user_code")
                .and_then(|code| clean(code, MAX_USER_CODE_CHARS))
                .ok_or_else(|| missing("user_code"))?,
            verification_uri: web_url(uri.ok_or_else(|| missing("verification_uri"))?)?,
            verification_uri_complete: text(fields, "verification_uri_complete")
                .and_then(|uri| web_url(uri).ok()),
            interval: interval.clamp(Duration::from_secs(1), MAX_POLL_INTERVAL),
            expires_at: requested_at + lifetime.min(MAX_WAIT),
        })
    }

    /// The code that the person enters.
    pub fn user_code(&self) -> &str {
        &self.user_code
    }

    /// Where the person enters it.
    pub fn verification_uri(&self) -> &str {
        &self.verification_uri
    }

    /// The same with the code in it, if the issuer has one.
    pub fn verification_uri_complete(&self) -> Option<&str> {
        self.verification_uri_complete.as_deref()
    }

    /// The time until the code expires.
    pub fn time_left(&self) -> Duration {
        self.expires_at.saturating_duration_since(Instant::now())
    }

    /// Polls until the person has decided, the code expires or `timeout` has passed. Dropping it
    /// ends the polling.
    pub async fn poll(
        &self,
        target: &GrantTarget<'_>,
        timeout: Duration,
    ) -> Result<TokenResponse, AuthError> {
        let deadline = self.expires_at.min(Instant::now() + timeout.min(MAX_WAIT));
        let mut interval = self.interval;
        loop {
            let next = Instant::now() + interval;
            if next >= deadline {
                sleep_until(deadline).await;
                return Err(AuthError::Cancelled(
                    "the device code expired before the login; log in again".into(),
                ));
            }
            sleep_until(next).await;
            match self.poll_once(target).await {
                Ok(token) => return Ok(token),
                Err(error) => interval = interval_after(error, interval)?,
            }
        }
    }

    async fn poll_once(&self, target: &GrantTarget<'_>) -> Result<TokenResponse, AuthError> {
        let parameters = target.parameters(
            &[
                ("grant_type", GRANT_TYPE),
                ("device_code", self.device_code.expose()),
            ],
            "",
        );
        target.endpoint().request(&parameters).await
    }
}

impl fmt::Debug for DeviceAuthorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceAuthorization")
            .field("verification_uri", &self.verification_uri)
            .field("interval", &self.interval)
            .finish_non_exhaustive()
    }
}

/// The time until the next poll, or the error that ends polling (RFC 8628, 3.5).
fn interval_after(error: AuthError, interval: Duration) -> Result<Duration, AuthError> {
    let code = match &error {
        AuthError::Refused { error, .. } => error.as_str(),
        _ => "",
    };
    match code {
        "authorization_pending" => Ok(interval),
        "slow_down" => Ok((interval + POLL_INTERVAL).min(MAX_POLL_INTERVAL)),
        "expired_token" => Err(AuthError::Cancelled(
            "the device code expired before the login; log in again".into(),
        )),
        _ if is_transient(&error) => Ok((interval * 2).min(MAX_POLL_INTERVAL)),
        _ => Err(error),
    }
}

//! The faults of the authorization server and of the protected server: their names and effects.

use std::str::FromStr;
use std::time::Duration;

use super::endpoint::Endpoint;

/// A fault to inject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthFault {
    // Of any endpoint.
    /// Waits before it processes the request.
    Delay(Duration),
    /// Processes the request immediately, and delays the answer.
    DelayAnswer(Duration),
    /// Closes the connection; the request is not processed.
    DropBefore,
    /// Processes the request, then closes the connection without an answer.
    DropAfter,
    /// Answers with this status and a text; the request is not processed.
    Status(u16),
    /// Answers 429 with `Retry-After` in seconds; the request is not processed.
    TooManyRequests(u64),
    /// Answers 503 with `Retry-After` in seconds; the request is not processed.
    Unavailable(u64),
    /// Processes the request, then answers with half of the JSON document.
    Garbage,
    /// Redirects to this URL.
    Redirect(String),
    /// Redirects to itself, with a growing query.
    RedirectLoop,
    /// Answers with a JSON document without an end.
    Endless,
    /// Answers with a JSON document without an end, one byte per interval.
    Drip(Duration),

    // Of the token endpoint.
    /// Refuses with `invalid_grant` and this status; the tokens stay valid.
    InvalidGrant(u16),
    /// Refuses requests with this refresh token with `invalid_grant`.
    InvalidGrantFor(String),
    /// Refuses with `invalid_client`.
    InvalidClient,
    /// Answers a refresh without a refresh token; the old one stays valid.
    NoRefreshToken,
    /// Sends `expires_in` as a string.
    ExpiresInString,
    /// Sends `expires_in` as a fraction.
    ExpiresInFloat,
    /// Sends no `expires_in`.
    NoExpiresIn,
    /// Answers with status 201.
    Created,
    /// Sends the token type `mac`.
    MacToken,
    /// Issues a bearer token, although the request proved the possession of a key.
    BearerToken,
    /// Issues an access token that has expired already, and announces the usual lifetime.
    ExpiredAtOnce,
    /// Grants only these scopes, separated by spaces.
    ReducedScope(String),

    // Of the metadata.
    /// Names another issuer.
    WrongIssuer,
    /// Announces only the PKCE method `plain`.
    NoS256,
    /// Announces no PKCE methods at all.
    NoPkce,
    /// Places all endpoints at this origin, such as `http://169.254.169.254`.
    EndpointsAt(String),
    /// Names `javascript:` URLs as endpoints.
    ScriptEndpoints,

    // Of the callback.
    /// Sends another `iss`.
    WrongIss,
    /// Sends no `iss`, although the metadata announce it.
    NoIss,
    /// Sends another `iss`, although the metadata do not announce it. Affects metadata and
    /// callback.
    UnexpectedIss,
    /// Sends another `state`.
    WrongState,
    /// Sends the code and the `iss` of this other issuer.
    MixUp {
        /// The other issuer.
        issuer: String,
        /// Its code.
        code: String,
    },
    /// Sends `error=access_denied`.
    AccessDenied,

    // Of the protected server and the token endpoint.
    /// Refuses the nonce of every proof.
    RefuseNonces,

    // Of the protected server.
    /// Answers 401 to every token.
    RefuseTokens,
    /// Names another resource in the metadata of the protected server.
    WrongResource,
    /// Names this issuer in the metadata of the protected server.
    OtherIssuer(String),
}

/// What a fault's value means, and its default.
type FaultValue = (&'static str, &'static str);

/// All faults: name, value, and description.
#[rustfmt::skip]
const FAULTS: &[(&str, Option<FaultValue>, &str)] = &[
    ("delay", Some(("MS", "1000")), "waits before it processes the request"),
    ("delay-answer", Some(("MS", "1000")), "processes the request immediately, and delays the answer"),
    ("drop-before", None, "closes the connection; the request is not processed"),
    ("drop-after", None, "processes the request, then closes the connection without an answer"),
    ("status", Some(("STATUS", "500")), "answers with this status; the request is not processed"),
    ("too-many-requests", Some(("S", "1")), "answers 429 with Retry-After"),
    ("unavailable", Some(("S", "1")), "answers 503 with Retry-After"),
    ("garbage", None, "processes the request, then answers with half of the JSON document"),
    ("redirect", Some(("URL", "http://169.254.169.254/latest/meta-data")), "redirects to this URL"),
    ("redirect-loop", None, "redirects to itself without an end"),
    ("endless", None, "answers with a JSON document without an end"),
    ("drip", Some(("MS", "100")), "the same, one byte at a time, so far apart"),
    ("invalid-grant", Some(("STATUS", "400")), "refuses with invalid_grant; the tokens stay valid"),
    ("invalid-grant-for", Some(("TOKEN", "")), "refuses this refresh token with invalid_grant"),
    ("invalid-client", None, "refuses with invalid_client"),
    ("no-refresh-token", None, "answers a refresh without a refresh token; the old one stays valid"),
    ("expires-in-string", None, "sends expires_in as a string"),
    ("expires-in-float", None, "sends expires_in as a fraction"),
    ("no-expires-in", None, "sends no expires_in"),
    ("created", None, "answers with status 201"),
    ("mac-token", None, "sends the token type mac"),
    ("bearer-token", None, "issues a bearer token, although the request has a proof"),
    ("expired-at-once", None, "issues an access token that has expired already"),
    ("reduced-scope", Some(("SCOPES", "mcp")), "grants only these scopes"),
    ("wrong-issuer", None, "names another issuer in the metadata"),
    ("no-s256", None, "announces only the PKCE method plain"),
    ("no-pkce", None, "announces no PKCE methods"),
    ("endpoints-at", Some(("ORIGIN", "http://169.254.169.254")), "places all endpoints at this origin"),
    ("script-endpoints", None, "names javascript: URLs as endpoints"),
    ("wrong-iss", None, "sends another iss to the callback"),
    ("no-iss", None, "sends no iss to the callback, although it is announced"),
    ("unexpected-iss", None, "sends another iss to the callback, although none is announced"),
    ("wrong-state", None, "sends another state to the callback"),
    ("mix-up", Some(("ISSUER CODE", "http://127.0.0.1:1 code")), "sends the code and the iss of another issuer"),
    ("access-denied", None, "sends error=access_denied to the callback"),
    ("refuse-nonces", None, "refuses the nonce of every proof"),
    ("refuse-tokens", None, "the protected server answers 401 to every token"),
    ("wrong-resource", None, "the protected server's metadata name another resource"),
    ("other-issuer", Some(("ISSUER", "http://127.0.0.1:1")), "the protected server's metadata name this issuer"),
];

/// Each fault in command-line syntax, with its description.
pub fn list_auth_faults() -> Vec<(String, &'static str)> {
    let usage = |name: &str, value: &Option<FaultValue>| match value {
        Some((what, default)) => format!("{name}[={what}] ({default})"),
        None => name.to_owned(),
    };
    let faults = FAULTS.iter();
    faults
        .map(|(name, value, line)| (usage(name, value), *line))
        .collect()
}

impl FromStr for AuthFault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, given) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let known = FAULTS.iter().find(|(known, ..)| *known == name);
        let (_, takes, _) = known.ok_or_else(|| format!("no fault {name:?}"))?;
        let value = match (takes, given) {
            (None, Some(_)) => return Err(format!("the fault {name} takes no value")),
            (None, None) => "",
            (Some((_, default)), given) => given.unwrap_or(default),
        };
        parse(name, value).ok_or_else(|| format!("not a value of {name}: {value:?}"))
    }
}

fn parse(name: &str, value: &str) -> Option<AuthFault> {
    let time = || value.parse().ok().map(Duration::from_millis);
    let text = || value.to_owned();
    Some(match name {
        "delay" => AuthFault::Delay(time()?),
        "delay-answer" => AuthFault::DelayAnswer(time()?),
        "drop-before" => AuthFault::DropBefore,
        "drop-after" => AuthFault::DropAfter,
        "status" => AuthFault::Status(value.parse().ok()?),
        "too-many-requests" => AuthFault::TooManyRequests(value.parse().ok()?),
        "unavailable" => AuthFault::Unavailable(value.parse().ok()?),
        "garbage" => AuthFault::Garbage,
        "redirect" => AuthFault::Redirect(text()),
        "redirect-loop" => AuthFault::RedirectLoop,
        "endless" => AuthFault::Endless,
        "drip" => AuthFault::Drip(time()?),
        "invalid-grant" => AuthFault::InvalidGrant(value.parse().ok()?),
        "invalid-grant-for" => AuthFault::InvalidGrantFor(text()),
        "invalid-client" => AuthFault::InvalidClient,
        "no-refresh-token" => AuthFault::NoRefreshToken,
        "expires-in-string" => AuthFault::ExpiresInString,
        "expires-in-float" => AuthFault::ExpiresInFloat,
        "no-expires-in" => AuthFault::NoExpiresIn,
        "created" => AuthFault::Created,
        "mac-token" => AuthFault::MacToken,
        "bearer-token" => AuthFault::BearerToken,
        "expired-at-once" => AuthFault::ExpiredAtOnce,
        "reduced-scope" => AuthFault::ReducedScope(text()),
        "wrong-issuer" => AuthFault::WrongIssuer,
        "no-s256" => AuthFault::NoS256,
        "no-pkce" => AuthFault::NoPkce,
        "endpoints-at" => AuthFault::EndpointsAt(text()),
        "script-endpoints" => AuthFault::ScriptEndpoints,
        "wrong-iss" => AuthFault::WrongIss,
        "no-iss" => AuthFault::NoIss,
        "unexpected-iss" => AuthFault::UnexpectedIss,
        "wrong-state" => AuthFault::WrongState,
        "mix-up" => {
            let (issuer, code) = value.split_once(' ')?;
            let (issuer, code) = (issuer.to_owned(), code.to_owned());
            AuthFault::MixUp { issuer, code }
        }
        "access-denied" => AuthFault::AccessDenied,
        "refuse-nonces" => AuthFault::RefuseNonces,
        "refuse-tokens" => AuthFault::RefuseTokens,
        "wrong-resource" => AuthFault::WrongResource,
        "other-issuer" => AuthFault::OtherIssuer(text()),
        _ => return None,
    })
}

impl AuthFault {
    /// The endpoints that it affects unless the test chooses another.
    pub(super) fn default_endpoints(&self) -> &'static [Endpoint] {
        match self {
            Self::Delay(_)
            | Self::DelayAnswer(_)
            | Self::DropBefore
            | Self::DropAfter
            | Self::Status(_)
            | Self::TooManyRequests(_)
            | Self::Unavailable(_)
            | Self::Garbage
            | Self::InvalidGrant(_)
            | Self::InvalidGrantFor(_)
            | Self::InvalidClient
            | Self::NoRefreshToken
            | Self::ExpiresInString
            | Self::ExpiresInFloat
            | Self::NoExpiresIn
            | Self::Created
            | Self::MacToken
            | Self::BearerToken
            | Self::ExpiredAtOnce
            | Self::ReducedScope(_) => &[Endpoint::Token],
            Self::Redirect(_)
            | Self::RedirectLoop
            | Self::Endless
            | Self::Drip(_)
            | Self::WrongIssuer
            | Self::NoS256
            | Self::NoPkce
            | Self::EndpointsAt(_)
            | Self::ScriptEndpoints => &[Endpoint::Metadata],
            Self::WrongIss
            | Self::NoIss
            | Self::WrongState
            | Self::MixUp { .. }
            | Self::AccessDenied => &[Endpoint::Authorize],
            Self::UnexpectedIss => &[Endpoint::Metadata, Endpoint::Authorize],
            Self::RefuseNonces => &[Endpoint::Token, Endpoint::Mcp],
            Self::RefuseTokens => &[Endpoint::Mcp],
            Self::WrongResource | Self::OtherIssuer(_) => &[Endpoint::ResourceMetadata],
        }
    }

    /// Whether the request is not processed, so that no other fault applies to it.
    pub(super) fn replaces_reply(&self) -> bool {
        matches!(
            self,
            Self::DropBefore
                | Self::Status(_)
                | Self::TooManyRequests(_)
                | Self::Unavailable(_)
                | Self::Redirect(_)
                | Self::RedirectLoop
                | Self::Endless
                | Self::Drip(_)
                | Self::InvalidGrant(_)
                | Self::InvalidGrantFor(_)
                | Self::InvalidClient
        )
    }
}

//! Client authentication of a request.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::client::{AuthMethod, Client};
use super::form::Form;
use super::jwt;
use super::service::{Shared, error};
use crate::http_server::{Request, WireReply};

/// The type of a client assertion.
const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// The authentication that a client used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientAuth {
    /// Not even a client id.
    Missing,
    /// Only a client id.
    None {
        /// `client_id`
        id: String,
    },
    /// HTTP Basic.
    Basic {
        /// The user name.
        id: String,
        /// The password.
        secret: String,
    },
    /// Id and secret in the body.
    Post {
        /// `client_id`
        id: String,
        /// `client_secret`
        secret: String,
    },
    /// A client assertion.
    PrivateKeyJwt {
        /// `sub` of the assertion; empty if it cannot be decoded.
        id: String,
        /// The assertion.
        assertion: String,
    },
}

impl ClientAuth {
    /// The authentication of a request.
    pub(super) fn of(request: &Request, form: &Form) -> Self {
        if let Some((id, secret)) = request.header("authorization").and_then(basic) {
            return Self::Basic { id, secret };
        }
        if let Some(assertion) = form.get("client_assertion") {
            let claims = jwt::claims(assertion).unwrap_or_default();
            return Self::PrivateKeyJwt {
                id: claims["sub"].as_str().unwrap_or_default().to_owned(),
                assertion: assertion.to_owned(),
            };
        }
        match (form.get("client_id"), form.get("client_secret")) {
            (Some(id), Some(secret)) => Self::Post {
                id: id.to_owned(),
                secret: secret.to_owned(),
            },
            (Some(id), None) => Self::None { id: id.to_owned() },
            (None, _) => Self::Missing,
        }
    }

    /// The client id; empty if there is none.
    pub fn id(&self) -> &str {
        match self {
            Self::Missing => "",
            Self::None { id }
            | Self::Basic { id, .. }
            | Self::Post { id, .. }
            | Self::PrivateKeyJwt { id, .. } => id,
        }
    }

    /// The authenticated client, or the refusal.
    pub(super) fn check(&self, shared: &Shared, form: &Form) -> Result<Client, WireReply> {
        let refused = |text: &str| {
            let reply = error(401, "invalid_client", text);
            match self {
                Self::Basic { .. } => reply.header("www-authenticate", "Basic realm=\"token\""),
                _ => reply,
            }
        };
        let client = shared.client(self.id());
        let client = client.ok_or_else(|| refused("unknown client"))?;
        let accepted = match (self, client.method) {
            (Self::None { .. }, AuthMethod::None) => true,
            (Self::Basic { secret, .. }, AuthMethod::Basic)
            | (Self::Post { secret, .. }, AuthMethod::Post) => {
                let expiry = client.secret_expires_at;
                client.secret.as_ref() == Some(secret) && (expiry == 0 || expiry > jwt::now())
            }
            (Self::PrivateKeyJwt { id, assertion }, AuthMethod::PrivateKeyJwt) => {
                form.get("client_assertion_type") == Some(JWT_BEARER)
                    && form.get("client_id").is_none_or(|named| named == id)
                    && jwt::is_valid_assertion(assertion, id, &shared.audiences())
            }
            _ => return Err(refused(&format!("registered as {}", client.method.name()))),
        };
        accepted
            .then_some(client)
            .ok_or_else(|| refused("wrong credentials"))
    }
}

/// Id and secret, which are form-encoded before they are joined (RFC 6749, 2.3.1).
fn basic(header: &str) -> Option<(String, String)> {
    let encoded = header.strip_prefix("Basic ")?;
    let joined = String::from_utf8(STANDARD.decode(encoded).ok()?).ok()?;
    let (id, secret) = joined.split_once(':')?;
    Some((decoded(id), decoded(secret)))
}

fn decoded(text: &str) -> String {
    let form = Form::parse(format!("v={}", text.replace('&', "%26")).as_bytes());
    form.get("v").unwrap_or_default().to_owned()
}

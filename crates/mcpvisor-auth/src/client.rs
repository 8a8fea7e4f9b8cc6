//! How a client authenticates a request to its issuer.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use form_urlencoded::byte_serialize;
use http::HeaderValue;

use crate::config::ConfiguredClient;
use crate::error::AuthError;
use crate::jwt::{SigningKey, client_assertion};
use crate::record::{ClientAuthMethod, ClientRecord};
use crate::secret::Secret;

/// The type of a client assertion.
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// What a request carries so that the issuer recognizes the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientAuthentication {
    /// The `Authorization` header, marked as sensitive.
    pub authorization: Option<HeaderValue>,
    /// Further parameters of the body.
    pub parameters: Vec<(&'static str, Secret)>,
}

impl ClientAuthentication {
    /// Authenticates `client` by its method. `configured` has the secret or key of a configured
    /// client; `now` is in seconds since 1970.
    pub fn new(
        client: &ClientRecord,
        configured: Option<&ConfiguredClient>,
        issuer: &str,
        now: u64,
    ) -> Result<Self, AuthError> {
        // A key or secret of another client must not reach this issuer.
        let configured = configured.filter(|configured| configured.id == client.id);
        match client.auth_method {
            ClientAuthMethod::None => Ok(Self::in_body(vec![id_parameter(client)])),
            ClientAuthMethod::ClientSecretBasic => basic(client, secret(client, configured)?),
            ClientAuthMethod::ClientSecretPost => Ok(Self::in_body(vec![
                id_parameter(client),
                ("client_secret", secret(client, configured)?.clone()),
            ])),
            ClientAuthMethod::PrivateKeyJwt => {
                let key = configured
                    .and_then(|configured| configured.private_key.as_ref())
                    .ok_or_else(|| missing("private key"))?;
                let key = SigningKey::from_pem(key)?;
                Ok(Self::in_body(vec![
                    id_parameter(client),
                    ("client_assertion_type", Secret::new(ASSERTION_TYPE)),
                    (
                        "client_assertion",
                        client_assertion(&key, &client.id, issuer, now)?,
                    ),
                ]))
            }
        }
    }

    fn in_body(parameters: Vec<(&'static str, Secret)>) -> Self {
        Self {
            authorization: None,
            parameters,
        }
    }
}

fn id_parameter(client: &ClientRecord) -> (&'static str, Secret) {
    ("client_id", Secret::new(client.id.clone()))
}

/// The configured secret is newer than the stored one.
fn secret<'a>(
    client: &'a ClientRecord,
    configured: Option<&'a ConfiguredClient>,
) -> Result<&'a Secret, AuthError> {
    configured
        .and_then(|configured| configured.secret.as_ref())
        .or(client.secret.as_ref())
        .ok_or_else(|| missing("client secret"))
}

fn missing(what: &str) -> AuthError {
    AuthError::Invalid(format!(
        "the issuer requires a {what}, and none is configured"
    ))
}

/// RFC 6749, 2.3.1: id and secret are form-encoded before they are joined.
fn basic(client: &ClientRecord, secret: &Secret) -> Result<ClientAuthentication, AuthError> {
    let encode = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    let pair = format!("{}:{}", encode(&client.id), encode(secret.expose()));
    let mut header = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair)))
        .map_err(|_| AuthError::Invalid("the client secret cannot be sent".into()))?;
    header.set_sensitive(true);
    Ok(ClientAuthentication {
        authorization: Some(header),
        // Some servers look the client up by the body, whatever the header says.
        parameters: vec![id_parameter(client)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tokens::{client, p256_pem};

    fn authenticate(
        client: &ClientRecord,
        configured: Option<&ConfiguredClient>,
    ) -> Result<ClientAuthentication, AuthError> {
        ClientAuthentication::new(client, configured, "https://as.example.com", 1000)
    }

    fn names(authentication: &ClientAuthentication) -> Vec<&'static str> {
        authentication
            .parameters
            .iter()
            .map(|(name, _)| *name)
            .collect()
    }

    #[test]
    fn a_public_client_sends_its_id() {
        let sent = authenticate(&client(ClientAuthMethod::None), None).unwrap();
        assert_eq!(sent.authorization, None);
        assert_eq!(
            sent.parameters,
            [("client_id", Secret::new("client-1".to_owned()))]
        );
    }

    #[test]
    fn basic_encodes_id_and_secret_first() {
        let mut client = client(ClientAuthMethod::ClientSecretBasic);
        client.id = "https://c.example.com/a b".into();
        client.secret = Some(Secret::new("p:w%ü"));
        let sent = authenticate(&client, None).unwrap();
        let header = sent.authorization.clone().unwrap();
        assert!(header.is_sensitive());
        let pair = STANDARD
            .decode(&header.as_bytes()["Basic ".len()..])
            .unwrap();
        assert_eq!(
            String::from_utf8(pair).unwrap(),
            "https%3A%2F%2Fc.example.com%2Fa+b:p%3Aw%25%C3%BC"
        );
        assert_eq!(names(&sent), ["client_id"], "some servers need it too");
        assert!(!format!("{sent:?}").contains("Basic"));
    }

    #[test]
    fn post_sends_id_and_secret_in_the_body() {
        let mut client = client(ClientAuthMethod::ClientSecretPost);
        client.secret = Some(Secret::new("stored"));
        let sent = authenticate(&client, None).unwrap();
        assert_eq!(sent.authorization, None);
        assert_eq!(names(&sent), ["client_id", "client_secret"]);
    }

    #[test]
    fn the_configured_secret_replaces_the_stored_one() {
        let mut client = client(ClientAuthMethod::ClientSecretPost);
        client.secret = Some(Secret::new("stored"));
        let mut configured = ConfiguredClient {
            id: client.id.clone(),
            secret: Some(Secret::new("newer")),
            private_key: None,
        };
        let secret = |configured: &ConfiguredClient| {
            authenticate(&client, Some(configured)).unwrap().parameters[1].clone()
        };
        assert_eq!(secret(&configured).1.expose(), "newer");
        configured.id = "another".into();
        assert_eq!(secret(&configured).1.expose(), "stored");
    }

    #[test]
    fn a_key_signs_an_assertion() {
        let client = client(ClientAuthMethod::PrivateKeyJwt);
        let configured = ConfiguredClient {
            id: client.id.clone(),
            secret: None,
            private_key: Some(p256_pem()),
        };
        let sent = authenticate(&client, Some(&configured)).unwrap();
        assert_eq!(
            names(&sent),
            ["client_id", "client_assertion_type", "client_assertion"]
        );
        assert_eq!(sent.parameters[1].1.expose(), ASSERTION_TYPE);
        assert_eq!(sent.parameters[2].1.expose().split('.').count(), 3);
    }

    #[test]
    fn a_missing_secret_or_key_is_an_error() {
        for method in [
            ClientAuthMethod::ClientSecretBasic,
            ClientAuthMethod::ClientSecretPost,
            ClientAuthMethod::PrivateKeyJwt,
        ] {
            let error = authenticate(&client(method), None).unwrap_err();
            assert!(error.to_string().contains("none is configured"), "{error}");
        }
    }
}

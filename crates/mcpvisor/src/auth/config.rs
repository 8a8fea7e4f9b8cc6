//! How a server is authorized, as its config says.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use mcpvisor_auth::Secret;
use mcpvisor_auth::config::{
    ConfiguredClient, CredentialConfig, Grant, IdentityProvider, ResourceChoice,
};

/// How long the headers of a helper are used, unless its config says otherwise.
pub(crate) const DEFAULT_HELPER_TTL: Duration = Duration::from_secs(300);

/// How a server is authorized. By default everything is found out, and a person logs in with a
/// browser where the server requires it.
///
/// ```
/// use mcpvisor::Transport;
/// use mcpvisor::auth::AuthConfig;
///
/// let mut auth = AuthConfig::default();
/// auth.client_id = Some("my-app".to_owned());
/// auth.scopes = Some(vec!["repo".to_owned()]);
/// let github = Transport::http("https://example.com/mcp").auth(auth);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuthConfig {
    /// The account, where a server is used with several.
    pub account: Option<String>,
    /// How tokens are obtained.
    pub grant: AuthGrant,
    /// The id of a client that was registered beforehand.
    pub client_id: Option<String>,
    /// The variable that holds its secret.
    pub client_secret_env: Option<String>,
    /// Its secret, where a config contains it.
    pub client_secret: Option<Secret>,
    /// A PEM file with its private key, for `private_key_jwt`.
    pub private_key_file: Option<PathBuf>,
    /// Its private key in PEM, where the program has it.
    pub private_key: Option<Secret>,
    /// The URL of the client's metadata document.
    pub client_metadata_url: Option<String>,
    /// The scopes to request.
    pub scopes: Option<Vec<String>>,
    /// The `resource` parameter: another one, or none if it is empty.
    pub resource: Option<String>,
    /// The only issuer to accept.
    pub issuer: Option<String>,
    /// Another name that the issuer may state for itself.
    pub issuer_exception: Option<String>,
    /// The fixed port of the callback listener.
    pub callback_port: Option<u16>,
    /// The redirect URI to register.
    pub redirect_uri: Option<String>,
    /// The identity provider of [`AuthGrant::Enterprise`].
    pub idp: Option<IdentityProviderConfig>,
    /// A program that prints the headers to send, or a bare token.
    pub headers_helper: Option<Vec<String>>,
    /// How long its headers are used.
    pub headers_helper_ttl: Option<Duration>,
}

/// How tokens are obtained.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthGrant {
    /// A person logs in with a browser.
    #[default]
    AuthorizationCode,
    /// A person logs in on another device.
    DeviceCode,
    /// The client itself is authorized.
    ClientCredentials,
    /// An assertion is exchanged for a token. It takes the place of the client secret: the variable
    /// named by `client_secret_env`, or `client_secret`.
    JwtBearer,
    /// The enterprise's identity provider vouches for the user.
    Enterprise,
}

/// The identity provider of an enterprise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IdentityProviderConfig {
    /// Its issuer.
    pub issuer: String,
    /// Its token endpoint, if it is not discovered.
    pub token_endpoint: Option<String>,
    /// The client id at the identity provider.
    pub client_id: String,
    /// The variable that holds the user's ID token.
    pub id_token_env: String,
    /// The user's ID token, where the program has it.
    pub id_token: Option<Secret>,
}

impl AuthConfig {
    /// What the credential layer needs. Reads variables and the key file.
    pub(crate) fn resolve(
        &self,
        server_url: &str,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<CredentialConfig, String> {
        let read = |name: &str| {
            let value = variable(name).and_then(|value| value.into_string().ok());
            let value = value.filter(|value| !value.trim().is_empty());
            let value = value.ok_or_else(|| format!("{name} is not set"))?;
            Ok::<Secret, String>(Secret::new(value.trim()))
        };
        let mut config = CredentialConfig::new(server_url);
        config.account = self.account.clone().unwrap_or_default();
        config.grant = self.grant(&read)?;
        config.client = self.client(&read)?;
        config.client_metadata_url = self.client_metadata_url.clone();
        config.scopes = self.scopes.clone();
        config.resource = match self.resource.as_deref() {
            None => ResourceChoice::Discovered,
            Some("") => ResourceChoice::Omitted,
            Some(resource) => ResourceChoice::Fixed(resource.to_owned()),
        };
        config.issuer = self.issuer.clone();
        config.issuer_exception = self.issuer_exception.clone();
        config.callback_port = self.callback_port;
        config.redirect_uri = self.redirect_uri.clone();
        Ok(config)
    }

    fn grant(&self, read: &impl Fn(&str) -> Result<Secret, String>) -> Result<Grant, String> {
        Ok(match self.grant {
            AuthGrant::AuthorizationCode => Grant::AuthorizationCode,
            AuthGrant::DeviceCode => Grant::DeviceCode,
            AuthGrant::ClientCredentials => Grant::ClientCredentials,
            AuthGrant::JwtBearer => {
                let assertion = match (&self.client_secret_env, &self.client_secret) {
                    (Some(variable), _) => read(variable)?,
                    (None, Some(assertion)) => assertion.clone(),
                    (None, None) => return Err("jwt_bearer needs \"clientSecretEnvVar\"".into()),
                };
                Grant::JwtBearer { assertion }
            }
            AuthGrant::Enterprise => {
                let idp = self.idp.as_ref().ok_or("enterprise needs \"idp\"")?;
                Grant::Enterprise(IdentityProvider {
                    issuer: idp.issuer.clone(),
                    token_endpoint: idp.token_endpoint.clone(),
                    client_id: idp.client_id.clone(),
                    id_token: match &idp.id_token {
                        Some(id_token) => id_token.clone(),
                        None => read(&idp.id_token_env)?,
                    },
                })
            }
        })
    }

    fn client(
        &self,
        read: &impl Fn(&str) -> Result<Secret, String>,
    ) -> Result<Option<ConfiguredClient>, String> {
        let Some(id) = self.client_id.clone() else {
            return Ok(None);
        };
        let secret = match &self.client_secret_env {
            // It is the assertion there.
            _ if self.grant == AuthGrant::JwtBearer => None,
            Some(variable) => Some(read(variable)?),
            None => self.client_secret.clone(),
        };
        let private_key = match &self.private_key_file {
            Some(path) => {
                let read = std::fs::read_to_string(path);
                let text = read.map_err(|error| format!("{}: {error}", path.display()))?;
                Some(Secret::new(text))
            }
            None => self.private_key.clone(),
        };
        Ok(Some(ConfiguredClient {
            id,
            secret,
            private_key,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "https://example.com/mcp";

    #[test]
    fn credentials_that_the_program_has_need_no_variable_or_file() {
        let mut auth = AuthConfig {
            client_id: Some("app".to_owned()),
            client_secret: Some(Secret::new("assertion")),
            private_key: Some(Secret::new("key")),
            grant: AuthGrant::JwtBearer,
            ..AuthConfig::default()
        };
        let none = |_: &str| None;
        let resolved = auth.resolve(URL, none).unwrap();
        let assertion = Secret::new("assertion");
        assert_eq!(resolved.grant, Grant::JwtBearer { assertion });
        let client = resolved.client.unwrap();
        assert_eq!(client.secret, None, "the assertion is not a client secret");
        assert_eq!(client.private_key, Some(Secret::new("key")));

        auth.grant = AuthGrant::Enterprise;
        auth.idp = Some(IdentityProviderConfig {
            issuer: "https://idp.example.com".to_owned(),
            client_id: "idp-app".to_owned(),
            id_token: Some(Secret::new("id token")),
            ..IdentityProviderConfig::default()
        });
        let resolved = auth.resolve(URL, none).unwrap();
        let Grant::Enterprise(idp) = resolved.grant else {
            panic!("another grant")
        };
        assert_eq!(idp.id_token, Secret::new("id token"));
        assert_eq!(
            resolved.client.unwrap().secret,
            Some(Secret::new("assertion"))
        );
    }

    #[test]
    fn a_missing_assertion_or_variable_is_named() {
        let mut auth = AuthConfig {
            grant: AuthGrant::JwtBearer,
            ..AuthConfig::default()
        };
        let problem = auth.resolve(URL, |_| None).unwrap_err();
        assert_eq!(problem, "jwt_bearer needs \"clientSecretEnvVar\"");
        auth.client_secret_env = Some("JWT".to_owned());
        assert_eq!(auth.resolve(URL, |_| None).unwrap_err(), "JWT is not set");
    }
}

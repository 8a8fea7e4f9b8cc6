//! How a server is authorized, as its config says.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mcpvisor_auth::Secret;
use mcpvisor_auth::config::{
    ConfiguredClient, CredentialConfig, Grant, IdentityProvider, ResourceChoice,
};
use mcpvisor_auth::dpop::binding::DpopMode;
use mcpvisor_core::InvalidSetting;

use crate::api::transport::check::{ADDRESS, is_address, is_program, is_variable, refuse};
use crate::secret::is_shown_variable;

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
///
/// `Debug` shows the grant alone: a config may have put the value of a variable in any text.
#[derive(Clone, Default, PartialEq, Eq)]
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
    /// Whether the next login binds its tokens to a key (RFC 9449).
    pub dpop: DpopMode,
    /// The identity provider of [`AuthGrant::Enterprise`].
    pub idp: Option<IdentityProviderConfig>,
    /// A program that prints the headers to send, or a bare token.
    pub headers_helper: Option<Vec<String>>,
    /// How long its headers are used.
    pub headers_helper_ttl: Option<Duration>,
}

impl fmt::Debug for AuthConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthConfig")
            .field("grant", &self.grant)
            .finish_non_exhaustive()
    }
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
    /// Rejects settings that can never work.
    pub(crate) fn check(&self) -> Result<(), InvalidSetting> {
        self.check_grant()?;
        self.check_addresses()?;
        for (key, variable) in [
            ("auth.clientSecretEnvVar", self.client_secret_env.as_deref()),
            (
                "auth.idp.idTokenEnvVar",
                self.idp.as_ref().map(|idp| &*idp.id_token_env),
            ),
        ] {
            let problem = "must be the name of a variable";
            refuse(key, problem, variable.is_some_and(|it| !is_variable(it)))?;
        }
        let key = self
            .private_key_file
            .as_ref()
            .map(|path| path.to_string_lossy());
        let is_key = |text: &str| text.contains(['\n', '\r']) || text.contains("-----BEGIN");
        refuse(
            "auth.privateKeyFile",
            "must be the path of a file, not the key itself",
            key.is_some_and(|text| is_key(&text)),
        )?;
        let helper = self.headers_helper.as_ref();
        refuse(
            "auth.headersHelper",
            "must begin with the program to run",
            helper.is_some_and(|words| !words.first().is_some_and(|it| is_program(it))),
        )?;
        refuse(
            "auth.headersHelperTtl",
            "must be longer than 0; leave it out for the default",
            self.headers_helper_ttl.is_some_and(|ttl| ttl.is_zero()),
        )?;
        refuse(
            "auth.account",
            "must not be empty; leave it out for the only account",
            self.account.as_deref() == Some(""),
        )
    }

    /// Rejects a grant without what it needs.
    fn check_grant(&self) -> Result<(), InvalidSetting> {
        const GRANT: &str = "auth.grant";
        let has_client = self.client_id.as_deref().is_some_and(|id| !id.is_empty());
        let has_secret = self.client_secret_env.is_some() || self.client_secret.is_some();
        match self.grant {
            AuthGrant::AuthorizationCode | AuthGrant::DeviceCode => Ok(()),
            AuthGrant::ClientCredentials => {
                let problem = "is \"client_credentials\", which needs \"clientId\"";
                refuse(GRANT, problem, !has_client)?;
                let problem = "is \"client_credentials\", which needs \"clientSecretEnvVar\" or \
                               \"privateKeyFile\"";
                refuse(
                    GRANT,
                    problem,
                    !has_secret && self.private_key_file.is_none() && self.private_key.is_none(),
                )
            }
            AuthGrant::JwtBearer => refuse(
                GRANT,
                "is \"jwt_bearer\", which needs \"clientSecretEnvVar\", the variable that holds \
                 the assertion",
                !has_secret,
            ),
            AuthGrant::Enterprise => {
                let problem = "is \"enterprise\", which needs \"idp\" with \"issuer\", \
                               \"clientId\" and \"idTokenEnvVar\"";
                let idp = self.idp.as_ref();
                let is_whole = |idp: &IdentityProviderConfig| {
                    !idp.issuer.is_empty()
                        && !idp.client_id.is_empty()
                        && (!idp.id_token_env.is_empty() || idp.id_token.is_some())
                };
                refuse(GRANT, problem, !idp.is_some_and(is_whole))
            }
        }
    }

    fn check_addresses(&self) -> Result<(), InvalidSetting> {
        let idp = self.idp.as_ref();
        let addresses = [
            ("auth.issuer", self.issuer.as_deref()),
            ("auth.redirectUri", self.redirect_uri.as_deref()),
            ("auth.idp.issuer", idp.map(|idp| &*idp.issuer)),
            (
                "auth.idp.tokenEndpoint",
                idp.and_then(|idp| idp.token_endpoint.as_deref()),
            ),
        ];
        for (key, address) in addresses {
            refuse(key, ADDRESS, address.is_some_and(|it| !is_address(it)))?;
        }
        let document = self.client_metadata_url.as_deref();
        let is_https = |url: &str| is_address(url) && url.starts_with("https://");
        refuse(
            "auth.clientMetadataUrl",
            "must be an address that begins with https://",
            document.is_some_and(|url| !is_https(url)),
        )
    }

    /// The variables that it reads.
    pub(crate) fn variables(&self) -> impl Iterator<Item = &str> {
        let id_token = self.idp.as_ref().map(|idp| &*idp.id_token_env);
        self.client_secret_env
            .as_deref()
            .into_iter()
            .chain(id_token)
    }

    /// What must not be shown: the client's secret, and the values of its variables.
    pub(crate) fn secrets(&self, variable: impl Fn(&OsStr) -> Option<OsString>) -> Vec<String> {
        let values = self
            .variables()
            .filter_map(|name| variable(OsStr::new(name)));
        let values = values.filter_map(|value| value.into_string().ok());
        let values = values.map(|value| value.trim().to_owned());
        let literal = self.client_secret.iter();
        let literal = literal.map(|secret| secret.expose().to_owned());
        values.chain(literal).collect()
    }

    /// What the credential layer needs. Reads variables and the key file.
    pub(crate) fn resolve(
        &self,
        server_url: &str,
        variable: impl Fn(&str) -> Option<OsString>,
        read_key: impl Fn(&Path) -> Result<Secret, String>,
    ) -> Result<CredentialConfig, String> {
        let read = |name: &str| {
            let value = variable(name).and_then(|value| value.into_string().ok());
            let value = value.filter(|value| !value.trim().is_empty());
            let shown = || match is_shown_variable(name) {
                true => format!("the variable {name} is not set"),
                false => "a variable of \"auth\" is not set".to_owned(),
            };
            let value = value.ok_or_else(shown)?;
            Ok::<Secret, String>(Secret::new(value.trim()))
        };
        let mut config = CredentialConfig::new(server_url);
        config.account = self.account.clone().unwrap_or_default();
        config.grant = self.grant(&read)?;
        config.client = self.client(&read, read_key)?;
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
        config.dpop = self.dpop;
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
        read_key: impl Fn(&Path) -> Result<Secret, String>,
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
            Some(path) => Some(read_key(path)?),
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

    fn no_key(path: &Path) -> Result<Secret, String> {
        Err(format!("{}: not read", path.display()))
    }

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
        let resolved = auth.resolve(URL, none, no_key).unwrap();
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
        let resolved = auth.resolve(URL, none, no_key).unwrap();
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
    fn a_key_in_place_of_its_path_is_refused_without_showing_it() {
        let mut auth = AuthConfig::default();
        for key in ["-----BEGIN PRIVATE KEY-----canary", "one\ncanary"] {
            auth.private_key_file = Some(key.into());
            let problem = auth.check().unwrap_err().to_string();
            assert!(problem.contains("privateKeyFile"), "{problem}");
            assert!(!problem.contains("canary"), "{problem}");
        }
    }

    #[test]
    fn a_missing_assertion_or_variable_is_named() {
        let mut auth = AuthConfig {
            grant: AuthGrant::JwtBearer,
            ..AuthConfig::default()
        };
        let problem = auth.resolve(URL, |_| None, no_key).unwrap_err();
        assert_eq!(problem, "jwt_bearer needs \"clientSecretEnvVar\"");
        auth.client_secret_env = Some("JWT".to_owned());
        assert_eq!(
            auth.resolve(URL, |_| None, no_key).unwrap_err(),
            "the variable JWT is not set"
        );
    }
}

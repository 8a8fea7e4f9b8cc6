//! What the config says about the credential of one server.

use crate::dpop::binding::DpopMode;
use crate::secret::Secret;

/// What the config says about the credential of one server. The defaults find everything out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CredentialConfig {
    /// The URL of the MCP server.
    pub server_url: String,
    /// The account; empty for the only one.
    pub account: String,
    /// How tokens are obtained.
    pub grant: Grant,
    /// A client that was registered beforehand.
    pub client: Option<ConfiguredClient>,
    /// The URL of the client's metadata document, used as its id where the issuer supports that.
    pub client_metadata_url: Option<String>,
    /// The scopes to request instead of those that the server names.
    pub scopes: Option<Vec<String>>,
    /// The `resource` parameter.
    pub resource: ResourceChoice,
    /// The only issuer to accept.
    pub issuer: Option<String>,
    /// An issuer whose metadata or callback may state this other name for it.
    pub issuer_exception: Option<String>,
    /// The fixed port of the callback listener.
    pub callback_port: Option<u16>,
    /// The redirect URI to register and send, such as `http://localhost:8123/callback`.
    pub redirect_uri: Option<String>,
    /// Whether the next tokens are bound to a key.
    pub dpop: DpopMode,
}

impl CredentialConfig {
    /// The credential of a server, with everything found out.
    pub fn new(server_url: impl Into<String>) -> Self {
        Self {
            server_url: server_url.into(),
            account: String::new(),
            grant: Grant::AuthorizationCode,
            client: None,
            client_metadata_url: None,
            scopes: None,
            resource: ResourceChoice::Discovered,
            issuer: None,
            issuer_exception: None,
            callback_port: None,
            redirect_uri: None,
            dpop: DpopMode::Auto,
        }
    }
}

/// How tokens are obtained.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Grant {
    /// A person logs in with a browser (authorization code with PKCE).
    AuthorizationCode,
    /// A person logs in on another device (RFC 8628).
    DeviceCode,
    /// The client itself is authorized (client credentials).
    ClientCredentials,
    /// A signed assertion is exchanged for a token (RFC 7523), such as that of a workload.
    JwtBearer {
        /// The assertion.
        assertion: Secret,
    },
    /// The enterprise's identity provider issues an assertion for the server (token exchange, then
    /// RFC 7523).
    Enterprise(IdentityProvider),
}

/// An enterprise's identity provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityProvider {
    /// Its issuer.
    pub issuer: String,
    /// Its token endpoint; discovered from the issuer if it is not set.
    pub token_endpoint: Option<String>,
    /// The client id at the identity provider.
    pub client_id: String,
    /// The ID token of the user.
    pub id_token: Secret,
}

/// A client that was registered beforehand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfiguredClient {
    /// The client id.
    pub id: String,
    /// The client secret.
    pub secret: Option<Secret>,
    /// The private key in PEM (PKCS #8), for `private_key_jwt`.
    pub private_key: Option<Secret>,
}

/// The `resource` parameter (RFC 8707).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResourceChoice {
    /// What the server's metadata states, else its URL.
    Discovered,
    /// This one.
    Fixed(String),
    /// None: some issuers refuse the parameter.
    Omitted,
}

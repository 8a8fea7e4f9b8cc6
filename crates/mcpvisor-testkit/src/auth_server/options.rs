//! The options of an authorization server.

use std::time::Duration;

/// The host name in the issuer and the endpoints. The server always listens on 127.0.0.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IssuerHost {
    /// `127.0.0.1`
    Ip,
    /// `localhost`
    Localhost,
}

impl IssuerHost {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ip => "127.0.0.1",
            Self::Localhost => "localhost",
        }
    }
}

/// A location of the server's metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetadataLocation {
    /// RFC 8414: `/.well-known/oauth-authorization-server` followed by the issuer's path.
    OAuth,
    /// `/.well-known/openid-configuration` followed by the issuer's path.
    OidcInserted,
    /// OpenID Connect: the issuer's path followed by `/.well-known/openid-configuration`.
    OidcAppended,
}

/// How `/authorize` answers a valid request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthorizeMode {
    /// Redirects to the callback immediately.
    Redirect,
    /// Shows a page with the buttons `approve` and `deny`.
    Page,
}

/// When a refresh token is issued with an access token of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefreshPolicy {
    /// Always.
    Always,
    /// Only if the scope `offline_access` was granted.
    OfflineAccess,
    /// Never.
    Never,
}

/// What the server expects of the parameter `resource`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceRule {
    /// It must be present and name a protected server.
    Required,
    /// If it is present, it must name a protected server.
    Optional,
    /// It must be absent.
    Refused,
}

/// Whether a protected server accepts tokens that are bound to a key (DPoP).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DpopRule {
    /// Only bearer tokens.
    Off,
    /// Both; its challenges name both schemes.
    Accepted,
    /// Only bound tokens.
    Required,
}

/// Which nonces a server demands in proofs. All its responses carry one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NonceRule {
    /// None.
    None,
    /// One for all requests, until the test lets it expire.
    Shared,
    /// Another one for each request.
    OneTime,
}

/// The options of an authorization server. They can be changed while it runs, with
/// [`AuthServer::configure`](super::AuthServer::configure); host and path only before the start.
#[derive(Debug, Clone)]
pub struct AuthOptions {
    /// The host name in the issuer.
    pub host: IssuerHost,
    /// The path of the issuer: empty, or `/tenant`.
    pub path: String,
    /// Where the metadata are served.
    pub metadata: Vec<MetadataLocation>,
    /// Whether clients can register.
    pub registration: bool,
    /// The lifetime of the secrets of registered clients, in whole seconds; `None` is unlimited.
    pub client_secret_lifetime: Option<Duration>,
    /// Whether an https URL is accepted as a client id. The document is not fetched.
    pub client_metadata_documents: bool,
    /// Whether the device flow is offered.
    pub device: bool,
    /// The polling interval of the device flow, in seconds.
    pub device_interval: u64,
    /// Whether tokens can be revoked.
    pub revocation: bool,
    /// Whether the metadata announce `iss` in the callback.
    pub advertise_iss: bool,
    /// Whether the callback carries `iss`.
    pub send_iss: bool,
    /// How `/authorize` answers.
    pub mode: AuthorizeMode,
    /// The user who approves.
    pub account: String,
    /// The lifetime of access tokens. `expires_in` is rounded up to seconds.
    pub access_lifetime: Duration,
    /// When refresh tokens are issued.
    pub refresh: RefreshPolicy,
    /// Whether each refresh replaces the refresh token. The use of a replaced token revokes the
    /// whole family.
    pub rotate: bool,
    /// How long a replaced refresh token may be used again without counting as reuse.
    pub reuse_grace: Duration,
    /// The supported scopes; others are refused.
    pub scopes: Vec<String>,
    /// The scopes of a request that names none.
    pub default_scopes: Vec<String>,
    /// The methods of client authentication in the metadata.
    pub auth_methods: Vec<String>,
    /// What is expected of `resource`.
    pub resource: ResourceRule,
    /// Whether a loopback redirect URI may differ from the registered one in its port.
    pub any_loopback_port: bool,
    /// Whether tokens are bound to the key of a proof in the token request.
    pub dpop: bool,
    /// The nonces that proofs of token requests need.
    pub nonces: NonceRule,
    /// Whether `/control/…` answers, for tests in other processes.
    pub control: bool,
}

impl Default for AuthOptions {
    fn default() -> Self {
        let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        Self {
            host: IssuerHost::Ip,
            path: String::new(),
            metadata: vec![MetadataLocation::OAuth],
            registration: true,
            client_secret_lifetime: None,
            client_metadata_documents: false,
            device: true,
            device_interval: 1,
            revocation: true,
            advertise_iss: true,
            send_iss: true,
            mode: AuthorizeMode::Redirect,
            account: "alice".to_owned(),
            access_lifetime: Duration::from_secs(3600),
            refresh: RefreshPolicy::Always,
            rotate: true,
            reuse_grace: Duration::ZERO,
            scopes: texts(&["mcp", "mcp:write"]),
            default_scopes: texts(&["mcp"]),
            auth_methods: texts(&[
                "none",
                "client_secret_basic",
                "client_secret_post",
                "private_key_jwt",
            ]),
            resource: ResourceRule::Optional,
            any_loopback_port: false,
            dpop: false,
            nonces: NonceRule::None,
            control: false,
        }
    }
}

//! The metadata documents of protected resources and authorization servers.

/// The metadata of an authorization server (RFC 8414, OpenID Connect Discovery), validated.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuthorizationServer {
    /// Its issuer, byte for byte.
    pub issuer: String,
    /// The endpoints, each https or on loopback.
    pub authorization_endpoint: Option<String>,
    /// The token endpoint.
    pub token_endpoint: String,
    /// For dynamic registration.
    pub registration_endpoint: Option<String>,
    /// For logout.
    pub revocation_endpoint: Option<String>,
    /// For the device grant.
    pub device_authorization_endpoint: Option<String>,
    /// The scopes that it lists.
    pub scopes_supported: Option<Vec<String>>,
    /// `code_challenge_methods_supported`.
    pub code_challenge_methods: Vec<String>,
    /// `token_endpoint_auth_methods_supported`.
    pub token_auth_methods: Vec<String>,
    /// `authorization_response_iss_parameter_supported`.
    pub iss_in_response: bool,
    /// `client_id_metadata_document_supported`.
    pub supports_metadata_document: bool,
}

/// The metadata of a protected resource (RFC 9728), validated.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProtectedResource {
    /// The resource identifier, byte for byte.
    pub resource: String,
    /// The issuers of its authorization servers; the first one is used.
    pub authorization_servers: Vec<String>,
    /// The scopes that it lists.
    pub scopes_supported: Option<Vec<String>>,
}

//! Finds the authorization server of an MCP server.

use crate::address::AddressPolicy;
use crate::challenge::Challenge;
use crate::config::CredentialConfig;
use crate::error::AuthError;
use crate::http_client::HttpClient;
use crate::metadata::{AuthorizationServer, ProtectedResource};

/// What discovery found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discovered {
    /// The metadata of the MCP server, if it has any.
    pub resource: Option<ProtectedResource>,
    /// The authorization server.
    pub server: AuthorizationServer,
    /// Where requests to it may go.
    pub addresses: AddressPolicy,
}

impl Discovered {
    /// The `resource` parameter of this server: the configured one, else that of its metadata, else
    /// the URL of the server; `None` if it is omitted.
    pub fn resource_parameter(&self, _config: &CredentialConfig) -> Option<String> {
        todo!()
    }
}

/// Finds the protected-resource metadata (by the challenge, then at the well-known locations) and
/// the metadata of its authorization server, and checks both.
pub async fn discover(
    _http: &dyn HttpClient,
    _config: &CredentialConfig,
    _challenge: &Challenge,
) -> Result<Discovered, AuthError> {
    todo!()
}

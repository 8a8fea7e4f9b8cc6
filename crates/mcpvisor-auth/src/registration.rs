//! The client of a login: configured, a metadata document, or dynamic registration (RFC 7591).

use crate::config::CredentialConfig;
use crate::discovery::Discovered;
use crate::error::AuthError;
use crate::http_client::HttpClient;
use crate::record::ClientRecord;

/// Chooses the client of a login, in this order: configured, metadata document where the issuer
/// supports it, `previous` if it is a registration at the same issuer with this redirect URI, a new
/// registration. `previous` is never shown to another issuer: the caller passes it only for the
/// issuer that it belongs to.
pub async fn client_for(
    _http: &dyn HttpClient,
    _config: &CredentialConfig,
    _discovered: &Discovered,
    _redirect_uri: Option<&str>,
    _scopes: &[String],
    _previous: Option<&ClientRecord>,
) -> Result<ClientRecord, AuthError> {
    todo!()
}

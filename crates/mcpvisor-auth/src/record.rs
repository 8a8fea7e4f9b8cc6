//! What is stored of one login: everything that a later refresh needs.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::dpop::binding::BoundTokens;
use crate::secret::Secret;

/// The version of the stored form.
pub const RECORD_VERSION: u32 = 1;

/// Identifies a stored credential.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CredentialKey {
    /// The URL of the MCP server.
    pub server_url: String,
    /// The issuer, byte for byte as its metadata states it.
    pub issuer: String,
    /// The resource that the token was requested for; `None` if the parameter was omitted.
    pub resource: Option<String>,
    /// The account; empty for the only one.
    pub account: String,
}

/// One stored credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialRecord {
    /// [`RECORD_VERSION`] when it was written.
    pub version: u32,
    /// Grows with every save of this credential, so that a reader recognizes a newer one.
    pub revision: u64,
    /// What it belongs to.
    pub key: CredentialKey,
    /// The client that the tokens were issued to.
    pub client: ClientRecord,
    /// Where to refresh and revoke.
    pub endpoints: Endpoints,
    /// The tokens.
    pub tokens: TokenSet,
    /// The scopes that were granted, in the order of the server.
    pub scopes: Vec<String>,
    /// The key that the tokens are bound to, if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dpop: Option<BoundTokens>,
    /// When a person logged in, in seconds since 1970.
    pub logged_in_at: u64,
    /// Set when the issuer rejected the refresh token with `invalid_grant`. A login replaces it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected: Option<Rejection>,
}

/// The client that tokens were issued to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientRecord {
    /// The client id.
    pub id: String,
    /// The client secret, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Secret>,
    /// When the secret expires, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_expires_at: Option<u64>,
    /// How the client authenticates at the token endpoint.
    pub auth_method: ClientAuthMethod,
    /// Where the client id comes from.
    pub source: ClientSource,
    /// The redirect URI of its registration or login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect_uri: Option<String>,
}

/// How a client authenticates at the token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientAuthMethod {
    /// A public client: only its id.
    None,
    /// The secret in the `Authorization` header.
    ClientSecretBasic,
    /// The secret in the body.
    ClientSecretPost,
    /// A signed assertion.
    PrivateKeyJwt,
}

/// Where a client id comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientSource {
    /// The config.
    Configured,
    /// A client id metadata document: the id is its URL.
    MetadataDocument,
    /// Dynamic registration. `invalid_client` makes it obsolete.
    Registered,
}

/// The endpoints of the issuer that a later refresh needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoints {
    /// The token endpoint.
    pub token: String,
    /// The revocation endpoint, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revocation: Option<String>,
}

/// An access token and what renews it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenSet {
    /// The access token.
    pub access: Secret,
    /// The refresh token, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh: Option<Secret>,
    /// The time before the request that returned it, in seconds since 1970.
    pub obtained_at: u64,
    /// When the access token expires, in seconds since 1970; `None` if the issuer did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
}

/// Why a refresh token cannot be used any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejection {
    /// When, in seconds since 1970.
    pub at: u64,
    /// The error of the issuer, without secrets, such as `invalid_grant: expired`.
    pub reason: String,
    /// The issuer does not know the client any more: the next login registers again.
    #[serde(default)]
    pub client_unknown: bool,
}

/// Seconds since 1970.
pub fn unix_seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO)
        .as_secs()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dpop::ProofKey;

    #[test]
    fn a_record_without_a_key_is_read_and_one_with_a_key_keeps_it() {
        let stored = json!({
            "version": 1, "revision": 3, "scopes": ["read"], "logged_in_at": 5,
            "key": { "server_url": "https://h/mcp", "issuer": "https://as", "resource": null, "account": "" },
            "client": { "id": "c", "auth_method": "none", "source": "registered" },
            "endpoints": { "token": "https://as/token" },
            "tokens": { "access": "a", "obtained_at": 1 },
        });
        let mut record: CredentialRecord = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(record.dpop, None);
        assert_eq!(serde_json::to_value(&record).unwrap(), stored);
        for access_is_bearer in [false, true] {
            let key = ProofKey::generate().unwrap();
            record.dpop = Some(BoundTokens {
                key,
                access_is_bearer,
            });
            let text = serde_json::to_string(&record).unwrap();
            assert_eq!(
                serde_json::from_str::<CredentialRecord>(&text).unwrap(),
                record
            );
            assert!(!format!("{record:?}").contains("PRIVATE"));
        }
    }
}

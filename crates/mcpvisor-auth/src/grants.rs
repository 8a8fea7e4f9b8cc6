//! The grants that obtain tokens, and [`obtain`] for those that need no person.

pub mod authorization_code;
pub mod client_credentials;
pub mod device;
pub mod enterprise;
pub mod jwt_bearer;
pub mod revocation;

use std::time::SystemTime;

use crate::challenge::Challenge;
use crate::config::{CredentialConfig, Grant};
use crate::discovery::{Discovered, discover};
use crate::dpop::binding::Binding;
use crate::error::AuthError;
use crate::http_client::HttpClient;
use crate::record::{
    ClientRecord, CredentialKey, CredentialRecord, Endpoints, RECORD_VERSION, TokenSet,
    unix_seconds,
};
use crate::registration::client_for;
use crate::scopes;
use crate::token_endpoint::{TokenEndpoint, TokenResponse};

/// Requests a refresh token, which a grant without a person does not need.
const OFFLINE_ACCESS: &str = "offline_access";

/// Obtains a token by the configured grant, if it needs no person. The record is not saved.
/// `previous` is the record that it replaces.
pub async fn obtain(
    http: &dyn HttpClient,
    config: &CredentialConfig,
    challenge: &Challenge,
    previous: Option<&CredentialRecord>,
) -> Result<CredentialRecord, AuthError> {
    if needs_person(&config.grant) {
        return Err(AuthError::LoginNeeded {
            reason: "this grant needs a person".into(),
        });
    }
    let discovered = discover(http, config, challenge).await?;
    let mut scopes = scopes::select(config, challenge, &discovered, &[], &[]);
    if config.scopes.is_none() {
        scopes.retain(|scope| scope != OFFLINE_ACCESS);
    }
    let client = client_for(http, config, &discovered, None, None).await?;
    let resource = discovered.resource_parameter(config);
    let earlier = previous.filter(|record| record.key.issuer == discovered.server.issuer);
    let earlier = earlier.and_then(|record| Some(&record.dpop.as_ref()?.key));
    let binding = Binding::choose(config, challenge, &discovered, earlier)?;
    let target = GrantTarget {
        http,
        config,
        discovered: &discovered,
        client: &client,
        scopes: &scopes,
        resource: resource.as_deref(),
        binding: binding.as_ref(),
    };
    target.obtain().await
}

/// Whether a grant needs a person to log in.
pub fn needs_person(grant: &Grant) -> bool {
    match grant {
        Grant::AuthorizationCode | Grant::DeviceCode => true,
        Grant::ClientCredentials | Grant::JwtBearer { .. } | Grant::Enterprise(_) => false,
    }
}

/// What a token is requested for: everything that discovery and registration found out.
#[derive(Clone, Copy)]
pub struct GrantTarget<'a> {
    /// The HTTP client.
    pub http: &'a dyn HttpClient,
    /// The config of the credential.
    pub config: &'a CredentialConfig,
    /// The authorization server.
    pub discovered: &'a Discovered,
    /// The client.
    pub client: &'a ClientRecord,
    /// The scopes to request.
    pub scopes: &'a [String],
    /// The `resource` parameter; `None` if it is omitted.
    pub resource: Option<&'a str>,
    /// The key that the token is bound to; `None` for a bearer token.
    pub binding: Option<&'a Binding>,
}

impl GrantTarget<'_> {
    /// The token endpoint of the authorization server.
    pub fn endpoint(&self) -> TokenEndpoint<'_> {
        TokenEndpoint {
            http: self.http,
            url: &self.discovered.server.token_endpoint,
            issuer: &self.discovered.server.issuer,
            addresses: self.discovered.addresses,
            client: self.client,
            configured: self.config.client.as_ref(),
            proof_key: self.binding.map(|binding| &binding.key),
        }
    }

    /// Obtains a token by the configured grant, if it needs no person.
    pub async fn obtain(&self) -> Result<CredentialRecord, AuthError> {
        let response = match &self.config.grant {
            Grant::ClientCredentials => client_credentials::request(self).await?,
            Grant::JwtBearer { assertion } => jwt_bearer::request(self, assertion).await?,
            Grant::Enterprise(provider) => {
                let assertion = enterprise::exchange(self, provider).await?;
                jwt_bearer::request(self, &assertion).await?
            }
            Grant::AuthorizationCode | Grant::DeviceCode => {
                return Err(AuthError::LoginNeeded {
                    reason: "this grant needs a person".into(),
                });
            }
        };
        self.record(response, SystemTime::now())
    }

    /// The record of a token, at revision 1. A token that should be bound to a key and is not is
    /// refused.
    pub fn record(
        &self,
        response: TokenResponse,
        now: SystemTime,
    ) -> Result<CredentialRecord, AuthError> {
        let server = &self.discovered.server;
        let dpop = Binding::bound_tokens(self.binding, &response)?;
        Ok(CredentialRecord {
            version: RECORD_VERSION,
            revision: 1,
            key: CredentialKey {
                server_url: self.config.server_url.clone(),
                issuer: server.issuer.clone(),
                resource: self.resource.map(str::to_owned),
                account: self.config.account.clone(),
            },
            client: self.client.clone(),
            endpoints: Endpoints {
                token: server.token_endpoint.clone(),
                revocation: server.revocation_endpoint.clone(),
            },
            tokens: TokenSet {
                access: response.access,
                refresh: response.refresh,
                obtained_at: response.obtained_at,
                expires_at: response.expires_at,
            },
            scopes: response.scopes.unwrap_or_else(|| self.scopes.to_vec()),
            dpop,
            logged_in_at: unix_seconds(now),
            rejected: None,
        })
    }

    /// The parameters of a grant, with the scopes and the resource.
    pub(crate) fn parameters<'p>(
        &'p self,
        grant: &[(&'p str, &'p str)],
        scope: &'p str,
    ) -> Vec<(&'p str, &'p str)> {
        let mut parameters = grant.to_vec();
        if !scope.is_empty() {
            parameters.push(("scope", scope));
        }
        parameters.extend(self.resource.map(|resource| ("resource", resource)));
        parameters
    }
}

#[cfg(test)]
mod tests;

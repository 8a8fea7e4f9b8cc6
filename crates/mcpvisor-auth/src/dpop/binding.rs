//! Whether the tokens of a login are bound to a key. Pure, but for the key.

use serde::{Deserialize, Serialize};

use super::{ALGORITHM, ProofKey};
use crate::challenge::{BindingDemand, Challenge};
use crate::config::CredentialConfig;
use crate::discovery::Discovered;
use crate::error::AuthError;
use crate::grants::needs_person;
use crate::text::shown_url;
use crate::token_endpoint::{TokenResponse, TokenType};

/// When tokens are bound to a key, as the config says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DpopMode {
    /// If the server asks for it and the issuer supports it.
    #[default]
    Auto,
    /// Always; a token that is not bound is refused.
    Always,
    /// Never.
    Never,
}

/// The key of a token request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// The key to prove the possession of.
    pub key: ProofKey,
    /// A token that is not bound to it is refused.
    pub is_required: bool,
}

/// The key that stored tokens are bound to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundTokens {
    /// The key.
    pub key: ProofKey,
    /// The access token is a bearer token nevertheless; the refresh token is bound.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub access_is_bearer: bool,
}

impl Binding {
    /// The key of the next token, or `None` for a bearer token. `earlier` is the key of the token
    /// that it replaces: a login makes a new key, other grants keep theirs.
    pub fn choose(
        config: &CredentialConfig,
        challenge: &Challenge,
        discovered: &Discovered,
        earlier: Option<&ProofKey>,
    ) -> Result<Option<Self>, AuthError> {
        let is_required = match demand(config.dpop, challenge, discovered, earlier.is_some())? {
            BindingDemand::None => return Ok(None),
            BindingDemand::Accepted => false,
            BindingDemand::Required => true,
        };
        let key = match earlier.filter(|_| !needs_person(&config.grant)) {
            Some(earlier) => earlier.clone(),
            None => ProofKey::generate()?,
        };
        Ok(Some(Self { key, is_required }))
    }

    /// What is stored with the token of a response.
    pub fn bound_tokens(
        binding: Option<&Self>,
        response: &TokenResponse,
    ) -> Result<Option<BoundTokens>, AuthError> {
        let Some(binding) = binding else {
            return Ok(None);
        };
        match response.token_type {
            Some(TokenType::Dpop) => Ok(Some(BoundTokens {
                key: binding.key.clone(),
                access_is_bearer: false,
            })),
            Some(TokenType::Bearer) | None if binding.is_required => Err(AuthError::Invalid(
                "the issuer returned a bearer token, but the token has to be bound to a key (DPoP); \
                 ask the operator of the issuer"
                    .to_owned(),
            )),
            Some(TokenType::Bearer) | None => Ok(None),
        }
    }
}

/// What the config, the server and the issuer make of it.
fn demand(
    mode: DpopMode,
    challenge: &Challenge,
    discovered: &Discovered,
    was_bound: bool,
) -> Result<BindingDemand, AuthError> {
    match mode {
        DpopMode::Never => return Ok(BindingDemand::None),
        DpopMode::Always => return Ok(BindingDemand::Required),
        DpopMode::Auto => {}
    }
    let metadata = discovered.resource.as_ref();
    let demand = match metadata.is_some_and(|metadata| metadata.requires_dpop) {
        true => BindingDemand::Required,
        // The server accepted the earlier token, so it says nothing now.
        false if was_bound => challenge.binding.max(BindingDemand::Accepted),
        false => challenge.binding,
    };
    let algorithms = &discovered.server.dpop_algorithms;
    let is_supported = algorithms.iter().any(|algorithm| algorithm == ALGORITHM);
    match demand {
        demand if is_supported => Ok(demand),
        BindingDemand::None | BindingDemand::Accepted => Ok(BindingDemand::None),
        BindingDemand::Required => Err(AuthError::Invalid(format!(
            "the server requires tokens that are bound to a key (DPoP), which {} does not list \
             with ES256; ask its operator, or set auth.dpop to \"always\" to try it",
            shown_url(&discovered.server.issuer)
        ))),
    }
}

#[cfg(test)]
mod tests;

//! Authorization code with PKCE: the authorization URL, and the exchange of the code.

use form_urlencoded::Serializer;

use super::GrantTarget;
use crate::error::AuthError;
use crate::pkce::{CHALLENGE_METHOD, Pkce};
use crate::secret::Secret;
use crate::token_endpoint::TokenResponse;

/// What the authorization request and the exchange of its code have in common.
#[derive(Debug)]
pub struct AuthorizationRequest {
    /// The redirect URI, byte for byte.
    pub redirect_uri: String,
    /// Ties the callback to this login.
    pub state: Secret,
    /// Ties the code to this login.
    pub pkce: Pkce,
}

impl AuthorizationRequest {
    /// The URL where a person authorizes the client. It is http or https.
    pub fn url(&self, target: &GrantTarget<'_>) -> Result<String, AuthError> {
        let server = &target.discovered.server;
        let endpoint = server.authorization_endpoint.as_deref().ok_or_else(|| {
            AuthError::Invalid(format!("{} has no authorization endpoint", server.issuer))
        })?;
        let supports_pkce = |method: &String| method == CHALLENGE_METHOD;
        if !server.code_challenge_methods.iter().any(supports_pkce) {
            return Err(AuthError::Invalid(format!(
                "{} does not support PKCE with S256, which is required",
                server.issuer
            )));
        }
        let (endpoint, _fragment) = endpoint.split_once('#').unwrap_or((endpoint, ""));
        let (endpoint, existing) = endpoint.split_once('?').unwrap_or((endpoint, ""));
        let query = self.query(target, existing);
        web_url(&format!("{endpoint}?{query}"))
    }

    /// The query of the authorization URL: the one of the endpoint, with our parameters in place of
    /// its own of the same name.
    fn query(&self, target: &GrantTarget<'_>, existing: &str) -> String {
        let scope = target.scopes.join(" ");
        let mut parameters = target.parameters(
            &[
                ("response_type", "code"),
                ("client_id", &target.client.id),
                ("redirect_uri", &self.redirect_uri),
                ("state", self.state.expose()),
                ("code_challenge", self.pkce.challenge()),
                ("code_challenge_method", CHALLENGE_METHOD),
            ],
            &scope,
        );
        if let Some(binding) = target.binding {
            parameters.push(("dpop_jkt", binding.key.thumbprint()));
        }
        // OpenID Connect grants offline access only with consent.
        if target.scopes.iter().any(|scope| scope == "offline_access") {
            parameters.push(("prompt", "consent"));
        }
        let is_ours = |pair: &&str| {
            let name = form_urlencoded::parse(pair.as_bytes()).next();
            name.is_none_or(|(name, _)| parameters.iter().any(|(ours, _)| *ours == name))
        };
        let kept = existing.split('&').filter(|pair| !is_ours(pair));
        let mut query = kept.fold(String::new(), |query, pair| query + pair + "&");
        query += &Serializer::new(String::new())
            .extend_pairs(&parameters)
            .finish();
        query
    }

    /// Exchanges the code for a token.
    pub async fn redeem(
        &self,
        target: &GrantTarget<'_>,
        code: &Secret,
    ) -> Result<TokenResponse, AuthError> {
        let parameters = target.parameters(
            &[
                ("grant_type", "authorization_code"),
                ("code", code.expose()),
                ("code_verifier", self.pkce.verifier().expose()),
                ("redirect_uri", &self.redirect_uri),
            ],
            "",
        );
        target.endpoint().request(&parameters).await
    }
}

/// Refuses what is not http or https, such as `javascript:`, and what has control characters.
pub(crate) fn web_url(url: &str) -> Result<String, AuthError> {
    let parsed = url.parse::<http::Uri>().ok();
    let is_web = parsed.is_some_and(|parsed| {
        matches!(parsed.scheme_str(), Some("http" | "https")) && parsed.host().is_some()
    });
    if is_web && url.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(url.to_owned())
    } else {
        Err(AuthError::Invalid(
            "the issuer names a URL for people that is not http or https".into(),
        ))
    }
}

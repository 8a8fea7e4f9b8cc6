//! Proof keys for code exchange (RFC 7636) and the `state` of a login.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};

use crate::error::AuthError;
use crate::secret::Secret;

/// The only challenge method; `plain` is never used.
pub const CHALLENGE_METHOD: &str = "S256";

/// Random bytes of a verifier or a `state`.
const RANDOM_BYTES: usize = 32;

/// A verifier and its challenge.
#[derive(Clone, PartialEq, Eq)]
pub struct Pkce {
    verifier: Secret,
    challenge: String,
}

impl Pkce {
    /// A new random verifier.
    pub fn generate() -> Result<Self, AuthError> {
        Ok(Self::from_verifier(Secret::new(random_text()?)))
    }

    /// The challenge of this verifier.
    pub fn from_verifier(verifier: Secret) -> Self {
        let hash = digest(&SHA256, verifier.expose().as_bytes());
        Self {
            challenge: URL_SAFE_NO_PAD.encode(hash),
            verifier,
        }
    }

    /// The verifier, for the token request.
    pub fn verifier(&self) -> &Secret {
        &self.verifier
    }

    /// The challenge, for the authorization request.
    pub fn challenge(&self) -> &str {
        &self.challenge
    }
}

impl fmt::Debug for Pkce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pkce(***)")
    }
}

/// A new random `state`.
pub fn state() -> Result<Secret, AuthError> {
    random_text().map(Secret::new)
}

/// 256 random bits in base64url.
pub(crate) fn random_text() -> Result<String, AuthError> {
    let mut bytes = [0_u8; RANDOM_BYTES];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| AuthError::Invalid("the system provides no random numbers".into()))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_challenge_is_that_of_the_rfc() {
        let pkce = Pkce::from_verifier(Secret::new("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"));
        assert_eq!(
            pkce.challenge(),
            "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
        );
    }

    #[test]
    fn a_verifier_has_43_url_safe_characters_and_is_new_each_time() {
        let first = Pkce::generate().unwrap();
        let second = Pkce::generate().unwrap();
        assert_eq!(first.verifier().expose().len(), 43);
        assert!(
            first
                .verifier()
                .expose()
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        );
        assert_ne!(first, second);
        assert_ne!(state().unwrap(), state().unwrap());
    }

    #[test]
    fn debug_hides_the_verifier() {
        let pkce = Pkce::from_verifier(Secret::new("canary-verifier"));
        assert_eq!(format!("{pkce:?}"), "Pkce(***)");
    }
}

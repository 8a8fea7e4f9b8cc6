//! Signing keys, and the signed assertions of clients (RFC 7523, `private_key_jwt`).

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use serde_json::{Value, json};

use crate::error::AuthError;
use crate::pkce::random_text;
use crate::secret::Secret;

/// Seconds that a client assertion is valid.
pub const ASSERTION_LIFETIME_SECONDS: u64 = 300;

const BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const END: &str = "-----END PRIVATE KEY-----";

/// The private key of a client.
pub struct SigningKey(KeyPair);

enum KeyPair {
    Es256(EcdsaKeyPair),
    Rs256(RsaKeyPair),
}

impl SigningKey {
    /// Reads a PKCS #8 key in PEM. The key decides the algorithm: P-256 signs with ES256, RSA with
    /// RS256.
    pub fn from_pem(pem: &Secret) -> Result<Self, AuthError> {
        let der = pkcs8_der(pem.expose())?;
        if let Ok(key) =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, &SystemRandom::new())
        {
            return Ok(Self(KeyPair::Es256(key)));
        }
        if let Ok(key) = RsaKeyPair::from_pkcs8(&der) {
            return Ok(Self(KeyPair::Rs256(key)));
        }
        Err(AuthError::Invalid(
            "the private key cannot be used: it must be a P-256 key or an RSA key of 2048 to 4096 bits"
                .into(),
        ))
    }

    /// The name of the algorithm, `ES256` or `RS256`.
    pub fn algorithm(&self) -> &'static str {
        match self.0 {
            KeyPair::Es256(_) => "ES256",
            KeyPair::Rs256(_) => "RS256",
        }
    }

    /// Signs claims as a compact JWT.
    pub fn sign(&self, claims: &Value) -> Result<Secret, AuthError> {
        let header = json!({ "alg": self.algorithm(), "typ": "JWT" });
        self.sign_under(&encode(&header), claims)
    }

    /// Signs claims under a header that is encoded already.
    pub(crate) fn sign_under(&self, header: &str, claims: &Value) -> Result<Secret, AuthError> {
        let message = format!("{header}.{}", encode(claims));
        let signature = self.signature(message.as_bytes())?;
        Ok(Secret::new(format!(
            "{message}.{}",
            URL_SAFE_NO_PAD.encode(signature)
        )))
    }

    /// The coordinates of the public key, if it is on P-256.
    pub(crate) fn p256_point(&self) -> Option<(&[u8], &[u8])> {
        match &self.0 {
            // An uncompressed point: 4, then both coordinates.
            KeyPair::Es256(key) => key.public_key().as_ref().get(1..)?.split_at_checked(32),
            KeyPair::Rs256(_) => None,
        }
    }

    fn signature(&self, message: &[u8]) -> Result<Vec<u8>, AuthError> {
        let random = SystemRandom::new();
        let signed = match &self.0 {
            KeyPair::Es256(key) => key
                .sign(&random, message)
                .map(|signature| signature.as_ref().to_vec()),
            KeyPair::Rs256(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)
                    .map(|()| signature)
            }
        };
        signed.map_err(|_| AuthError::Invalid("signing with the private key failed".into()))
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.algorithm())
    }
}

/// Signs the assertion that authenticates a client at the issuer. `now` is in seconds since 1970.
pub fn client_assertion(
    key: &SigningKey,
    client_id: &str,
    issuer: &str,
    now: u64,
) -> Result<Secret, AuthError> {
    key.sign(&json!({
        "iss": client_id,
        "sub": client_id,
        "aud": issuer,
        "jti": random_text()?,
        "iat": now,
        "exp": now.saturating_add(ASSERTION_LIFETIME_SECONDS),
    }))
}

fn encode(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

/// The bytes of the first PKCS #8 block.
fn pkcs8_der(pem: &str) -> Result<Vec<u8>, AuthError> {
    let body = pem
        .split_once(BEGIN)
        .and_then(|(_, rest)| rest.split_once(END))
        .map(|(body, _)| body)
        .ok_or_else(|| AuthError::Invalid(missing_block(pem).into()))?;
    let text: String = body.split_ascii_whitespace().collect();
    STANDARD
        .decode(text)
        .map_err(|_| AuthError::Invalid("the private key is not valid PEM".into()))
}

/// Why there is no PKCS #8 block, and how to make one.
fn missing_block(pem: &str) -> &'static str {
    if pem.contains("BEGIN ENCRYPTED PRIVATE KEY") {
        "the private key is encrypted: decrypt it with `openssl pkcs8`"
    } else if pem.contains("BEGIN EC PRIVATE KEY") || pem.contains("BEGIN RSA PRIVATE KEY") {
        "the private key is not in PKCS #8: convert it with `openssl pkcs8 -topk8 -nocrypt`"
    } else {
        "the private key is not a PKCS #8 key in PEM (`BEGIN PRIVATE KEY`)"
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ring::signature::{
        ECDSA_P256_SHA256_FIXED, KeyPair as _, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey,
    };

    use super::*;
    use crate::test_tokens::{p256_pem, rsa_pem};

    /// Header, claims and the signed part with its signature.
    fn decode(jwt: &Secret) -> (Value, Value, String, Vec<u8>) {
        let (message, signature) = jwt.expose().rsplit_once('.').unwrap();
        let (header, claims) = message.split_once('.').unwrap();
        let json = |part| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap();
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        (json(header), json(claims), message.into(), signature)
    }

    #[test]
    fn a_p256_key_signs_with_es256() {
        let key = SigningKey::from_pem(&p256_pem()).unwrap();
        let jwt = client_assertion(&key, "client", "https://as.example.com", 1000).unwrap();
        let (header, claims, message, signature) = decode(&jwt);
        assert_eq!(header["alg"], "ES256");
        assert_eq!(claims["iss"], "client");
        assert_eq!(claims["sub"], "client");
        assert_eq!(claims["aud"], "https://as.example.com");
        assert_eq!(claims["iat"], 1000);
        assert_eq!(claims["exp"], 1300);
        let KeyPair::Es256(pair) = &key.0 else {
            panic!("not a P-256 key")
        };
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, pair.public_key())
            .verify(message.as_bytes(), &signature)
            .unwrap();
    }

    #[test]
    fn an_rsa_key_signs_with_rs256() {
        let key = SigningKey::from_pem(&rsa_pem()).unwrap();
        let (header, _, message, signature) = decode(&key.sign(&json!({ "a": 1 })).unwrap());
        assert_eq!(header["alg"], "RS256");
        let KeyPair::Rs256(pair) = &key.0 else {
            panic!("not an RSA key")
        };
        UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pair.public_key())
            .verify(message.as_bytes(), &signature)
            .unwrap();
    }

    #[test]
    fn each_assertion_has_its_own_id() {
        let key = SigningKey::from_pem(&p256_pem()).unwrap();
        let id = || decode(&client_assertion(&key, "c", "i", 0).unwrap()).1["jti"].clone();
        assert_ne!(id(), id());
    }

    #[test]
    fn an_unusable_key_says_what_to_do() {
        let message = |pem: &str| {
            SigningKey::from_pem(&Secret::new(pem))
                .unwrap_err()
                .to_string()
        };
        assert!(message("-----BEGIN EC PRIVATE KEY-----\nAA==").contains("-topk8"));
        assert!(message("-----BEGIN ENCRYPTED PRIVATE KEY-----").contains("encrypted"));
        assert!(message("canary").contains("PKCS #8"));
        assert!(!message("canary").contains("canary"));
        assert!(message(&format!("{BEGIN}\nAAAA\n{END}")).contains("P-256"));
        assert!(message(&format!("{BEGIN}\n%\n{END}")).contains("PEM"));
    }

    proptest! {
        #[test]
        fn reading_a_key_never_panics(text in ".{0,200}") {
            let _ = SigningKey::from_pem(&Secret::new(format!("{BEGIN}{text}{END}")));
            let _ = SigningKey::from_pem(&Secret::new(text));
        }
    }
}

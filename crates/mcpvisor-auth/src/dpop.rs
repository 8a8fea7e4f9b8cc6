//! Tokens that are bound to a key (RFC 9449): the key, the proofs that requests carry, and nonces.
//!
//! Whether a token is bound is decided in [`binding`]. Sending a request again because a server
//! demands a nonce is left to those that send it.

pub mod binding;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Uri};
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::json;

use crate::error::AuthError;
use crate::jwt::SigningKey;
use crate::pkce::random_text;
use crate::record::unix_seconds;
use crate::secret::Secret;
use crate::url::without_query;

/// The header with the proof of a request.
pub const PROOF_HEADER: HeaderName = HeaderName::from_static("dpop");

/// The header of a response with a nonce for the next proofs.
pub const NONCE_HEADER: HeaderName = HeaderName::from_static("dpop-nonce");

/// The error code of a server that demands a nonce in the proof.
pub const USE_NONCE: &str = "use_dpop_nonce";

/// The error code of a server that refuses a proof.
pub const INVALID_PROOF: &str = "invalid_dpop_proof";

/// The scheme of `Authorization` and the type of a token that is bound to a key.
pub const SCHEME: &str = "DPoP";

/// The only algorithm of proofs.
const ALGORITHM: &str = "ES256";

/// Bytes of a nonce; a longer one is ignored.
const MAX_NONCE_BYTES: usize = 2048;

/// The private key of one login, on P-256. Clones share its nonces. `Debug` hides it; serialized,
/// it is PKCS #8 in PEM.
#[derive(Clone)]
pub struct ProofKey(Arc<KeyState>);

struct KeyState {
    key: SigningKey,
    pem: Secret,
    /// The encoded header of all proofs, with the public key.
    header: String,
    thumbprint: String,
    /// The latest nonce of the issuer.
    issuer_nonce: Mutex<Option<Nonce>>,
    /// The latest nonce of the MCP server. Both may be on one origin, but issue their own nonces.
    server_nonce: Mutex<Option<Nonce>>,
}

/// A value that a server demands in proofs.
#[derive(Clone, PartialEq, Eq)]
pub struct Nonce(Arc<str>);

impl Nonce {
    /// The nonce of a response. RFC 9449 allows one, of printable characters.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(NONCE_HEADER).iter();
        let (value, further) = (values.next()?, values.next());
        let text = value.to_str().ok()?;
        let is_valid = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
        let usable = !text.is_empty() && text.len() <= MAX_NONCE_BYTES && further.is_none();
        (usable && text.bytes().all(is_valid)).then(|| Self(text.into()))
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nonce")
    }
}

impl ProofKey {
    /// A new key.
    pub fn generate() -> Result<Self, AuthError> {
        let random = SystemRandom::new();
        let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random);
        let der = der.map_err(|_| AuthError::Invalid("the system has no random numbers".into()))?;
        Self::from_pem(Secret::new(format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
            STANDARD.encode(der)
        )))
    }

    fn from_pem(pem: Secret) -> Result<Self, AuthError> {
        let key = SigningKey::from_pem(&pem)?;
        let (x, y) = key
            .p256_point()
            .ok_or_else(|| AuthError::Invalid("the key of the login is not a P-256 key".into()))?;
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        let jwk = public_jwk(&x, &y);
        let header = format!(r#"{{"typ":"dpop+jwt","alg":"{ALGORITHM}","jwk":{jwk}}}"#);
        Ok(Self(Arc::new(KeyState {
            key,
            pem,
            header: URL_SAFE_NO_PAD.encode(header),
            thumbprint: hash(jwk.as_bytes()),
            issuer_nonce: Mutex::default(),
            server_nonce: Mutex::default(),
        })))
    }

    /// The thumbprint of the public key (RFC 7638), for `dpop_jkt`.
    pub fn thumbprint(&self) -> &str {
        &self.0.thumbprint
    }

    /// The proof of a token request, with the latest nonce of the issuer.
    pub(crate) fn token_proof(&self, url: &Uri) -> Result<HeaderValue, AuthError> {
        let nonce = lock(&self.0.issuer_nonce).clone();
        self.proof(&Method::POST, url, None, nonce.as_ref())
    }

    /// Uses the nonce of a response of the issuer from now on. Returns whether it has one.
    pub(crate) fn note_issuer_nonce(&self, headers: &HeaderMap) -> bool {
        let nonce = Nonce::of(headers);
        let has_nonce = nonce.is_some();
        if has_nonce {
            *lock(&self.0.issuer_nonce) = nonce;
        }
        has_nonce
    }

    fn proof(
        &self,
        method: &Method,
        url: &Uri,
        token_hash: Option<&str>,
        nonce: Option<&Nonce>,
    ) -> Result<HeaderValue, AuthError> {
        let mut claims = json!({
            "jti": random_text()?,
            "htm": method.as_str(),
            "htu": without_query(url),
            "iat": unix_seconds(SystemTime::now()),
        });
        if let Some(hash) = token_hash {
            claims["ath"] = json!(hash);
        }
        if let Some(Nonce(nonce)) = nonce {
            claims["nonce"] = json!(**nonce);
        }
        let proof = self.0.key.sign_under(&self.0.header, &claims)?;
        let mut value = HeaderValue::try_from(proof.expose())
            .map_err(|_| AuthError::Invalid("the proof of the key cannot be sent".into()))?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// Signs the requests that carry one token. Clones share the nonces.
#[derive(Clone)]
pub struct RequestSigner {
    key: ProofKey,
    token_hash: Arc<str>,
}

impl RequestSigner {
    /// Signs requests that carry this token.
    pub fn new(key: ProofKey, token: &Secret) -> Self {
        let token_hash = hash(token.expose().as_bytes()).into();
        Self { key, token_hash }
    }

    /// The proof of one request, to be sent once. Without a nonce of its own, it has the latest one
    /// of the server.
    pub fn sign(
        &self,
        method: &Method,
        url: &Uri,
        nonce: Option<&Nonce>,
    ) -> Result<HeaderValue, AuthError> {
        let latest = || lock(&self.key.0.server_nonce).clone();
        let nonce = nonce.cloned().or_else(latest);
        let hash = Some(&*self.token_hash);
        self.key.proof(method, url, hash, nonce.as_ref())
    }

    /// Uses this nonce of the server for requests without one of their own.
    pub fn share_nonce(&self, nonce: Nonce) {
        *lock(&self.key.0.server_nonce) = Some(nonce);
    }

    /// What all proofs begin with. Without it a proof is useless, so it is redacted.
    pub fn proof_prefix(&self) -> &str {
        &self.key.0.header
    }

    pub(crate) fn key(&self) -> &ProofKey {
        &self.key
    }
}

/// A public key on P-256, in the form that its thumbprint requires (RFC 7638).
fn public_jwk(x: &str, y: &str) -> String {
    format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#)
}

/// SHA-256 in base64url.
fn hash(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, bytes))
}

fn lock(slot: &Mutex<Option<Nonce>>) -> MutexGuard<'_, Option<Nonce>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for ProofKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProofKey(***)")
    }
}

impl fmt::Debug for RequestSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestSigner(***)")
    }
}

impl PartialEq for ProofKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.pem == other.0.pem
    }
}

impl Eq for ProofKey {}

impl Serialize for ProofKey {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.pem.serialize(to)
    }
}

impl<'de> Deserialize<'de> for ProofKey {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let pem = Secret::deserialize(from)?;
        Self::from_pem(pem).map_err(|_| de::Error::custom("not a private key"))
    }
}

#[cfg(test)]
pub(crate) mod tests;

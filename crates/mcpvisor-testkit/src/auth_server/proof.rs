//! Verifies proofs of the possession of a key (RFC 9449, 4.3), and issues nonces for them.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::jwt;
use super::ledger::fresh;
use super::options::NonceRule;

/// Seconds that the time of a proof may differ from now.
const MAX_SKEW: u64 = 300;

/// A request with a proof.
#[derive(Debug, Clone, Copy)]
pub(super) struct SignedRequest<'a> {
    pub(super) method: &'a str,
    /// The URL without its query.
    pub(super) url: &'a str,
    /// Names in lower case.
    pub(super) headers: &'a [(String, String)],
    /// The access token that it carries, if it does.
    pub(super) token: Option<&'a str>,
}

/// Why a proof is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProofProblem {
    /// It is not valid, for this reason.
    Invalid(String),
    /// Its nonce is missing or used up.
    Nonce,
}

/// What a server remembers of proofs.
#[derive(Debug, Default)]
pub(super) struct ProofVerifier(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The ids of all proofs, to detect replays.
    seen: HashSet<String>,
    /// The nonce of [`NonceRule::Shared`].
    shared: Option<String>,
    /// The unused nonces of [`NonceRule::OneTime`].
    unused: HashSet<String>,
    refused_nonces: u64,
    invalid: Vec<String>,
}

impl ProofVerifier {
    /// The thumbprint of the key that signed a request.
    pub(super) fn verify(
        &self,
        request: SignedRequest<'_>,
        rule: NonceRule,
        refuses_nonces: bool,
    ) -> Result<String, ProofProblem> {
        let mut state = self.state();
        let (thumbprint, claims) = match check(request) {
            Ok(checked) => checked,
            Err(problem) => return Err(state.invalid(problem)),
        };
        let id = claims["jti"].as_str().unwrap_or_default();
        if id.is_empty() || !state.seen.insert(id.to_owned()) {
            return Err(state.invalid("the proof was used before".to_owned()));
        }
        if refuses_nonces || !state.accepts(rule, claims["nonce"].as_str()) {
            state.refused_nonces += 1;
            return Err(ProofProblem::Nonce);
        }
        Ok(thumbprint)
    }

    /// The nonce that the next response carries.
    pub(super) fn next_nonce(&self, rule: NonceRule) -> Option<String> {
        let mut state = self.state();
        match rule {
            NonceRule::None => None,
            NonceRule::Shared => Some(state.shared.get_or_insert_with(|| fresh("nonce")).clone()),
            NonceRule::OneTime => {
                let nonce = fresh("nonce");
                state.unused.insert(nonce.clone());
                Some(nonce)
            }
        }
    }

    /// Lets all nonces expire.
    pub(super) fn expire_nonces(&self) {
        let mut state = self.state();
        state.shared = None;
        state.unused.clear();
    }

    /// The number of proofs that were refused for their nonce.
    pub(super) fn refused_nonces(&self) -> u64 {
        self.state().refused_nonces
    }

    /// Why proofs were not valid, in order.
    pub(super) fn invalid_proofs(&self) -> Vec<String> {
        self.state().invalid.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn accepts(&mut self, rule: NonceRule, nonce: Option<&str>) -> bool {
        match (rule, nonce) {
            (NonceRule::None, _) => true,
            (NonceRule::Shared, Some(nonce)) => self.shared.as_deref() == Some(nonce),
            (NonceRule::OneTime, Some(nonce)) => self.unused.remove(nonce),
            (NonceRule::Shared | NonceRule::OneTime, None) => false,
        }
    }

    fn invalid(&mut self, problem: String) -> ProofProblem {
        self.invalid.push(problem.clone());
        ProofProblem::Invalid(problem)
    }
}

/// Checks everything but the nonce and replays. Returns the thumbprint and the claims.
fn check(request: SignedRequest<'_>) -> Result<(String, Value), String> {
    let proofs = request.headers.iter().filter(|(name, _)| name == "dpop");
    let proofs: Vec<&str> = proofs.map(|(_, value)| value.as_str()).collect();
    let [proof] = proofs.as_slice() else {
        return Err(format!("{} proofs", proofs.len()));
    };
    let (header, claims) = verify_signature(proof).ok_or("the signature is not valid")?;
    let mut expected = vec![
        ("typ", &header["typ"], "dpop+jwt".to_owned()),
        ("htm", &claims["htm"], request.method.to_owned()),
        ("htu", &claims["htu"], request.url.to_owned()),
    ];
    if let Some(token) = request.token {
        expected.push(("ath", &claims["ath"], hash(token)));
    }
    for (name, found, expected) in expected {
        if *found != expected.as_str() {
            return Err(format!("{name} is {found}, not {expected:?}"));
        }
    }
    let at = claims["iat"].as_u64().unwrap_or_default();
    if at.abs_diff(jwt::now()) > MAX_SKEW {
        return Err(format!("iat is {at}"));
    }
    let part = |name: &str| header["jwk"][name].as_str().unwrap_or_default();
    let key = format!(
        r#"{{"crv":"P-256","kty":"EC","x":"{}","y":"{}"}}"#,
        part("x"),
        part("y")
    );
    Ok((hash(&key), claims))
}

/// Header and claims of a JWT that the key in its header signed with ES256.
fn verify_signature(proof: &str) -> Option<(Value, Value)> {
    let (message, signature) = proof.rsplit_once('.')?;
    let (header, claims) = message.split_once('.')?;
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
    let json = |text: &str| serde_json::from_slice::<Value>(&decode(text)?).ok();
    let (header, claims) = (json(header)?, json(claims)?);
    let key = &header["jwk"];
    let is_public = key.get("d").is_none();
    if !is_public || header["alg"] != "ES256" || key["kty"] != "EC" || key["crv"] != "P-256" {
        return None;
    }
    let coordinate = |name: &str| decode(key[name].as_str()?);
    let point = [vec![4], coordinate("x")?, coordinate("y")?].concat();
    let verified = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
        .verify(message.as_bytes(), &decode(signature)?);
    verified.is_ok().then_some((header, claims))
}

fn hash(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(text))
}

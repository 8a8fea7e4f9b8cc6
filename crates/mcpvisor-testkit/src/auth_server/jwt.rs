//! JWTs without their signatures: claims of assertions, and ID-JAGs.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// The claims of a JWT. The signature is not verified.
pub(super) fn claims(jwt: &str) -> Option<Value> {
    let mut parts = jwt.split('.');
    let (_, claims, _) = (parts.next()?, parts.next()?, parts.next()?);
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
}

/// A JWT with these claims and a signature that nothing can verify.
pub(super) fn unsigned(kind: &str, claims: &Value) -> String {
    let header = json!({ "alg": "ES256", "typ": kind });
    let encoded = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signature = URL_SAFE_NO_PAD.encode([0; 64]);
    format!("{}.{}.{signature}", encoded(&header), encoded(claims))
}

/// Whether a client assertion is of this client, for this server, and not expired.
pub(super) fn is_valid_assertion(jwt: &str, client: &str, audiences: &[String]) -> bool {
    let Some(claims) = claims(jwt) else {
        return false;
    };
    claims["iss"] == client
        && claims["sub"] == client
        && is_for(&claims, audiences)
        && is_fresh(&claims)
}

/// Whether `aud` names one of these audiences.
pub(super) fn is_for(claims: &Value, audiences: &[String]) -> bool {
    let names = |value: &Value| audiences.iter().any(|audience| value == audience);
    match &claims["aud"] {
        Value::Array(several) => several.iter().any(names),
        one => names(one),
    }
}

/// Whether `exp` is in the future.
pub(super) fn is_fresh(claims: &Value) -> bool {
    claims["exp"].as_u64().is_some_and(|expiry| expiry > now())
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map(|now| now.as_secs()).unwrap_or_default()
}

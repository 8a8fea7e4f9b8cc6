use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde_json::Value;

use super::*;

const TOKEN: &str = "Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU";

fn headers(nonces: &[&str]) -> HeaderMap {
    let value = |nonce: &&str| (NONCE_HEADER, HeaderValue::from_str(nonce).unwrap());
    nonces.iter().map(value).collect()
}

fn nonce(text: &str) -> Nonce {
    Nonce::of(&headers(&[text])).unwrap()
}

/// Header and claims of a proof whose signature is valid under the key in its header.
pub(crate) fn verified(proof: &HeaderValue) -> (Value, Value) {
    let proof = proof.to_str().unwrap();
    let (message, signature) = proof.rsplit_once('.').unwrap();
    let (header, claims) = message.split_once('.').unwrap();
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap();
    let json = |part: &str| serde_json::from_slice::<Value>(&decode(part)).unwrap();
    let (header, claims) = (json(header), json(claims));
    let coordinate = |name: &str| decode(header["jwk"][name].as_str().unwrap());
    let point = [vec![4], coordinate("x"), coordinate("y")].concat();
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
        .verify(message.as_bytes(), &decode(signature))
        .unwrap();
    (header, claims)
}

#[test]
fn the_hashes_are_those_of_rfc_9449() {
    assert_eq!(
        hash(TOKEN.as_bytes()),
        "fUHyO2r2Z3DZ53EsNrWBb0xWXoaNy59IiKCAqksmQEo"
    );
    let jwk = public_jwk(
        "l8tFrhx-34tV3hRICRDY9zCkDlpBhF42UQUfWVAWBFs",
        "9VE4jf_Ok_o64zbTTlcuNJajHmt6v9TDVrU0CdvGRDA",
    );
    assert_eq!(
        hash(jwk.as_bytes()),
        "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"
    );
}

#[test]
fn a_proof_of_a_request_has_the_claims_of_rfc_9449() {
    let key = ProofKey::generate().unwrap();
    let signer = RequestSigner::new(key.clone(), &Secret::new(TOKEN));
    let url = "https://Resource.example.org:443/protected%20x?q=1"
        .parse()
        .unwrap();
    let before = unix_seconds(SystemTime::now());
    let proof = signer.sign(&Method::GET, &url, None).unwrap();
    assert!(proof.is_sensitive());
    assert!(proof.to_str().unwrap().starts_with(signer.proof_prefix()));
    let (header, claims) = verified(&proof);
    let names = |value: &Value| {
        let mut names: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
        names.sort_unstable();
        names
    };
    assert_eq!(
        (&header["typ"], &header["alg"]),
        (&json!("dpop+jwt"), &json!("ES256"))
    );
    assert_eq!(
        names(&header["jwk"]),
        ["crv", "kty", "x", "y"],
        "the public key"
    );
    assert_eq!(names(&claims), ["ath", "htm", "htu", "iat", "jti"]);
    assert_eq!(claims["htm"], "GET");
    assert_eq!(claims["htu"], "https://resource.example.org/protected%20x");
    assert_eq!(claims["ath"], "fUHyO2r2Z3DZ53EsNrWBb0xWXoaNy59IiKCAqksmQEo");
    assert!((before..before + 5).contains(&claims["iat"].as_u64().unwrap()));
    let jwk = &header["jwk"];
    let (x, y) = (jwk["x"].as_str().unwrap(), jwk["y"].as_str().unwrap());
    assert_eq!(hash(public_jwk(x, y).as_bytes()), key.thumbprint());
}

#[test]
fn every_proof_is_another_one() {
    let signer = RequestSigner::new(ProofKey::generate().unwrap(), &Secret::new(TOKEN));
    let url = "http://127.0.0.1:8080/mcp".parse().unwrap();
    let proof = || verified(&signer.sign(&Method::POST, &url, None).unwrap()).1;
    let (first, second) = (proof(), proof());
    assert_eq!(first["htu"], "http://127.0.0.1:8080/mcp");
    assert_ne!(first["jti"], second["jti"]);
}

#[test]
fn a_proof_of_a_token_request_names_no_token() {
    let key = ProofKey::generate().unwrap();
    let url = "https://as.example.com/token".parse().unwrap();
    let (_, claims) = verified(&key.token_proof(&url).unwrap());
    assert_eq!(
        (&claims["htm"], &claims["htu"]),
        (&json!("POST"), &json!(url.to_string()))
    );
    assert_eq!((claims.get("ath"), claims.get("nonce")), (None, None));
}

#[test]
fn issuer_and_server_have_nonces_of_their_own() {
    let key = ProofKey::generate().unwrap();
    let url = "https://h/mcp".parse().unwrap();
    let signer = RequestSigner::new(key.clone(), &Secret::new(TOKEN));
    assert!(key.note_issuer_nonce(&headers(&["issuer"])));
    signer.share_nonce(nonce("server"));
    assert!(!key.note_issuer_nonce(&headers(&[])), "the last one stays");
    assert_eq!(
        verified(&key.token_proof(&url).unwrap()).1["nonce"],
        "issuer"
    );
    let of_request = |nonce: Option<&Nonce>| {
        let proof = signer.sign(&Method::POST, &url, nonce).unwrap();
        verified(&proof).1["nonce"].clone()
    };
    assert_eq!(of_request(None), "server");
    assert_eq!(of_request(Some(&nonce("own"))), "own");
    // A renewed token is bound to the same key.
    let renewed = RequestSigner::new(key, &Secret::new("renewed"));
    let proof = renewed.sign(&Method::POST, &url, None).unwrap();
    assert_eq!(verified(&proof).1["nonce"], "server");
}

#[test]
fn a_nonce_is_one_short_text_of_printable_characters() {
    let long = "x".repeat(MAX_NONCE_BYTES + 1);
    for values in [
        &["a", "b"][..],
        &[""],
        &["a b"],
        &["a\"b"],
        &["a\\b"],
        &[&long],
    ] {
        assert_eq!(Nonce::of(&headers(values)), None, "{values:?}");
    }
    assert_eq!(
        Nonce::of(&headers(&["eyJ7S_zG.eyJH0-Z.HX4w-7v"]))
            .unwrap()
            .0
            .len(),
        24
    );
}

#[test]
fn a_key_survives_the_store_and_is_never_shown() {
    let key = ProofKey::generate().unwrap();
    let stored = serde_json::to_string(&key).unwrap();
    assert!(stored.contains("BEGIN PRIVATE KEY"));
    let read: ProofKey = serde_json::from_str(&stored).unwrap();
    assert_eq!(read, key);
    assert_eq!(read.thumbprint(), key.thumbprint());
    assert_ne!(key, ProofKey::generate().unwrap());
    let signer = RequestSigner::new(key.clone(), &Secret::new("canary-token"));
    let shown = format!("{key:?} {signer:?} {:?}", nonce("canary-nonce"));
    assert_eq!(shown, "ProofKey(***) RequestSigner(***) Nonce");
}

#[test]
fn a_damaged_key_or_one_of_another_kind_is_refused_without_showing_it() {
    let rsa = crate::test_tokens::rsa_pem();
    for pem in ["canary", rsa.expose()] {
        let error = serde_json::from_value::<ProofKey>(json!(pem)).unwrap_err();
        assert_eq!(error.to_string(), "not a private key");
    }
}

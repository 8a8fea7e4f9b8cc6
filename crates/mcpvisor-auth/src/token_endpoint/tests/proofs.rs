//! Token requests that prove the possession of a key.

use super::*;
use crate::dpop::tests::verified;
use crate::test_tokens::{Scripted, SentRequest, with_nonce};

fn token(token_type: &str) -> Scripted {
    json_response(
        200,
        json!({ "access_token": "a", "token_type": token_type }),
    )
}

fn demands_nonce(status: u16, nonce: &'static str) -> Scripted {
    let body = json!({ "error": "use_dpop_nonce", "error_description": "a nonce" });
    with_nonce(json_response(status, body), nonce)
}

async fn request(http: &ScriptedHttp, key: &ProofKey) -> Result<TokenResponse, AuthError> {
    let client = client(ClientAuthMethod::None);
    TokenEndpoint {
        proof_key: Some(key),
        ..endpoint(http, &client)
    }
    .request(&[("grant_type", "authorization_code"), ("code", "c")])
    .await
}

/// The claims of the one proof that a request carries.
fn claims(sent: &SentRequest) -> Value {
    let proofs: Vec<_> = sent.headers.get_all(PROOF_HEADER).iter().collect();
    assert_eq!(proofs.len(), 1);
    verified(proofs[0]).1
}

#[tokio::test]
async fn a_request_proves_the_key_that_the_token_is_bound_to() {
    let key = ProofKey::generate().unwrap();
    for (name, token_type) in [("DPoP", TokenType::Dpop), ("Bearer", TokenType::Bearer)] {
        let http = ScriptedHttp::new([token(name)]);
        let response = request(&http, &key).await.unwrap();
        assert_eq!(response.token_type, Some(token_type));
        let claims = claims(&http.requests()[0]);
        assert_eq!(
            (&claims["htm"], &claims["htu"]),
            (&json!("POST"), &json!(URL))
        );
        assert_eq!(claims.get("nonce"), None);
    }
}

#[tokio::test]
async fn a_request_is_repeated_once_with_the_nonce_that_the_issuer_demands() {
    let key = ProofKey::generate().unwrap();
    for status in [400, 401] {
        let repeated = with_nonce(token("DPoP"), "n2");
        let http = ScriptedHttp::new([demands_nonce(status, "n1"), repeated]);
        request(&http, &key).await.unwrap();
        let sent = http.requests();
        assert_eq!(sent.len(), 2);
        assert_eq!(sent[0].form(), sent[1].form());
        let (first, second) = (claims(&sent[0]), claims(&sent[1]));
        assert_eq!(second["nonce"], "n1");
        assert_ne!(first["jti"], second["jti"]);
    }
    // The nonce of the last answer is used from then on.
    let http = ScriptedHttp::new([token("DPoP")]);
    request(&http, &key).await.unwrap();
    assert_eq!(claims(&http.requests()[0])["nonce"], "n2");
}

#[tokio::test]
async fn an_issuer_that_demands_nonces_without_end_is_refused() {
    let key = ProofKey::generate().unwrap();
    let nonces = ["n1", "n2", "n3"].map(|nonce| demands_nonce(400, nonce));
    let http = ScriptedHttp::new(nonces);
    let error = request(&http, &key).await.unwrap_err();
    assert_eq!(error, refused(400, "use_dpop_nonce", Some("a nonce")));
    assert_eq!(http.requests().len(), 2);
    // Without a nonce there is nothing to repeat it with.
    let http = ScriptedHttp::new([json_response(400, json!({ "error": "use_dpop_nonce" }))]);
    request(&http, &ProofKey::generate().unwrap())
        .await
        .unwrap_err();
    assert_eq!(http.requests().len(), 1);
}

#[tokio::test]
async fn a_proof_that_the_issuer_repeats_is_not_shown() {
    let key = ProofKey::generate().unwrap();
    let http = ScriptedHttp::default().echoing();
    let error = request(&http, &key).await.unwrap_err();
    let sent = &http.requests()[0];
    let proof = sent.headers[PROOF_HEADER].to_str().unwrap();
    let shown = format!("{error} {error:?}");
    assert!(shown.contains("echo"), "{shown}");
    assert!(!shown.contains(&proof[..40]), "{shown}");
}

#[tokio::test]
async fn only_token_requests_carry_a_proof() {
    let key = ProofKey::generate().unwrap();
    let client = client(ClientAuthMethod::None);
    let http = ScriptedHttp::new([text_response(200, "")]);
    let endpoint = TokenEndpoint {
        proof_key: Some(&key),
        ..endpoint(&http, &client)
    };
    endpoint
        .post("other", URL, &[], TOKEN_TIMEOUT)
        .await
        .unwrap();
    assert!(!http.requests()[0].headers.contains_key(PROOF_HEADER));
}

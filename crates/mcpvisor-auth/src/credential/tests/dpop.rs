//! Credentials whose tokens are bound to a key.

use super::*;
use crate::config::ConfiguredClient;
use crate::dpop::binding::BoundTokens;
use crate::dpop::tests::verified;
use crate::dpop::{Nonce, ProofKey};
use crate::test_tokens::with_nonce;
use http::Method;

const ISSUER_URL: &str = "https://as.example.com/authorize";

fn bound_record(access: &str) -> CredentialRecord {
    CredentialRecord {
        dpop: Some(BoundTokens {
            key: ProofKey::generate().unwrap(),
            access_is_bearer: false,
        }),
        ..record(access, Some("r1"))
    }
}

fn answer(access: &str, token_type: &str) -> Scripted {
    json_response(
        200,
        json!({ "access_token": access, "token_type": token_type, "expires_in": 3600 }),
    )
}

/// Replaces the record by what a store on disk would return: a key without nonces.
async fn reread(store: &MemoryStore) {
    let record = serde_json::to_value(stored(store).await).unwrap();
    store
        .save(serde_json::from_value(record).unwrap())
        .await
        .unwrap();
}

/// The nonce in the proof of the request with this number, which the record's key signed.
fn proven_nonce(http: &ScriptedHttp, number: usize, record: &CredentialRecord) -> Option<String> {
    let proof = &http.requests()[number].headers["dpop"];
    let (header, claims) = verified(proof);
    let key = serde_json::to_value(&record.dpop.as_ref().unwrap().key).unwrap();
    let key: ProofKey = serde_json::from_value(key).unwrap();
    let expected = key.token_proof(&ISSUER_URL.parse().unwrap()).unwrap();
    assert_eq!(header["jwk"], verified(&expected).0["jwk"], "the same key");
    claims["nonce"].as_str().map(str::to_owned)
}

#[tokio::test(start_paused = true)]
async fn refreshes_prove_the_key_of_the_login_and_remember_nonces() {
    let demand = json_response(400, json!({ "error": "use_dpop_nonce" }));
    let script = [
        with_nonce(demand, "n1"),
        with_nonce(answer("a2", "DPoP"), "n2"),
        answer("a3", "DPoP"),
    ];
    let login = bound_record("a1");
    let (credential, http, store) = credential(Some(login.clone()), script).await;
    let first = credential.fresh().await.unwrap().unwrap();
    assert!(first.signer().is_some());
    reread(&store).await;
    let second = credential.renew(Some(first.revision())).await.unwrap();
    assert_eq!(second.text().expose(), "a2");
    second.mark_accepted();
    reread(&store).await;
    credential.renew(Some(second.revision())).await.unwrap();
    let nonces = [0, 1, 2].map(|number| proven_nonce(&http, number, &login));
    let n = |text: &str| Some(text.to_owned());
    assert_eq!(nonces, [None, n("n1"), n("n2")]);
    assert_eq!(stored(&store).await.dpop, login.dpop);
    // The nonces of the server outlive a token too.
    let response = with_nonce(answer("", ""), "server").unwrap();
    let nonce = Nonce::of(response.headers()).unwrap();
    first.signer().unwrap().share_nonce(nonce);
    let current = credential.current().unwrap();
    let url = URL.parse().unwrap();
    let proof = current.signer().unwrap().sign(&Method::POST, &url, None);
    assert_eq!(verified(&proof.unwrap()).1["nonce"], "server");
}

#[tokio::test(start_paused = true)]
async fn a_refresh_may_return_a_bearer_token_and_the_key_is_kept() {
    let login = bound_record("a1");
    let script = [answer("a2", "Bearer"), answer("a3", "DPoP")];
    let (credential, http, store) = credential(Some(login.clone()), script).await;
    let first = credential.fresh().await.unwrap().unwrap();
    let second = credential.renew(Some(first.revision())).await.unwrap();
    assert!(second.signer().is_none());
    second.mark_accepted();
    let saved = stored(&store).await.dpop.unwrap();
    assert_eq!(saved.key, login.dpop.as_ref().unwrap().key);
    let third = credential.renew(Some(second.revision())).await.unwrap();
    assert!(third.signer().is_some());
    assert_eq!(proven_nonce(&http, 1, &login), None);
}

/// The metadata that discovery reads, with this binding at the issuer, then the tokens.
fn client_credentials(
    algorithms: &[&str],
    tokens: impl IntoIterator<Item = Scripted>,
) -> (Credential, ScriptedHttp, MemoryStore) {
    let not_found = || json_response(404, json!({}));
    let issuer = json_response(
        200,
        json!({ "issuer": "https://mcp.example.com",
                "token_endpoint": "https://mcp.example.com/token",
                "dpop_signing_alg_values_supported": algorithms }),
    );
    let responses = tokens
        .into_iter()
        .flat_map(move |token| [not_found(), not_found(), issuer.clone(), token]);
    let http = ScriptedHttp::new(responses);
    let store = MemoryStore::new();
    let mut config = CredentialConfig::new(URL);
    config.grant = Grant::ClientCredentials;
    config.client = Some(ConfiguredClient {
        id: "robot".to_owned(),
        secret: Some(Secret::new("s")),
        private_key: None,
    });
    let credential = Credential::new(config, Arc::new(http.clone()), Arc::new(store.clone()));
    (credential, http, store)
}

#[tokio::test(start_paused = true)]
async fn a_client_whose_fresh_bearer_token_is_refused_for_lack_of_a_key_gets_a_bound_one() {
    let tokens = [
        answer("a1", "Bearer"),
        answer("a2", "DPoP"),
        answer("a3", "DPoP"),
    ];
    let (credential, http, store) = client_credentials(&["ES256"], tokens);
    let first = credential.fresh().await.unwrap().unwrap();
    assert!(first.signer().is_none(), "the server did not ask for it");
    credential.note_challenge(Challenge::parse(["DPoP"]));
    let second = credential.renew(Some(first.revision())).await.unwrap();
    assert!(second.signer().is_some());
    // A bound token that is refused shows that renewing does not help.
    let error = credential.renew(Some(second.revision())).await.unwrap_err();
    assert!(matches!(error, AuthError::LoginNeeded { .. }), "{error}");
    // The next renewal keeps the key, although the server asks for nothing.
    let key = stored(&store).await.dpop.unwrap().key;
    second.mark_accepted();
    credential.note_challenge(Challenge::default());
    let third = credential.renew(Some(second.revision())).await.unwrap();
    assert!(third.signer().is_some());
    assert_eq!(stored(&store).await.dpop.unwrap().key, key);
    assert_eq!(http.requests().len(), 12);
}

#[tokio::test(start_paused = true)]
async fn an_issuer_that_binds_no_tokens_is_not_asked_again_and_again() {
    let tokens = [answer("a1", "Bearer"), answer("a2", "Bearer")];
    let (credential, http, _) = client_credentials(&["ES256"], tokens);
    let first = credential.fresh().await.unwrap().unwrap();
    credential.note_challenge(Challenge::parse(["DPoP"]));
    let error = credential.renew(Some(first.revision())).await.unwrap_err();
    assert!(matches!(&error, AuthError::Invalid(_)), "{error}");
    assert_eq!(http.requests().len(), 8);
    let error = credential.renew(Some(first.revision())).await.unwrap_err();
    assert!(matches!(&error, AuthError::Unavailable { .. }), "{error}");
    assert_eq!(http.requests().len(), 8);
}

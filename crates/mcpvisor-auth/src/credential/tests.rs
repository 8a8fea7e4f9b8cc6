mod dpop;
mod finish;
mod unsaved;

use super::*;
use crate::http_client::HttpError;
use crate::record::{
    ClientAuthMethod, ClientRecord, ClientSource, CredentialKey, Endpoints, RECORD_VERSION,
    TokenSet,
};
use crate::secret::Secret;
use crate::store::{CredentialStore as _, MemoryStore};
use crate::test_tokens::{Scripted, ScriptedHttp, json_response, text_response};
use serde_json::json;

const URL: &str = "https://mcp.example.com/mcp";

fn record(access: &str, refresh: Option<&str>) -> CredentialRecord {
    CredentialRecord {
        version: RECORD_VERSION,
        revision: 1,
        key: CredentialKey {
            server_url: URL.to_owned(),
            issuer: "https://as.example.com".to_owned(),
            resource: Some(URL.to_owned()),
            account: String::new(),
        },
        client: ClientRecord {
            id: "client".to_owned(),
            secret: None,
            secret_expires_at: None,
            auth_method: ClientAuthMethod::None,
            source: ClientSource::Registered,
            redirect_uri: None,
        },
        endpoints: Endpoints {
            token: "https://as.example.com/token".to_owned(),
            revocation: None,
        },
        tokens: TokenSet {
            access: Secret::new(access),
            refresh: refresh.map(Secret::new),
            obtained_at: now(),
            expires_at: Some(now() + 3_600),
        },
        scopes: vec!["read".to_owned()],
        dpop: None,
        logged_in_at: now(),
        rejected: None,
    }
}

fn tokens(access: &str, refresh: &str) -> Scripted {
    json_response(
        200,
        json!({ "access_token": access, "refresh_token": refresh, "token_type": "Bearer", "expires_in": 3600 }),
    )
}

fn refused(error: &str) -> Scripted {
    json_response(400, json!({ "error": error }))
}

async fn credential(
    stored: Option<CredentialRecord>,
    responses: impl IntoIterator<Item = Scripted>,
) -> (Credential, ScriptedHttp, MemoryStore) {
    let (http, store) = (ScriptedHttp::new(responses), MemoryStore::new());
    if let Some(record) = stored {
        store.save(record).await.unwrap();
    }
    let config = CredentialConfig::new(URL);
    let credential = Credential::new(config, Arc::new(http.clone()), Arc::new(store.clone()));
    (credential, http, store)
}

async fn stored(store: &MemoryStore) -> CredentialRecord {
    store.find(URL, "").await.unwrap().remove(0)
}

#[tokio::test(start_paused = true)]
async fn many_callers_with_one_refused_token_cause_one_refresh() {
    let (credential, http, store) =
        credential(Some(record("a1", Some("r1"))), [tokens("a2", "r2")]).await;
    let first = credential.fresh().await.unwrap().unwrap();
    let callers = (0..64).map(|_| {
        let credential = credential.clone();
        let refused = first.revision();
        tokio::spawn(async move { credential.renew(Some(refused)).await.unwrap() })
    });
    for caller in callers.collect::<Vec<_>>() {
        assert_eq!(caller.await.unwrap().text().expose(), "a2");
    }
    assert_eq!(http.requests().len(), 1);
    let saved = stored(&store).await;
    assert_eq!(
        (saved.tokens.refresh.unwrap().expose(), saved.revision),
        ("r2", 2)
    );
    // A late report of the first token needs no refresh.
    credential.renew(Some(first.revision())).await.unwrap();
    assert_eq!(http.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_caller_does_not_cancel_a_refresh() {
    let (credential, _, store) =
        credential(Some(record("a1", Some("r1"))), [tokens("a2", "r2")]).await;
    let first = credential.fresh().await.unwrap().unwrap();
    let renewal = credential.renew(Some(first.revision()));
    drop(tokio::time::timeout(Duration::ZERO, renewal).await);
    let mut tokens = credential.subscribe();
    let renewed = tokens.wait_for(|token| *token != Some(first.clone()));
    renewed.await.unwrap();
    assert_eq!(stored(&store).await.tokens.access.expose(), "a2");
}

#[tokio::test(start_paused = true)]
async fn the_token_of_another_process_is_adopted_without_a_refresh() {
    let (credential, http, store) = credential(Some(record("a1", Some("r1"))), []).await;
    let first = credential.fresh().await.unwrap().unwrap();
    store.save(record("b2", Some("r2"))).await.unwrap();
    let adopted = credential.renew(Some(first.revision())).await.unwrap();
    assert_eq!(adopted.text().expose(), "b2");
    assert_eq!(http.requests().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_rejected_grant_is_marked_and_asks_for_a_login_that_heals_it() {
    let (credential, http, store) =
        credential(Some(record("a1", Some("r1"))), [refused("invalid_grant")]).await;
    let first = credential.fresh().await.unwrap().unwrap();
    let error = credential.renew(Some(first.revision())).await.unwrap_err();
    assert!(matches!(error, AuthError::LoginNeeded { .. }), "{error}");
    let marked = stored(&store).await;
    assert_eq!(
        marked.tokens,
        record("a1", Some("r1")).tokens,
        "nothing is deleted"
    );
    assert!(!marked.rejected.unwrap().client_unknown);
    // The dead token is not tried again.
    let error = credential.renew(Some(first.revision())).await.unwrap_err();
    assert!(matches!(error, AuthError::LoginNeeded { .. }), "{error}");
    assert_eq!(http.requests().len(), 1);
    let waiting = tokio::spawn({
        let credential = credential.clone();
        async move { credential.wait_for_login().await }
    });
    store.save(record("b1", Some("s1"))).await.unwrap();
    assert_eq!(waiting.await.unwrap().text().expose(), "b1");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_client_is_forgotten() {
    let (credential, _, store) =
        credential(Some(record("a1", Some("r1"))), [refused("invalid_client")]).await;
    let first = credential.fresh().await.unwrap().unwrap();
    credential.renew(Some(first.revision())).await.unwrap_err();
    assert!(stored(&store).await.rejected.unwrap().client_unknown);
}

#[tokio::test(start_paused = true)]
async fn a_failure_names_the_issuer_what_happened_and_what_follows() {
    let rejected = json!({ "error": "invalid_grant", "error_description": "it was used before" });
    let unreachable = Err(HttpError::NotSent("connection refused".to_owned()));
    let unavailable = |why: &str| {
        format!("https://as.example.com cannot renew the login right now ({why}); retrying in 1 s")
    };
    for (response, expected) in [
        (
            refused("invalid_grant"),
            "login needed: the login was rejected by https://as.example.com (invalid_grant)"
                .to_owned(),
        ),
        (
            json_response(400, rejected),
            "login needed: the login was rejected by https://as.example.com (invalid_grant: it was \
             used before)"
                .to_owned(),
        ),
        (
            refused("invalid_client"),
            "login needed: https://as.example.com does not know the client of the login any more \
             (invalid_client)"
                .to_owned(),
        ),
        (
            refused("temporarily_unavailable"),
            unavailable("temporarily_unavailable"),
        ),
        (text_response(500, "oops"), unavailable("HTTP 500")),
        (unreachable, unavailable("connection refused")),
    ] {
        let (credential, _, _) = credential(Some(record("a1", Some("r1"))), [response]).await;
        let first = credential.fresh().await.unwrap().unwrap();
        for _ in 0..2 {
            let error = credential.renew(Some(first.revision())).await.unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_repeated_once_and_other_failures_back_off() {
    let lost = || Err(HttpError::Interrupted("reset".to_owned()));
    let script = [
        lost(),
        tokens("a2", "r2"),
        lost(),
        lost(),
        tokens("a3", "r3"),
    ];
    let (credential, http, store) = credential(Some(record("a1", Some("r1"))), script).await;
    let first = credential.fresh().await.unwrap().unwrap();
    let second = credential.renew(Some(first.revision())).await.unwrap();
    assert_eq!((second.text().expose(), http.requests().len()), ("a2", 2));
    second.mark_accepted();
    credential.renew(Some(second.revision())).await.unwrap_err();
    assert_eq!(http.requests().len(), 4);
    let error = credential.renew(Some(second.revision())).await.unwrap_err();
    assert!(matches!(error, AuthError::Unavailable { .. }), "{error}");
    assert_eq!(http.requests().len(), 4, "it waits before it tries again");
    assert_eq!(stored(&store).await.tokens.refresh.unwrap().expose(), "r2");
    tokio::time::advance(Duration::from_secs(2)).await;
    let third = credential.renew(Some(second.revision())).await.unwrap();
    assert_eq!(third.text().expose(), "a3");
}

#[tokio::test(start_paused = true)]
async fn a_fresh_token_that_was_never_accepted_is_not_refreshed_again() {
    let (credential, http, _) = credential(
        Some(record("a1", Some("r1"))),
        [tokens("a2", "r2"), tokens("a3", "r3")],
    )
    .await;
    let first = credential.fresh().await.unwrap().unwrap();
    let second = credential.renew(Some(first.revision())).await.unwrap();
    let error = credential.renew(Some(second.revision())).await.unwrap_err();
    assert!(matches!(error, AuthError::LoginNeeded { .. }), "{error}");
    assert_eq!(http.requests().len(), 1);
    // One that was accepted before may have expired.
    second.mark_accepted();
    credential.renew(Some(second.revision())).await.unwrap();
    assert_eq!(http.requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn without_a_login_nothing_is_sent() {
    let (credential, http, _) = credential(None, []).await;
    assert_eq!(credential.fresh().await.unwrap(), None);
    let error = credential.renew(None).await.unwrap_err();
    assert!(matches!(error, AuthError::LoginNeeded { .. }), "{error}");
    assert_eq!(http.requests().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_logout_takes_the_token_away_with_a_number_of_its_own() {
    let (credential, _, store) = credential(Some(record("a1", Some("r1"))), []).await;
    let first = credential.fresh().await.unwrap().unwrap();
    store.remove(&record("a1", None).key).await.unwrap();
    credential.load().await.unwrap();
    assert_eq!(credential.current(), None);
    assert!(credential.revision() > first.revision());
}

#[tokio::test]
async fn debug_output_hides_tokens() {
    let (credential, _, _) = credential(Some(record("canary", Some("canary"))), []).await;
    let token = credential.fresh().await.unwrap();
    let shown = format!(
        "{credential:?} {token:?} {:?}",
        record("canary", Some("canary"))
    );
    assert!(!shown.contains("canary"), "{shown}");
}

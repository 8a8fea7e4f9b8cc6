//! Renewed tokens that cannot be saved.

use super::*;
use crate::store::{FIRST_SAVE_RETRY, MAX_SAVE_RETRY};
use crate::test_store::{FOLDER, FaultyStore};

/// A credential with a login of tokens `a1` and `r1`.
async fn with_login(
    responses: impl IntoIterator<Item = Scripted>,
) -> (Credential, ScriptedHttp, FaultyStore) {
    let (http, store) = (ScriptedHttp::new(responses), FaultyStore::default());
    store.inner.save(record("a1", Some("r1"))).await.unwrap();
    let shared = Arc::new(store.clone());
    let credential = Credential::new(CredentialConfig::new(URL), Arc::new(http.clone()), shared);
    (credential, http, store)
}

/// The same, renewed to `a2` and `r2` while the disk is full.
async fn unsaved(
    further: impl IntoIterator<Item = Scripted>,
) -> (Credential, ScriptedHttp, FaultyStore, AccessToken) {
    let responses = [tokens("a2", "r2")].into_iter().chain(further);
    let (credential, http, store) = with_login(responses).await;
    let first = credential.fresh().await.unwrap().unwrap();
    store.set_full(true);
    let second = credential.renew(Some(first.revision())).await.unwrap();
    assert_eq!(second.text().expose(), "a2");
    second.mark_accepted();
    (credential, http, store, second)
}

/// The refresh tokens that were sent.
fn refreshed_with(http: &ScriptedHttp) -> Vec<String> {
    let sent = http.requests().into_iter();
    sent.filter_map(|request| request.parameter("refresh_token"))
        .collect()
}

async fn stored_access(store: &FaultyStore) -> String {
    stored(&store.inner).await.tokens.access.expose().to_owned()
}

#[tokio::test(start_paused = true)]
async fn an_unsaved_token_is_renewed_with_its_own_refresh_token() {
    let (credential, http, store, second) = unsaved([tokens("a3", "r3")]).await;
    assert_eq!(stored_access(&store).await, "a1");
    let third = credential.renew(Some(second.revision())).await.unwrap();
    assert_eq!(third.text().expose(), "a3");
    assert_eq!(refreshed_with(&http), ["r1", "r2"], "r1 was replaced");
    // Also if the store is read again, since another file of the account changed.
    credential.state().mark = None;
    credential.load().await.unwrap();
    assert_eq!(credential.current(), Some(third));
}

#[tokio::test(start_paused = true)]
async fn an_unsaved_token_says_why_and_is_saved_once_that_works() {
    let (credential, _, store, _) = unsaved([]).await;
    let why = credential.unsaved().unwrap();
    assert_eq!(why.problem, "No space left on device");
    assert_eq!(why.kind, std::io::ErrorKind::StorageFull);
    assert_eq!(why.folder.as_deref(), Some(std::path::Path::new(FOLDER)));
    let before = store.saves();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let attempts = store.saves() - before;
    assert!(
        (55..=70).contains(&attempts),
        "{attempts} attempts per hour"
    );
    assert_eq!(credential.unsaved(), Some(why.clone()));
    store.set_full(false);
    let saved = credential.unsaved_changed(|unsaved| unsaved.is_none());
    let waited = tokio::time::timeout(MAX_SAVE_RETRY * 2, saved);
    waited.await.expect("it is saved by itself");
    assert_eq!(credential.unsaved(), None);
    assert_eq!(stored_access(&store).await, "a2");
    let saves = store.saves();
    tokio::time::sleep(MAX_SAVE_RETRY * 10).await;
    assert_eq!(store.saves(), saves, "the saver has ended");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_caller_and_a_dropped_credential_do_not_cancel_the_saver() {
    let (credential, _, store, second) = unsaved([]).await;
    drop((credential, second));
    store.set_full(false);
    tokio::time::sleep(FIRST_SAVE_RETRY * 2).await;
    assert_eq!(stored_access(&store).await, "a2");
}

#[tokio::test(start_paused = true)]
async fn several_unsaved_tokens_have_one_saver() {
    let renewals = (3..9).map(|n| tokens(&format!("a{n}"), &format!("r{n}")));
    let (credential, http, store, mut token) = unsaved(renewals).await;
    for _ in 3..9 {
        token = credential.renew(Some(token.revision())).await.unwrap();
        token.mark_accepted();
    }
    assert_eq!(
        refreshed_with(&http),
        ["r1", "r2", "r3", "r4", "r5", "r6", "r7"]
    );
    tokio::time::sleep(MAX_SAVE_RETRY * 10).await;
    let before = store.saves();
    tokio::time::sleep(MAX_SAVE_RETRY * 10).await;
    let attempts = store.saves() - before;
    assert!((9..=11).contains(&attempts), "{attempts} attempts");
    store.set_full(false);
    tokio::time::sleep(MAX_SAVE_RETRY * 2).await;
    assert_eq!(stored_access(&store).await, "a8");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_credential_makes_a_last_attempt_and_ends_the_saver() {
    for full in [true, false] {
        let (credential, _, store, _) = unsaved([]).await;
        store.set_full(full);
        let before = store.saves();
        credential.finish().await;
        assert_eq!(store.saves(), before + 1);
        assert_eq!(credential.unsaved().is_some(), full);
        let expected = if full { "a1" } else { "a2" };
        assert_eq!(stored_access(&store).await, expected);
        tokio::time::sleep(MAX_SAVE_RETRY * 10).await;
        assert_eq!(store.saves(), before + 1, "the saver has ended");
    }
}

#[tokio::test(start_paused = true)]
async fn a_login_of_another_process_replaces_an_unsaved_token_and_is_not_overwritten() {
    let (credential, http, store, second) = unsaved([]).await;
    store.inner.save(record("b1", Some("s1"))).await.unwrap();
    store.set_full(false);
    tokio::time::sleep(MAX_SAVE_RETRY).await;
    assert_eq!(stored_access(&store).await, "b1");
    assert_eq!(credential.unsaved(), None);
    let adopted = credential.renew(Some(second.revision())).await.unwrap();
    assert_eq!(adopted.text().expose(), "b1");
    assert_eq!(http.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_logout_takes_an_unsaved_token_away() {
    let (credential, _, store, _) = unsaved([]).await;
    store.inner.remove(&record("a1", None).key).await.unwrap();
    credential.load().await.unwrap();
    assert_eq!((credential.current(), credential.unsaved()), (None, None));
    store.set_full(false);
    tokio::time::sleep(MAX_SAVE_RETRY).await;
    assert_eq!(store.inner.find(URL, "").await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn without_any_store_an_unsaved_token_connects_and_is_renewed() {
    let (credential, http, store, second) = unsaved([tokens("a3", "r3")]).await;
    store.set_broken(true);
    assert_eq!(credential.fresh().await.unwrap(), Some(second.clone()));
    let third = credential.renew(Some(second.revision())).await.unwrap();
    assert_eq!(third.text().expose(), "a3");
    assert_eq!(refreshed_with(&http), ["r1", "r2"]);
    store.set_broken(false);
    store.set_full(false);
    tokio::time::sleep(MAX_SAVE_RETRY).await;
    assert_eq!(stored_access(&store).await, "a3");
}

#[tokio::test(start_paused = true)]
async fn without_any_store_a_saved_token_is_not_renewed() {
    let (credential, http, store) = with_login([tokens("a2", "r2")]).await;
    let first = credential.fresh().await.unwrap().unwrap();
    store.set_broken(true);
    // Another process may use the same refresh token, and neither knows of the other.
    let error = credential.renew(Some(first.revision())).await.unwrap_err();
    assert!(matches!(error, AuthError::Store(_)), "{error}");
    assert_eq!(http.requests().len(), 0);
    assert_eq!(credential.fresh().await.unwrap(), Some(first));
}

#[tokio::test(start_paused = true)]
async fn a_rejection_that_cannot_be_saved_is_not_requested_again_and_is_no_unsaved_login() {
    let (credential, http, store) = with_login([refused("invalid_grant")]).await;
    let first = credential.fresh().await.unwrap().unwrap();
    store.set_full(true);
    for _ in 0..3 {
        let error = credential.renew(Some(first.revision())).await.unwrap_err();
        assert!(matches!(error, AuthError::LoginNeeded { .. }), "{error}");
    }
    assert_eq!(http.requests().len(), 1);
    assert_eq!(credential.unsaved(), None);
    store.set_full(false);
    tokio::time::sleep(MAX_SAVE_RETRY).await;
    assert!(stored(&store.inner).await.rejected.is_some());
}

#[tokio::test(start_paused = true)]
async fn credentials_that_share_a_store_share_an_unsaved_token() {
    let http = ScriptedHttp::new([tokens("a2", "r2"), tokens("a3", "r3")]);
    let store = FaultyStore::default();
    store.inner.save(record("a1", Some("r1"))).await.unwrap();
    let retaining = RetainingStore::new(Arc::new(store.clone()));
    let [one, other] = [(); 2].map(|()| {
        let http = Arc::new(http.clone());
        Credential::sharing(CredentialConfig::new(URL), http, retaining.clone())
    });
    let first = one.fresh().await.unwrap().unwrap();
    let same = other.fresh().await.unwrap().unwrap();
    store.set_full(true);
    one.renew(Some(first.revision())).await.unwrap();
    let adopted = other.renew(Some(same.revision())).await.unwrap();
    assert_eq!(adopted.text().expose(), "a2");
    adopted.mark_accepted();
    other.renew(Some(adopted.revision())).await.unwrap();
    assert_eq!(refreshed_with(&http), ["r1", "r2"]);
}

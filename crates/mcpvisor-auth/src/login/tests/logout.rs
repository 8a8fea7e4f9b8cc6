use super::*;
use crate::config::ConfiguredClient;
use crate::login::logout::revoke;
use crate::store::{CredentialStore, UnreadableRecord};

const ACCOUNT: &str = "";

async fn log_out(http: &ScriptedHttp, store: &RecordingStore) -> Result<LoggedOut, AuthError> {
    let config = CredentialConfig::new(SERVER);
    logout(http, store, &config, ACCOUNT, Duration::MAX).await
}

fn unrevocable() -> CredentialRecord {
    let mut record = old_record();
    record.endpoints.revocation = None;
    record
}

#[tokio::test]
async fn a_logout_removes_the_record_under_the_lock() {
    let (http, store) = (ScriptedHttp::default(), RecordingStore::with(unrevocable()));
    let logged_out = log_out(&http, &store).await.unwrap();
    assert_eq!(logged_out.revocations, [Revocation::NotSupported]);
    assert_eq!(logged_out.unreadable, []);
    assert!(store.records().is_empty());
    let steps = [
        "list",
        "lock",
        "list",
        "remove",
        "remove unreadable",
        "unlock",
    ];
    assert_eq!(store.log(), steps);
    assert!(http.requests().is_empty());
    assert_eq!(
        log_out(&http, &store).await.unwrap(),
        LoggedOut::default(),
        "once"
    );
    assert_eq!(store.log().len(), steps.len() + 1, "no lock for nothing");
}

#[tokio::test]
async fn a_logout_leaves_what_the_config_cannot_use() {
    let store = RecordingStore::with(unrevocable());
    let mut config = CredentialConfig::new(SERVER);
    config.issuer = Some("https://other.example.com".to_owned());
    let http = ScriptedHttp::default();
    let logged_out = logout(&http, &store, &config, ACCOUNT, Duration::MAX).await;
    assert_eq!(logged_out, Ok(LoggedOut::default()));
    config.issuer = None;
    let logged_out = logout(&http, &store, &config, "other", Duration::MAX).await;
    assert_eq!(logged_out, Ok(LoggedOut::default()));
    assert_eq!(store.records(), [unrevocable()]);
}

/// With paused time, a timeout passes as soon as nothing else runs.
#[tokio::test(start_paused = true)]
async fn a_logout_waits_a_limited_time_for_another_process() {
    let store = RecordingStore::with(unrevocable());
    let lock = store.lock(SERVER, ACCOUNT).await.unwrap();
    for (within, waits) in [(Duration::MAX, 10), (Duration::from_secs(3), 3)] {
        let begun = tokio::time::Instant::now();
        let config = CredentialConfig::new(SERVER);
        let http = ScriptedHttp::default();
        let refused = logout(&http, &store, &config, ACCOUNT, within).await;
        let problem = refused.unwrap_err().to_string();
        assert!(problem.contains("another process"), "{problem}");
        assert!(problem.contains(&format!("for {waits} s")), "{problem}");
        assert_eq!(begun.elapsed().as_secs(), waits);
        assert_eq!(store.records(), [unrevocable()]);
    }
    drop(lock);
    log_out(&ScriptedHttp::default(), &store).await.unwrap();
    assert!(store.records().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_logout_waits_a_limited_time_for_the_issuer_and_removes_the_record() {
    for (within, waits) in [(Duration::MAX, 10), (Duration::from_secs(3), 3)] {
        let hours = Duration::from_secs(7_200);
        let http = ScriptedHttp::new([text_response(200, "")]).delayed(hours);
        let store = RecordingStore::with(old_record());
        let begun = tokio::time::Instant::now();
        let config = CredentialConfig::new(SERVER);
        let logged_out = logout(&http, &store, &config, ACCOUNT, within).await;
        let revocations = logged_out.unwrap().revocations;
        let [Revocation::Failed(problem)] = &revocations[..] else {
            panic!("{revocations:?}");
        };
        assert!(problem.to_string().contains(&format!("{waits} s")));
        assert_eq!(begun.elapsed().as_secs(), waits);
        assert!(store.records().is_empty());
    }
}

#[tokio::test]
async fn a_logout_removes_the_unreadable_files_of_its_account_alone() {
    let store = RecordingStore::with(unrevocable());
    let unreadable = |account: &str| {
        let key = CredentialKey {
            account: account.to_owned(),
            ..old_record().key
        };
        UnreadableRecord::of_key(&key, "is damaged")
    };
    store.add_unreadable(unreadable(ACCOUNT));
    store.add_unreadable(unreadable("work"));
    let logged_out = log_out(&ScriptedHttp::default(), &store).await.unwrap();
    assert_eq!(logged_out.unreadable, [unreadable(ACCOUNT)]);
    let config = CredentialConfig::new(SERVER);
    let logged_out = logout(
        &ScriptedHttp::default(),
        &store,
        &config,
        "work",
        Duration::MAX,
    )
    .await
    .unwrap();
    assert_eq!(logged_out.revocations, []);
    assert_eq!(logged_out.unreadable, [unreadable("work")]);
}

#[tokio::test]
async fn a_logout_revokes_with_the_client_of_the_login() {
    let http = ScriptedHttp::new([text_response(200, ""), text_response(500, "")]);
    let mut record = old_record();
    record.client.auth_method = ClientAuthMethod::ClientSecretPost;
    let configured = ConfiguredClient {
        id: record.client.id.clone(),
        secret: Some(Secret::new("client-secret")),
        private_key: None,
    };
    let url = record.endpoints.revocation.clone().unwrap();
    let addresses = discovered().addresses;
    let outcome = revoke(&http, &record, &url, Some(&configured), addresses).await;
    assert!(matches!(
        outcome,
        Revocation::Failed(AuthError::Refused { status: 500, .. })
    ));
    let sent = &http.requests()[0];
    assert_eq!(sent.url, "https://as.example.com/revoke");
    assert_eq!(sent.parameter("token").as_deref(), Some("refresh-1"));
    assert_eq!(
        sent.parameter("client_secret").as_deref(),
        Some("client-secret")
    );
}

use super::*;
use crate::config::ConfiguredClient;
use crate::login::logout::revoke;

#[tokio::test]
async fn a_logout_removes_the_record_under_the_lock() {
    let mut record = old_record();
    record.endpoints.revocation = None;
    let http = ScriptedHttp::default();
    let store = MemoryStore::with(record.clone());
    let revocation = logout(&http, &store, &record, None).await.unwrap();
    assert_eq!(revocation, Revocation::NotSupported);
    assert!(store.records().is_empty());
    assert_eq!(store.log(), ["lock", "find", "remove", "unlock"]);
    assert!(http.requests().is_empty());
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

use super::*;
use crate::http_client::HttpError;
use crate::store::UnreadableRecord;

#[tokio::test]
async fn only_a_login_at_the_same_issuer_is_continued() {
    let fixture = Fixture::new([]);
    let mut found = discovered();
    let previous = fixture.login().previous(&found).await.unwrap();
    assert_eq!(previous, Some(old_record()));
    found.server.issuer.push('/');
    assert_eq!(fixture.login().previous(&found).await.unwrap(), None);
    let other = fixture.login().account("other");
    assert_eq!(other.previous(&discovered()).await.unwrap(), None);

    fixture.store.fail_reads(io::ErrorKind::PermissionDenied);
    fixture.login().previous(&discovered()).await.unwrap_err();
}

#[tokio::test]
async fn a_login_that_would_replace_an_unreadable_file_fails_before_a_person_logs_in() {
    let fixture = Fixture::new([]);
    let key = CredentialKey {
        issuer: "https://other.example.com".to_owned(),
        ..old_record().key
    };
    let other = UnreadableRecord::of_key(&key, "is damaged");
    fixture.store.add_unreadable(other);
    let previous = fixture.login().previous(&discovered()).await.unwrap();
    assert_eq!(previous, Some(old_record()), "of another issuer");
    let own = UnreadableRecord::of_key(&old_record().key, "is damaged");
    fixture.store.add_unreadable(own);
    let refused = fixture.login().previous(&discovered()).await.unwrap_err();
    assert!(refused.to_string().contains("log out"), "{refused}");
}

#[tokio::test]
async fn a_client_error_of_the_authorization_endpoint_means_an_unknown_client() {
    for (response, known) in [
        (text_response(200, "login"), true),
        (text_response(302, ""), true),
        (text_response(400, "unknown client"), false),
        (text_response(401, ""), false),
        (text_response(404, ""), false),
        (text_response(429, ""), true),
        (text_response(503, ""), true),
        (Err(HttpError::NotSent("refused".into())), true),
    ] {
        let fixture = Fixture::new([response.clone()]);
        let session = session(&fixture.http, &fixture.store);
        let url = "https://as.example.com/authorize?client_id=client-1";
        assert_eq!(is_client_known(&session, url).await, known, "{response:?}");
        assert_eq!(fixture.http.requests()[0].method, "GET");
        assert_eq!(fixture.http.requests()[0].url, url);
    }
}

#[test]
fn only_an_unchanged_registration_is_a_reused_one() {
    let earlier = client(ClientAuthMethod::None);
    assert!(is_reused(&earlier, Some(&earlier)));
    assert!(!is_reused(&earlier, None));
    let configured = ClientRecord {
        source: ClientSource::Configured,
        ..earlier
    };
    assert!(!is_reused(&configured, Some(&configured)));
}

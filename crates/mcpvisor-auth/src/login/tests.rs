mod client;
mod listen;
mod logout;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use std::io;

use super::*;
use crate::callback::{IgnoredCallback, path_and_query};
use crate::record::{ClientAuthMethod, unix_seconds};
use crate::secret::Secret;
use crate::test_tokens::{
    RecordingStore, Scripted, ScriptedHttp, client, discovered, json_response, text_response,
};
use crate::token_endpoint::TokenResponse;

const SERVER: &str = "https://mcp.example.com/mcp";
const ISS: &str = "iss=https://as.example.com";
const LIMIT: Duration = Duration::from_secs(20);

fn token_response() -> Scripted {
    json_response(
        200,
        json!({ "access_token": "access-2", "refresh_token": "refresh-2", "scope": "read" }),
    )
}

fn session(http: &ScriptedHttp, store: &RecordingStore) -> Session {
    Session {
        http: Arc::new(http.clone()),
        store: Arc::new(store.clone()),
        config: CredentialConfig::new(SERVER),
        discovered: discovered(),
        client: client(ClientAuthMethod::None),
        scopes: vec!["read".into(), "write".into()],
        resource: Some(SERVER.into()),
        binding: None,
    }
}

/// The record of an earlier login at the issuer, at revision 7.
fn old_record() -> CredentialRecord {
    let http = ScriptedHttp::default();
    let store = RecordingStore::default();
    let response = TokenResponse {
        access: Secret::new("access-1"),
        refresh: Some(Secret::new("refresh-1")),
        expires_at: Some(1),
        obtained_at: 0,
        scopes: None,
        issued_token_type: None,
        token_type: None,
    };
    let session = session(&http, &store);
    let record = session
        .target()
        .record(response, std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    CredentialRecord {
        revision: 7,
        ..record
    }
}

struct Fixture {
    http: ScriptedHttp,
    store: RecordingStore,
}

impl Fixture {
    fn new(responses: impl IntoIterator<Item = Scripted>) -> Self {
        Self {
            http: ScriptedHttp::new(responses),
            store: RecordingStore::with(old_record()),
        }
    }

    fn login(&self) -> Login {
        let http = Arc::new(self.http.clone());
        Login::new(
            http,
            Arc::new(self.store.clone()),
            CredentialConfig::new(SERVER),
        )
    }

    async fn pending(&self) -> PendingLogin {
        let address = ListenAddress::new(None, None).unwrap();
        let listener = CallbackListener::bind(&address).await.unwrap();
        let request = AuthorizationRequest {
            redirect_uri: listener.redirect_uri().to_owned(),
            state: Secret::new("state-1"),
            pkce: Pkce::from_verifier(Secret::new("verifier-1")),
        };
        let session = session(&self.http, &self.store);
        PendingLogin::new(session, Some(listener), request).unwrap()
    }

    fn assert_unchanged(&self) {
        assert_eq!(self.store.records(), [old_record()]);
    }
}

/// Sends the callback as a browser does, and returns the page.
async fn browse(redirect_uri: &str, query: &str) -> String {
    let authority = redirect_uri.strip_prefix("http://").unwrap();
    let authority = &authority[..authority.find('/').unwrap()];
    let mut stream = TcpStream::connect(authority).await.unwrap();
    let path = path_and_query(redirect_uri).0;
    let request = format!("GET {path}?{query} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).await.unwrap();
    page
}

fn assert_saved(fixture: &Fixture, record: &CredentialRecord) {
    assert_eq!(fixture.store.records(), std::slice::from_ref(record));
    assert_eq!(record.tokens.access.expose(), "access-2");
    assert_eq!(record.scopes, ["read"]);
    assert_eq!(record.revision, 8);
    assert_eq!(record.key, old_record().key);
    assert_eq!(fixture.store.log(), ["lock", "find", "save", "unlock"]);
}

#[tokio::test]
async fn a_callback_of_the_browser_is_redeemed_and_saved_last() {
    let fixture = Fixture::new([token_response()]);
    let pending = fixture.pending().await;
    let redirect_uri = pending.redirect_uri().to_owned();
    assert!(pending.is_listening());
    assert!(
        pending
            .authorization_url()
            .starts_with("https://as.example.com/authorize?")
    );
    let finish = tokio::spawn(pending.finish(LIMIT));
    let page = browse(&redirect_uri, &format!("code=code-1&state=state-1&{ISS}")).await;
    assert!(page.contains("Login received"), "{page}");
    let record = finish.await.unwrap().unwrap();
    assert_saved(&fixture, &record);
    let sent = &fixture.http.requests()[0];
    assert_eq!(sent.parameter("code").as_deref(), Some("code-1"));
    assert_eq!(
        sent.parameter("code_verifier").as_deref(),
        Some("verifier-1")
    );
    assert_eq!(sent.parameter("redirect_uri"), Some(redirect_uri));
    assert_eq!(sent.parameter("resource").as_deref(), Some(SERVER));
}

#[tokio::test]
async fn a_pasted_callback_ends_the_wait_too() {
    let fixture = Fixture::new([token_response()]);
    let pending = fixture.pending().await;
    let paster = pending.paster();
    let finish = tokio::spawn(pending.finish(LIMIT));
    assert_eq!(
        paster.paste("code=c&state=guess"),
        Err(IgnoredCallback::OtherState)
    );
    let url = format!("http://127.0.0.1:1/callback?code=code-1&state=state-1&{ISS}");
    assert_eq!(paster.paste(&url), Ok(()));
    let record = finish.await.unwrap().unwrap();
    assert_saved(&fixture, &record);
    assert_eq!(paster.paste(&url), Ok(()));
    assert!(!format!("{paster:?}").contains("state-1"));
}

#[tokio::test]
async fn a_callback_pasted_before_the_wait_counts() {
    let fixture = Fixture::new([token_response()]);
    let pending = fixture.pending().await;
    pending
        .paste(&format!("code=code-1&state=state-1&{ISS}"))
        .unwrap();
    pending
        .paste(&format!("error=late&state=state-1&{ISS}"))
        .unwrap();
    pending.finish(LIMIT).await.unwrap();
}

#[tokio::test]
async fn the_prompt_names_what_a_person_needs() {
    let fixture = Fixture::new([]);
    let pending = fixture.pending().await;
    let LoginPrompt::Browser {
        authorization_url,
        redirect_uri,
        listening,
        paster,
    } = pending.prompt()
    else {
        panic!("not a browser prompt")
    };
    assert_eq!(authorization_url, pending.authorization_url());
    assert_eq!(redirect_uri, pending.redirect_uri());
    assert!(listening);
    assert_eq!(paster.paste("x"), Err(IgnoredCallback::NoState));
    assert_eq!(pending.issuer(), "https://as.example.com");
    assert_eq!(pending.scopes(), ["read", "write"]);
}

#[tokio::test]
async fn a_wrong_or_missing_issuer_sends_no_token_request() {
    for query in [
        "code=code-1&state=state-1",
        "code=code-1&state=state-1&iss=https://as.example.com/",
        "code=code-1&state=state-1&iss=https://evil.example.com",
    ] {
        let fixture = Fixture::new([token_response()]);
        let pending = fixture.pending().await;
        pending.paste(query).unwrap();
        let error = pending.finish(LIMIT).await.unwrap_err();
        assert!(matches!(error, AuthError::Invalid(_)), "{error:?}");
        assert!(fixture.http.requests().is_empty());
        fixture.assert_unchanged();
    }
}

#[tokio::test]
async fn a_login_that_fails_keeps_the_old_token() {
    let fixture = Fixture::new([json_response(400, json!({ "error": "invalid_grant" }))]);
    let pending = fixture.pending().await;
    pending
        .paste(&format!("code=code-1&state=state-1&{ISS}"))
        .unwrap();
    pending.finish(LIMIT).await.unwrap_err();
    fixture.assert_unchanged();

    let pending = fixture.pending().await;
    pending
        .paste(&format!("error=access_denied&state=state-1&{ISS}"))
        .unwrap();
    let error = pending.finish(LIMIT).await.unwrap_err();
    assert!(matches!(error, AuthError::Refused { error, .. } if error == "access_denied"));
    fixture.assert_unchanged();
}

#[tokio::test(start_paused = true)]
async fn the_wait_is_bounded_and_frees_its_port() {
    let fixture = Fixture::new([]);
    let pending = fixture.pending().await;
    let redirect_uri = pending.redirect_uri().to_owned();
    let error = pending.finish(LOGIN_TIMEOUT).await.unwrap_err();
    assert_eq!(
        error,
        AuthError::Cancelled("no login within 300 s; start it again".into())
    );
    let address = ListenAddress::new(Some(&redirect_uri), None).unwrap();
    CallbackListener::bind(&address).await.unwrap();
    fixture.assert_unchanged();
}

#[tokio::test(start_paused = true)]
async fn a_dropped_login_changes_nothing() {
    let mut fixture = Fixture::new([token_response()]);
    fixture.http = fixture.http.delayed(Duration::from_secs(10));
    let pending = fixture.pending().await;
    pending
        .paste(&format!("code=code-1&state=state-1&{ISS}"))
        .unwrap();
    timeout(Duration::from_secs(5), pending.finish(LIMIT))
        .await
        .unwrap_err();
    assert_eq!(fixture.http.requests().len(), 1);
    assert!(fixture.store.log().is_empty());
    fixture.assert_unchanged();
}

#[tokio::test]
async fn a_reloaded_page_is_answered_while_the_code_is_redeemed() {
    let mut fixture = Fixture::new([token_response()]);
    fixture.http = fixture.http.delayed(Duration::from_millis(500));
    let pending = fixture.pending().await;
    let redirect_uri = pending.redirect_uri().to_owned();
    let finish = tokio::spawn(pending.finish(LIMIT));
    let query = format!("code=code-1&state=state-1&{ISS}");
    browse(&redirect_uri, &query).await;
    let page = browse(&redirect_uri, &query).await;
    assert!(page.contains("already received"), "{page}");
    finish.await.unwrap().unwrap();
    assert_eq!(fixture.http.requests().len(), 1);
}

#[tokio::test]
async fn a_token_that_cannot_be_refreshed_is_saved_too() {
    let fixture = Fixture::new([json_response(200, json!({ "access_token": "access-2" }))]);
    let pending = fixture.pending().await;
    pending
        .paste(&format!("code=code-1&state=state-1&{ISS}"))
        .unwrap();
    let record = pending.finish(LIMIT).await.unwrap();
    assert_eq!(record.tokens.refresh, None);
    assert_eq!(record.scopes, ["read", "write"]);
    assert_eq!(fixture.store.records(), [record]);
}

#[tokio::test]
async fn a_store_that_fails_is_a_typed_error() {
    let save = async |prepare: fn(&RecordingStore)| {
        let fixture = Fixture::new([token_response()]);
        prepare(&fixture.store);
        let pending = fixture.pending().await;
        pending
            .paste(&format!("code=code-1&state=state-1&{ISS}"))
            .unwrap();
        pending.finish(LIMIT).await
    };
    let full = save(RecordingStore::fail_save).await;
    assert!(matches!(full, Err(AuthError::Store(_))), "{full:?}");
    let denied = save(|store| store.fail_reads(io::ErrorKind::PermissionDenied)).await;
    assert!(matches!(denied, Err(AuthError::Store(_))), "{denied:?}");
    let before = unix_seconds(std::time::SystemTime::now());
    let damaged = save(|store| store.fail_reads(io::ErrorKind::InvalidData)).await;
    assert!(damaged.unwrap().revision >= before);
}

#[tokio::test]
async fn a_grant_without_a_person_needs_no_login() {
    let fixture = Fixture::new([]);
    let mut login = fixture.login();
    login.config.grant = Grant::ClientCredentials;
    let error = login
        .run(LIMIT, |_| panic!("nothing to show"))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("needs no login"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_device_login_is_saved_last() {
    let fixture = Fixture::new([
        json_response(
            200,
            json!({ "device_code": "device-1", "user_code": "ABCD", "expires_in": 600,
                    "verification_uri": "https://as.example.com/activate" }),
        ),
        json_response(400, json!({ "error": "authorization_pending" })),
        token_response(),
    ]);
    let session = session(&fixture.http, &fixture.store);
    let pending = PendingDeviceLogin::request(session, false).await.unwrap();
    let LoginPrompt::Device {
        user_code,
        verification_uri,
        expires_in,
        ..
    } = pending.prompt()
    else {
        panic!("not a device prompt")
    };
    assert_eq!(user_code, "ABCD");
    assert_eq!(verification_uri, "https://as.example.com/activate");
    assert_eq!(expires_in, Duration::from_secs(600));
    let record = tokio::spawn(pending.finish(LOGIN_TIMEOUT))
        .await
        .unwrap()
        .unwrap();
    assert_saved(&fixture, &record);
}

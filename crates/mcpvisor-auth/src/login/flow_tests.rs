use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::grants;
use crate::http_client::HttpError;
use crate::test_tokens::{RecordingStore, Scripted, ScriptedHttp, json_response, text_response};

const SERVER: &str = "https://mcp.example.com/mcp";
const LIMIT: Duration = Duration::from_secs(20);

fn metadata() -> [Scripted; 2] {
    [
        json_response(
            200,
            json!({ "resource": SERVER, "authorization_servers": ["https://as.example.com"],
                    "scopes_supported": ["read"] }),
        ),
        json_response(
            200,
            json!({ "issuer": "https://as.example.com",
                    "authorization_endpoint": "https://as.example.com/authorize",
                    "token_endpoint": "https://as.example.com/token",
                    "registration_endpoint": "https://as.example.com/register",
                    "revocation_endpoint": "https://as.example.com/revoke",
                    "device_authorization_endpoint": "https://as.example.com/device",
                    "response_types_supported": ["code"],
                    "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
                    "code_challenge_methods_supported": ["S256"] }),
        ),
    ]
}

fn registration(id: &str) -> Scripted {
    json_response(
        201,
        json!({ "client_id": id, "token_endpoint_auth_method": "none" }),
    )
}

fn token(access: &str) -> Scripted {
    json_response(
        200,
        json!({ "access_token": access, "refresh_token": "refresh", "token_type": "bearer" }),
    )
}

fn script(parts: impl IntoIterator<Item = Scripted>) -> ScriptedHttp {
    ScriptedHttp::new(metadata().into_iter().chain(parts))
}

async fn log_in(
    http: &ScriptedHttp,
    store: &RecordingStore,
) -> Result<CredentialRecord, AuthError> {
    let login = Login::new(
        Arc::new(http.clone()),
        Arc::new(store.clone()),
        CredentialConfig::new(SERVER),
    );
    login
        .run(LIMIT, |prompt| {
            let LoginPrompt::Browser {
                authorization_url,
                paster,
                ..
            } = prompt
            else {
                panic!("not a browser prompt")
            };
            let (_, query) = authorization_url.split_once('?').unwrap();
            let state = form_urlencoded::parse(query.as_bytes())
                .find(|(name, _)| name == "state")
                .unwrap()
                .1;
            paster.paste(&format!("code=code-1&state={state}")).unwrap();
        })
        .await
}

fn urls(http: &ScriptedHttp) -> Vec<String> {
    let requests = http.requests().into_iter();
    requests
        .map(|sent| sent.url.split('?').next().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_first_login_registers_a_client_and_a_second_one_uses_it_again() {
    let store = RecordingStore::default();
    let http = script([registration("client-1"), token("access-1")]);
    let first = log_in(&http, &store).await.unwrap();
    assert_eq!(
        urls(&http),
        [
            "https://mcp.example.com/.well-known/oauth-protected-resource/mcp",
            "https://as.example.com/.well-known/oauth-authorization-server",
            "https://as.example.com/register",
            "https://as.example.com/token",
        ]
    );
    assert_eq!((first.client.id.as_str(), first.revision), ("client-1", 1));

    let http = script([text_response(200, "login"), token("access-2")]);
    let second = log_in(&http, &store).await.unwrap();
    assert_eq!(
        urls(&http)[2..],
        [
            "https://as.example.com/authorize",
            "https://as.example.com/token"
        ]
    );
    assert_eq!((second.client, second.revision), (first.client, 2));
}

#[tokio::test]
async fn a_pruned_registration_is_replaced() {
    let store = RecordingStore::default();
    log_in(
        &script([registration("client-1"), token("access-1")]),
        &store,
    )
    .await
    .unwrap();
    let http = script([
        text_response(400, "unknown client"),
        registration("client-2"),
        token("access-2"),
    ]);
    let record = log_in(&http, &store).await.unwrap();
    assert_eq!(record.client.id, "client-2");
    let sent = http.requests().pop().unwrap();
    assert_eq!(sent.parameter("client_id").as_deref(), Some("client-2"));
}

#[tokio::test]
async fn a_pruned_registration_of_a_device_is_replaced() {
    let store = RecordingStore::default();
    let device = || {
        json_response(
            200,
            json!({ "device_code": "d", "user_code": "ABCD", "interval": 1,
                    "verification_uri": "https://as.example.com/activate" }),
        )
    };
    let log_in = async |http: &ScriptedHttp| {
        let mut config = CredentialConfig::new(SERVER);
        config.grant = Grant::DeviceCode;
        let login = Login::new(Arc::new(http.clone()), Arc::new(store.clone()), config);
        login.run(LIMIT, |_| {}).await
    };
    let first = log_in(&script([registration("client-1"), device(), token("a")]))
        .await
        .unwrap();
    assert_eq!(first.client.id, "client-1");
    let unknown = json_response(401, json!({ "error": "invalid_client" }));
    let http = script([unknown, registration("client-2"), device(), token("a")]);
    assert_eq!(log_in(&http).await.unwrap().client.id, "client-2");
}

#[tokio::test]
async fn a_logout_revokes_and_removes() {
    let store = RecordingStore::default();
    let http = script([registration("client-1"), token("access-1")]);
    let record = log_in(&http, &store).await.unwrap();
    let http = ScriptedHttp::new([text_response(200, ""), text_response(200, "")]);
    let config = CredentialConfig::new(SERVER);
    let logged_out = logout(&http, &store, &config, "", LIMIT).await.unwrap();
    assert_eq!(logged_out.revocations, [Revocation::Revoked]);
    assert!(store.records().is_empty());
    let offline = ScriptedHttp::new([Err(HttpError::NotSent("offline".into()))]);
    let store = RecordingStore::with(record.clone());
    let logged_out = logout(&offline, &store, &config, "", LIMIT).await.unwrap();
    assert!(matches!(
        logged_out.revocations[..],
        [Revocation::Failed(_)]
    ));
    assert!(store.records().is_empty());
}

#[tokio::test]
async fn grants_without_a_person_are_discovered_and_obtained() {
    let mut config = CredentialConfig::new(SERVER);
    config.grant = Grant::ClientCredentials;
    config.client = Some(crate::config::ConfiguredClient {
        id: "configured".into(),
        secret: Some(crate::secret::Secret::new("client-secret")),
        private_key: None,
    });
    let http = script([token("access-1")]);
    let record = grants::obtain(&http, &config, &Challenge::default(), None)
        .await
        .unwrap();
    assert_eq!(record.client.id, "configured");
    assert_eq!(record.scopes, ["read"]);
    let sent = http.requests().pop().unwrap();
    assert_eq!(
        sent.parameter("grant_type").as_deref(),
        Some("client_credentials")
    );
    assert!(sent.headers.contains_key("authorization"));

    config.grant = Grant::Enterprise(crate::config::IdentityProvider {
        issuer: "https://idp.example.com".into(),
        token_endpoint: Some("https://idp.example.com/token".into()),
        client_id: "idp-client".into(),
        id_token: crate::secret::Secret::new("id-token"),
    });
    let id_jag = json_response(
        200,
        json!({ "access_token": "id-jag", "token_type": "N_A",
                "issued_token_type": "urn:ietf:params:oauth:token-type:id-jag" }),
    );
    let http = script([id_jag, token("access-2")]);
    let record = grants::obtain(&http, &config, &Challenge::default(), None)
        .await
        .unwrap();
    assert_eq!(record.tokens.access.expose(), "access-2");
    let sent = http.requests().pop().unwrap();
    assert_eq!(sent.parameter("assertion").as_deref(), Some("id-jag"));
}

#[tokio::test]
async fn a_step_up_asks_the_issuer_once_and_for_all_scopes() {
    let store = RecordingStore::default();
    log_in(
        &script([registration("client-1"), token("access-1")]),
        &store,
    )
    .await
    .unwrap();
    let http = script([]);
    let challenge = Challenge::parse(["Bearer error=\"insufficient_scope\", scope=\"write\""]);
    let login = Login::new(
        Arc::new(http.clone()),
        Arc::new(store.clone()),
        CredentialConfig::new(SERVER),
    );
    let pending = login.challenge(challenge).begin().await.unwrap();
    assert_eq!(pending.scopes(), ["write", "read"]);
    assert_eq!(http.requests().len(), 2);
}

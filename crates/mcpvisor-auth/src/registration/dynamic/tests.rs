use super::*;
use crate::address::AddressPolicy;
use crate::http_client::HttpError;
use crate::test_http::ScriptedHttp;

const REDIRECT: &str = "http://127.0.0.1:8123/callback";
const REGISTER: &str = "https://as.example.com/register";

fn discovered(methods: &[&str]) -> Discovered {
    let mut server = AuthorizationServer::with_default_endpoints("https://as.example.com");
    server.token_auth_methods = methods.iter().map(|&name| name.to_owned()).collect();
    Discovered {
        resource: None,
        server,
        addresses: AddressPolicy::Private,
    }
}

fn config() -> CredentialConfig {
    CredentialConfig::new("https://h/mcp")
}

async fn reply_to(http: &ScriptedHttp, methods: &[&str]) -> Result<ClientRecord, AuthError> {
    register(http, &config(), &discovered(methods), Some(REDIRECT)).await
}

async fn reply(methods: &[&str], reply: Value) -> Result<ClientRecord, AuthError> {
    reply_to(&ScriptedHttp::new().json(REGISTER, reply), methods).await
}

fn sent(http: &ScriptedHttp) -> Value {
    let requests = http.take_requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].method, "POST");
    assert_eq!(requests[0].headers["content-type"], "application/json");
    assert_eq!(requests[0].limits.addresses, AddressPolicy::Private);
    serde_json::from_slice(&requests[0].body).unwrap()
}

#[tokio::test]
async fn a_native_client_is_registered() {
    let http = ScriptedHttp::new().status(REGISTER, 201, r#"{"client_id":"new"}"#);
    let client = reply_to(&http, &["none"]).await.unwrap();
    assert_eq!(
        client,
        ClientRecord {
            id: "new".to_owned(),
            secret: None,
            secret_expires_at: None,
            auth_method: ClientAuthMethod::None,
            source: ClientSource::Registered,
            redirect_uri: Some(REDIRECT.to_owned()),
        }
    );
    assert_eq!(
        sent(&http),
        json!({
            "client_name": "mcpvisor",
            "application_type": "native",
            "redirect_uris": [REDIRECT],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        })
    );
}

#[tokio::test]
async fn a_device_client_registers_its_grant_and_no_redirect() {
    let http = ScriptedHttp::new().json(REGISTER, json!({"client_id": "new"}));
    let mut config = config();
    config.grant = Grant::DeviceCode;
    let client = register(&http, &config, &discovered(&["none"]), None).await;
    assert_eq!(client.unwrap().redirect_uri, None);
    assert_eq!(
        sent(&http),
        json!({
            "client_name": "mcpvisor",
            "application_type": "native",
            "grant_types": ["refresh_token", DEVICE_CODE_GRANT],
            "response_types": [],
            "token_endpoint_auth_method": "none",
        })
    );
}

#[test]
fn the_requested_method_is_listed_and_public_first() {
    let (basic, post) = ("client_secret_basic", "client_secret_post");
    for (methods, expected) in [
        (&[post, basic, "none"][..], ClientAuthMethod::None),
        (&[post, basic], ClientAuthMethod::ClientSecretBasic),
        (&[post], ClientAuthMethod::ClientSecretPost),
        (&[], ClientAuthMethod::ClientSecretBasic),
    ] {
        let method = requested_method(&discovered(methods).server);
        assert_eq!(method, Ok(expected), "{methods:?}");
    }
}

#[tokio::test]
async fn a_method_that_cannot_be_registered_is_an_error() {
    let error = reply(&["private_key_jwt"], json!({"client_id": "new"})).await;
    assert!(error.unwrap_err().to_string().contains("set auth.clientId"));
}

#[tokio::test]
async fn the_secret_and_its_expiry_are_kept() {
    let expiry = |value: Value| json!({"client_id": "new", "client_secret": "s", "client_secret_expires_at": value});
    for (value, expected) in [
        (json!(0), None),
        (json!(null), None),
        (json!("never"), None),
        (json!(1_900_000_000), Some(1_900_000_000)),
        (json!(1.9e9), Some(1_900_000_000)),
        (json!("1900000000"), Some(1_900_000_000)),
        (json!(-1), None),
    ] {
        let client = reply(&["client_secret_basic"], expiry(value))
            .await
            .unwrap();
        assert_eq!(client.secret, Some(Secret::new("s")));
        assert_eq!(client.secret_expires_at, expected);
        assert_eq!(client.auth_method, ClientAuthMethod::ClientSecretBasic);
    }
}

#[tokio::test]
async fn the_method_of_the_reply_wins() {
    let stated = json!({
        "client_id": "new",
        "client_secret": "s",
        "token_endpoint_auth_method": "client_secret_post",
    });
    let client = reply(&["client_secret_basic"], stated).await.unwrap();
    assert_eq!(client.auth_method, ClientAuthMethod::ClientSecretPost);
}

#[tokio::test]
async fn a_client_without_a_secret_is_public() {
    for value in [
        json!({"client_id": "new"}),
        json!({"client_id": "new", "client_secret": ""}),
    ] {
        let client = reply(&["client_secret_basic"], value).await.unwrap();
        assert_eq!(client.auth_method, ClientAuthMethod::None);
        assert_eq!(client.secret, None);
    }
}

#[tokio::test]
async fn a_secret_that_was_not_requested_is_used() {
    let value = json!({"client_id": "new", "client_secret": "s"});
    let client = reply(&["none", "client_secret_post"], value.clone()).await;
    assert_eq!(
        client.unwrap().auth_method,
        ClientAuthMethod::ClientSecretPost
    );
    let client = reply(&["none"], value).await.unwrap();
    assert_eq!(client.auth_method, ClientAuthMethod::None);
}

#[tokio::test]
async fn an_unsupported_method_of_the_reply_is_an_error() {
    let value = json!({"client_id": "new", "token_endpoint_auth_method": "tls_client_auth"});
    assert!(reply(&["none"], value).await.is_err());
}

#[tokio::test]
async fn without_an_endpoint_the_client_must_be_configured() {
    let mut found = discovered(&[]);
    found.server.registration_endpoint = None;
    let http = ScriptedHttp::new();
    let error = register(&http, &config(), &found, Some(REDIRECT)).await;
    assert!(error.unwrap_err().to_string().contains("auth.clientId"));
    assert_eq!(http.urls(), [""; 0]);
}

#[tokio::test]
async fn a_refusal_keeps_the_error_of_the_issuer() {
    let body = r#"{"error":"invalid_redirect_uri","error_description":"no\u001b[31m"}"#;
    let http = ScriptedHttp::new().status(REGISTER, 400, body);
    assert_eq!(
        reply_to(&http, &["none"]).await,
        Err(AuthError::Refused {
            request: "registration at https://as.example.com/register".to_owned(),
            status: 400,
            error: "invalid_redirect_uri".to_owned(),
            description: Some("no[31m".to_owned()),
        })
    );
}

#[tokio::test]
async fn a_refusal_without_json_names_the_status_and_no_body() {
    for status in [302, 403, 404] {
        let http = ScriptedHttp::new().status(REGISTER, status, "canary");
        let error = reply_to(&http, &["none"]).await.unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, AuthError::Refused { .. }));
        assert!(text.contains(&status.to_string()), "{text}");
        assert!(!text.contains("canary"), "{text}");
        assert_eq!(http.urls(), [REGISTER]);
    }
}

#[tokio::test]
async fn a_fault_of_the_issuer_may_be_retried() {
    let http = ScriptedHttp::new().status(REGISTER, 503, "{}");
    let error = reply_to(&http, &["none"]).await.unwrap_err();
    assert!(matches!(error, AuthError::Http { .. }));
    let http = ScriptedHttp::new().fail(REGISTER, HttpError::NotSent("x".to_owned()));
    let error = reply_to(&http, &["none"]).await.unwrap_err();
    assert!(matches!(error, AuthError::Http { .. }));
}

#[tokio::test]
async fn a_reply_without_a_usable_id_is_an_error_without_its_secret() {
    let long = "i".repeat(MAX_CREDENTIAL_BYTES + 1);
    for id in [json!(null), json!(""), json!(7), json!("a\nb"), json!(long)] {
        let value = json!({"client_id": id, "client_secret": "canary"});
        let text = reply(&["none"], value).await.unwrap_err().to_string();
        assert!(text.contains("client_id"), "{text}");
        assert!(!text.contains("canary"), "{text}");
    }
    let http = ScriptedHttp::new().status(REGISTER, 200, "canary");
    let text = reply_to(&http, &["none"]).await.unwrap_err().to_string();
    assert!(text.contains("no JSON object"), "{text}");
}

#[tokio::test]
async fn debug_hides_the_secret() {
    let value = json!({"client_id": "new", "client_secret": "canary"});
    let client = reply(&["client_secret_basic"], value).await.unwrap();
    assert!(!format!("{client:?}").contains("canary"));
}

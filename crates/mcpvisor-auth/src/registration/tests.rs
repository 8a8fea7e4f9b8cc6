use serde_json::json;

use super::*;
use crate::address::AddressPolicy;
use crate::secret::Secret;
use crate::test_http::ScriptedHttp;

const REDIRECT: &str = "http://127.0.0.1:8123/callback";
const REGISTER: &str = "https://as.example.com/register";
const DOCUMENT: &str = "https://client.example.com/metadata.json";

fn discovered(methods: &[&str]) -> Discovered {
    let mut server = AuthorizationServer::with_default_endpoints("https://as.example.com");
    server.token_auth_methods = methods.iter().map(|&name| name.to_owned()).collect();
    Discovered {
        resource: None,
        server,
        addresses: AddressPolicy::Public,
    }
}

fn config() -> CredentialConfig {
    CredentialConfig::new("https://h/mcp")
}

fn configured(secret: Option<&str>, private_key: Option<&str>) -> CredentialConfig {
    let mut config = config();
    config.client = Some(ConfiguredClient {
        id: "configured".to_owned(),
        secret: secret.map(Secret::new),
        private_key: private_key.map(Secret::new),
    });
    config
}

fn registered() -> ClientRecord {
    ClientRecord {
        id: "earlier".to_owned(),
        secret: Some(Secret::new("s")),
        secret_expires_at: None,
        auth_method: ClientAuthMethod::ClientSecretPost,
        source: ClientSource::Registered,
        redirect_uri: Some(REDIRECT.to_owned()),
    }
}

/// An issuer that registers everything as the client `new`.
fn registrar() -> ScriptedHttp {
    ScriptedHttp::new().json(REGISTER, json!({"client_id": "new"}))
}

async fn choose(
    config: &CredentialConfig,
    discovered: &Discovered,
    previous: Option<&ClientRecord>,
) -> Result<ClientRecord, AuthError> {
    client_for(&registrar(), config, discovered, Some(REDIRECT), previous).await
}

#[tokio::test]
async fn the_configured_client_goes_first() {
    let mut config = configured(Some("s"), None);
    config.client_metadata_url = Some(DOCUMENT.to_owned());
    let mut found = discovered(&[]);
    found.server.supports_metadata_document = true;
    let client = choose(&config, &found, Some(&registered())).await.unwrap();
    assert_eq!(
        client,
        ClientRecord {
            id: "configured".to_owned(),
            secret: Some(Secret::new("s")),
            secret_expires_at: None,
            auth_method: ClientAuthMethod::ClientSecretBasic,
            source: ClientSource::Configured,
            redirect_uri: Some(REDIRECT.to_owned()),
        }
    );
}

#[tokio::test]
async fn the_method_of_a_configured_client_follows_what_it_has() {
    let (basic, post) = ("client_secret_basic", "client_secret_post");
    for (config, methods, expected) in [
        (configured(None, None), &[][..], ClientAuthMethod::None),
        (configured(None, None), &[basic], ClientAuthMethod::None),
        (
            configured(Some("s"), None),
            &[],
            ClientAuthMethod::ClientSecretBasic,
        ),
        (
            configured(Some("s"), None),
            &[post, basic],
            ClientAuthMethod::ClientSecretBasic,
        ),
        (
            configured(Some("s"), None),
            &["none", post],
            ClientAuthMethod::ClientSecretPost,
        ),
        (
            configured(Some("s"), Some("k")),
            &[post],
            ClientAuthMethod::PrivateKeyJwt,
        ),
    ] {
        let client = choose(&config, &discovered(methods), None).await.unwrap();
        assert_eq!(client.auth_method, expected, "{methods:?}");
    }
}

#[tokio::test]
async fn a_metadata_document_is_used_where_it_is_supported() {
    let mut config = config();
    config.client_metadata_url = Some(DOCUMENT.to_owned());
    let mut found = discovered(&[]);
    let client = choose(&config, &found, None).await.unwrap();
    assert_eq!(client.source, ClientSource::Registered);
    found.server.supports_metadata_document = true;
    let client = choose(&config, &found, Some(&registered())).await.unwrap();
    assert_eq!(client.id, DOCUMENT);
    assert_eq!(client.source, ClientSource::MetadataDocument);
    assert_eq!(client.auth_method, ClientAuthMethod::None);
}

#[tokio::test]
async fn the_url_of_a_metadata_document_is_https_with_a_path() {
    let mut found = discovered(&[]);
    found.server.supports_metadata_document = true;
    for url in ["https://c.example/", "http://localhost/c.json", "c.json"] {
        let mut config = config();
        config.client_metadata_url = Some(url.to_owned());
        let error = choose(&config, &found, None).await.unwrap_err();
        assert!(error.to_string().contains("clientMetadataUrl"), "{error}");
    }
}

#[tokio::test]
async fn an_earlier_registration_is_reused() {
    for methods in [&[][..], &["none", "client_secret_post"]] {
        let earlier = registered();
        let http = registrar();
        let found = discovered(methods);
        let config = config();
        let client = client_for(&http, &config, &found, Some(REDIRECT), Some(&earlier));
        assert_eq!(client.await, Ok(earlier.clone()));
        assert_eq!(http.urls(), [""; 0]);
    }
}

#[tokio::test]
async fn an_unusable_registration_is_replaced() {
    let other_redirect = ClientRecord {
        redirect_uri: Some("http://127.0.0.1:9/callback".to_owned()),
        ..registered()
    };
    let expired = ClientRecord {
        secret_expires_at: Some(1),
        ..registered()
    };
    let configured_before = ClientRecord {
        source: ClientSource::Configured,
        ..registered()
    };
    let method_dropped = ClientRecord {
        auth_method: ClientAuthMethod::ClientSecretBasic,
        ..registered()
    };
    let found = discovered(&["none", "client_secret_post"]);
    for previous in [other_redirect, expired, configured_before, method_dropped] {
        let client = choose(&config(), &found, Some(&previous)).await.unwrap();
        assert_eq!(client.id, "new", "{previous:?}");
    }
}

#[test]
fn a_secret_is_valid_until_it_expires() {
    let client = ClientRecord {
        secret_expires_at: Some(100),
        ..registered()
    };
    let found = discovered(&[]);
    let reusable = |now| is_reusable(&client, &found.server, Some(REDIRECT), now);
    assert!(reusable(99));
    assert!(!reusable(100));
}

#[tokio::test]
async fn grants_without_a_person_need_a_configured_client() {
    let mut config = config();
    config.grant = Grant::ClientCredentials;
    let found = discovered(&[]);
    let error = choose(&config, &found, Some(&registered())).await;
    assert!(error.unwrap_err().to_string().contains("set auth.clientId"));
}

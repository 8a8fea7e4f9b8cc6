use serde_json::{Value, json};

use super::*;
use crate::http_client::HttpError;
use crate::secret::Secret;
use crate::test_http::ScriptedHttp;

const SERVER: &str = "https://h/mcp";
const RESOURCE_WITH_PATH: &str = "https://h/.well-known/oauth-protected-resource/mcp";
const RESOURCE_AT_ROOT: &str = "https://h/.well-known/oauth-protected-resource";
const ISSUER: &str = "https://as.example.com";
const ISSUER_METADATA: &str = "https://as.example.com/.well-known/oauth-authorization-server";

fn resource(resource: &str, issuers: &[&str]) -> Value {
    json!({"resource": resource, "authorization_servers": issuers})
}

fn issuer_document(issuer: &str) -> Value {
    json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{issuer}/authorize"),
        "token_endpoint": format!("{issuer}/token"),
        "code_challenge_methods_supported": ["S256"],
    })
}

fn config() -> CredentialConfig {
    CredentialConfig::new(SERVER)
}

fn challenge(url: &str) -> Challenge {
    Challenge {
        resource_metadata: Some(url.to_owned()),
        ..Challenge::default()
    }
}

/// A server with metadata at its path, and its issuer.
fn usual() -> ScriptedHttp {
    ScriptedHttp::new()
        .json(RESOURCE_WITH_PATH, resource(SERVER, &[ISSUER]))
        .json(ISSUER_METADATA, issuer_document(ISSUER))
}

async fn run(http: &ScriptedHttp, config: &CredentialConfig) -> Result<Discovered, AuthError> {
    discover(http, config, &Challenge::default()).await
}

async fn message(http: &ScriptedHttp, config: &CredentialConfig) -> String {
    match run(http, config).await {
        Err(AuthError::Invalid(message)) => message,
        other => panic!("unexpected: {other:?}"),
    }
}

#[tokio::test]
async fn the_url_of_the_challenge_is_read_first() {
    let http = usual()
        .json("https://h/custom", resource(SERVER, &[ISSUER]))
        .json(
            RESOURCE_WITH_PATH,
            resource(SERVER, &["https://trap.example"]),
        );
    let found = discover(&http, &config(), &challenge("https://h/custom")).await;
    assert_eq!(found.unwrap().server.issuer, ISSUER);
    assert_eq!(http.urls(), ["https://h/custom", ISSUER_METADATA]);
}

#[tokio::test]
async fn well_known_locations_follow_with_path_then_root() {
    let http = ScriptedHttp::new()
        .json(RESOURCE_AT_ROOT, resource("https://h", &[ISSUER]))
        .json(ISSUER_METADATA, issuer_document(ISSUER));
    let gone = challenge("https://h/gone");
    let found = discover(&http, &config(), &gone).await.unwrap();
    assert_eq!(found.resource.unwrap().resource, "https://h");
    assert_eq!(
        http.urls(),
        [
            "https://h/gone",
            RESOURCE_WITH_PATH,
            RESOURCE_AT_ROOT,
            ISSUER_METADATA
        ]
    );
}

#[tokio::test]
async fn a_location_is_requested_once() {
    let http = ScriptedHttp::new();
    let _ = discover(&http, &config(), &challenge(RESOURCE_AT_ROOT)).await;
    assert_eq!(http.urls()[..2], [RESOURCE_AT_ROOT, RESOURCE_WITH_PATH]);
    let asked_twice = http.urls()[2..].iter().any(|url| url == RESOURCE_AT_ROOT);
    assert!(!asked_twice);
}

#[tokio::test]
async fn metadata_of_another_resource_ends_discovery() {
    let http = usual().json(
        RESOURCE_WITH_PATH,
        resource("https://evil.example/mcp", &[ISSUER]),
    );
    let text = message(&http, &config()).await;
    assert!(text.contains("another resource"), "{text}");
    assert_eq!(http.urls(), [RESOURCE_WITH_PATH]);
}

#[tokio::test]
async fn an_unusable_url_in_the_challenge_ends_discovery() {
    for url in ["javascript:alert(1)", "http://h/m", "file:///etc/passwd"] {
        let http = usual();
        let result = discover(&http, &config(), &challenge(url)).await;
        assert!(matches!(result, Err(AuthError::Invalid(_))), "{url}");
        assert_eq!(http.urls(), [""; 0]);
    }
}

#[tokio::test]
async fn an_issuer_with_a_path_is_found_at_its_own_locations_only() {
    let issuer = "https://as.example.com/tenant1";
    let with_path = "https://as.example.com/tenant1/.well-known/openid-configuration";
    let http = ScriptedHttp::new()
        .json(RESOURCE_WITH_PATH, resource(SERVER, &[issuer]))
        .json(ISSUER_METADATA, issuer_document(issuer))
        .json(with_path, issuer_document(issuer));
    let found = run(&http, &config()).await.unwrap();
    assert_eq!(found.server.issuer, issuer);
    assert_eq!(
        http.urls()[1..],
        [
            "https://as.example.com/.well-known/oauth-authorization-server/tenant1",
            "https://as.example.com/.well-known/openid-configuration/tenant1",
            with_path,
        ]
    );
}

#[tokio::test]
async fn a_named_issuer_without_metadata_is_an_error() {
    let http = ScriptedHttp::new().json(RESOURCE_WITH_PATH, resource(SERVER, &[ISSUER]));
    let text = message(&http, &config()).await;
    assert!(text.contains("has no metadata"), "{text}");
}

#[tokio::test]
async fn metadata_of_another_issuer_ends_discovery() {
    for stated in ["https://evil.example", "https://as.example.com/"] {
        let http = usual().json(ISSUER_METADATA, issuer_document(stated));
        let text = message(&http, &config()).await;
        assert!(text.contains("another issuer"), "{text}");
    }
}

#[tokio::test]
async fn the_issuer_exception_accepts_that_name() {
    let stated = "https://sts.example.com";
    let http = usual().json(ISSUER_METADATA, issuer_document(stated));
    let mut config = config();
    config.issuer_exception = Some(stated.to_owned());
    assert_eq!(run(&http, &config).await.unwrap().server.issuer, stated);
}

#[tokio::test]
async fn the_configured_issuer_is_chosen_among_the_listed_ones() {
    let http = usual().json(
        RESOURCE_WITH_PATH,
        resource(SERVER, &["https://first.example", ISSUER]),
    );
    let mut config = config();
    config.issuer = Some(ISSUER.to_owned());
    assert_eq!(run(&http, &config).await.unwrap().server.issuer, ISSUER);
    assert_eq!(http.urls(), [RESOURCE_WITH_PATH, ISSUER_METADATA]);
}

#[tokio::test]
async fn an_issuer_other_than_the_configured_one_is_never_asked() {
    let http = usual();
    let mut config = config();
    config.issuer = Some("https://mine.example".to_owned());
    let text = message(&http, &config).await;
    assert!(text.contains("auth.issuer"), "{text}");
    assert_eq!(http.urls(), [RESOURCE_WITH_PATH]);
}

#[tokio::test]
async fn the_configured_issuer_serves_without_resource_metadata() {
    let http = ScriptedHttp::new().json(ISSUER_METADATA, issuer_document(ISSUER));
    let mut config = config();
    config.issuer = Some(ISSUER.to_owned());
    let found = run(&http, &config).await.unwrap();
    assert_eq!((found.resource, found.server.issuer), (None, ISSUER.into()));
}

#[tokio::test]
async fn resource_metadata_without_issuers_needs_a_configured_one() {
    let http = usual().json(RESOURCE_WITH_PATH, resource(SERVER, &[]));
    let mut config = config();
    let text = message(&http, &config).await;
    assert!(text.contains("set auth.issuer"), "{text}");
    config.issuer = Some(ISSUER.to_owned());
    assert!(run(&http, &config).await.is_ok());
}

#[tokio::test]
async fn without_resource_metadata_the_origin_is_the_issuer() {
    let metadata = "https://h/.well-known/oauth-authorization-server";
    for issuer in ["https://h", "https://h/"] {
        let http = ScriptedHttp::new().json(metadata, issuer_document(issuer));
        let found = run(&http, &config()).await.unwrap();
        assert_eq!(found.server.issuer, issuer);
        assert_eq!(found.resource, None);
    }
    let http = ScriptedHttp::new().json(metadata, issuer_document("https://evil.example"));
    assert!(message(&http, &config()).await.contains("another issuer"));
}

#[tokio::test]
async fn without_any_metadata_the_endpoints_have_default_paths() {
    let http = ScriptedHttp::new();
    let server = run(&http, &config()).await.unwrap().server;
    assert_eq!(
        server,
        AuthorizationServer::with_default_endpoints("https://h")
    );
    assert_eq!(server.token_endpoint, "https://h/token");
}

#[tokio::test]
async fn a_fault_of_the_server_does_not_lead_to_default_endpoints() {
    for url in [
        RESOURCE_WITH_PATH,
        RESOURCE_AT_ROOT,
        "https://h/.well-known/oauth-authorization-server",
    ] {
        let http = ScriptedHttp::new().status(url, 503, "");
        let result = run(&http, &config()).await;
        assert!(matches!(result, Err(AuthError::Http { .. })), "{url}");
    }
}

#[tokio::test]
async fn the_authorization_code_grant_needs_s256() {
    let mut document = issuer_document(ISSUER);
    document["code_challenge_methods_supported"] = Value::Null;
    let http = usual().json(ISSUER_METADATA, document);
    assert!(message(&http, &config()).await.contains("S256"));
    let mut machine = config();
    machine.grant = Grant::JwtBearer {
        assertion: Secret::new("x"),
    };
    assert!(run(&http, &machine).await.is_ok());
}

#[tokio::test]
async fn the_device_grant_needs_its_endpoint() {
    let mut config = config();
    config.grant = Grant::DeviceCode;
    assert!(message(&usual(), &config).await.contains("device"));
}

#[tokio::test]
async fn requests_go_only_where_the_server_is() {
    for (addresses, policy) in [
        (["1.1.1.1"], AddressPolicy::Public),
        (["10.0.0.1"], AddressPolicy::Private),
        (["127.0.0.1"], AddressPolicy::Loopback),
        (["169.254.169.254"], AddressPolicy::Public),
    ] {
        let http = usual().addresses(&addresses);
        let found = run(&http, &config()).await.unwrap();
        assert_eq!(found.addresses, policy);
        assert_eq!(http.policies(), [policy; 2]);
    }
}

#[tokio::test]
async fn the_address_of_a_literal_host_is_its_own() {
    // The resolver of the script says "public".
    for (url, policy) in [
        ("http://127.0.0.1:1/mcp", AddressPolicy::Loopback),
        ("http://[::1]:1/mcp", AddressPolicy::Loopback),
        ("https://10.1.2.3/mcp", AddressPolicy::Private),
    ] {
        let http = ScriptedHttp::new();
        let found = run(&http, &CredentialConfig::new(url)).await.unwrap();
        assert_eq!(found.addresses, policy, "{url}");
    }
}

#[tokio::test]
async fn a_refused_address_ends_discovery() {
    let refused = HttpError::AddressRefused {
        host: "as.example.com".to_owned(),
        address: "169.254.169.254".parse().unwrap(),
    };
    let http = usual().fail(ISSUER_METADATA, refused.clone());
    let result = run(&http, &config()).await;
    assert_eq!(
        result,
        Err(AuthError::Http {
            request: format!("metadata request to {ISSUER_METADATA}"),
            error: refused,
        })
    );
}

#[tokio::test]
async fn a_browser_is_not_sent_into_the_private_network() {
    for target in [
        "http://127.0.0.1:8080/x",
        "http://localhost:8080/x",
        "https://192.168.1.1/x",
        "https://[fe80::1]/x",
    ] {
        let mut document = issuer_document(ISSUER);
        document["authorization_endpoint"] = json!(target);
        let http = usual().json(ISSUER_METADATA, document);
        let text = message(&http, &config()).await;
        assert!(text.contains("authorization endpoint"), "{text}");
        let near = http.addresses(&["127.0.0.1"]);
        let permitted = !target.contains("fe80");
        assert_eq!(run(&near, &config()).await.is_ok(), permitted, "{target}");
    }
}

#[tokio::test]
async fn a_server_on_plain_http_gets_no_tokens() {
    for url in ["http://h/mcp", "http://10.0.0.1/mcp", "ftp://h/", "h"] {
        let http = ScriptedHttp::new();
        message(&http, &CredentialConfig::new(url)).await;
        assert_eq!(http.urls(), [""; 0]);
    }
}

#[tokio::test]
async fn the_resource_parameter_is_configured_stated_or_the_url() {
    let stated = usual().json(RESOURCE_WITH_PATH, resource("https://h/mcp/", &[ISSUER]));
    let found = run(&stated, &config()).await.unwrap();
    let legacy = run(&ScriptedHttp::new(), &config()).await.unwrap();
    let mut config = config();
    let parameter =
        |found: &Discovered, config: &CredentialConfig| found.resource_parameter(config);
    assert_eq!(
        parameter(&found, &config).as_deref(),
        Some("https://h/mcp/")
    );
    assert_eq!(parameter(&legacy, &config).as_deref(), Some(SERVER));
    config.resource = ResourceChoice::Fixed("api://x".to_owned());
    assert_eq!(parameter(&found, &config).as_deref(), Some("api://x"));
    config.resource = ResourceChoice::Omitted;
    assert_eq!(parameter(&found, &config), None);
}

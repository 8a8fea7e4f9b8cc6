mod device;
mod enterprise;
mod proofs;

use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::authorization_code::{AuthorizationRequest, web_url};
use super::*;
use crate::config::ConfiguredClient;
use crate::http_client::HttpError;
use crate::pkce::Pkce;
use crate::record::ClientAuthMethod;
use crate::secret::Secret;
use crate::test_tokens::{
    Scripted, ScriptedHttp, SentRequest, client, discovered, json_response, text_response,
};

const RESOURCE: &str = "https://mcp.example.com/mcp";

/// Owns what a [`GrantTarget`] borrows.
struct Fixture {
    http: ScriptedHttp,
    config: CredentialConfig,
    discovered: Discovered,
    client: ClientRecord,
    scopes: Vec<String>,
    binding: Option<Binding>,
}

impl Fixture {
    fn new(responses: impl IntoIterator<Item = Scripted>) -> Self {
        Self {
            http: ScriptedHttp::new(responses),
            config: CredentialConfig::new(RESOURCE),
            discovered: discovered(),
            client: client(ClientAuthMethod::None),
            scopes: vec!["read".into(), "write".into()],
            binding: None,
        }
    }

    fn target(&self) -> GrantTarget<'_> {
        GrantTarget {
            http: &self.http,
            config: &self.config,
            discovered: &self.discovered,
            client: &self.client,
            scopes: &self.scopes,
            resource: Some(RESOURCE),
            binding: self.binding.as_ref(),
        }
    }

    fn use_secret(&mut self) {
        self.client.auth_method = ClientAuthMethod::ClientSecretBasic;
        self.client.secret = Some(Secret::new("client-secret"));
        self.config.client = Some(ConfiguredClient {
            id: self.client.id.clone(),
            secret: self.client.secret.clone(),
            private_key: None,
        });
    }

    fn sent(&self, index: usize) -> SentRequest {
        self.http.requests()[index].clone()
    }
}

fn token() -> Scripted {
    json_response(
        200,
        json!({ "access_token": "access-1", "token_type": "Bearer", "expires_in": 60 }),
    )
}

fn assert_parameters(sent: &SentRequest, expected: &[(&str, Option<&str>)]) {
    for (name, value) in expected {
        assert_eq!(sent.parameter(name).as_deref(), *value, "{name}");
    }
}

fn authorization_request() -> AuthorizationRequest {
    AuthorizationRequest {
        redirect_uri: "http://127.0.0.1:4321/callback".into(),
        state: Secret::new("state-1"),
        pkce: Pkce::from_verifier(Secret::new("verifier-1")),
    }
}

#[test]
fn the_authorization_url_has_every_parameter_once() {
    let fixture = Fixture::new([]);
    let url = authorization_request().url(&fixture.target()).unwrap();
    let (endpoint, query) = url.split_once('?').unwrap();
    assert_eq!(endpoint, "https://as.example.com/authorize");
    let challenge = authorization_request().pkce.challenge().to_owned();
    let pairs: Vec<_> = form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect();
    assert_eq!(
        pairs,
        [
            ("response_type", "code"),
            ("client_id", "client-1"),
            ("redirect_uri", "http://127.0.0.1:4321/callback"),
            ("state", "state-1"),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
            ("scope", "read write"),
            ("resource", RESOURCE),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
    );
}

#[test]
fn a_query_of_the_endpoint_is_kept_and_a_fragment_is_not() {
    let mut fixture = Fixture::new([]);
    fixture.scopes = vec!["offline_access".into()];
    let endpoint = "https://as.example.com/authorize?tenant=a#top";
    fixture.discovered.server.authorization_endpoint = Some(endpoint.into());
    let url = authorization_request().url(&fixture.target()).unwrap();
    assert!(
        url.starts_with("https://as.example.com/authorize?tenant=a&response_type=code"),
        "{url}"
    );
    assert!(url.ends_with("&prompt=consent"), "{url}");
}

#[test]
fn parameters_of_ours_replace_those_of_the_endpoint() {
    let mut fixture = Fixture::new([]);
    let endpoint = "https://as.example.com/authorize?tenant=a&client_id=evil&redirect_uri=evil\
        &state=evil&code_challenge=evil&code_challenge_method=plain&scope=evil&resource=evil\
        &response%5Ftype=token&client_id&flag&&ui=%20b+c";
    fixture.discovered.server.authorization_endpoint = Some(endpoint.into());
    let url = authorization_request().url(&fixture.target()).unwrap();
    assert!(!url.contains("evil"), "{url}");
    let (_, query) = url.split_once('?').unwrap();
    let own = "tenant=a&flag&ui=%20b+c&response_type=code&";
    assert!(query.starts_with(own), "others stay as they are: {query}");
    let names: Vec<_> = form_urlencoded::parse(query.as_bytes())
        .map(|(name, _)| name.into_owned())
        .collect();
    let unique: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!(unique.len(), names.len(), "{names:?}");
    assert_eq!(names.len(), 3 + 8);
}

#[test]
fn an_issuer_without_pkce_or_web_endpoint_is_refused() {
    let problem = |change: fn(&mut Fixture)| {
        let mut fixture = Fixture::new([]);
        change(&mut fixture);
        let error = authorization_request().url(&fixture.target()).unwrap_err();
        error.to_string()
    };
    assert!(problem(|f| f.discovered.server.code_challenge_methods.clear()).contains("S256"));
    let plain = |f: &mut Fixture| f.discovered.server.code_challenge_methods = vec!["plain".into()];
    assert!(problem(plain).contains("S256"));
    assert!(
        problem(|f| f.discovered.server.authorization_endpoint = None).contains("no authorization")
    );
    let script = |f: &mut Fixture| {
        f.discovered.server.authorization_endpoint = Some("javascript:alert(1)//".into());
    };
    assert!(problem(script).contains("not http"));
}

#[test]
fn only_web_urls_are_shown_to_people() {
    assert!(web_url("https://as.example.com/device").is_ok());
    for url in [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "https://a/\u{202e}b",
        "",
        "https:",
    ] {
        assert!(web_url(url).is_err(), "{url}");
    }
}

#[tokio::test]
async fn a_code_is_redeemed_with_verifier_redirect_uri_and_resource() {
    let fixture = Fixture::new([token()]);
    let response = authorization_request()
        .redeem(&fixture.target(), &Secret::new("code-1"))
        .await
        .unwrap();
    assert_eq!(response.access.expose(), "access-1");
    assert_parameters(
        &fixture.sent(0),
        &[
            ("grant_type", Some("authorization_code")),
            ("code", Some("code-1")),
            ("code_verifier", Some("verifier-1")),
            ("redirect_uri", Some("http://127.0.0.1:4321/callback")),
            ("resource", Some(RESOURCE)),
            ("client_id", Some("client-1")),
            ("scope", None),
        ],
    );
}

#[tokio::test]
async fn client_credentials_send_scope_and_resource() {
    let mut fixture = Fixture::new([token()]);
    fixture.config.grant = Grant::ClientCredentials;
    fixture.use_secret();
    let record = fixture.target().obtain().await.unwrap();
    let sent = fixture.sent(0);
    assert!(
        sent.headers["authorization"]
            .to_str()
            .unwrap()
            .starts_with("Basic ")
    );
    assert_parameters(
        &sent,
        &[
            ("grant_type", Some("client_credentials")),
            ("scope", Some("read write")),
            ("resource", Some(RESOURCE)),
            ("client_id", Some("client-1")),
        ],
    );
    assert_eq!(record.scopes, ["read", "write"]);
    assert_eq!(record.key.issuer, "https://as.example.com");
    assert_eq!(record.key.resource.as_deref(), Some(RESOURCE));
    assert_eq!(record.endpoints.token, "https://as.example.com/token");
    assert_eq!(
        record.tokens.expires_at,
        Some(record.tokens.obtained_at + 60)
    );
    assert_eq!((record.revision, record.rejected), (1, None));
}

#[tokio::test]
async fn a_rejected_assertion_is_not_sent_again() {
    let mut fixture = Fixture::new([json_response(400, json!({ "error": "invalid_grant" }))]);
    fixture.config.grant = Grant::JwtBearer {
        assertion: Secret::new("workload-jwt"),
    };
    fixture.target().obtain().await.unwrap_err();
    assert_eq!(fixture.http.requests().len(), 1);
    assert_parameters(
        &fixture.sent(0),
        &[
            (
                "grant_type",
                Some("urn:ietf:params:oauth:grant-type:jwt-bearer"),
            ),
            ("assertion", Some("workload-jwt")),
            ("client_id", Some("client-1")),
            ("resource", Some(RESOURCE)),
        ],
    );
}

#[tokio::test]
async fn a_grant_with_a_person_is_a_typed_error() {
    let fixture = Fixture::new([]);
    let challenge = Challenge::default();
    let result = obtain(&fixture.http, &fixture.config, &challenge, None).await;
    assert!(matches!(result, Err(AuthError::LoginNeeded { .. })));
}

fn pending(code: &str) -> Scripted {
    json_response(400, json!({ "error": code }))
}

async fn revoke(fixture: &Fixture, refresh: Option<&str>) -> Result<(), AuthError> {
    let tokens = TokenSet {
        access: Secret::new("access-1"),
        refresh: refresh.map(Secret::new),
        obtained_at: 0,
        expires_at: None,
    };
    let target = fixture.target();
    let url = "https://as.example.com/revoke";
    revocation::revoke(&target.endpoint(), url, &tokens).await
}

#[tokio::test]
async fn the_refresh_token_is_revoked_before_the_access_token() {
    let fixture = Fixture::new([text_response(200, ""), pending("unsupported_token_type")]);
    revoke(&fixture, Some("refresh-1")).await.unwrap();
    assert_parameters(
        &fixture.sent(0),
        &[
            ("token", Some("refresh-1")),
            ("token_type_hint", Some("refresh_token")),
            ("client_id", Some("client-1")),
        ],
    );
    assert_parameters(&fixture.sent(1), &[("token", Some("access-1"))]);
}

#[tokio::test]
async fn the_access_token_is_revoked_even_if_the_refresh_token_is_not() {
    let fixture = Fixture::new([text_response(503, "busy"), text_response(200, "")]);
    let error = revoke(&fixture, Some("refresh-1")).await.unwrap_err();
    assert!(matches!(error, AuthError::Refused { status: 503, .. }));
    assert_eq!(fixture.http.requests().len(), 2);
    let fixture = Fixture::new([pending("unsupported_token_type")]);
    revoke(&fixture, None).await.unwrap_err();
}

#[tokio::test]
async fn a_server_that_demands_a_secret_in_the_body_gets_an_empty_one() {
    let answers = [pending("invalid_request"), text_response(200, "")];
    let mut fixture = Fixture::new(answers);
    revoke(&fixture, None).await.unwrap();
    assert_parameters(&fixture.sent(0), &[("client_secret", None)]);
    assert_parameters(
        &fixture.sent(1),
        &[
            ("token", Some("access-1")),
            ("client_secret", Some("")),
            ("client_id", Some("client-1")),
        ],
    );
    fixture = Fixture::new([pending("invalid_request"), pending("invalid_request")]);
    revoke(&fixture, None).await.unwrap_err();
    assert_eq!(fixture.http.requests().len(), 2, "once more, not for ever");
}

proptest! {
    #[test]
    fn checking_a_url_never_panics(url in any::<String>()) {
        if web_url(&url).is_ok() {
            let lower = url.to_ascii_lowercase();
            prop_assert!(lower.starts_with("http://") || lower.starts_with("https://"));
        }
    }
}

use http::header::AUTHORIZATION;
use proptest::prelude::*;
use serde_json::{Value, json};

mod proofs;

use super::response::{MAX_LIFETIME_SECONDS, MAX_TOKEN_BYTES, clean, lifetime_seconds};
use super::*;
use crate::record::ClientAuthMethod;
use crate::test_tokens::{ScriptedHttp, client, json_response, p256_pem, text_response};

const URL: &str = "https://as.example.com/token";

async fn request(http: &ScriptedHttp) -> Result<TokenResponse, AuthError> {
    let client = client(ClientAuthMethod::None);
    endpoint(http, &client)
        .request(&[
            ("grant_type", "authorization_code"),
            ("code", "canary-code"),
        ])
        .await
}

fn endpoint<'a>(http: &'a ScriptedHttp, client: &'a ClientRecord) -> TokenEndpoint<'a> {
    TokenEndpoint {
        http,
        url: URL,
        issuer: "https://as.example.com",
        addresses: AddressPolicy::Public,
        client,
        configured: None,
        proof_key: None,
    }
}

async fn answer(status: u16, body: Value) -> Result<TokenResponse, AuthError> {
    request(&ScriptedHttp::new([json_response(status, body)])).await
}

fn refused(status: u16, error: &str, description: Option<&str>) -> AuthError {
    AuthError::Refused {
        request: "token request to https://as.example.com".into(),
        status,
        error: error.into(),
        description: description.map(str::to_owned),
    }
}

#[tokio::test]
async fn a_token_that_is_too_long_is_refused() {
    let long = "x".repeat(MAX_TOKEN_BYTES + 1);
    for body in [
        json!({ "access_token": long }),
        json!({ "access_token": "a", "refresh_token": long }),
    ] {
        let error = answer(200, body).await.unwrap_err();
        assert!(error.to_string().contains("longer than"), "{error}");
    }
    let fits = json!({ "access_token": "x".repeat(MAX_TOKEN_BYTES) });
    answer(200, fits).await.unwrap();
}

#[tokio::test]
async fn a_request_is_a_form_with_the_client() {
    let http = ScriptedHttp::new([json_response(200, json!({ "access_token": "a" }))]);
    request(&http).await.unwrap();
    let sent = &http.requests()[0];
    assert_eq!(sent.method, "POST");
    assert_eq!(sent.url, URL);
    assert_eq!(sent.headers[ACCEPT], "application/json");
    assert_eq!(
        sent.headers[CONTENT_TYPE],
        "application/x-www-form-urlencoded"
    );
    assert!(!sent.headers.contains_key(AUTHORIZATION));
    assert_eq!(
        sent.form(),
        [
            ("grant_type", "authorization_code"),
            ("code", "canary-code"),
            ("client_id", "client-1")
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
    );
    assert_eq!(sent.limits.timeout, TOKEN_TIMEOUT);
    assert_eq!(sent.limits.max_bytes, MAX_RESPONSE_BYTES);
    assert_eq!(sent.limits.addresses, AddressPolicy::Public);
}

#[tokio::test]
async fn a_refresh_sends_the_resource_and_no_scope() {
    let http = ScriptedHttp::new([json_response(200, json!({ "access_token": "a" }))]);
    let client = client(ClientAuthMethod::None);
    endpoint(&http, &client)
        .refresh(&Secret::new("r1"), Some("https://mcp.example.com/mcp"))
        .await
        .unwrap();
    let sent = &http.requests()[0];
    assert_eq!(
        sent.parameter("grant_type").as_deref(),
        Some("refresh_token")
    );
    assert_eq!(sent.parameter("refresh_token").as_deref(), Some("r1"));
    assert_eq!(
        sent.parameter("resource").as_deref(),
        Some("https://mcp.example.com/mcp")
    );
    assert_eq!(sent.parameter("scope"), None);
}

#[tokio::test]
async fn any_success_with_a_token_is_accepted() {
    let before = unix_seconds(SystemTime::now());
    let token = answer(
        201,
        json!({ "access_token": "a", "token_type": "BEARER", "refresh_token": "r",
                "expires_in": 60, "scope": "read  write", "issued_token_type": "t" }),
    )
    .await
    .unwrap();
    assert!((before..before + 5).contains(&token.obtained_at));
    assert_eq!(
        token,
        TokenResponse {
            access: Secret::new("a"),
            refresh: Some(Secret::new("r")),
            expires_at: Some(token.obtained_at + 60),
            obtained_at: token.obtained_at,
            scopes: Some(vec!["read".into(), "write".into()]),
            issued_token_type: Some("t".into()),
            token_type: Some(TokenType::Bearer),
        }
    );
}

#[tokio::test]
async fn a_form_encoded_token_is_accepted() {
    let http = ScriptedHttp::new([text_response(
        200,
        "access_token=a%2B&expires_in=60&scope=read+write&token_type=bearer",
    )]);
    let token = request(&http).await.unwrap();
    assert_eq!(token.access.expose(), "a+");
    assert_eq!(token.expires_at, Some(token.obtained_at + 60));
    assert_eq!(token.scopes, Some(vec!["read".into(), "write".into()]));
}

#[tokio::test]
async fn missing_fields_stay_unknown() {
    let token = answer(
        200,
        json!({ "access_token": "a", "refresh_token": "", "scope": "", "expires_in": null }),
    )
    .await
    .unwrap();
    assert_eq!(token.refresh, None);
    assert_eq!(token.expires_at, None);
    assert_eq!(token.scopes, None);
}

#[test]
fn lifetimes_are_lenient_and_clamped() {
    for (value, seconds) in [
        (json!(60), Some(60)),
        (json!(59.9), Some(59)),
        (json!("60"), Some(60)),
        (json!(" 60.5 "), Some(60)),
        (json!(-1), Some(0)),
        (json!("-1"), Some(0)),
        (json!(1e300), Some(MAX_LIFETIME_SECONDS)),
        (json!(u64::MAX), Some(MAX_LIFETIME_SECONDS)),
        (json!("inf"), Some(MAX_LIFETIME_SECONDS)),
        (json!("NaN"), None),
        (json!("soon"), None),
        (json!(true), None),
    ] {
        assert_eq!(lifetime_seconds(&value), seconds, "{value}");
    }
}

#[tokio::test]
async fn other_token_types_are_refused() {
    let error = answer(200, json!({ "access_token": "a", "token_type": "mac" }))
        .await
        .unwrap_err();
    assert!(matches!(&error, AuthError::Invalid(text) if text.contains("\"mac\"")));
    // Nothing can prove the possession of a key that the request did not name.
    let error = answer(200, json!({ "access_token": "a", "token_type": "DPoP" }))
        .await
        .unwrap_err();
    assert!(matches!(&error, AuthError::Invalid(text) if text.contains("auth.dpop")));
    answer(200, json!({ "access_token": "a", "token_type": "N_A" }))
        .await
        .unwrap_err();
}

#[tokio::test]
async fn a_token_that_no_header_may_have_is_refused() {
    let error = answer(200, json!({ "access_token": "canary\r\nx: y" }))
        .await
        .unwrap_err();
    assert!(matches!(&error, AuthError::Invalid(text) if !text.contains("canary")));
}

#[tokio::test]
async fn errors_of_any_status_are_read() {
    for status in [200, 400, 401, 500] {
        let body = json!({ "error": "invalid_grant", "error_description": "expired" });
        assert_eq!(
            answer(status, body).await.unwrap_err(),
            refused(status, "invalid_grant", Some("expired"))
        );
    }
    let http = ScriptedHttp::new([text_response(200, "error=bad_verification_code")]);
    assert_eq!(
        request(&http).await.unwrap_err(),
        refused(200, "bad_verification_code", None)
    );
}

#[tokio::test]
async fn other_responses_are_named_by_status() {
    let page = ScriptedHttp::new([text_response(502, "<html>Bad gateway</html>")]);
    assert_eq!(
        request(&page).await.unwrap_err(),
        refused(502, "http_502", None)
    );
    let redirect = ScriptedHttp::new([text_response(302, "")]);
    assert_eq!(
        request(&redirect).await.unwrap_err(),
        refused(302, "http_302", None)
    );
    assert_eq!(
        answer(500, json!({ "error": { "message": "down" } }))
            .await
            .unwrap_err(),
        refused(500, "http_500", Some("down"))
    );
    assert_eq!(
        answer(200, json!({})).await.unwrap_err(),
        refused(
            200,
            "invalid_response",
            Some("the response has no access token")
        )
    );
    answer(200, json!([1])).await.unwrap_err();
}

#[tokio::test]
async fn descriptions_are_cleaned_bounded_and_redacted() {
    let error = answer(
        400,
        json!({ "error": format!("e\u{1b}[31m{}", "x".repeat(200)),
                "error_description": format!("code canary-code\r\n\u{202e}is\u{7} bad {}", "y".repeat(1000)) }),
    )
    .await
    .unwrap_err();
    let AuthError::Refused {
        error, description, ..
    } = error
    else {
        panic!("{error:?}")
    };
    let description = description.unwrap();
    assert!(error.starts_with("e[31mx") && error.chars().count() == 65);
    assert!(
        description.starts_with("code *** is bad yy"),
        "{description}"
    );
    assert_eq!(description.chars().count(), 301);
}

#[tokio::test]
async fn an_issuer_that_repeats_the_whole_request_reveals_nothing() {
    for method in [
        ClientAuthMethod::None,
        ClientAuthMethod::ClientSecretBasic,
        ClientAuthMethod::ClientSecretPost,
        ClientAuthMethod::PrivateKeyJwt,
    ] {
        let mut client = client(method);
        client.secret = Some(Secret::new("canary/secret"));
        let configured = ConfiguredClient {
            id: client.id.clone(),
            secret: None,
            private_key: Some(p256_pem()),
        };
        let http = ScriptedHttp::default().echoing();
        let error = TokenEndpoint {
            configured: Some(&configured),
            ..endpoint(&http, &client)
        }
        .refresh(
            &Secret::new("canary+refresh"),
            Some("https://mcp.example.com"),
        )
        .await
        .unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(shown.contains("grant_type"), "{shown}");
        assert!(!shown.contains("canary"), "{shown}");
        for secret in http.requests()[0].secrets() {
            assert!(!shown.contains(&secret), "{shown}");
        }
    }
}

#[tokio::test]
async fn a_lost_connection_is_an_http_error() {
    let lost = HttpError::Interrupted("connection closed".into());
    let error = request(&ScriptedHttp::new([Err(lost.clone())]))
        .await
        .unwrap_err();
    assert_eq!(
        error,
        AuthError::Http {
            request: "token request to https://as.example.com".into(),
            error: lost
        }
    );
}

#[test]
fn errors_are_classified() {
    let http = |error| AuthError::Http {
        request: "r".into(),
        error,
    };
    for (error, invalid_grant, invalid_client, transient) in [
        (refused(401, "invalid_grant", None), true, false, false),
        (refused(500, "invalid_grant", None), true, false, false),
        (refused(200, "invalid_client", None), false, true, false),
        (refused(400, "invalid_scope", None), false, false, false),
        (refused(503, "http_503", None), false, false, true),
        (refused(429, "http_429", None), false, false, true),
        (
            refused(400, "temporarily_unavailable", None),
            false,
            false,
            true,
        ),
        (refused(404, "http_404", None), false, false, false),
        (http(HttpError::NotSent("dns".into())), false, false, true),
        (http(HttpError::TimedOut(TOKEN_TIMEOUT)), false, false, true),
        (AuthError::Invalid("x".into()), false, false, false),
    ] {
        assert_eq!(is_invalid_grant(&error), invalid_grant, "{error:?}");
        assert_eq!(is_invalid_client(&error), invalid_client, "{error:?}");
        assert_eq!(is_transient(&error), transient, "{error:?}");
    }
    let address = std::net::IpAddr::from([169, 254, 169, 254]);
    assert!(!is_transient(&http(HttpError::AddressRefused {
        host: "h".into(),
        address
    })));
}

#[test]
fn a_request_is_named_by_its_origin() {
    assert_eq!(
        request_name("token request", "http://127.0.0.1:81/t?secret=1"),
        "token request to http://127.0.0.1:81"
    );
    assert_eq!(request_name("token request", "::"), "token request");
}

proptest! {
    #[test]
    fn reading_a_response_never_panics(status in 200_u16..600, body in proptest::collection::vec(any::<u8>(), 0..300)) {
        let secrets = vec![Secret::new("canary")];
        let exchange = Exchange { request: "r".into(), secrets, has_proof: false };
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
        let _ = exchange.token(&response, TokenUse::Access, u64::MAX);
    }

    #[test]
    fn cleaned_text_is_bounded_and_has_no_control_characters(text in any::<String>(), max in 1_usize..50) {
        if let Some(cleaned) = clean(&text, max) {
            prop_assert!(cleaned.chars().count() <= max + 1);
            prop_assert!(!cleaned.chars().any(char::is_control));
        }
    }
}

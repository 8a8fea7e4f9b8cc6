use serde_json::json;

use super::*;
use crate::test_http::ScriptedHttp;

const FIRST: &str = "https://h/first";
const SECOND: &str = "https://h/second";

async fn first(http: &ScriptedHttp) -> Result<Option<Document>, AuthError> {
    let urls = [FIRST.to_owned(), SECOND.to_owned()];
    get_first(http, &urls, AddressPolicy::Public).await
}

async fn error(http: &ScriptedHttp) -> AuthError {
    first(http).await.unwrap_err()
}

fn found(source: &str) -> Result<Option<Document>, AuthError> {
    Ok(Some(Document {
        source: source.to_owned(),
        object: Map::new(),
    }))
}

#[tokio::test]
async fn the_first_document_ends_the_search() {
    let http = ScriptedHttp::new()
        .json(FIRST, json!({}))
        .json(SECOND, json!({}));
    assert_eq!(first(&http).await, found(FIRST));
    let requests = http.take_requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].method, "GET");
    assert_eq!(requests[0].headers["accept"], "application/json");
    assert_eq!(requests[0].limits.max_bytes, MAX_RESPONSE_BYTES);
    assert_eq!(requests[0].limits.timeout, METADATA_TIMEOUT);
}

#[tokio::test]
async fn a_4xx_leads_to_the_next_location() {
    for status in [400, 401, 403, 404, 405, 410] {
        let http = ScriptedHttp::new()
            .status(FIRST, status, "{}")
            .json(SECOND, json!({}));
        assert_eq!(first(&http).await, found(SECOND), "{status}");
    }
    assert_eq!(first(&ScriptedHttp::new()).await, Ok(None));
}

#[tokio::test]
async fn a_fault_of_the_server_ends_the_search_and_may_be_retried() {
    for status in [408, 429, 500, 502, 503] {
        let http = ScriptedHttp::new()
            .status(FIRST, status, "canary")
            .json(SECOND, json!({}));
        let error = error(&http).await;
        assert!(matches!(error, AuthError::Http { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(&status.to_string()), "{text}");
        assert!(!text.contains("canary"), "{text}");
    }
}

#[tokio::test]
async fn a_network_failure_ends_the_search_and_may_be_retried() {
    let failure = HttpError::TimedOut(METADATA_TIMEOUT);
    let http = ScriptedHttp::new()
        .fail(FIRST, failure.clone())
        .json(SECOND, json!({}));
    let expected = AuthError::Http {
        request: format!("metadata request to {FIRST}"),
        error: failure,
    };
    assert_eq!(error(&http).await, expected);
}

#[tokio::test]
async fn only_200_with_a_json_object_is_a_document() {
    for body in ["", "canary", "[]", "\"canary\"", "{}canary", "<html>canary"] {
        let http = ScriptedHttp::new().status(FIRST, 200, body);
        let text = error(&http).await.to_string();
        assert_eq!(text, "https://h/first returned no JSON object");
    }
    let http = ScriptedHttp::new().status(FIRST, 201, "{}");
    assert!(first(&http).await.is_err());
}

#[tokio::test]
async fn deep_nesting_is_refused() {
    let deep = format!("{{\"a\":{}", "[".repeat(100_000));
    let http = ScriptedHttp::new().status(FIRST, 200, &deep);
    assert!(matches!(error(&http).await, AuthError::Invalid(_)));
}

#[tokio::test]
async fn a_body_above_the_limit_is_refused() {
    let large = format!("{{\"a\":\"{}\"}}", "a".repeat(MAX_RESPONSE_BYTES));
    let http = ScriptedHttp::new().status(FIRST, 200, &large);
    assert!(error(&http).await.to_string().contains("larger than"));
}

#[tokio::test]
async fn three_redirects_are_followed() {
    let http = ScriptedHttp::new()
        .redirect(FIRST, "/1")
        .redirect("https://h/1", "https://i/2")
        .redirect("https://i/2", "/3")
        .json("https://i/3", json!({}));
    assert_eq!(first(&http).await, found("https://i/3"));
    assert_eq!(http.policies(), [AddressPolicy::Public; 4]);
}

#[tokio::test]
async fn a_fourth_redirect_is_refused() {
    let http = ScriptedHttp::new().redirect(FIRST, FIRST);
    let text = error(&http).await.to_string();
    assert!(text.contains("more than 3 times"), "{text}");
    assert_eq!(http.urls().len(), 4);
}

#[tokio::test]
async fn a_redirect_to_an_insecure_url_is_refused() {
    for location in [
        "http://i/2",
        "javascript:alert(1)",
        "https://u:p@i/",
        "//i/2",
        "",
    ] {
        let http = ScriptedHttp::new().redirect(FIRST, location);
        assert!(matches!(error(&http).await, AuthError::Invalid(_)));
        assert_eq!(http.urls(), [FIRST], "{location}");
    }
}

#[tokio::test]
async fn a_bad_url_is_never_requested() {
    for text in ["http://h/m", "javascript:alert(1)", "https://h/m#x", ""] {
        let http = ScriptedHttp::new();
        let result = get_first(&http, &[text.to_owned()], AddressPolicy::Loopback).await;
        assert!(matches!(result, Err(AuthError::Invalid(_))), "{text}");
        assert_eq!(http.urls(), [""; 0]);
    }
}

#[tokio::test]
async fn errors_omit_the_query() {
    let url = "https://h/m?token=canary".to_owned();
    let http = ScriptedHttp::new().status(&url, 500, "");
    let result = get_first(&http, &[url], AddressPolicy::Public).await;
    let text = result.unwrap_err().to_string();
    assert!(!text.contains("canary"), "{text}");
}

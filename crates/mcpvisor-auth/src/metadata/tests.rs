use serde_json::json;

use super::*;

const SOURCE: &str = "https://as.example.com/.well-known/oauth-authorization-server";

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => panic!("no object: {other}"),
    }
}

fn issuer(extra: Value) -> Result<AuthorizationServer, AuthError> {
    let mut document = object(json!({
        "issuer": "https://as.example.com",
        "authorization_endpoint": "https://as.example.com/authorize",
        "token_endpoint": "https://as.example.com/token",
        "code_challenge_methods_supported": ["plain", "S256"],
    }));
    document.extend(object(extra));
    AuthorizationServer::from_json(document, SOURCE)
}

fn resource(extra: Value) -> Result<ProtectedResource, AuthError> {
    let mut document = object(json!({
        "resource": "https://h/mcp",
        "authorization_servers": ["https://as.example.com"],
    }));
    document.extend(object(extra));
    let server = url::parse("https://h/mcp").unwrap();
    ProtectedResource::from_json(document, &server, "https://h/m")
}

fn message<T: std::fmt::Debug>(result: Result<T, AuthError>) -> String {
    match result {
        Err(AuthError::Invalid(message)) => message,
        other => panic!("unexpected: {other:?}"),
    }
}

#[test]
fn a_full_document_is_read() {
    let server = issuer(json!({
        "registration_endpoint": "https://as.example.com/register",
        "revocation_endpoint": "https://as.example.com/revoke",
        "device_authorization_endpoint": "https://as.example.com/device",
        "scopes_supported": ["a", "b", "a", "no scope"],
        "token_endpoint_auth_methods_supported": ["none"],
        "authorization_response_iss_parameter_supported": true,
        "client_id_metadata_document_supported": true,
        "dpop_signing_alg_values_supported": ["ES256"],
        "unknown": {"ignored": true},
    }))
    .unwrap();
    let endpoint = |path: &str| Some(format!("https://as.example.com{path}"));
    assert_eq!(
        server,
        AuthorizationServer {
            issuer: "https://as.example.com".to_owned(),
            authorization_endpoint: endpoint("/authorize"),
            token_endpoint: "https://as.example.com/token".to_owned(),
            registration_endpoint: endpoint("/register"),
            revocation_endpoint: endpoint("/revoke"),
            device_authorization_endpoint: endpoint("/device"),
            scopes_supported: Some(vec!["a".to_owned(), "b".to_owned()]),
            code_challenge_methods: vec!["plain".to_owned(), "S256".to_owned()],
            token_auth_methods: vec!["none".to_owned()],
            iss_in_response: true,
            supports_metadata_document: true,
            dpop_algorithms: vec!["ES256".to_owned()],
        }
    );
}

#[test]
fn null_and_empty_fields_count_as_absent() {
    let server = issuer(json!({
        "registration_endpoint": null,
        "revocation_endpoint": "",
        "scopes_supported": null,
    }))
    .unwrap();
    assert_eq!(server.registration_endpoint, None);
    assert_eq!(server.revocation_endpoint, None);
    assert_eq!(server.scopes_supported, None);
}

#[test]
fn every_endpoint_is_https_or_loopback() {
    for name in [
        "authorization_endpoint",
        "token_endpoint",
        "registration_endpoint",
        "revocation_endpoint",
        "device_authorization_endpoint",
    ] {
        for url in [
            "javascript:alert(1)",
            "http://as.example.com/x",
            "file:///etc/passwd",
            "/relative",
            "https://user@as.example.com/x",
            "https://as.example.com/x#fragment",
        ] {
            let message = message(issuer(json!({ name: url })));
            assert!(message.contains(name), "{message}");
            assert!(!message.contains(url), "{message}");
        }
        assert!(issuer(json!({ name: "http://127.0.0.1:1/x" })).is_ok());
    }
}

#[test]
fn a_token_endpoint_and_an_issuer_are_required() {
    assert!(message(issuer(json!({"token_endpoint": null}))).contains("token_endpoint"));
    assert!(message(issuer(json!({"issuer": 1}))).contains(SOURCE));
}

#[test]
fn an_error_does_not_quote_the_document() {
    let message = message(issuer(json!({"scopes_supported": "canary"})));
    assert!(!message.contains("canary"), "{message}");
}

#[test]
fn lists_are_bounded() {
    for name in [
        "scopes_supported",
        "code_challenge_methods_supported",
        "token_endpoint_auth_methods_supported",
    ] {
        let many = vec!["S256"; MAX_LIST_ENTRIES + 1];
        assert!(message(issuer(json!({ name: many }))).contains(name));
        let long = "x".repeat(MAX_ENTRY_BYTES + 1);
        assert!(message(issuer(json!({ name: [long] }))).contains(name));
    }
    let many = vec!["https://as.example.com"; MAX_AUTHORIZATION_SERVERS + 1];
    let long = ["x".repeat(MAX_ENTRY_BYTES + 1)];
    for servers in [json!(many), json!(long)] {
        let message = message(resource(json!({"authorization_servers": servers})));
        assert!(message.contains("authorization_servers"), "{message}");
    }
}

#[test]
fn the_issuer_is_compared_byte_for_byte() {
    let server = issuer(json!({})).unwrap();
    assert_eq!(server.check_issuer("https://as.example.com", None), Ok(()));
    for expected in [
        "https://as.example.com/",
        "https://AS.example.com",
        "https://as.example.com:443",
        "https://other.example.com",
    ] {
        let message = message(server.check_issuer(expected, None));
        assert!(message.contains("auth.issuerException"), "{message}");
    }
}

#[test]
fn the_exception_names_exactly_one_other_issuer() {
    let server = issuer(json!({})).unwrap();
    let check = |exception| server.check_issuer("https://other.example.com", Some(exception));
    assert_eq!(check("https://as.example.com"), Ok(()));
    assert!(check("https://as.example.com/").is_err());
    assert!(check("https://other.example.com").is_err());
}

#[test]
fn pkce_with_s256_is_required() {
    assert_eq!(
        issuer(json!({})).unwrap().check_authorization_code(),
        Ok(())
    );
    for methods in [json!(null), json!([]), json!(["plain"]), json!(["s256"])] {
        let server = issuer(json!({"code_challenge_methods_supported": methods})).unwrap();
        let message = message(server.check_authorization_code());
        assert!(message.contains("S256"), "{message}");
    }
}

#[test]
fn a_login_needs_its_endpoint() {
    let server = issuer(json!({"authorization_endpoint": null})).unwrap();
    assert!(message(server.check_authorization_code()).contains("authorization endpoint"));
    assert!(message(server.check_device_code()).contains("device"));
    let device = json!({"device_authorization_endpoint": "https://as.example.com/d"});
    assert_eq!(issuer(device).unwrap().check_device_code(), Ok(()));
}

#[test]
fn the_resource_is_the_server_or_a_parent_and_kept_byte_for_byte() {
    for text in [
        "https://h/mcp",
        "https://h/mcp/",
        "https://H",
        "https://h:443/",
    ] {
        let resource = resource(json!({ "resource": text })).unwrap();
        assert_eq!(resource.resource, text);
    }
}

#[test]
fn another_resource_is_refused() {
    for text in [
        "https://other.example.com/mcp",
        "https://h/mcp/child",
        "https://h/mc",
        "http://h/mcp",
        "h",
        "",
    ] {
        let message = message(resource(json!({ "resource": text })));
        assert!(message.contains("another resource"), "{message}");
    }
    assert!(resource(json!({"resource": null})).is_err());
}

#[test]
fn a_resource_without_issuers_and_scopes_is_read() {
    let read = resource(json!({"authorization_servers": null})).unwrap();
    assert_eq!(read.authorization_servers, [""; 0]);
    assert_eq!(read.scopes_supported, None);
}

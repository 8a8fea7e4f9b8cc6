//! Properties of the parsers of untrusted input: no panic, and every bound holds.

use proptest::collection::{hash_map, vec};
use proptest::prelude::*;
use serde_json::{Map, Value};

use crate::challenge::Challenge;
use crate::metadata::{AuthorizationServer, ProtectedResource};
use crate::text::{printable, scope_tokens};
use crate::url;

/// Pieces that headers are made of, so that random values get deep into the parser.
fn header_value() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("Bearer".to_owned()),
        Just("DPoP ".to_owned()),
        Just(" scope".to_owned()),
        Just("resource_metadata".to_owned()),
        Just("error_description".to_owned()),
        Just("=".to_owned()),
        Just("\"".to_owned()),
        Just("\\".to_owned()),
        Just(",".to_owned()),
        Just(" ".to_owned()),
        Just("\u{e9}".to_owned()),
        any::<String>(),
    ];
    vec(piece, 0..30).prop_map(|pieces| pieces.concat())
}

fn url_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("https://".to_owned()),
        Just("http://localhost".to_owned()),
        Just("h".to_owned()),
        Just("/..".to_owned()),
        Just(":443".to_owned()),
        Just("@".to_owned()),
        Just("[::1]".to_owned()),
        Just("?a=b".to_owned()),
        Just("/mcp".to_owned()),
        "[ -~]{0,8}",
        any::<String>(),
    ];
    vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        url_text().prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 4, |inner| vec(inner, 0..4).prop_map(Value::from))
}

fn document() -> impl Strategy<Value = Map<String, Value>> {
    let name = prop_oneof![
        Just("issuer".to_owned()),
        Just("resource".to_owned()),
        Just("token_endpoint".to_owned()),
        Just("authorization_endpoint".to_owned()),
        Just("authorization_servers".to_owned()),
        Just("scopes_supported".to_owned()),
    ];
    hash_map(name, json(), 0..6).prop_map(|fields| fields.into_iter().collect())
}

proptest! {
    #[test]
    fn any_header_is_read(values in vec(header_value(), 0..4)) {
        let challenge = Challenge::parse(values.iter().map(String::as_str));
        for text in [&challenge.error, &challenge.error_description].into_iter().flatten() {
            prop_assert!(!text.chars().any(char::is_control));
            prop_assert!(text.chars().count() <= 200);
        }
        for scope in challenge.scopes.iter().flatten() {
            prop_assert!(scope.bytes().all(|byte| byte.is_ascii_graphic()));
        }
    }

    #[test]
    fn a_quoted_value_survives(value in "[ -~]{0,40}") {
        let quoted = value.replace('\\', "\\\\").replace('"', "\\\"");
        let header = format!("Basic realm=\"{quoted}\", Bearer error_description=\"{quoted}\", error=e");
        let challenge = Challenge::parse([header.as_str()]);
        prop_assert_eq!(challenge.error_description.unwrap_or_default(), value.trim());
        prop_assert_eq!(challenge.error.as_deref(), Some("e"));
    }

    #[test]
    fn a_secure_url_is_https_or_loopback_and_stays_so(text in url_text()) {
        if let Ok(parsed) = url::parse_secure(&text) {
            let host = parsed.host().unwrap_or_default();
            let https = parsed.scheme_str() == Some("https");
            prop_assert!(https || url::is_loopback_host(host));
            prop_assert!(url::parse_secure(&url::origin(&parsed)).is_ok());
            for url in url::issuer_metadata_urls(&parsed) {
                let well_known: http::Uri = url.parse().unwrap();
                prop_assert_eq!(url::origin(&well_known), url::origin(&parsed));
            }
        }
    }

    #[test]
    fn any_redirect_is_resolved_or_refused(base in url_text(), location in url_text()) {
        if let Ok(base) = url::parse_secure(&base) {
            let _ = url::resolve_location(&base, &location);
            let _ = url::resource_metadata_urls(&base);
            prop_assert!(url::resource_covers(&base, &base) || base.path().contains(['.', '%']));
        }
    }

    #[test]
    fn any_document_is_read_or_refused(document in document()) {
        if let Ok(server) = AuthorizationServer::from_json(document.clone(), "https://h/m") {
            prop_assert!(url::parse_secure(&server.token_endpoint).is_ok());
        }
        let server = url::parse("https://h/mcp").unwrap();
        if let Ok(resource) = ProtectedResource::from_json(document, &server, "https://h/m") {
            let resource = url::parse_secure(&resource.resource).unwrap();
            prop_assert_eq!(url::origin(&resource), "https://h");
        }
    }

    #[test]
    fn any_text_is_bounded(text in any::<String>(), max in 0usize..50) {
        let shown = printable(&text, max);
        prop_assert!(shown.chars().count() <= max);
        prop_assert!(!shown.chars().any(char::is_control));
        let _ = scope_tokens(text.split(' '));
    }
}

use super::*;

fn url(text: &str) -> Uri {
    parse(text).unwrap()
}

#[test]
fn https_and_loopback_http_are_secure() {
    for text in [
        "https://as.example.com",
        "https://as.example.com:8443/tenant?x=1",
        "HTTPS://AS.example.com/",
        "https://[2606:4700::1]/",
        "http://localhost:3000/mcp",
        "http://LOCALHOST/",
        "http://127.0.0.1:1/",
        "http://127.8.9.1/",
        "http://[::1]:8080/",
    ] {
        assert!(parse_secure(text).is_ok(), "{text}");
    }
}

#[test]
fn plain_http_to_other_hosts_is_refused() {
    for text in [
        "http://as.example.com/",
        "http://10.0.0.1/",
        "http://localhost.example.com/",
        "http://127.0.0.1.example.com/",
        "http://localhost./",
        "http://[::ffff:127.0.0.1]/",
        "http://2130706433/",
    ] {
        assert_eq!(parse_secure(text), Err(UrlError::NotSecure), "{text}");
    }
}

#[test]
fn other_schemes_and_malformed_texts_are_refused() {
    for text in [
        "",
        "/path",
        "as.example.com",
        "javascript:alert(1)",
        "javascript://example.com/%0aalert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "ftp://example.com/",
        "https://",
        "https:///path",
        "https://host:/",
        "https://host:0/",
        "https://host:70000/",
        "https://host:+1/",
        "https://host:1x/",
        "https://ho%73t/",
        "https://[::g]/",
        "https://host/a b",
        "https://host/\\evil.example",
        "https://host\\@evil.example/",
        "https://host/\u{e9}",
        "https://host/\n",
    ] {
        assert_eq!(parse_secure(text), Err(UrlError::NotHttp), "{text}");
    }
}

#[test]
fn user_information_is_refused() {
    assert_eq!(parse_secure("https://user@host/"), Err(UrlError::UserInfo));
    assert_eq!(
        parse_secure("https://as.example.com:pw@evil.example/"),
        Err(UrlError::UserInfo)
    );
}

#[test]
fn fragments_are_refused() {
    assert_eq!(parse_secure("https://host/#x"), Err(UrlError::Fragment));
}

#[test]
fn long_urls_are_refused() {
    let text = format!("https://host/{}", "a".repeat(MAX_URL_BYTES));
    assert_eq!(parse_secure(&text), Err(UrlError::TooLong));
}

#[test]
fn the_origin_is_lower_case_and_omits_the_default_port() {
    assert_eq!(
        origin(&url("HTTPS://Example.COM:443/a?b")),
        "https://example.com"
    );
    assert_eq!(origin(&url("http://localhost:80/")), "http://localhost");
    assert_eq!(origin(&url("http://[::1]:443/")), "http://[::1]:443");
    assert_eq!(port(&url("https://h/")), 443);
    assert_eq!(port(&url("http://h/")), 80);
}

#[test]
fn literal_addresses_need_no_resolver() {
    let ip = |text: &str| Some(text.parse::<IpAddr>().unwrap());
    assert_eq!(ip_literal(&url("https://10.0.0.1:8/")), ip("10.0.0.1"));
    assert_eq!(ip_literal(&url("https://[fe80::1]/")), ip("fe80::1"));
    assert_eq!(ip_literal(&url("http://localhost/")), None);
    assert_eq!(literal_address(&url("http://localhost/")), ip("127.0.0.1"));
    assert_eq!(literal_address(&url("https://[::1]/")), ip("::1"));
    assert_eq!(literal_address(&url("https://h/")), None);
}

#[test]
fn messages_omit_the_query() {
    assert_eq!(without_query(&url("https://h/a?code=x")), "https://h/a");
}

#[test]
fn resource_metadata_has_the_path_inserted_then_is_at_the_root() {
    assert_eq!(
        resource_metadata_urls(&url("https://h/public/mcp?x=1")),
        [
            "https://h/.well-known/oauth-protected-resource/public/mcp",
            "https://h/.well-known/oauth-protected-resource",
        ]
    );
    assert_eq!(
        resource_metadata_urls(&url("https://h/")),
        ["https://h/.well-known/oauth-protected-resource"]
    );
}

#[test]
fn issuer_metadata_follows_the_order_of_the_specification() {
    assert_eq!(
        issuer_metadata_urls(&url("https://h/tenant1")),
        [
            "https://h/.well-known/oauth-authorization-server/tenant1",
            "https://h/.well-known/openid-configuration/tenant1",
            "https://h/tenant1/.well-known/openid-configuration",
        ]
    );
    assert_eq!(
        issuer_metadata_urls(&url("https://h/")),
        [
            "https://h/.well-known/oauth-authorization-server",
            "https://h/.well-known/openid-configuration",
        ]
    );
}

#[test]
fn query_parameters_are_encoded_and_appended() {
    let pairs = [("scope", "a b"), ("state", "x&y")];
    assert_eq!(
        append_query("https://h/a", &pairs),
        "https://h/a?scope=a+b&state=x%26y"
    );
    assert_eq!(
        append_query("https://h/a?p=1", &pairs),
        "https://h/a?p=1&scope=a+b&state=x%26y"
    );
    assert_eq!(
        append_query("https://h/a?", &[("b", "1")]),
        "https://h/a?b=1"
    );
    assert_eq!(append_query("https://h/a", &[]), "https://h/a");
}

#[test]
fn a_resource_covers_its_own_path_and_those_below() {
    let server = url("https://h/team/mcp");
    for resource in [
        "https://h/team/mcp",
        "https://h/team/mcp/",
        "https://H:443/team/",
        "https://h",
    ] {
        assert!(resource_covers(&url(resource), &server), "{resource}");
    }
}

#[test]
fn a_resource_covers_no_sibling_child_or_other_origin() {
    let server = url("https://h/team/mcp");
    for resource in [
        "https://h/team/mc",
        "https://h/team/mcp/child",
        "https://h/other",
        "https://h:8443/team/mcp",
        "http://h/team/mcp",
        "https://h.example/team/mcp",
        "https://h/team/mcp?tenant=2",
        "https://h/team/mcp/..",
        "https://h/team/%2E%2e/team/mcp",
    ] {
        assert!(!resource_covers(&url(resource), &server), "{resource}");
    }
    let dots = url("https://h/team/../admin");
    assert!(!resource_covers(&url("https://h/team"), &dots));
}

#[test]
fn a_location_is_absolute_or_a_path_of_the_origin() {
    let base = url("https://h/a/b");
    let resolve = |location| resolve_location(&base, location).map(|url| url.to_string());
    assert_eq!(resolve("/c?d=1"), Ok("https://h/c?d=1".to_owned()));
    assert_eq!(resolve("https://i/c"), Ok("https://i/c".to_owned()));
    assert_eq!(resolve("//evil.example/c"), Err(UrlError::NotHttp));
    assert_eq!(resolve("http://i/c"), Err(UrlError::NotSecure));
    assert_eq!(resolve("javascript:alert(1)"), Err(UrlError::NotHttp));
}

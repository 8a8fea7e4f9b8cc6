//! The keys of authorization.

use std::time::Duration;

use serde_json::json;

use crate::Transport;
use crate::api::transport::TransportKind;
use crate::auth::mcpvisor_auth::Secret;
use crate::auth::{AuthConfig, AuthGrant, DpopMode, IdentityProviderConfig, StoreChoice};
use crate::config::{Arguments, Config, ConfigSource, Review, Severity};

fn read(entry: &serde_json::Value) -> Config {
    let text = json!({ "mcpServers": { "a": entry } }).to_string();
    Config::from_json(&text, |name| (name == "SCOPE").then(|| "read".to_owned())).unwrap()
}

fn auth(entry: &serde_json::Value) -> AuthConfig {
    let config = read(entry);
    assert_eq!(config.problems, [], "{entry}");
    auth_of(&config)
}

fn auth_of(config: &Config) -> AuthConfig {
    match &config.servers[0].transport.0 {
        TransportKind::Http(endpoint) => (*endpoint.auth).clone(),
        _ => unreachable!("a server over HTTP"),
    }
}

fn messages(entry: &serde_json::Value) -> Vec<(Severity, String)> {
    let problems = read(entry).problems.into_iter();
    problems.map(|it| (it.severity, it.message)).collect()
}

/// An entry with every key.
fn whole() -> serde_json::Value {
    json!({ "type": "http", "url": "https://example.com/mcp", "auth": {
        "account": "work", "grant": "enterprise", "clientId": "app",
        "clientSecretEnvVar": "APP_SECRET", "privateKeyFile": "/keys/app.pem",
        "clientMetadataUrl": "https://example.com/client.json", "scopes": ["read", "write"],
        "resource": "", "issuer": "https://login.example.com",
        "issuerException": "https://login.example.com/", "callbackPort": 8123,
        "redirectUri": "http://localhost:8123/callback", "dpop": "never",
        "idp": { "issuer": "https://idp.example.com", "tokenEndpoint": "https://idp.example.com/token",
                 "clientId": "app-idp", "idTokenEnvVar": "ID_TOKEN" },
        "headersHelper": ["get-headers", "--json"], "headersHelperTtl": "1m",
    } })
}

#[test]
fn every_key_of_authorization_is_read_and_written() {
    let mut idp = IdentityProviderConfig {
        issuer: "https://idp.example.com".to_owned(),
        client_id: "app-idp".to_owned(),
        id_token_env: "ID_TOKEN".to_owned(),
        ..IdentityProviderConfig::default()
    };
    idp.token_endpoint = Some("https://idp.example.com/token".to_owned());
    let expected = AuthConfig {
        account: Some("work".to_owned()),
        grant: AuthGrant::Enterprise,
        client_id: Some("app".to_owned()),
        client_secret_env: Some("APP_SECRET".to_owned()),
        private_key_file: Some("/keys/app.pem".into()),
        client_metadata_url: Some("https://example.com/client.json".to_owned()),
        scopes: Some(vec!["read".to_owned(), "write".to_owned()]),
        resource: Some(String::new()),
        issuer: Some("https://login.example.com".to_owned()),
        issuer_exception: Some("https://login.example.com/".to_owned()),
        callback_port: Some(8123),
        redirect_uri: Some("http://localhost:8123/callback".to_owned()),
        dpop: DpopMode::Never,
        idp: Some(idp),
        headers_helper: Some(vec!["get-headers".to_owned(), "--json".to_owned()]),
        headers_helper_ttl: Some(Duration::from_secs(60)),
        ..AuthConfig::default()
    };
    assert_eq!(auth(&whole()), expected);

    let server = &read(&whole()).servers[0];
    assert_eq!(server.to_json(Arguments::Shown), Some(whole()));
    let hidden = server.to_json(Arguments::Hidden).unwrap();
    let helper = &hidden["auth"]["headersHelper"];
    assert_eq!(*helper, json!(["get-headers", "${A_HELPER_ARG_1}"]));
}

#[test]
fn authorization_is_read_as_other_clients_write_it() {
    let url = "https://example.com/mcp";
    let mut expected = AuthConfig {
        client_id: Some("app".to_owned()),
        callback_port: Some(8123),
        scopes: Some(vec!["read".to_owned(), "write".to_owned()]),
        ..AuthConfig::default()
    };
    let claude = json!({ "url": url, "oauth": {
        "clientId": "app", "callbackPort": 8123, "scopes": "read  write" } });
    assert_eq!(auth(&claude), expected);
    let mut codex = json!({ "url": url, "scopes": ["${SCOPE}", "write"],
        "oauth": { "client_id": "app", "callback_port": 8123 } });
    assert_eq!(auth(&codex), expected);
    codex["oauth_resource"] = "https://example.com/".into();
    expected.resource = Some("https://example.com/".to_owned());
    assert_eq!(auth(&codex), expected);
    let opencode = json!({ "url": url, "oauth": {
        "clientId": "app", "clientSecret": "canary-1", "scope": "read" } });
    assert_eq!(auth(&opencode).client_secret, Some(Secret::new("canary-1")));
    let helper = json!({ "url": url, "headersHelper": ["get-headers"] });
    assert_eq!(
        auth(&helper).headers_helper,
        Some(vec!["get-headers".to_owned()])
    );
    for plain in [
        json!({ "auth": "oauth" }),
        json!({ "oauth": true }),
        json!({ "oauth": {} }),
    ] {
        let mut entry = plain;
        entry["url"] = url.into();
        assert_eq!(auth(&entry), AuthConfig::default(), "{entry}");
    }
}

#[test]
fn one_key_in_two_spellings_warns() {
    let entry = json!({ "url": "https://example.com/mcp",
        "auth": { "clientId": "a" }, "oauth": { "client_id": "b" } });
    let message = "\"oauth.client_id\" means the same as \"auth.clientId\"; the last one is used";
    assert_eq!(messages(&entry), [(Severity::Warning, message.to_owned())]);
    let entry = json!({ "url": "https://example.com/mcp", "auth": { "clientID": "a" } });
    let message = "unknown key \"auth.clientID\" is ignored; did you mean \"auth.clientId\"?";
    assert_eq!(messages(&entry), [(Severity::Warning, message.to_owned())]);
}

#[test]
fn invalid_authorization_says_what_to_write() {
    for (auth, expected) in [
        (
            json!("canary-1"),
            "\"auth\" must be an object; a token is written as \"bearerTokenEnvVar\" or in \"headers\"",
        ),
        (
            json!({ "grant": "password" }),
            "\"auth.grant\" must be one of \"authorization_code\", \"device_code\", \"client_credentials\", \"jwt_bearer\", \"enterprise\"",
        ),
        (
            json!({ "grant": "client_credentials" }),
            "\"auth.grant\" is \"client_credentials\", which needs \"clientId\"",
        ),
        (
            json!({ "grant": "client_credentials", "clientId": "a" }),
            "\"auth.grant\" is \"client_credentials\", which needs \"clientSecretEnvVar\" or \"privateKeyFile\"",
        ),
        (
            json!({ "grant": "jwt_bearer" }),
            "\"auth.grant\" is \"jwt_bearer\", which needs \"clientSecretEnvVar\", the variable that holds the assertion",
        ),
        (
            json!({ "grant": "enterprise" }),
            "\"auth.grant\" is \"enterprise\", which needs \"idp\" with \"issuer\", \"clientId\" and \"idTokenEnvVar\"",
        ),
        (
            json!({ "scopes": 5 }),
            "\"auth.scopes\" must be a list of scopes, or one string with spaces between them",
        ),
        (
            json!({ "callbackPort": 0 }),
            "\"auth.callbackPort\" must be a port from 1 to 65535, without quotes",
        ),
        (
            json!({ "callbackPort": 65536 }),
            "\"auth.callbackPort\" must be a port from 1 to 65535, without quotes",
        ),
        (
            json!({ "issuer": "login" }),
            "\"auth.issuer\" must be an address that begins with http:// or https://",
        ),
        (
            json!({ "redirectUri": "javascript:x" }),
            "\"auth.redirectUri\" must be an address that begins with http:// or https://",
        ),
        (
            json!({ "clientMetadataUrl": "http://example.com/" }),
            "\"auth.clientMetadataUrl\" must be an address that begins with https://",
        ),
        (
            json!({ "headersHelper": "canary-1 | sh" }),
            "\"auth.headersHelper\" must be a list of the program and its arguments, such as [\"/usr/bin/get-token\", \"--json\"]; it runs without a shell",
        ),
        (
            json!({ "headersHelper": ["x"], "headersHelperTtl": "0s" }),
            "\"auth.headersHelperTtl\" must be longer than 0; leave it out for the default",
        ),
        (
            json!({ "account": "" }),
            "\"auth.account\" must not be empty; leave it out for the only account",
        ),
        (
            json!({ "idp": { "tokenEndpoint": "x" } }),
            "\"auth.idp.issuer\" must be an address that begins with http:// or https://",
        ),
    ] {
        let entry = json!({ "url": "https://example.com/mcp", "auth": auth });
        assert_eq!(
            messages(&entry),
            [(Severity::Excluded, expected.to_owned())]
        );
    }
}

#[test]
fn authorization_without_effect_warns() {
    let warning = |message: &str| (Severity::Warning, message.to_owned());
    let entry = json!({ "command": "x", "auth": { "clientId": "a" }, "headersHelper": ["x"] });
    let mut found = messages(&entry);
    found.sort_by(|one, other| one.1.cmp(&other.1));
    assert_eq!(
        found,
        [
            warning("\"auth\" is ignored: it does not apply to stdio"),
            warning("\"headersHelper\" is ignored: it does not apply to stdio"),
        ]
    );
    let entry = json!({ "url": "https://example.com/mcp", "headers": { "authorization": "x" },
        "auth": { "clientId": "a" } });
    let message = "\"auth\" is ignored: the entry has a credential already";
    assert_eq!(messages(&entry), [warning(message)]);
    let entry = json!({ "url": "https://example.com/mcp", "oauth": false });
    let message = "\"oauth\" is ignored: a server is authorized only if it requires it";
    assert_eq!(messages(&entry), [warning(message)]);
    let entry = json!({ "url": "https://example.com/mcp", "auth": { "clientSecretEnvVar": "s3cr3t-canary" } });
    let message = "\"auth.clientSecretEnvVar\" must be the name of a variable that is set, not the secret itself";
    assert_eq!(messages(&entry), [warning(message)]);
    let written = read(&entry).servers[0].to_json(Arguments::Shown).unwrap();
    assert_eq!(written["auth"]["clientSecretEnvVar"], "***");
}

#[test]
fn the_store_is_chosen_at_the_top() {
    let with = |store: serde_json::Value| {
        let text = json!({ "mcpServers": {}, "authStore": store }).to_string();
        Config::from_json(&text, |_| None)
    };
    for (store, expected) in [
        (json!("auto"), Some(StoreChoice::Auto)),
        (json!("keyring"), Some(StoreChoice::Keyring)),
        (json!("file"), Some(StoreChoice::File)),
        (json!(null), None),
    ] {
        let config = with(store.clone()).unwrap();
        assert_eq!(config.auth_store, expected);
        assert_eq!(config.problems, []);
        assert_eq!(config.to_json(Arguments::Shown)["authStore"], store);
    }
    let problem = with(json!("disk")).unwrap_err().to_string();
    let expected = "\"authStore\" must be one of \"auto\", \"keyring\", \"file\"";
    assert!(problem.contains(expected), "{problem}");
    let text = json!({ "mcpServers": {}, "authstore": "file" }).to_string();
    let config = Config::from_json(&text, |_| None).unwrap();
    let message = "\"authstore\" is ignored; did you mean \"authStore\"?";
    assert_eq!(config.problems[0].message, message);
}

#[test]
fn the_secret_of_a_client_is_shown_nowhere() {
    let entry = json!({ "url": "https://example.com/mcp", "oauth": {
        "clientId": "app", "clientSecret": "canary-1" } });
    let config = read(&entry);
    let endpoint = Transport::http("https://example.com/mcp").auth(auth_of(&config));
    let secrets = endpoint.secrets(|_| None);
    assert_eq!(secrets.redact("the secret canary-1"), "the secret ***");
    let written = config.to_json(Arguments::Shown);
    let auth = &written["mcpServers"]["a"]["auth"];
    assert_eq!(
        *auth,
        json!({ "clientId": "app", "clientSecret": "${A_CLIENT_SECRET}" })
    );
    let broken = json!({ "mcpServers": { "a": { "url": "https://example.com/mcp",
        "oauth": { "clientSecret": "canary-1", "callbackPort": "canary-2" } } } });
    let config = Config::from_json(&broken.to_string(), |_| None).unwrap();
    let shown = format!("{config:?} {:?} {}", config.servers, config.problems[0]);
    assert!(!shown.contains("canary"), "{shown}");
}

#[test]
fn a_review_shows_what_authorization_runs_and_reads() {
    let text = json!({ "mcpServers": { "a": whole() } }).to_string();
    let review = Review::of(&ConfigSource::new("mcp.json", text)).unwrap();
    let facts = &review.servers[0].facts;
    let facts: Vec<(&str, &str)> = facts.iter().map(|it| (&*it.label, &*it.value)).collect();
    assert_eq!(
        facts,
        [
            ("url", "https://example.com/mcp"),
            ("runs", "get-headers --json"),
            ("issuer", "https://login.example.com"),
            ("secret in", "APP_SECRET"),
            ("key in", "/keys/app.pem"),
            ("idp", "https://idp.example.com/token"),
            ("id token in", "ID_TOKEN"),
        ]
    );
    let of = |words: serde_json::Value| {
        let entry = json!({ "url": "https://example.com/mcp", "headersHelper": words });
        let text = json!({ "mcpServers": { "a": entry } }).to_string();
        let review = Review::of(&ConfigSource::new("mcp.json", text)).unwrap();
        review.servers.into_iter().next().unwrap()
    };
    let (one, other) = (
        of(json!(["x", "--token", "a"])),
        of(json!(["x", "--token", "b"])),
    );
    assert_eq!(one.fact("runs"), Some("x --token ***"));
    assert!(other.changed_unseen(&one).any(|key| key == "runs"));
}

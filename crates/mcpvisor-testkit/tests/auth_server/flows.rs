//! Metadata, registration, and each grant.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use mcpvisor_testkit::auth_server::{
    AuthFault, AuthMethod, AuthOptions, AuthServer, AuthorizeMode, Client, ClientAuth, Endpoint,
    IssuerHost, MetadataLocation, ResourceRule,
};
use serde_json::{Value, json};

use crate::plain_client::{
    CALLBACK, CLIENT, VERIFIER, authorize, code, get, login, post, post_json, redeem, server, text,
    try_post,
};

fn origin(auth: &AuthServer) -> String {
    format!("http://{}", auth.address())
}

#[tokio::test]
async fn metadata_are_served_where_the_options_say() {
    let options = AuthOptions {
        path: "/tenant".to_owned(),
        host: IssuerHost::Localhost,
        metadata: vec![MetadataLocation::OidcAppended],
        ..AuthOptions::default()
    };
    let auth = AuthServer::start_with(options).await;
    let port = auth.address().port();
    assert_eq!(auth.issuer(), format!("http://localhost:{port}/tenant"));
    let oidc = "/tenant/.well-known/openid-configuration";
    let inserted = "/.well-known/openid-configuration/tenant";
    let oauth = "/.well-known/oauth-authorization-server/tenant";
    for (location, path) in [
        (MetadataLocation::OidcAppended, oidc),
        (MetadataLocation::OidcInserted, inserted),
        (MetadataLocation::OAuth, oauth),
    ] {
        auth.configure(|options| options.metadata = vec![location]);
        for other in [oidc, inserted, oauth] {
            let reply = get(&format!("{}{other}", origin(&auth))).await;
            assert_eq!(reply.status == 200, other == path, "{other}");
        }
    }
    let document = get(&format!("{}{oauth}", origin(&auth))).await.json();
    assert_eq!(document["issuer"], auth.issuer());
    assert_eq!(document["token_endpoint"], auth.url(Endpoint::Token));
    assert_eq!(
        document["code_challenge_methods_supported"],
        json!(["S256"])
    );
}

#[tokio::test]
async fn a_registered_client_logs_in_with_a_code() {
    let auth = AuthServer::start().await;
    let asked = json!({ "redirect_uris": [CALLBACK], "token_endpoint_auth_method": "none" });
    let reply = post_json(&auth.url(Endpoint::Register), &asked).await;
    assert_eq!(reply.status, 201);
    let id = text(&reply.json(), "client_id");
    assert!(reply.json()["client_secret"].is_null());

    let callback = authorize(&auth, &[("client_id", &id), ("scope", "mcp mcp:write")]).await;
    let callback = callback.callback();
    assert_eq!(callback.get("state"), Some("a state"));
    assert_eq!(callback.get("iss"), Some(auth.issuer().as_str()));
    let form = [
        ("grant_type", "authorization_code"),
        ("client_id", &id),
        ("code", callback.get("code").unwrap()),
        ("redirect_uri", CALLBACK),
        ("code_verifier", VERIFIER),
    ];
    let tokens = post(&auth.url(Endpoint::Token), &form).await.json();
    assert_eq!(tokens["token_type"], "Bearer");
    assert_eq!(tokens["expires_in"], 3600);
    assert_eq!(tokens["scope"], "mcp mcp:write");
    let info = auth.introspect(&text(&tokens, "access_token")).unwrap();
    assert_eq!(
        (info.client_id.as_str(), info.account.as_str()),
        (id.as_str(), "alice")
    );

    assert_eq!(auth.prune_clients(), 1);
    let unknown = authorize(&auth, &[("client_id", &id)]).await;
    assert_eq!(unknown.status, 400);
}

#[tokio::test]
async fn a_confidential_client_must_use_its_own_method() {
    let auth = AuthServer::start().await;
    let asked = json!({ "redirect_uris": [CALLBACK] });
    let client = post_json(&auth.url(Endpoint::Register), &asked)
        .await
        .json();
    let (id, secret) = (text(&client, "client_id"), text(&client, "client_secret"));
    let basic = format!("Basic {}", STANDARD.encode(format!("{id}:{secret}")));
    let grant = ("grant_type", "client_credentials");
    let url = auth.url(Endpoint::Token);

    let accepted = try_post(&url, &basic, &[grant]).await.unwrap();
    assert_eq!(accepted.status, 200, "{accepted:?}");
    assert!(accepted.json()["refresh_token"].is_null());
    let in_body = [grant, ("client_id", &id), ("client_secret", &secret)];
    let refused = post(&url, &in_body).await;
    assert_eq!(
        (refused.status, text(&refused.json(), "error").as_str()),
        (401, "invalid_client")
    );
    let requests = auth.requests_to(Endpoint::Token);
    assert_eq!(
        requests[0].client_auth,
        ClientAuth::Basic {
            id: id.clone(),
            secret: secret.clone()
        }
    );
    assert_eq!(requests[1].client_auth, ClientAuth::Post { id, secret });
    assert_eq!(requests[1].status, Some(401));

    let client = Client::confidential("poster", "s&=%+ ", AuthMethod::Post, CALLBACK);
    auth.add_client(client);
    let form = [grant, ("client_id", "poster"), ("client_secret", "s&=%+ ")];
    assert_eq!(post(&url, &form).await.status, 200);
}

#[tokio::test]
async fn a_client_secret_can_expire() {
    let auth = AuthServer::start().await;
    let asked =
        json!({ "redirect_uris": [CALLBACK], "token_endpoint_auth_method": "client_secret_post" });
    for (lifetime, status) in [(3600, 200), (0, 401)] {
        auth.configure(|options| {
            options.client_secret_lifetime = Some(Duration::from_secs(lifetime));
        });
        let client = post_json(&auth.url(Endpoint::Register), &asked)
            .await
            .json();
        assert!(client["client_secret_expires_at"].as_u64().unwrap() > 0);
        let (id, secret) = (text(&client, "client_id"), text(&client, "client_secret"));
        let form = [
            ("grant_type", "client_credentials"),
            ("client_id", &id),
            ("client_secret", &secret),
        ];
        let reply = post(&auth.url(Endpoint::Token), &form).await;
        assert_eq!(reply.status, status, "{reply:?}");
    }
}

#[tokio::test]
async fn a_wrong_verifier_redeems_nothing() {
    let auth = server().await;
    let code = code(&auth, &[]).await;
    let form = [
        ("grant_type", "authorization_code"),
        ("client_id", CLIENT),
        ("code", &code),
        ("redirect_uri", CALLBACK),
        ("code_verifier", "another verifier"),
    ];
    let refused = post(&auth.url(Endpoint::Token), &form).await;
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json()["error"], "invalid_grant");
    assert_eq!(auth.counters().access_issued, 0);
}

#[tokio::test]
async fn a_code_used_twice_revokes_the_tokens_of_the_first_use() {
    let auth = server().await;
    let code = code(&auth, &[]).await;
    let tokens = redeem(&auth, &code).await.json();
    assert_eq!(redeem(&auth, &code).await.json()["error"], "invalid_grant");
    assert!(auth.introspect(&text(&tokens, "access_token")).is_err());
    assert_eq!(auth.counters().families_revoked, 1);
}

#[tokio::test]
async fn invalid_authorization_requests_get_no_code() {
    let auth = server().await;
    auth.configure(|options| options.resource = ResourceRule::Refused);
    for change in [
        ("client_id", "unknown"),
        ("redirect_uri", "http://127.0.0.1:1/"),
    ] {
        assert_eq!(authorize(&auth, &[change]).await.status, 400, "{change:?}");
    }
    for (change, error) in [
        (("state", ""), "invalid_request"),
        (("code_challenge", ""), "invalid_request"),
        (("code_challenge_method", "plain"), "invalid_request"),
        (("response_type", "token"), "unsupported_response_type"),
        (("scope", "root"), "invalid_scope"),
        (("resource", "http://127.0.0.1/mcp"), "invalid_target"),
    ] {
        let callback = authorize(&auth, &[change]).await.callback();
        assert_eq!(callback.get("error"), Some(error), "{change:?}");
        assert_eq!(callback.get("code"), None);
    }
    auth.configure(|options| options.any_loopback_port = true);
    let moved = ("redirect_uri", "http://127.0.0.1:9/callback");
    assert_eq!(authorize(&auth, &[moved]).await.status, 302);
}

#[tokio::test]
async fn a_client_with_a_metadata_document_needs_no_registration() {
    let auth = AuthServer::start().await;
    let id = ("client_id", "https://client.example/metadata.json");
    assert_eq!(authorize(&auth, &[id]).await.status, 400);
    auth.configure(|options| options.client_metadata_documents = true);
    assert!(
        authorize(&auth, &[id])
            .await
            .callback()
            .get("code")
            .is_some()
    );
}

#[tokio::test]
async fn the_page_asks_before_it_redirects() {
    let auth = server().await;
    auth.configure(|options| options.mode = AuthorizeMode::Page);
    for (decision, parameter) in [("approve", "code"), ("deny", "error")] {
        let page = authorize(&auth, &[]).await;
        assert_eq!(page.status, 200);
        assert!(page.body.contains("id=\"approve\"") && page.body.contains("id=\"deny\""));
        let (_, rest) = page.body.split_once("name=\"request\" value=\"").unwrap();
        let request = rest.split('"').next().unwrap();
        let form = [("request", request), ("decision", decision)];
        let callback = post(&auth.url(Endpoint::Decision), &form).await.callback();
        assert!(callback.get(parameter).is_some(), "{callback:?}");
        assert_eq!(callback.get("state"), Some("a state"));
        let again = post(&auth.url(Endpoint::Decision), &form).await;
        assert_eq!(again.status, 400);
    }
}

#[tokio::test]
async fn a_fault_of_the_callback_outlives_the_page() {
    let auth = server().await;
    auth.configure(|options| options.mode = AuthorizeMode::Page);
    auth.fault(AuthFault::NoIss).once();
    let page = authorize(&auth, &[]).await;
    let (_, rest) = page.body.split_once("name=\"request\" value=\"").unwrap();
    let request = rest.split('"').next().unwrap();
    let form = [("request", request), ("decision", "approve")];
    let callback = post(&auth.url(Endpoint::Decision), &form).await.callback();
    assert!(callback.get("code").is_some());
    assert_eq!(callback.get("iss"), None);
}

const DEVICE: &str = "urn:ietf:params:oauth:grant-type:device_code";

#[tokio::test]
async fn a_device_polls_until_its_user_decides() {
    let auth = server().await;
    auth.configure(|options| options.device_interval = 0);
    let url = auth.url(Endpoint::Token);
    for approved in [true, false] {
        let start = auth.url(Endpoint::DeviceAuthorization);
        let device = post(&start, &[("client_id", CLIENT)]).await.json();
        let code = text(&device, "device_code");
        let user_code = text(&device, "user_code");
        let form = [
            ("grant_type", DEVICE),
            ("client_id", CLIENT),
            ("device_code", &code),
        ];
        assert_eq!(
            post(&url, &form).await.json()["error"],
            "authorization_pending"
        );
        assert!(auth.user_codes().contains(&user_code));
        if approved {
            assert!(auth.approve_device(&user_code));
            assert!(post(&url, &form).await.json()["refresh_token"].is_string());
        } else {
            let decision = [("user_code", user_code.as_str()), ("decision", "deny")];
            let page = post(&auth.url(Endpoint::DevicePage), &decision).await;
            assert_eq!(page.status, 200);
            assert_eq!(post(&url, &form).await.json()["error"], "access_denied");
        }
    }
    assert!(!auth.approve_device("TEST-9999"));
}

#[tokio::test]
async fn a_device_that_polls_too_fast_must_slow_down() {
    let auth = server().await;
    auth.configure(|options| options.device_interval = 60);
    let start = auth.url(Endpoint::DeviceAuthorization);
    let device = post(&start, &[("client_id", CLIENT)]).await.json();
    let code = text(&device, "device_code");
    let form = [
        ("grant_type", DEVICE),
        ("client_id", CLIENT),
        ("device_code", &code),
    ];
    let url = auth.url(Endpoint::Token);
    assert_eq!(
        post(&url, &form).await.json()["error"],
        "authorization_pending"
    );
    assert_eq!(post(&url, &form).await.json()["error"], "slow_down");
}

fn jwt(claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.c2ln", part(&json!({ "alg": "ES256" })), part(claims))
}

/// A time far in the future, in seconds since 1970.
const LATER: u64 = 9_000_000_000;

#[tokio::test]
async fn a_client_assertion_must_name_client_and_audience() {
    let auth = AuthServer::start().await;
    let mut client = Client::public("signer", CALLBACK);
    client.method = AuthMethod::PrivateKeyJwt;
    auth.add_client(client);
    let claims = json!({ "iss": "signer", "sub": "signer", "aud": auth.issuer(), "exp": LATER });
    let mut other = claims.clone();
    other["aud"] = json!("https://other.example");
    let mut expired = claims.clone();
    expired["exp"] = json!(1);
    for (claims, status) in [(claims, 200), (other, 401), (expired, 401)] {
        let assertion = jwt(&claims);
        let form = [
            ("grant_type", "client_credentials"),
            (
                "client_assertion_type",
                "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
            ),
            ("client_assertion", &assertion),
        ];
        let reply = post(&auth.url(Endpoint::Token), &form).await;
        assert_eq!(reply.status, status, "{reply:?}");
    }
}

#[tokio::test]
async fn an_id_token_becomes_an_id_jag_and_then_an_access_token() {
    let (idp, auth) = (server().await, server().await);
    let id_token = jwt(&json!({ "sub": "bob", "exp": LATER }));
    let issuer = auth.issuer();
    let form = [
        (
            "grant_type",
            "urn:ietf:params:oauth:grant-type:token-exchange",
        ),
        ("client_id", CLIENT),
        ("subject_token", &id_token),
        (
            "subject_token_type",
            "urn:ietf:params:oauth:token-type:id_token",
        ),
        (
            "requested_token_type",
            "urn:ietf:params:oauth:token-type:id-jag",
        ),
        ("audience", &issuer),
    ];
    let exchanged = post(&idp.url(Endpoint::Token), &form).await.json();
    assert_eq!(exchanged["token_type"], "N_A");
    let jag = text(&exchanged, "access_token");
    let form = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
        ("client_id", CLIENT),
        ("assertion", &jag),
    ];
    let tokens = post(&auth.url(Endpoint::Token), &form).await.json();
    let info = auth.introspect(&text(&tokens, "access_token")).unwrap();
    assert_eq!(info.account, "bob");
    let wrong = post(&idp.url(Endpoint::Token), &form).await.json();
    assert_eq!(wrong["error"], "invalid_grant");
}

#[tokio::test]
async fn a_stopped_server_resumes_with_its_tokens() {
    let auth = server().await;
    let tokens = login(&auth).await;
    auth.stop().await;
    let form = [("grant_type", "refresh_token")];
    assert!(
        try_post(&auth.url(Endpoint::Token), "", &form)
            .await
            .is_err()
    );
    auth.resume().await;
    assert!(auth.introspect(&text(&tokens, "access_token")).is_ok());
    assert_eq!(post(&auth.url(Endpoint::Token), &form).await.status, 401);
}

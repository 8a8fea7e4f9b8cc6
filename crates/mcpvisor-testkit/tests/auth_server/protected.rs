//! The MCP server behind tokens: challenges, metadata, audiences and scopes.

use mcpvisor_testkit::auth_server::{
    AuthFault, AuthServer, Endpoint, ProtectedOptions, ProtectedServer, ResourceMetadataLocation,
};
use mcpvisor_testkit::http_server::HttpOptions;
use serde_json::json;

use crate::plain_client::{CLIENT, call, get, server, text};

/// A protected server without sessions.
async fn protected(
    auth: &AuthServer,
    change: impl FnOnce(&mut ProtectedOptions),
) -> ProtectedServer {
    let mut options = ProtectedOptions {
        http: HttpOptions::without_sessions(),
        ..ProtectedOptions::default()
    };
    change(&mut options);
    ProtectedServer::start_with(auth, options).await
}

fn token(auth: &AuthServer, server: &ProtectedServer, scopes: &[&str]) -> String {
    auth.issue_tokens(CLIENT, scopes, Some(&server.resource()))
        .0
}

#[tokio::test]
async fn a_call_without_a_valid_token_is_challenged_and_runs_nothing() {
    let auth = server().await;
    let server = protected(&auth, |_| {}).await;
    let run = json!({ "key": "k" });
    let metadata = format!(
        "resource_metadata=\"http://{}/.well-known/oauth-protected-resource/mcp\", scope=\"mcp\"",
        server.address()
    );
    let missing = call(&server.url(), "", "run", run.clone()).await;
    assert_eq!(missing.status, 401);
    let challenge = missing.header("www-authenticate").unwrap();
    assert_eq!(challenge, format!("Bearer {metadata}"));

    let valid = token(&auth, &server, &["mcp"]);
    let (foreign, _) = auth.issue_tokens(CLIENT, &["mcp"], Some("http://127.0.0.1:1/mcp"));
    let (nobodys, _) = auth.issue_tokens(CLIENT, &["mcp"], None);
    for refused in ["made-up", &foreign, &nobodys] {
        let reply = call(&server.url(), refused, "run", run.clone()).await;
        assert_eq!(reply.status, 401);
        let challenge = reply.header("www-authenticate").unwrap();
        assert_eq!(
            challenge,
            format!("Bearer error=\"invalid_token\", {metadata}")
        );
    }
    assert_eq!((server.runs("k"), server.unauthorized()), (0, 4));

    assert_eq!(
        call(&server.url(), &valid, "run", run.clone()).await.status,
        200
    );
    auth.expire_access_tokens();
    assert_eq!(call(&server.url(), &valid, "run", run).await.status, 401);
    assert_eq!((server.runs("k"), server.accepted()), (1, 1));
}

#[tokio::test]
async fn a_tool_that_needs_more_scopes_is_forbidden() {
    let auth = server().await;
    let server = protected(&auth, |_| {}).await;
    server.require_for_tool("run", &["mcp:write"]);
    let run = json!({ "key": "k" });
    let little = token(&auth, &server, &["mcp"]);
    let refused = call(&server.url(), &little, "run", run.clone()).await;
    assert_eq!(refused.status, 403);
    let challenge = refused.header("www-authenticate").unwrap();
    assert!(
        challenge.contains("error=\"insufficient_scope\""),
        "{challenge}"
    );
    assert!(challenge.contains("scope=\"mcp mcp:write\""), "{challenge}");
    assert_eq!(
        call(&server.url(), &little, "echo", json!({})).await.status,
        200
    );
    let enough = token(&auth, &server, &["mcp", "mcp:write"]);
    assert_eq!(call(&server.url(), &enough, "run", run).await.status, 200);
    assert_eq!((server.runs("k"), server.forbidden()), (1, 1));
}

#[tokio::test]
async fn its_metadata_are_where_the_options_say() {
    use ResourceMetadataLocation::{Challenge, Path, Root};
    let auth = server().await;
    let server = protected(&auth, |_| {}).await;
    let origin = format!("http://{}", server.address());
    let path = "/.well-known/oauth-protected-resource/mcp";
    let root = "/.well-known/oauth-protected-resource";
    for (locations, served, named) in [
        (vec![Challenge], "/metadata", true),
        (vec![Path], path, false),
        (vec![Root], root, false),
        (vec![Root, Challenge], root, true),
    ] {
        server.configure(|options| options.metadata = locations);
        for other in [path, root, "/metadata"] {
            let reply = get(&format!("{origin}{other}")).await;
            assert_eq!(reply.status == 200, other == served, "{other}");
        }
        let refused = call(&server.url(), "", "echo", json!({})).await;
        let challenge = refused.header("www-authenticate").unwrap();
        let url = format!("resource_metadata=\"{origin}{served}\"");
        assert_eq!(challenge.contains(&url), named, "{challenge}");
    }
    let document = get(&format!("{origin}{root}")).await.json();
    assert_eq!(document["resource"], server.url());
    assert_eq!(document["authorization_servers"], json!([auth.issuer()]));
    assert!(auth.count(Endpoint::ResourceMetadata) > 0);
}

#[tokio::test]
async fn its_metadata_can_name_another_resource_or_issuer() {
    let auth = server().await;
    let server = protected(&auth, |_| {}).await;
    let url = format!(
        "http://{}/.well-known/oauth-protected-resource/mcp",
        server.address()
    );
    auth.fault(AuthFault::WrongResource).once();
    assert_ne!(get(&url).await.json()["resource"], server.url());
    auth.fault(AuthFault::OtherIssuer("http://127.0.0.1:1".to_owned()))
        .once();
    let document = get(&url).await.json();
    assert_eq!(
        document["authorization_servers"],
        json!(["http://127.0.0.1:1"])
    );
    auth.fault(AuthFault::RedirectLoop)
        .on(Endpoint::ResourceMetadata)
        .once();
    assert_eq!(get(&url).await.status, 307);
}

#[tokio::test]
async fn a_migrated_server_accepts_only_tokens_of_its_new_issuer() {
    let (old, new) = (server().await, server().await);
    let server = protected(&old, |_| {}).await;
    let before = token(&old, &server, &["mcp"]);
    server.migrate_to(&new);
    assert_eq!(
        call(&server.url(), &before, "echo", json!({})).await.status,
        401
    );
    let after = token(&new, &server, &["mcp"]);
    assert_eq!(
        call(&server.url(), &after, "echo", json!({})).await.status,
        200
    );
    let refused = call(&server.url(), "", "echo", json!({})).await;
    let challenge = refused.header("www-authenticate").unwrap();
    let url = challenge.split('"').nth(1).unwrap();
    let document = get(url).await.json();
    assert_eq!(document["authorization_servers"], json!([new.issuer()]));
}

#[tokio::test]
async fn even_fresh_tokens_can_be_refused() {
    let auth = server().await;
    let server = protected(&auth, |_| {}).await;
    let token = token(&auth, &server, &["mcp"]);
    auth.fault(AuthFault::RefuseTokens).times(2);
    for status in [401, 401, 200] {
        assert_eq!(
            call(&server.url(), &token, "echo", json!({})).await.status,
            status
        );
    }
}

#[tokio::test]
async fn further_challenges_come_before_its_own() {
    let auth = server().await;
    let server = protected(&auth, |options| {
        options.extra_challenges = vec!["Basic realm=\"a, b\", Negotiate".to_owned()];
        options.challenge_scopes = false;
    })
    .await;
    let refused = call(&server.url(), "", "echo", json!({})).await;
    let lines = refused.head.lines();
    let challenges: Vec<&str> = lines
        .filter_map(|line| line.strip_prefix("www-authenticate: "))
        .collect();
    assert_eq!(challenges[0], "Basic realm=\"a, b\", Negotiate");
    assert!(challenges[1].starts_with("Bearer resource_metadata="));
    assert!(!challenges[1].contains("scope="));
}

#[tokio::test]
async fn open_methods_need_no_token() {
    let auth = server().await;
    let server = protected(&auth, |options| {
        options.open_methods.push("initialize".to_owned());
        options.any_audience = true;
    })
    .await;
    let params = json!({ "protocolVersion": "2025-11-25" });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
    let reply = crate::plain_client::post_json(&server.url(), &body).await;
    assert_eq!(reply.status, 200);
    assert_eq!(text(&reply.json(), "jsonrpc"), "2.0");
    let (anyones, _) = auth.issue_tokens(CLIENT, &["mcp"], None);
    assert_eq!(
        call(&server.url(), &anyones, "echo", json!({}))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn both_servers_end_when_they_are_dropped() {
    let auth = server().await;
    let server = protected(&auth, |_| {}).await;
    let addresses = [auth.address(), server.address()];
    drop((auth, server));
    for address in addresses {
        let closed = || std::net::TcpStream::connect(address).is_err();
        let deadline = std::time::Duration::from_secs(5);
        mcpvisor_testkit::eventually(deadline, "a closed port", closed).await;
    }
}

//! The life of tokens: rotation, reuse, expiry, revocation.

use std::time::Duration;

use mcpvisor_testkit::auth_server::{Endpoint, RefreshPolicy, TokenProblem};

use crate::plain_client::{CLIENT, code, login, post, redeem, refresh, server, text};

#[tokio::test]
async fn each_refresh_replaces_the_refresh_token() {
    let auth = server().await;
    let first = login(&auth).await;
    let second = refresh(&auth, &text(&first, "refresh_token")).await.json();
    let third = refresh(&auth, &text(&second, "refresh_token")).await.json();
    assert_ne!(first["access_token"], second["access_token"]);
    assert_ne!(first["refresh_token"], second["refresh_token"]);
    let valid = auth.current_tokens();
    assert_eq!(valid.access.len(), 3, "a refresh revokes no access token");
    assert_eq!(valid.refresh.len(), 1);
    assert_eq!(valid.refresh[0].0, text(&third, "refresh_token"));
    let counters = auth.counters();
    assert_eq!((counters.rotated, counters.reused), (2, 0));
    assert_eq!(auth.token_requests("refresh_token"), 2);
}

#[tokio::test]
async fn reuse_of_a_replaced_token_revokes_the_family_and_no_other() {
    let auth = server().await;
    let other = login(&auth).await;
    let first = login(&auth).await;
    let old = text(&first, "refresh_token");
    let second = refresh(&auth, &old).await.json();
    let reused = refresh(&auth, &old).await;
    assert_eq!(
        (reused.status, text(&reused.json(), "error").as_str()),
        (400, "invalid_grant")
    );
    let newest = refresh(&auth, &text(&second, "refresh_token")).await;
    assert_eq!(newest.json()["error"], "invalid_grant");
    let access = auth.introspect(&text(&second, "access_token"));
    assert_eq!(access, Err(TokenProblem::Revoked));
    let counters = auth.counters();
    assert_eq!((counters.reused, counters.families_revoked), (1, 1));
    assert_eq!(
        refresh(&auth, &text(&other, "refresh_token")).await.status,
        200
    );
}

#[tokio::test]
async fn of_two_refreshes_at_once_one_is_reuse() {
    let auth = server().await;
    let old = text(&login(&auth).await, "refresh_token");
    let (one, two) = tokio::join!(refresh(&auth, &old), refresh(&auth, &old));
    let mut statuses = [one.status, two.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 400]);
    assert_eq!(auth.counters().families_revoked, 1);
}

#[tokio::test]
async fn within_the_grace_period_reuse_is_a_repetition() {
    let auth = server().await;
    auth.configure(|options| options.reuse_grace = Duration::from_secs(60));
    let old = text(&login(&auth).await, "refresh_token");
    assert_eq!(refresh(&auth, &old).await.status, 200);
    assert_eq!(refresh(&auth, &old).await.status, 200);
    let counters = auth.counters();
    assert_eq!(
        (counters.reused_in_grace, counters.families_revoked),
        (1, 0)
    );
}

#[tokio::test]
async fn without_rotation_the_refresh_token_stays() {
    let auth = server().await;
    auth.configure(|options| options.rotate = false);
    let token = text(&login(&auth).await, "refresh_token");
    for _ in 0..2 {
        let reply = refresh(&auth, &token).await.json();
        assert!(reply["refresh_token"].is_null(), "{reply}");
    }
}

#[tokio::test]
async fn refresh_tokens_are_issued_as_the_policy_says() {
    let auth = server().await;
    auth.configure(|options| {
        options.refresh = RefreshPolicy::OfflineAccess;
        options.scopes.push("offline_access".to_owned());
    });
    for (scope, issued) in [("mcp", false), ("mcp offline_access", true)] {
        let code = code(&auth, &[("scope", scope)]).await;
        let reply = redeem(&auth, &code).await.json();
        assert_eq!(reply["refresh_token"].is_string(), issued, "{scope}");
    }
}

#[tokio::test]
async fn access_tokens_expire_with_time_or_on_demand() {
    let auth = server().await;
    auth.configure(|options| options.access_lifetime = Duration::from_millis(50));
    let short = login(&auth).await;
    assert_eq!(short["expires_in"], 1);
    tokio::time::sleep(Duration::from_millis(60)).await;
    let access = auth.introspect(&text(&short, "access_token"));
    assert_eq!(access, Err(TokenProblem::Expired));

    auth.configure(|options| options.access_lifetime = Duration::from_secs(60));
    let long = login(&auth).await;
    assert_eq!(auth.expire_access_tokens(), 1);
    let access = auth.introspect(&text(&long, "access_token"));
    assert_eq!(access, Err(TokenProblem::Expired));
    assert_eq!(
        refresh(&auth, &text(&long, "refresh_token")).await.status,
        200
    );
}

#[tokio::test]
async fn revoked_tokens_are_refused() {
    let auth = server().await;
    let tokens = login(&auth).await;
    let (access, token) = (
        text(&tokens, "access_token"),
        text(&tokens, "refresh_token"),
    );
    assert!(auth.revoke_refresh_token(&token));
    assert_eq!(
        refresh(&auth, &token).await.json()["error"],
        "invalid_grant"
    );
    assert!(auth.introspect(&access).is_ok());

    let tokens = login(&auth).await;
    let (access, token) = (
        text(&tokens, "access_token"),
        text(&tokens, "refresh_token"),
    );
    let form = [("client_id", CLIENT), ("token", token.as_str())];
    assert_eq!(post(&auth.url(Endpoint::Revoke), &form).await.status, 200);
    assert_eq!(auth.introspect(&access), Err(TokenProblem::Revoked));
}

#[tokio::test]
async fn tokens_can_be_issued_without_a_login() {
    let auth = server().await;
    let (access, token) = auth.issue_tokens(CLIENT, &["mcp"], None);
    assert!(auth.introspect(&access).is_ok());
    assert_eq!(refresh(&auth, &token).await.status, 200);
    let second = Duration::from_secs(1);
    auth.wait_for_requests(Endpoint::Token, 1, second).await;
    let rotated = auth.wait_for_counters(second, "a rotation", |it| it.rotated == 1);
    assert_eq!(rotated.await.refresh_issued, 2);
}

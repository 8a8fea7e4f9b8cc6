//! Each fault does what its description says.

use std::time::{Duration, Instant};

use mcpvisor_testkit::auth_server::{AuthFault, AuthServer, Endpoint, list_auth_faults};
use serde_json::{Value, json};

use crate::plain_client::{
    authorize, code, get, login, redeem, refresh, server, text, try_refresh,
};

const MANUAL: &str = include_str!("../../../../docs/badserver.md");

/// A server, and a refresh token of it.
async fn logged_in() -> (AuthServer, String) {
    let auth = server().await;
    let token = text(&login(&auth).await, "refresh_token");
    (auth, token)
}

fn metadata_url(auth: &AuthServer) -> String {
    format!("{}/.well-known/oauth-authorization-server", auth.issuer())
}

/// The metadata with one fault.
async fn metadata(auth: &AuthServer, fault: AuthFault) -> Value {
    auth.fault(fault).once();
    get(&metadata_url(auth)).await.json()
}

/// The reply to a refresh with one fault.
async fn refreshed(fault: AuthFault) -> (u16, Value) {
    let (auth, token) = logged_in().await;
    auth.fault(fault).once();
    let reply = refresh(&auth, &token).await;
    (reply.status, reply.json())
}

#[test]
fn every_fault_can_be_parsed_and_is_in_the_manual() {
    let (_, section) = MANUAL.split_once("## The authorization server").unwrap();
    for (usage, line) in list_auth_faults() {
        let name = usage.split(['[', ' ']).next().unwrap();
        assert!(name.parse::<AuthFault>().is_ok(), "{name}");
        let row = section.lines().find(|row| {
            row.starts_with(&format!("| `{name}`")) || row.starts_with(&format!("| `{name}="))
        });
        let row = row.unwrap_or_else(|| panic!("{name} is not in the manual"));
        assert!(row.contains(line), "{row}: {line}");
    }
    assert_eq!("status=418".parse(), Ok(AuthFault::Status(418)));
    assert!("status=x".parse::<AuthFault>().is_err());
    assert!("created=1".parse::<AuthFault>().is_err());
    assert!("nothing".parse::<AuthFault>().is_err());
}

#[tokio::test]
async fn a_slow_endpoint_waits_before_it_processes_the_request() {
    let (auth, token) = logged_in().await;
    let delay = Duration::from_millis(500);
    auth.fault(AuthFault::Delay(delay)).once();
    let started = Instant::now();
    let (reply, ()) = tokio::join!(refresh(&auth, &token), async {
        auth.wait_for_requests(Endpoint::Token, 2, delay).await;
        assert_eq!(auth.counters().rotated, 0);
    });
    assert_eq!((reply.status, auth.counters().rotated), (200, 1));
    assert!(started.elapsed() >= delay);
    assert_eq!(auth.most_token_requests(), 1);
}

#[tokio::test]
async fn a_slow_answer_comes_after_the_request_is_processed() {
    let (auth, token) = logged_in().await;
    auth.fault(AuthFault::DelayAnswer(Duration::from_secs(60)))
        .once();
    let rotation =
        auth.wait_for_counters(Duration::from_secs(5), "a rotation", |it| it.rotated == 1);
    tokio::select! {
        reply = refresh(&auth, &token) => panic!("answered first: {reply:?}"),
        _ = rotation => {}
    }
}

#[tokio::test]
async fn a_dropped_connection_loses_the_request_or_the_answer() {
    let (auth, token) = logged_in().await;
    auth.fault(AuthFault::DropBefore).once();
    assert!(try_refresh(&auth, &token).await.is_err());
    assert_eq!(auth.counters().rotated, 0);
    auth.fault(AuthFault::DropAfter).once();
    assert!(try_refresh(&auth, &token).await.is_err());
    assert_eq!(auth.counters().rotated, 1);
    let requests = auth.requests_to(Endpoint::Token);
    assert_eq!(requests.last().unwrap().status, None);
    assert_eq!(auth.injected(), 2);
}

#[tokio::test]
async fn refusals_last_as_long_as_ordered_and_lose_no_token() {
    let (auth, token) = logged_in().await;
    auth.fault(AuthFault::Status(500)).times(2);
    auth.fault(AuthFault::TooManyRequests(7)).once();
    auth.fault(AuthFault::Unavailable(8)).once();
    auth.fault(AuthFault::InvalidGrant(401)).once();
    auth.fault(AuthFault::InvalidClient).once();
    for (status, after, error) in [
        (500, None, None),
        (500, None, None),
        (429, Some("7"), None),
        (503, Some("8"), None),
        (401, None, Some("invalid_grant")),
        (401, None, Some("invalid_client")),
        (200, None, None),
    ] {
        let reply = refresh(&auth, &token).await;
        assert_eq!((reply.status, reply.header("retry-after")), (status, after));
        if let Some(error) = error {
            assert_eq!(reply.json()["error"], error);
        }
    }
}

#[tokio::test]
async fn one_refresh_token_can_be_refused() {
    let (auth, token) = logged_in().await;
    let other = text(&login(&auth).await, "refresh_token");
    auth.fault(AuthFault::InvalidGrantFor(token.clone()))
        .for_ever();
    assert_eq!(
        refresh(&auth, &token).await.json()["error"],
        "invalid_grant"
    );
    assert_eq!(refresh(&auth, &other).await.status, 200);
    auth.disarm();
    assert_eq!(refresh(&auth, &token).await.status, 200);
}

#[tokio::test]
async fn a_fault_can_be_limited_to_a_grant_type() {
    let auth = server().await;
    auth.fault(AuthFault::Status(500))
        .grant("refresh_token")
        .for_ever();
    let tokens = login(&auth).await;
    assert_eq!(
        refresh(&auth, &text(&tokens, "refresh_token")).await.status,
        500
    );
}

#[tokio::test]
async fn replies_of_the_token_endpoint_can_be_odd() {
    let (status, reply) = refreshed(AuthFault::Created).await;
    assert_eq!(
        (status, reply["token_type"].as_str()),
        (201, Some("Bearer"))
    );
    let (_, reply) = refreshed(AuthFault::ExpiresInString).await;
    assert_eq!(reply["expires_in"], "3600");
    let (_, reply) = refreshed(AuthFault::ExpiresInFloat).await;
    assert_eq!(reply["expires_in"], 3600.5);
    let (_, reply) = refreshed(AuthFault::NoExpiresIn).await;
    assert_eq!(reply.get("expires_in"), None);
    let (_, reply) = refreshed(AuthFault::MacToken).await;
    assert_eq!(reply["token_type"], "mac");
    let (_, reply) = refreshed(AuthFault::ReducedScope("less".to_owned())).await;
    assert_eq!(reply["scope"], "less");

    let (auth, token) = logged_in().await;
    auth.fault(AuthFault::Garbage).once();
    let reply = refresh(&auth, &token).await;
    assert!(
        serde_json::from_str::<Value>(&reply.body).is_err(),
        "{reply:?}"
    );
    assert_eq!(auth.counters().rotated, 1);
}

#[tokio::test]
async fn a_refresh_without_a_refresh_token_keeps_the_old_one() {
    let (auth, token) = logged_in().await;
    auth.fault(AuthFault::NoRefreshToken).once();
    let reply = refresh(&auth, &token).await.json();
    assert_eq!(reply.get("refresh_token"), None);
    assert_eq!(refresh(&auth, &token).await.status, 200);
}

#[tokio::test]
async fn a_token_can_expire_at_once() {
    let (auth, token) = logged_in().await;
    auth.fault(AuthFault::ExpiredAtOnce).once();
    let reply = refresh(&auth, &token).await.json();
    assert_eq!(reply["expires_in"], 3600);
    assert!(auth.introspect(&text(&reply, "access_token")).is_err());
}

#[tokio::test]
async fn faults_of_different_kinds_combine() {
    let (auth, token) = logged_in().await;
    auth.fault(AuthFault::Created).once();
    auth.fault(AuthFault::NoExpiresIn).once();
    let reply = refresh(&auth, &token).await;
    assert_eq!(reply.status, 201);
    assert_eq!(reply.json().get("expires_in"), None);
}

#[tokio::test]
async fn metadata_can_lie() {
    let auth = server().await;
    let document = metadata(&auth, AuthFault::WrongIssuer).await;
    assert_ne!(document["issuer"], auth.issuer());
    assert_eq!(document["token_endpoint"], auth.url(Endpoint::Token));
    let document = metadata(&auth, AuthFault::NoS256).await;
    assert_eq!(
        document["code_challenge_methods_supported"],
        json!(["plain"])
    );
    let document = metadata(&auth, AuthFault::NoPkce).await;
    assert_eq!(document.get("code_challenge_methods_supported"), None);
    let link_local = AuthFault::EndpointsAt("http://169.254.169.254".to_owned());
    let document = metadata(&auth, link_local).await;
    assert_eq!(document["token_endpoint"], "http://169.254.169.254/token");
    assert_eq!(
        document["registration_endpoint"],
        "http://169.254.169.254/register"
    );
    let document = metadata(&auth, AuthFault::ScriptEndpoints).await;
    assert!(text(&document, "authorization_endpoint").starts_with("javascript:"));
}

#[tokio::test]
async fn metadata_can_redirect_or_never_end() {
    let auth = server().await;
    let url = metadata_url(&auth);
    let target = "http://169.254.169.254/latest".to_owned();
    auth.fault(AuthFault::Redirect(target.clone())).once();
    let reply = get(&url).await;
    assert_eq!(
        (reply.status, reply.header("location")),
        (307, Some(target.as_str()))
    );

    auth.fault(AuthFault::RedirectLoop).for_ever();
    let mut here = url.clone();
    for _ in 0..3 {
        let reply = get(&here).await;
        assert_eq!(reply.status, 307);
        let next = format!(
            "http://{}{}",
            auth.address(),
            reply.header("location").unwrap()
        );
        assert_ne!(next, here);
        here = next;
    }
    auth.disarm();

    auth.fault(AuthFault::Endless).once();
    assert!(get(&url).await.body.len() > 200 * 1024);
    auth.fault(AuthFault::Drip(Duration::from_millis(300)))
        .once();
    let drip = tokio::time::timeout(Duration::from_secs(1), get(&url)).await;
    assert!(drip.is_err(), "the document ended: {drip:?}");
}

#[tokio::test]
async fn callbacks_can_lie() {
    let auth = server().await;
    let issuer = auth.issuer();
    auth.fault(AuthFault::WrongIss).once();
    let callback = authorize(&auth, &[]).await.callback();
    assert!(callback.get("iss").is_some_and(|iss| iss != issuer));
    auth.fault(AuthFault::NoIss).once();
    assert_eq!(authorize(&auth, &[]).await.callback().get("iss"), None);
    auth.fault(AuthFault::WrongState).once();
    assert_ne!(
        authorize(&auth, &[]).await.callback().get("state"),
        Some("a state")
    );
    auth.fault(AuthFault::AccessDenied).once();
    let callback = authorize(&auth, &[]).await.callback();
    assert_eq!(
        (callback.get("error"), callback.get("code")),
        (Some("access_denied"), None)
    );

    auth.fault(AuthFault::UnexpectedIss).for_ever();
    let document = get(&metadata_url(&auth)).await.json();
    assert_eq!(
        document["authorization_response_iss_parameter_supported"],
        false
    );
    let callback = authorize(&auth, &[]).await.callback();
    assert!(callback.get("iss").is_some_and(|iss| iss != issuer));
}

#[tokio::test]
async fn a_mixed_up_callback_carries_the_code_of_the_other_issuer() {
    let (auth, other) = (server().await, server().await);
    let foreign = code(&other, &[]).await;
    auth.fault(AuthFault::MixUp {
        issuer: other.issuer(),
        code: foreign.clone(),
    })
    .once();
    let callback = authorize(&auth, &[]).await.callback();
    assert_eq!(callback.get("code"), Some(foreign.as_str()));
    assert_eq!(callback.get("iss"), Some(other.issuer().as_str()));
    assert_eq!(
        redeem(&auth, &foreign).await.json()["error"],
        "invalid_grant"
    );
    assert_eq!(redeem(&other, &foreign).await.status, 200);
}

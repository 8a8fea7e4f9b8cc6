//! Refresh tokens that are rejected: a person has to log in, in any process.

use std::time::{Duration, Instant};

use mcpvisor::{Action, CallError, EventKind, FaultClass, Known, NotSentReason, StateName};
use mcpvisor_testkit::auth_server::{AuthFault, AuthOptions, Endpoint, ProtectedOptions};

use crate::browser::open_in_browser;
use crate::fleet::{next_event, reaches};
use crate::folder::{new_login, refresh_token};
use crate::protected::{LONG, Protected, run, run_many};

/// A connected server whose login is rejected when its token expires.
async fn reject_login(protected: &Protected) {
    let record = protected.record().await;
    assert!(protected.auth.revoke_refresh_token(&refresh_token(&record)));
    protected.auth.expire_access_tokens();
}

#[tokio::test]
async fn a_login_that_cannot_be_renewed_is_noticed_without_a_call() {
    let options = AuthOptions {
        access_lifetime: Duration::from_secs(3),
        ..AuthOptions::default()
    };
    let protected = Protected::with(options, ProtectedOptions::default()).await;
    let mut record = protected.log_in().await;
    record.tokens.expires_at = Some(record.tokens.obtained_at + 3);
    protected.folder.save(&record).await;
    assert!(protected.auth.revoke_refresh_token(&refresh_token(&record)));
    let (runtime, handle) = protected.connected().await;
    // The keepalive would notice it after a minute.
    let failed = reaches(&handle, StateName::PermanentlyFailed);
    let failed = tokio::time::timeout(Duration::from_secs(40), failed);
    failed.await.expect("before the keepalive");
    assert_eq!(
        handle.status().last_error.unwrap().class,
        FaultClass::Authorization
    );
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_rejected_login_fails_the_server_at_once_and_a_login_elsewhere_heals_it() {
    let protected = Protected::new().await;
    protected.log_in().await;
    let (runtime, handle) = protected.connected().await;
    run(&handle, "before").await.unwrap();
    let mut events = runtime.events();
    reject_login(&protected).await;
    for outcome in run_many(&handle, "refused", 16).await {
        let error = outcome.unwrap_err();
        // Those that came after the failure were not sent.
        assert!(
            matches!(error.known(), Known::Refused | Known::NotSent),
            "{error}"
        );
    }
    let fault = next_event(&mut events, |event| match &event.kind {
        EventKind::StateChanged { to, fault, .. } if *to == StateName::PermanentlyFailed => {
            fault.clone()
        }
        _ => None,
    })
    .await;
    assert_eq!(fault.class, FaultClass::Authorization);
    let issuer = protected.auth.issuer();
    let rejected = format!("the login was rejected by {issuer} (invalid_grant");
    assert!(fault.message.starts_with(&rejected), "{fault}");
    let status = handle.status();
    assert_eq!(status.state, StateName::PermanentlyFailed);
    let scopes = vec!["mcp".to_owned()];
    assert_eq!(status.action, Some(Action::Login { scopes }));
    let started = Instant::now();
    let error = run(&handle, "not sent").await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(5), "at once");
    let CallError::NotSent { reason, .. } = &error else {
        panic!("{error:?}");
    };
    assert!(
        matches!(
            reason,
            NotSentReason::Failed {
                action: Action::Login { .. },
                ..
            }
        ),
        "{reason:?}"
    );
    assert_eq!(
        protected.refreshes(),
        1,
        "a rejected token is not tried again"
    );
    assert!(protected.record().await.rejected.is_some());

    let used = status.attempts_used;
    protected.log_in().await;
    reaches(&handle, StateName::Connected).await;
    assert_eq!(handle.status().attempts_used, used, "the budget is unused");
    run(&handle, "after").await.unwrap();
    assert_eq!(protected.server.runs("before"), 1);
    assert_eq!(protected.server.all_runs(), 2);
    assert_eq!(handle.status().last_error, None);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn only_the_rejected_login_is_marked() {
    let protected = Protected::new().await;
    protected.log_in().await;
    let other = Protected::new().await;
    let other_login = new_login(&other.auth, &other.server, &["mcp"]);
    protected.folder.save(&other_login).await;
    let (runtime, [handle, neighbour]) = protected.connected_beside(&other).await;
    reject_login(&protected).await;
    run(&handle, "refused").await.unwrap_err();
    reaches(&handle, StateName::PermanentlyFailed).await;
    run(&neighbour, "works").await.unwrap();
    let stored = protected.folder.record_of(&other.server.url()).await;
    assert_eq!(stored, other_login);
    assert_eq!(other.refreshes(), 0);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_newer_token_of_the_store_is_used_instead_of_a_refresh() {
    let protected = Protected::new().await;
    let old = protected.log_in().await;
    let (runtime, web) = protected.connected().await;
    let new = protected.log_in().await;
    let revoked = old.tokens.access.expose();
    assert!(protected.auth.revoke_access_token(revoked));
    for outcome in run_many(&web, "adopted", 16).await {
        outcome.unwrap();
    }
    assert_eq!(protected.refreshes(), 0);
    assert_eq!(protected.record().await, new);
    protected.assert_untouched(&web);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_login_that_is_saved_during_a_rejected_refresh_is_not_touched() {
    let protected = Protected::new().await;
    let old = protected.log_in().await;
    let (runtime, web) = protected.connected().await;
    let auth = &protected.auth;
    let pause = AuthFault::Delay(Duration::from_secs(1));
    auth.fault(pause).on(Endpoint::Token).once();
    auth.revoke_refresh_token(&refresh_token(&old));
    auth.expire_access_tokens();
    let call = tokio::spawn(async move { run(&web, "adopted").await });
    auth.wait_for_requests(Endpoint::Token, 1, LONG).await;
    // Without the lock, as a restored backup would.
    let new = protected.log_in().await;
    call.await.unwrap().unwrap();
    assert_eq!(protected.record().await, new);
    assert_eq!(protected.refreshes(), 1);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_login_with_the_browser_heals_a_server_of_another_runtime() {
    let options = AuthOptions {
        any_loopback_port: true,
        ..AuthOptions::default()
    };
    let protected = Protected::with(options, ProtectedOptions::default()).await;
    let (runtime, handle) = protected.started().await;
    reaches(&handle, StateName::PermanentlyFailed).await;
    let (elsewhere, other) = protected.started().await;
    reaches(&other, StateName::PermanentlyFailed).await;
    let login = other.login().unwrap().begin().await.unwrap();
    let url = login.authorization_url().to_owned();
    let browser = tokio::spawn(open_in_browser(url));
    let record = login.finish(LONG).await.unwrap();
    assert_eq!(browser.await.unwrap(), 200);
    assert_eq!(record.scopes, ["mcp"]);
    for handle in [&handle, &other] {
        reaches(handle, StateName::Connected).await;
        run(handle, handle.status().instance.to_string().as_str())
            .await
            .unwrap();
    }
    let logins = handle.accounts().await.unwrap().logins;
    assert_eq!(logins.len(), 1);
    assert_eq!((logins[0].store, logins[0].in_use), ("file", true));
    runtime.shutdown(LONG).await;
    elsewhere.shutdown(LONG).await;
}

#[tokio::test]
async fn a_client_that_the_issuer_forgot_is_registered_again_by_the_next_login() {
    let protected = Protected::new().await;
    protected.log_in().await;
    let (runtime, handle) = protected.connected().await;
    let auth = &protected.auth;
    auth.fault(AuthFault::InvalidClient)
        .on(Endpoint::Token)
        .once();
    auth.expire_access_tokens();
    run(&handle, "refused").await.unwrap_err();
    reaches(&handle, StateName::PermanentlyFailed).await;
    assert!(protected.record().await.rejected.unwrap().client_unknown);
    let login = handle.login().unwrap().begin().await.unwrap();
    let url = login.authorization_url().to_owned();
    let browser = tokio::spawn(open_in_browser(url));
    login.finish(LONG).await.unwrap();
    assert_eq!(browser.await.unwrap(), 200);
    assert_eq!(auth.counters().clients_registered, 1);
    reaches(&handle, StateName::Connected).await;
    run(&handle, "after").await.unwrap();
    runtime.shutdown(LONG).await;
}
